// The seeded bugs of tests/bugs must not rot: each patch applies to the sources as they are now, changes one
// file that is compiled, and names the check that must catch it; tests/bugs/table.tsv says which of the 36 bugs, the
// 12 cheats and the unseen bugs it is, and leaves none out without a reason. That they are caught is shown on a
// device, by tests/bugs/run_bugs.sh.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/gate/cheating_trainer.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> patches(const char* folder = "tests/bugs") {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(fs::path(SOURCE_DIR) / folder))
    if (entry.path().extension() == ".patch") out.push_back(entry.path());
  return out;
}

std::vector<std::string> lines(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

std::string number_of(const fs::path& patch) {
  const std::string name = patch.filename().string();
  return name.substr(0, name.find('-'));
}
bool unseen(const fs::path& patch) { return std::stoi(number_of(patch)) > 100; }

// What the head of a patch says under `name`; empty when it does not say it.
std::string said(const fs::path& patch, const std::string& name) {
  for (const std::string& line : lines(patch)) {
    if (line.starts_with("--- ")) break;
    if (line.starts_with(name + ": ")) return line.substr(name.size() + 2);
  }
  return "";
}

// The trainer in whose gate a patch is built, as tests/bugs/CMakeLists.txt has it.
std::string trainer_of(const fs::path& patch) {
  const std::string named = said(patch, "Trainer");
  if (!named.empty()) return named;
  for (const std::string& line : lines(patch))
    if (line.starts_with("+++ b/")) return line.substr(6, line.find('/', 6) - 6);
  return "";
}

const std::set<std::string> kClasses{"sizes", "steps", "late steps", "wiring", "values", "luck"};

TEST(Bugs, ThereAreAtLeastTwelveWithNumbersOfTheirOwn) {
  std::set<std::string> numbers;
  for (const fs::path& patch : patches()) numbers.insert(number_of(patch));
  EXPECT_GE(numbers.size(), 12u);
  EXPECT_EQ(numbers.size(), patches().size());
}

TEST(Bugs, EachPatchAppliesToTheSourcesAsTheyAre) {
  for (const char* folder : {"tests/bugs", "tests/ranks/bugs"}) {
    const auto all = patches(folder);
    EXPECT_GE(all.size(), 20u) << folder;
    for (const fs::path& patch : all) {
      const std::string command = "git -C '" + std::string(SOURCE_DIR) + "' apply --check '" + patch.string() + "'";
      EXPECT_EQ(std::system(command.c_str()), 0) << patch << ": write it again for the changed kernel";
    }
  }
}

TEST(Bugs, EachPatchNamesItsCheckAndChangesOneCompiledFileOfTheTrainer) {
  for (const fs::path& patch : patches()) {
    const auto text = lines(patch);
    ASSERT_GE(text.size(), 6u) << patch;
    EXPECT_EQ(text[0].find("Caught-by: "), 0u) << patch;
    if (!unseen(patch)) {
      EXPECT_GT(text[0].size(), 15u) << patch;
    }
    EXPECT_EQ(text[1].find("Bug: "), 0u) << patch;
    int files = 0;
    for (const std::string& line : text) {
      if (line.rfind("+++ ", 0) != 0) continue;
      ++files;
      EXPECT_TRUE(line.starts_with("+++ b/fp32/") || line.starts_with("+++ b/mixed/") ||
                  (line.starts_with("+++ b/gpt2/") && !said(patch, "Trainer").empty()))
          << patch;
      // A header names the one file that is compiled with it.
      const std::string named = said(patch, "Compiled");
      const fs::path compiled = named.empty() ? line.substr(6) : named;
      EXPECT_TRUE(compiled.extension() == ".cu" || compiled.extension() == ".cpp") << patch << ": " << compiled << " is not compiled";
      EXPECT_TRUE(fs::exists(fs::path(SOURCE_DIR) / compiled)) << patch << ": " << compiled;
    }
    EXPECT_EQ(files, 1) << patch;
  }
}

TEST(Bugs, EachUnseenOneSaysItsClassAndWhenItShowsAndLeavesTheCheckOpen) {
  for (const fs::path& patch : patches()) {
    if (!unseen(patch)) continue;
    EXPECT_EQ(said(patch, "Caught-by"), "any") << patch;
    EXPECT_TRUE(kClasses.contains(said(patch, "Class"))) << patch << ": " << said(patch, "Class");
    EXPECT_FALSE(said(patch, "When").empty()) << patch;
  }
}

struct TableRow {
  std::string kind, number, what, bug_class;
  std::vector<std::string> fp32, mixed;  // patches; empty: `fp32_reason`, `mixed_reason` say why
  std::string fp32_reason, mixed_reason;
};

std::vector<TableRow> table() {
  std::vector<TableRow> rows;
  const auto cell = [](const std::string& text, std::vector<std::string>& into, std::string& reason) {
    if (text.starts_with("-")) {
      reason = text.size() > 2 ? text.substr(2) : "";
      return;
    }
    std::istringstream names(text);
    for (std::string one; std::getline(names, one, ',');) into.push_back(one);
  };
  for (const std::string& line : lines(fs::path(SOURCE_DIR) / "tests/bugs/table.tsv")) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    TableRow r;
    std::string fp32, mixed;
    std::getline(in, r.kind, '\t');
    std::getline(in, r.number, '\t');
    std::getline(in, r.what, '\t');
    std::getline(in, fp32, '\t');
    std::getline(in, mixed, '\t');
    std::getline(in, r.bug_class, '\t');
    cell(fp32, r.fp32, r.fp32_reason);
    cell(mixed, r.mixed, r.mixed_reason);
    rows.push_back(r);
  }
  return rows;
}

TEST(BugTable, HoldsTheThirtySixBugsOnceEachWithAPatchAndNoneIsLeftOutWithoutAReason) {
  std::map<std::string, int> seen;
  for (const TableRow& r : table()) {
    if (r.kind != "bug") continue;
    ++seen[r.number];
    EXPECT_FALSE(r.fp32.empty() && r.mixed.empty()) << r.what << ": no trainer has a patch for it";
    EXPECT_TRUE(!r.fp32.empty() || r.fp32_reason.size() > 20) << r.what << ": why has fp32 no patch?";
    EXPECT_TRUE(!r.mixed.empty() || r.mixed_reason.size() > 20) << r.what << ": why has mixed no patch?";
  }
  EXPECT_EQ(seen.size(), 36u);
  for (int i = 1; i <= 36; ++i) EXPECT_EQ(seen[std::to_string(i)], 1) << "row " << i;
}

TEST(BugTable, HoldsAtLeastFortyUnseenBugsInSixClassesEachWithAPatchAndNoneLeftOutWithoutAReason) {
  std::map<std::string, int> of_class;
  std::set<std::string> numbers;
  int count = 0;
  for (const TableRow& r : table()) {
    if (r.kind != "unseen") continue;
    ++count;
    ++of_class[r.bug_class];
    EXPECT_TRUE(numbers.insert(r.number).second) << "row " << r.number << " twice";
    EXPECT_TRUE(kClasses.contains(r.bug_class)) << r.what << ": " << r.bug_class;
    EXPECT_FALSE(r.fp32.empty() && r.mixed.empty()) << r.what << ": no trainer has a patch for it";
    EXPECT_TRUE(!r.fp32.empty() || r.fp32_reason.size() > 20) << r.what << ": why has fp32 no patch?";
    EXPECT_TRUE(!r.mixed.empty() || r.mixed_reason.size() > 20) << r.what << ": why has mixed no patch?";
    for (const auto* stems : {&r.fp32, &r.mixed})
      for (const std::string& stem : *stems) {
        const fs::path patch = fs::path(SOURCE_DIR) / "tests/bugs" / (stem + ".patch");
        EXPECT_TRUE(unseen(patch)) << stem;
        EXPECT_EQ(said(patch, "Class"), r.bug_class) << stem;
      }
  }
  EXPECT_GE(count, 40);
  for (const std::string& name : kClasses) EXPECT_GE(of_class[name], 5) << name;
}

TEST(BugTable, NamesEveryPatchOnceAndUnderTheTrainerThatItChanges) {
  std::map<std::string, std::string> in_table;
  for (const TableRow& r : table()) {
    for (const auto& [trainer, stems] : {std::pair("fp32", r.fp32), std::pair("mixed", r.mixed)})
      for (const std::string& stem : stems) {
        EXPECT_TRUE(in_table.emplace(stem, trainer).second) << stem << " is named twice";
      }
  }
  for (const fs::path& patch : patches()) {
    const std::string stem = patch.stem().string();
    ASSERT_TRUE(in_table.contains(stem)) << stem << " is in no row of table.tsv";
    EXPECT_EQ(trainer_of(patch), in_table[stem]) << stem;
  }
  EXPECT_EQ(in_table.size(), patches().size()) << "table.tsv names a patch that is not there";
}

TEST(BugTable, HoldsTheTwelveCheatsByTheNamesOfTheTrainersThatCheatSo) {
  std::vector<std::string> in_table, made;
  for (const TableRow& r : table())
    if (r.kind == "cheat") in_table.push_back(r.what);
  for (const gate_test::CheatCase& c : gate_test::cheats()) made.push_back(c.name);
  EXPECT_EQ(in_table, made);
  EXPECT_EQ(made.size(), 12u);
}

}  // namespace
