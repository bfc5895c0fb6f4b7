// Shared by the tests of files: a folder that is gone afterwards, whole files as bytes, and what a refusal says. In the namespace of
// base/atomic_file.h.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/errors.h"

namespace gpt2::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "stepscope-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::vector<std::byte> read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto* from = reinterpret_cast<const std::byte*>(text.data());
  return {from, from + text.size()};
}
inline void write_bytes(const std::filesystem::path& path, const std::vector<std::byte>& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(folder)) names.push_back(e.path().filename().string());
  return names;
}

// The statement must throw stepscope::InputError whose text has each of the parts.
#define EXPECT_INPUT_ERROR(statement, ...)                                                                       \
  do {                                                                                                           \
    try {                                                                                                        \
      statement;                                                                                                 \
      ADD_FAILURE() << #statement " accepted bad input";                                                         \
    } catch (const stepscope::InputError& error) {                                                               \
      for (const char* part : {__VA_ARGS__}) EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr(part)); \
    }                                                                                                            \
  } while (false)

}  // namespace gpt2::testing
