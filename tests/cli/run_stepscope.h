// Runs the built program as a user does: its exit code and both streams.
#pragma once
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#ifndef STEPSCOPE_PROGRAM
#define STEPSCOPE_PROGRAM "stepscope"
#endif

struct Outcome {
  int exit_code = -1;  // -1: killed
  std::string out, err;
};

inline std::string slurp(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::filesystem::path fresh_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "stepscope-test-XXXXXX").string();
  if (!mkdtemp(name.data())) std::abort();
  return name;
}

// The program of this build, or a changed copy of it (tests/mutants).
inline std::string stepscope_program() {
  const char* other = std::getenv("STEPSCOPE_TEST_PROGRAM");
  return other != nullptr ? other : BINARY_DIR "/bin/" STEPSCOPE_PROGRAM;
}

// `arguments` is shell text. GPU-free by default, so that a test means the same on every machine.
inline Outcome stepscope(const std::string& arguments, const std::string& environment = "CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=2") {
  const auto folder = fresh_folder();
  const std::string command = environment + " " + stepscope_program() + " " + arguments + " >" + (folder / "out").string() + " 2>" +
                              (folder / "err").string() + " </dev/null";
  const int status = std::system(command.c_str());
  Outcome o;
  if (WIFEXITED(status)) o.exit_code = WEXITSTATUS(status);
  o.out = slurp(folder / "out");
  o.err = slurp(folder / "err");
  std::filesystem::remove_all(folder);
  return o;
}
