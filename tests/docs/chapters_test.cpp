// The chapters of docs/learn, followed by somebody without a GPU: commands that need none are run as they are printed, in the order of the
// page, and a block of text behind commands holds lines that they print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "tests/cli/run_stepscope.h"

namespace {

namespace fs = std::filesystem;

// A fenced block of a page. `text`: it shows what the block before it prints.
struct Block {
  bool text = false;
  std::vector<std::string> lines;
};

std::string without_spaces_at_its_end(const std::string& line) { return line.substr(0, line.find_last_not_of(' ') + 1); }

std::vector<Block> blocks_of(std::istream& page) {
  std::vector<Block> out;
  size_t indent = 0;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    const size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos && line.compare(first, 3, "```") == 0) {
      inside = !inside;
      indent = first;
      if (inside) out.push_back({.text = line.substr(first) == "```text", .lines = {}});
    } else if (inside && !without_spaces_at_its_end(line).empty()) {
      out.back().lines.push_back(without_spaces_at_its_end(line.substr(std::min(indent, line.size()))));
    }
  }
  return out;
}

// Whether a line of a block is a command that ends well on any machine. What else begins with ./stepscope needs a GPU; CommandLines holds
// that its flags exist.
bool needs_no_gpu(const std::string& line) {
  static const std::regex here(
      R"(\./stepscope (report|diff python/|ingest|experiment (check|resample|run --a)|.*--trainer reference).*|(python3|c\+\+) .*|build/softmax|mkdir -p build)");
  return std::regex_match(line, here);
}

// Exit codes of commands whose page says that they say no.
const std::map<std::string, std::set<int>> kOtherExits = {
    {"build/softmax", {1}},  // `merged` is the reader's to correct
    {"./stepscope diff python/measured/profile_ours.json python/measured/profile_compiled.json --fail-if-slower 1", {1}},
    {"./stepscope experiment run --a", {0, 1, 4}},  // drawn processes: the same, faster, slower or undecided
};
std::set<int> exits_of(const std::string& line) {
  for (const auto& [begin, exits] : kOtherExits)
    if (line.starts_with(begin)) return exits;
  return {0};
}

fs::path root_of_a_reader() {
  const fs::path folder = fresh_folder(), source = SOURCE_DIR;
  for (const char* part : {"docs/learn", "python/measured", "tests/data/aa", "tests/ingest/data", "experiments/studies"}) {
    fs::create_directories((folder / part).parent_path());
    fs::copy(source / part, folder / part, fs::copy_options::recursive);
  }
  return folder;
}

Outcome run(const fs::path& folder, const std::string& line) {
  const bool ours = line.starts_with("./stepscope ");
  if (ours) fs::create_directories(folder / "build");  // as the launcher does
  const std::string inside = ours ? stepscope_program() + line.substr(11) : line;
  const fs::path script = folder / "line.sh";
  std::ofstream(script) << "cd '" << folder.string() << "'\nexport STEPSCOPE_ROOT='" << folder.string()
                        << "' CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=2\n(" << inside << ") >out 2>err </dev/null\n";
  const int status = std::system(("sh '" + script.string() + "'").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(folder / "out"), slurp(folder / "err")};
}

// Errors differ in their last digits between compilers.
std::string without_errors(const std::string& text) { return std::regex_replace(text, std::regex(R"([0-9]\.[0-9]e-[0-9]+)"), "error"); }

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> out;
  std::istringstream in(without_errors(text));
  for (std::string line; std::getline(in, line);) out.insert(without_spaces_at_its_end(line));
  return out;
}

class Chapters : public ::testing::TestWithParam<const char*> {};

TEST_P(Chapters, are_followed_without_a_gpu) {
  for (const char* tool : {"python3", "c++"})
    if (std::system(("command -v " + std::string(tool) + " >/dev/null").c_str()) != 0) GTEST_SKIP() << "no " << tool << " here";
  const fs::path folder = root_of_a_reader();
  std::ifstream page(fs::path(SOURCE_DIR) / "docs" / "learn" / GetParam());
  ASSERT_TRUE(page) << GetParam();
  std::set<std::string> printed;
  int commands = 0;
  for (const Block& block : blocks_of(page)) {
    if (block.text) {
      for (const std::string& line : block.lines) EXPECT_TRUE(printed.contains(without_errors(line))) << GetParam() << " shows\n" << line;
      continue;
    }
    printed.clear();
    for (const std::string& line : block.lines) {
      if (!needs_no_gpu(line)) continue;
      ++commands;
      const Outcome o = run(folder, line);
      EXPECT_THAT(exits_of(line), ::testing::Contains(o.exit_code)) << GetParam() << ": " << line << "\n" << o.out << o.err;
      printed.merge(lines_of(o.out));
    }
  }
  EXPECT_GT(commands, 0) << "the reader of the pages finds none";
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(OfLearn, Chapters,
                         ::testing::Values("1-reading-a-profile.md", "5-classifier.md", "6-adamw.md", "7-measuring.md",
                                           "8-several-gpus.md"),
                         [](const auto& chapter) { return "chapter_" + std::string(chapter.param).substr(0, 1); });

TEST(ChapterBlocks, ATextBelongsToTheCommandsAboveIt) {
  std::istringstream page("```\n./stepscope report x\n```\nprose\n```text\nstep 1  \n```\n1. a list\n\n   ```\n   python3 y.py\n   ```\n");
  const std::vector<Block> blocks = blocks_of(page);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_FALSE(blocks[0].text);
  EXPECT_TRUE(blocks[1].text);
  EXPECT_THAT(blocks[1].lines, ::testing::ElementsAre("step 1"));
  EXPECT_THAT(blocks[2].lines, ::testing::ElementsAre("python3 y.py"));
  EXPECT_TRUE(needs_no_gpu("./stepscope train --trainer reference --steps 1"));
  EXPECT_FALSE(needs_no_gpu("./stepscope profile --steps 50"));
  EXPECT_FALSE(needs_no_gpu("./stepscope diff one.json two.json --by op"));
}

}  // namespace
