// The seeded bugs of tests/bugs must not rot: each patch applies to the kernels as they are now, changes one
// file that is compiled, and names the check that must catch it. That they are caught is shown on a device,
// by tests/bugs/run_bugs.sh.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> patches() {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(fs::path(SOURCE_DIR) / "tests/bugs"))
    if (entry.path().extension() == ".patch") out.push_back(entry.path());
  return out;
}

std::vector<std::string> lines(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(Bugs, ThereAreAtLeastTwelveWithNumbersOfTheirOwn) {
  std::set<std::string> numbers;
  for (const fs::path& patch : patches()) numbers.insert(patch.filename().string().substr(0, 2));
  EXPECT_GE(numbers.size(), 12u);
  EXPECT_EQ(numbers.size(), patches().size());
}

TEST(Bugs, EachPatchAppliesToTheSourcesAsTheyAre) {
  for (const fs::path& patch : patches()) {
    const std::string command =
        "git -C '" + std::string(SOURCE_DIR) + "' apply --check '" + patch.string() + "'";
    EXPECT_EQ(std::system(command.c_str()), 0)
        << patch.filename() << ": write it again for the changed kernel";
  }
}

TEST(Bugs, EachPatchNamesItsCheckAndChangesOneCompiledFileOfTheTrainer) {
  for (const fs::path& patch : patches()) {
    const auto text = lines(patch);
    ASSERT_GE(text.size(), 6u) << patch;
    EXPECT_EQ(text[0].find("Caught-by: "), 0u) << patch;
    EXPECT_GT(text[0].size(), 15u) << patch;
    EXPECT_EQ(text[1].find("Bug: "), 0u) << patch;
    int files = 0;
    for (const std::string& line : text) {
      if (line.rfind("+++ ", 0) != 0) continue;
      ++files;
      EXPECT_TRUE(line.starts_with("+++ b/fp32/") || line.starts_with("+++ b/mixed/")) << patch;
      const std::string extension = fs::path(line.substr(6)).extension().string();
      EXPECT_TRUE(extension == ".cu" || extension == ".cpp")
          << patch << ": a header would not be compiled in everywhere";
    }
    EXPECT_EQ(files, 1) << patch;
  }
}

}  // namespace
