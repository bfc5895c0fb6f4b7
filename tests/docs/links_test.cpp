// What a page says of other files holds: links and their anchors lead somewhere, files, flags and variants that it names exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_set>

#include "tests/docs/pages.h"

namespace docs_test {
namespace {

TEST(Links, OfEveryPageLeadSomewhere) {
  const std::regex link(R"(\]\(([^)#\s]*)(#[^)\s]*)?\))");
  std::map<fs::path, std::set<std::string>> anchors;
  int links = 0, into_a_page = 0;
  for (const fs::path& page : pages()) {
    const std::string text = read(page);
    for (auto it = std::sregex_iterator(text.begin(), text.end(), link); it != std::sregex_iterator(); ++it) {
      const std::string to = (*it)[1], anchor = (*it)[2];
      if (to.find("://") != std::string::npos) continue;
      ++links;
      const fs::path target = to.empty() ? page : (page.parent_path() / to).lexically_normal();
      EXPECT_TRUE(fs::exists(target)) << page << " links to " << to;
      if (anchor.empty() || target.extension() != ".md" || !fs::exists(target)) continue;
      ++into_a_page;
      if (!anchors.contains(target)) anchors[target] = anchors_of(read(target));
      EXPECT_TRUE(anchors[target].contains(anchor.substr(1))) << page << " links to " << to << anchor << ", which is no heading there";
    }
  }
  EXPECT_GT(links, 150);
  EXPECT_GT(into_a_page, 20);
}

TEST(Links, AnAnchorIsTheHeadingAsGitHubSpellsIt) {
  EXPECT_THAT(
      anchors_of("# Copy engines instead of NCCL's kernels\n```\n# a comment\n```\n### At the end: `all_reduce`\n## 3. A [link](x.md)\n"),
      ::testing::UnorderedElementsAre("copy-engines-instead-of-nccls-kernels", "at-the-end-all_reduce", "3-a-link"));
}

// GitHub divides a row at each | without a backslash, in code too, and drops what is too much.
TEST(Tables, HaveAsManyCellsInEveryRowAsInTheirHead) {
  const auto dividers = [](const std::string& line) {
    int n = 0;
    for (size_t i = 0; i < line.size(); ++i) n += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
    return n;
  };
  int rows = 0;
  for (const fs::path& page : pages()) {
    std::istringstream in(read(page));
    int head = 0;
    bool block = false;
    std::string line;
    for (int n = 1; std::getline(in, line); ++n) {
      if (line.starts_with("```")) block = !block;
      if (block || !line.starts_with('|')) {
        head = 0;
        continue;
      }
      const int cells = dividers(line);
      if (head == 0) head = cells;
      ++rows;
      EXPECT_EQ(cells, head) << page.lexically_relative(root()).string() << ":" << n;
    }
  }
  EXPECT_GT(rows, 1000);
}

// Files of other projects and of a reader, and one that a page proposes.
const std::set<std::string> kForeignFiles = {
    "train_gpt2_fp32.cu",
    "profile_gpt2cu.py",
    "dev/data/tinyshakespeare.py",
    "dev/data/tinystories.py",
    "hellaswag.py",
    "mmlu.py",
    "x.md",
    "my_training.py",
    "mixed/rows/linear_forward.h",
};

TEST(PageNames, FilesThatAPageNamesAreInTheTree) {
  const std::vector<std::string> tree = files_of_the_tree();
  const auto is_there = [&](const std::string& name) {
    return std::any_of(tree.begin(), tree.end(), [&](const std::string& f) { return f == name || f.ends_with("/" + name); });
  };
  // Whole words: neither a revision's file (`git show REV:FILE`) nor a pattern.
  const std::regex file(R"((^|[\s(])([A-Za-z0-9_][A-Za-z0-9_./-]*\.(?:h|cpp|cu|cuh|py|sh|md|yaml|yml|tsv|cmake|proto))(?=$|[\s,;:).]))");
  std::set<std::string> unused = kForeignFiles;
  int seen = 0;
  for (const fs::path& page : pages())
    for (const Code& code : inline_code(page))
      for (auto it = std::sregex_iterator(code.text.begin(), code.text.end(), file); it != std::sregex_iterator(); ++it) {
        const std::string name = (*it)[2];
        ++seen;
        if (kForeignFiles.contains(name)) {
          unused.erase(name);
          continue;
        }
        EXPECT_TRUE(is_there(name) || name.find("NAME") != std::string::npos) << code.where << ": `" << name << "`";
      }
  EXPECT_THAT(unused, ::testing::IsEmpty()) << "excused, but no page names it";
  EXPECT_GT(seen, 100);
}

// Names of other projects, of what a page says is gone, and those that a test puts together from its parameters.
const std::set<std::string> kForeignIdentifiers = {"save_pretrained",   "product_sms", "compiled_all",
                                                   "compiled_replaced", "fp32_peer",   "mixed_nccl"};

TEST(PageNames, IdentifiersThatAPageNamesAreInTheCode) {
  std::unordered_set<std::string> words;  // those with an underscore
  for (const std::string& name : files_of_the_tree()) {
    const std::string ending = fs::path(name).extension().string();
    static const std::set<std::string> kCode = {".cpp",   ".h",   ".cu",    ".cuh", ".py",   ".sh",
                                                ".cmake", ".txt", ".proto", ".js",  ".yaml", ".tsv"};
    if (!kCode.contains(ending) || name.starts_with("tests/docs/")) continue;
    const std::string text = read(root() / name);
    const auto of_a_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    for (size_t at = text.find('_'); at != std::string::npos; at = text.find('_', at)) {
      size_t begin = at;
      while (begin > 0 && of_a_word(text[begin - 1])) --begin;
      while (at < text.size() && of_a_word(text[at])) ++at;
      words.insert(text.substr(begin, at - begin));
    }
  }
  ASSERT_GT(words.size(), 5000u);
  const std::regex identifier(R"(^([a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?:\(\))?$)");
  std::set<std::string> unused = kForeignIdentifiers;
  int seen = 0;
  for (const fs::path& page : pages())
    for (const Code& code : inline_code(page)) {
      std::smatch m;
      if (!std::regex_match(code.text, m, identifier)) continue;
      ++seen;
      unused.erase(m[1]);
      EXPECT_TRUE(words.contains(m[1]) || kForeignIdentifiers.contains(m[1]))
          << code.where << ": `" << code.text << "` is nowhere in the code";
    }
  EXPECT_THAT(unused, ::testing::IsEmpty()) << "excused, but no page names it";
  EXPECT_GT(seen, 500);
}

// Flags of other programs that stand without their program, or of scripts in the tree.
const std::set<std::string> kForeignFlags = {"--cache-control", "--clock-control", "--replay-mode", "--resource-spec-file",
                                             "--set",           "--compiled",      "--replaced",    "--variants"};

TEST(PageNames, FlagsThatAPageNamesAreFlagsOfACommand) {
  std::set<std::string> known{"--help", "--version", "--long"};  // the last is the launcher's, of `test`
  const std::regex declared(R"re(add_(?:option|flag|argument|list)\w*\(\s*"([^"]*)")re"), flag(R"((^|[\s,\[("])(--[a-z][a-z0-9-]+))");
  std::vector<fs::path> sources;
  for (const char* folder : {"cli", "docs/learn", "docs/learn/exercises"})
    for (const auto& e : fs::directory_iterator(root() / folder)) sources.push_back(e.path());
  for (const fs::path& source : sources) {
    if (source.extension() != ".cpp" && source.extension() != ".h" && source.extension() != ".py") continue;
    const std::string text = read(source);
    for (auto it = std::sregex_iterator(text.begin(), text.end(), declared); it != std::sregex_iterator(); ++it) {
      const std::string names = (*it)[1];
      for (auto f = std::sregex_iterator(names.begin(), names.end(), flag); f != std::sregex_iterator(); ++f) known.insert((*f)[2]);
    }
  }
  ASSERT_GT(known.size(), 100u);
  const std::regex of_another_program(
      R"(^(ncu|nsys|nvidia-smi|cmake|compute-sanitizer|torchrun|build/release/bin/|python3|PYTHONPATH|tests/|ninja|git|pip|nvcc|gcc|ctest))");
  int seen = 0;
  for (const fs::path& page : pages())
    for (const Code& code : inline_code(page)) {
      if (std::regex_search(code.text, of_another_program)) continue;
      // The command of a verdict's day stands in its page; flags go with the procedure that had them.
      if (code.text.starts_with("stepscope experiment run --")) continue;
      for (auto it = std::sregex_iterator(code.text.begin(), code.text.end(), flag); it != std::sregex_iterator(); ++it) {
        const std::string name = (*it)[2];
        ++seen;
        EXPECT_TRUE(known.contains(name) || kForeignFlags.contains(name))
            << code.where << ": `" << code.text << "`: no command has " << name;
      }
    }
  EXPECT_GT(seen, 150);
}

TEST(PageNames, VariantsThatAPageNamesAreRowsOfATrainer) {
  const auto rows = rows_of_the_trainers();
  std::set<std::string> slots, known;
  for (const auto& [slot, names] : rows)
    for (const std::string& name : names) slots.insert(slot), known.insert(slot + "=" + name);
  ASSERT_GT(known.size(), 60u);
  const std::regex pair(R"((^|[^A-Za-z0-9_-])([a-z_0-9]+)=([a-z_0-9]+))");
  int seen = 0;
  for (const fs::path& page : pages()) {
    const std::string text = read(page);
    for (auto it = std::sregex_iterator(text.begin(), text.end(), pair); it != std::sregex_iterator(); ++it) {
      if (!slots.contains((*it)[2])) continue;
      ++seen;
      const std::string name = (*it)[2].str() + "=" + (*it)[3].str();
      EXPECT_TRUE(known.contains(name)) << page << " names " << name << ", which no trainer has";
    }
  }
  EXPECT_GT(seen, 100);
}

// The gate's checks and small models by name. `shape …`, `steps …` and `d12 …` stand there by a word each.
TEST(PageNames, EveryCheckOfTheGateStandsInItsPage) {
  const std::string page = read(root() / "docs/correctness-gate.md");
  const std::regex check(R"re(\{"([a-z][a-zA-Z0-9 ]*)", (?:"[^"]+"\}|tiny))re");
  int seen = 0;
  for (const char* file : {"experiments/gate/model_checks.cpp", "experiments/gate/workload.cpp"}) {
    const std::string code = read(root() / file);
    for (auto it = std::sregex_iterator(code.begin(), code.end(), check); it != std::sregex_iterator(); ++it) {
      const std::string name = (*it)[1];
      if (name.starts_with("shape ")) continue;
      ++seen;
      EXPECT_THAT(page, ::testing::HasSubstr("`" + name + "`")) << "no row of the table of checks names it";
    }
  }
  EXPECT_GT(seen, 40);
}

TEST(PageNames, APageOfAVerdictSaysNothingOfItsMachinesFolders) {
  const std::regex made_by("Made by `(stepscope [^`]*)`");
  int seen = 0;
  for (const auto& e : fs::recursive_directory_iterator(root() / "experiments/studies")) {
    const std::string text = e.path().filename() == "README.md" ? read(e.path()) : "";
    std::smatch m;
    if (!std::regex_search(text, m, made_by)) continue;
    ++seen;
    EXPECT_THAT(m[1].str(), ::testing::Not(::testing::HasSubstr("--out"))) << e.path() << ": `stepscope experiment index` leaves it out";
  }
  EXPECT_GT(seen, 10);
}

TEST(PageNames, FoldersOfCheckpointsAreSpelledAsTheProgramSpellsThem) {
  ASSERT_THAT(read(root() / "gpt2/training_state.cpp"), ::testing::HasSubstr(R"("step-{:08d}")"));
  const std::regex spelled(R"(^step-[0-9]{8}(\.kept-[0-9]+)?$)");
  int seen = 0;
  for (const Code& code : inline_code(root() / "docs/training.md")) {
    if (!code.text.starts_with("step-")) continue;
    ++seen;
    EXPECT_TRUE(std::regex_match(code.text, spelled)) << code.where << ": `" << code.text << "`";
  }
  EXPECT_GT(seen, 1);
}

TEST(PageNames, EveryReasonThatSlowsAGpuStandsWithItsWord) {
  const std::string code = read(root() / "base/nvml.h"), page = read(root() / "docs/metrics.md");
  const std::regex reason(R"re("([a-z_]+)", "[^"]+", true\})re");
  int seen = 0;
  for (auto it = std::sregex_iterator(code.begin(), code.end(), reason); it != std::sregex_iterator(); ++it, ++seen)
    EXPECT_THAT(page, ::testing::HasSubstr("`" + (*it)[1].str() + "`")) << "docs/metrics.md, throttle_reasons";
  EXPECT_GT(seen, 4);
}

TEST(PageNames, EveryFolderOfUnityBuildsStandsInThePage) {
  std::smatch sentence;
  const std::string page = read(root() / "docs/building.md");
  ASSERT_TRUE(std::regex_search(page, sentence, std::regex(R"(says which folders take part: ([^.]*)\.)")));
  int seen = 0;
  for (const auto& e : fs::directory_iterator(root())) {
    if (!std::regex_search(read(e.path() / "CMakeLists.txt"), std::regex(R"((^|\n)include\(Unity\))"))) continue;
    ++seen;
    EXPECT_THAT(sentence[1].str(), ::testing::HasSubstr("`" + e.path().filename().string() + "/`"));
  }
  EXPECT_GT(seen, 3);
}

TEST(PageNames, EveryStageStandsInTheArchitectureWithItsRank) {
  const std::string page = read(root() / "docs/architecture.md");
  const std::regex stage(R"(stepscope_stage\((\w+) RANK (\d+))");
  int seen = 0;
  for (const char* folder : {"base", "gpt2", "fp32", "mixed", "python", "profiler", "experiments"})
    for (const auto& e : fs::recursive_directory_iterator(root() / folder)) {
      if (e.path().filename() != "CMakeLists.txt" && e.path().extension() != ".cmake") continue;
      const std::string text = read(e.path());
      for (auto it = std::sregex_iterator(text.begin(), text.end(), stage); it != std::sregex_iterator(); ++it, ++seen)
        EXPECT_THAT(page, ::testing::HasSubstr("| " + (*it)[2].str() + " | `" + (*it)[1].str() + "` |")) << e.path();
    }
  EXPECT_GT(seen, 30);
}

}  // namespace
}  // namespace docs_test
