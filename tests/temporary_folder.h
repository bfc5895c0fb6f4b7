// A folder of one test, which nobody else has: process ids repeat, and tests of several containers may share /tmp.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

inline std::filesystem::path fresh_test_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "stepscope-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder " + name);
  return name;
}
