// A figure that stands in two places is the same in both, and what a page says of the experiments is what their files say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "tests/docs/pages.h"

namespace docs_test {
namespace {

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> out;
  std::istringstream in(row.substr(1, row.rfind('|') - 1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const size_t first = cell.find_first_not_of(' ');
    out.push_back(first == std::string::npos ? "" : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
  }
  return out;
}

// Rows of tables from a line that begins with `from` up to one that begins with `to`, without heads and rules.
std::vector<std::vector<std::string>> rows_between(const std::string& text, const std::string& from, const std::string& to) {
  std::vector<std::vector<std::string>> out;
  std::istringstream in(text);
  bool inside = from.empty();
  std::string line, before;
  while (std::getline(in, line)) {
    if (inside && !to.empty() && line.starts_with(to)) break;
    inside = inside || line.starts_with(from);
    if (!inside) continue;
    const bool rule = line.starts_with("|-") || line.starts_with("|:-");
    if (rule && !out.empty() && before.starts_with('|')) out.pop_back();
    if (!rule && line.starts_with('|')) out.push_back(cells_of(line));
    before = line;
  }
  return out;
}

// Numbers that are no part of a word (a revision, a version with two dots), as they are written.
std::vector<std::string> numbers_of(const std::string& text) {
  static const std::regex number(R"((^|[^A-Za-z0-9_.,])([0-9][0-9,]*(?:\.[0-9]+)?(?:e-?[0-9]+)?)(?![A-Za-z0-9_]|[.,][0-9]))");
  std::vector<std::string> out;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), number); it != std::sregex_iterator(); ++it) {
    std::string s = (*it)[2];
    if (s.ends_with(',')) s.pop_back();
    s.erase(std::remove(s.begin(), s.end(), ','), s.end());
    out.push_back(s);
  }
  return out;
}

int decimals_of(const std::string& number) {
  const size_t point = number.find('.');
  return point == std::string::npos ? 0 : static_cast<int>(number.size() - point - 1);
}

// Whether one of `numbers` is `figure`, rounded to the decimals of `figure`.
bool holds(const std::vector<std::string>& numbers, const std::string& figure) {
  if (figure.find('e') != std::string::npos) return std::find(numbers.begin(), numbers.end(), figure) != numbers.end();
  const double unit = std::pow(10.0, -decimals_of(figure));
  return std::any_of(numbers.begin(), numbers.end(), [&](const std::string& n) {
    return n.find('e') == std::string::npos && decimals_of(n) >= decimals_of(figure) &&
           std::abs(std::stod(n) - std::stod(figure)) <= 0.5001 * unit;
  });
}

TEST(Figures, OfTheReadmeStandInThePageThatTheirRowLinks) {
  const auto rows = rows_between(read(root() / "README.md"), "## Measured", "How the numbers compare");
  ASSERT_GT(rows.size(), 25u);
  const std::regex link(R"(\]\(([^)#]+)(#[^)]*)?\))");
  int figures = 0;
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 5u) << row.front();
    std::smatch m;
    ASSERT_TRUE(std::regex_search(row[4], m, link)) << row.front() << ": the row links no page";
    const std::vector<std::string> numbers = numbers_of(read(root() / m[1].str()));
    for (const std::string& figure : numbers_of(row[1])) {
      ++figures;
      EXPECT_TRUE(holds(numbers, figure)) << row.front() << ": " << figure << " does not stand in " << m[1].str();
    }
    EXPECT_THAT(row[3], ::testing::ContainsRegex("^2[0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]")) << row.front() << ": no date";
    EXPECT_LT(row[1].size(), 170u) << row.front() << ": one figure and one remark; the page has room for more";
  }
  EXPECT_GT(figures, 70);
}

TEST(Figures, AWrongOneIsFound) {
  const std::vector<std::string> page = numbers_of("7.792, 7.799 ms at B=4 (7ea16cf), 1,207,415 numbers, 9.6e-4 off, -28.96%.");
  EXPECT_TRUE(holds(page, "7.80"));
  EXPECT_TRUE(holds(page, "1207415"));
  EXPECT_TRUE(holds(page, "9.6e-4"));
  EXPECT_TRUE(holds(page, "29.0"));
  EXPECT_FALSE(holds(page, "7.81"));
  EXPECT_FALSE(holds(page, "9.7e-4"));
  EXPECT_FALSE(holds(page, "16")) << "a part of a revision is no figure";
}

// `B=64` -> what the experiment's file predicts for it; its line overrides what stands above the workloads.
std::optional<double> predicted(const std::string& file, const std::string& batch) {
  static const std::regex saving(R"(saving_ms: *([-+]?[0-9.]+))");
  std::smatch m;
  std::optional<double> out;
  if (std::regex_search(file, m, saving)) out = std::stod(m[1]);
  const std::regex workload("batch_size: " + batch + "[,}][^\n]*");
  if (!std::regex_search(file, m, workload)) return std::nullopt;
  const std::string line = m[0];
  if (std::regex_search(line, m, saving)) out = std::stod(m[1]);
  return out;
}

std::vector<std::string> experiments() {
  std::vector<std::string> out;
  for (const auto& e : fs::directory_iterator(root() / "experiments" / "studies"))
    if (e.path().extension() == ".yaml") out.push_back(e.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

TEST(Chain, HasARowForEveryExperimentOfTheMixedTrainerWithItsPrediction) {
  const auto rows = rows_between(read(root() / "docs/study/mixed-chain.md"), "| # | the change", "## Changes of two slots");
  const std::regex pair(R"(^([-+][0-9.]+) / ([-+]?[0-9.]+)$)");
  for (const std::string& name : experiments()) {
    if (!name.starts_with("mixed-") || name == "mixed-since-v1") continue;  // the whole way at once
    int found = 0;
    for (const auto& row : rows) {
      if (row.size() < 4 || row[2].find("studies/" + name + ".yaml") == std::string::npos) continue;
      ++found;
      std::smatch m;
      ASSERT_TRUE(std::regex_match(row[3], m, pair)) << name << ": " << row[3];
      const std::string file = read(root() / "experiments/studies" / (name + ".yaml"));
      const char* batches[] = {"4", "64"};
      for (size_t i = 0; i < 2; ++i) {
        const std::string cell = m[i + 1];
        const auto p = predicted(file, batches[i]);
        ASSERT_TRUE(p) << name << " has no workload with B=" << batches[i];
        EXPECT_NEAR(std::stod(cell), *p, 0.5001 * std::pow(10.0, -decimals_of(cell))) << name << " at B=" << batches[i];
      }
    }
    EXPECT_EQ(found, 1) << name << ": rows of docs/study/mixed-chain.md";
  }
}

// The table of verdicts: name and `B=64` -> predicted and measured saving in ms, as it is written there.
std::map<std::pair<std::string, std::string>, std::pair<std::string, std::string>> savings_of_the_verdicts() {
  const auto first_word = [](const std::string& s) { return s.substr(0, s.find(' ')); };
  const std::regex name(R"(^\[([^\]]+)\])"), batch("B=([0-9]+)");
  std::map<std::pair<std::string, std::string>, std::pair<std::string, std::string>> out;
  for (const auto& row : rows_between(read(root() / "docs/study/README.md"), "| experiment | change", "<!--")) {
    std::smatch n, b;
    if (row.size() != 13 || !std::regex_search(row[0], n, name) || !std::regex_search(row[2], b, batch)) continue;
    out[{n[1], b[1]}] = {first_word(row[10]), first_word(row[11])};
  }
  return out;
}

TEST(Chain, HasWhatTheVerdictsOfTheseFilesMeasured) {
  const auto verdicts = savings_of_the_verdicts();
  ASSERT_GT(verdicts.size(), 10u);
  const std::regex pair(R"(^([-+][0-9.]+) / ([-+]?[0-9.]+)$)"), name(R"(studies/([a-z0-9-]+)\.yaml)");
  int measured = 0;
  for (const auto& row : rows_between(read(root() / "docs/study/mixed-chain.md"), "| # | the change", "## Changes of two slots")) {
    std::smatch n, p;
    ASSERT_TRUE(row.size() == 6 && std::regex_search(row[2], n, name) && std::regex_match(row[3], p, pair)) << row.front();
    // A verdict with another prediction is of an older file.
    std::string expected;
    const char* batches[] = {"4", "64"};
    for (size_t i = 0; i < 2; ++i) {
      const auto v = verdicts.find({n[1], batches[i]});
      const std::string cell = p[i + 1];
      if (v == verdicts.end() || std::abs(std::stod(v->second.first) - std::stod(cell)) > 0.5001 * std::pow(10.0, -decimals_of(cell))) {
        expected = "not run";
        break;
      }
      expected += (i ? " / " : "") + v->second.second;
    }
    measured += expected != "not run";
    EXPECT_EQ(row[4], expected) << n[1];
  }
  EXPECT_GT(measured, 1);
}

// "-": the experiment has no such batch size.
TEST(Experiments, OfSeveralGpusStandInThePageWithWhatWasPredictedAndMeasured) {
  const auto verdicts = savings_of_the_verdicts();
  const auto rows = rows_between(read(root() / "docs/study/several-gpus-first-looks.md"), "| experiment | the change |", "So copies");
  const std::regex pair(R"(^(\S+) / (\S+)$)");
  int files = 0, measured = 0;
  for (const std::string& name : experiments()) {
    if (!name.starts_with("ranks-")) continue;
    ++files;
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.at(0).starts_with("[" + name + "]"); });
    std::smatch cells;
    ASSERT_TRUE(row != rows.end() && row->size() == 5 && std::regex_match(row->at(2), cells, pair)) << name;
    const std::string file = read(root() / "experiments/studies" / (name + ".yaml"));
    std::string expected;
    const char* batches[] = {"4", "64"};
    for (size_t i = 0; i < 2; ++i) {
      const auto p = predicted(file, batches[i]);
      EXPECT_EQ(cells[i + 1] != "-", p.has_value()) << name << " at B=" << batches[i];
      if (p && cells[i + 1] != "-") {
        EXPECT_DOUBLE_EQ(std::stod(cells[i + 1]), *p) << name << " at B=" << batches[i];
      }
      const auto v = verdicts.find({name, batches[i]});
      if (p && v == verdicts.end()) {
        expected = "not run";
        break;
      }
      expected += (i ? " / " : "") + (p ? v->second.second : "-");
    }
    EXPECT_EQ(row->at(3), expected) << name;
    measured += expected != "not run";
  }
  EXPECT_EQ(static_cast<int>(rows.size()), files);
  EXPECT_GE(measured, 5);
}

// All have the trainer's defaults for arm A, so one command gives them one process of it a round.
TEST(Experiments, OfTheMixedTrainersDefaultsAreCountedInTheTemplateForCi) {
  const std::vector<std::string> names = experiments();
  const auto studies = std::count_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("mixed-") &&
           read(root() / "experiments/studies" / (name + ".yaml")).find("\nbaseline: mixed") == std::string::npos;
  });
  EXPECT_THAT(read(root() / "docs/ci/stepscope.yml"),
              ::testing::HasSubstr("the " + std::to_string(studies) + " studies of the mixed trainer's defaults start " +
                                   std::to_string(studies + 1) + " processes a round"));
}

TEST(SeededBugs, OfRanksThatTakeTwoGpusStandInThePage) {
  std::set<std::string> needed, named;
  for (const auto& e : fs::directory_iterator(root() / "tests/ranks/bugs")) {
    const std::string name = e.path().filename().string();
    if (name.ends_with(".patch") && read(e.path()).find("\nNeeds: two GPUs") != std::string::npos)
      needed.insert(name.substr(0, name.find('-')));
  }
  std::smatch sentence;
  const std::string page = read(root() / "docs/several-gpus.md");
  ASSERT_TRUE(std::regex_search(page, sentence, std::regex(R"(([0-9, and]+) take two GPUs)")));
  for (const std::string& number : numbers_of(sentence[1])) named.insert(number);
  EXPECT_GT(needed.size(), 2u);
  EXPECT_EQ(named, needed);
}

TEST(Experiments, EachStandsInAPageOfTheStudy) {
  std::string study;
  for (const auto& e : fs::directory_iterator(root() / "docs/study")) study += read(e.path());
  for (const std::string& name : experiments())
    EXPECT_THAT(study, ::testing::HasSubstr("studies/" + name)) << "no page of docs/study links this experiment";
}

// The page of a verdict that its prediction missed says "the explanation below must say why".
TEST(Experiments, EveryPageSaysWhatItsVerdictShows) {
  for (const auto& e : fs::directory_iterator(root() / "experiments/studies"))
    if (const fs::path page = e.path() / "README.md"; fs::exists(page)) {
      EXPECT_THAT(read(page), ::testing::Not(::testing::HasSubstr("Not written yet."))) << page;
    }
}

TEST(Defaults, OfThePageAreThoseOfTheMixedTrainer) {
  const auto rows = rows_of("mixed");
  const std::regex name(R"(`([a-z_]+)=([a-z0-9_]+)`)");
  std::set<std::string> seen;
  for (const auto& row : rows_between(read(root() / "docs/study/mixed-defaults.md"), "", "## What stays the same")) {
    if (row.size() < 2) continue;
    const std::string& cell = row[0].starts_with('`') ? row[0] : row[1];  // "where they give way", or behind the numbers
    for (auto it = std::sregex_iterator(cell.begin(), cell.end(), name); it != std::sregex_iterator(); ++it) {
      const std::string slot = (*it)[1], variant = (*it)[2];
      seen.insert(slot);
      ASSERT_TRUE(rows.contains(slot)) << slot;
      EXPECT_EQ(rows.at(slot).front(), variant) << "the default of " << slot;
    }
  }
  EXPECT_EQ(seen.size(), 15u);
}

}  // namespace
}  // namespace docs_test
