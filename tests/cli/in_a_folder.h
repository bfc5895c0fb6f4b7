// A test in a folder of its own, which goes with the test.
#pragma once
#include <gtest/gtest.h>

#include "tests/cli/run_stepscope.h"

class InAFolder : public testing::Test {
 protected:
  ~InAFolder() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(file(name), std::ios::binary) << text; }
  std::filesystem::path folder_ = fresh_folder();
};
