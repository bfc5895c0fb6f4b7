// What every flag of every command takes. The flags are CLI11's own list (`stepscope --list-flags`), so a new
// flag is tested the day it is added; the command lines are parsed by the program and not run
// (`--parse-only`).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>
#include <vector>

#include "tests/cli/run_stepscope.h"
#include "tests/golden.h"

namespace {

using testing::HasSubstr;

struct Flag {
  std::string command, name, type;
  bool positional = false, hidden = false;
};

std::vector<Flag> all_flags() {
  std::vector<Flag> flags;
  std::istringstream lines(stepscope("--list-flags").out);
  for (std::string line; std::getline(lines, line);) {
    const auto j = nlohmann::json::parse(line);
    if (j.at("takes_value").get<bool>()) flags.push_back({j.at("command"), j.at("name"), j.at("type"), j.at("positional"), j.at("hidden")});
  }
  return flags;
}

bool is_whole(const Flag& f) { return f.type.starts_with("INT") || f.type.starts_with("UINT"); }
bool is_number(const Flag& f) { return is_whole(f) || f.type.starts_with("FLOAT"); }

struct Range {
  double low = 0, high = std::numeric_limits<double>::infinity();
  bool without_low = false, without_high = false;
  bool holds(double v) const { return (without_low ? v > low : v >= low) && (without_high ? v < high : v <= high); }
};

// The range as --help prints it behind the type: "INT:1 to 64", "INT:0 or more", "FLOAT:above 0 and below 1",
// "FLOAT:above 0 to 5".
std::optional<Range> documented_range(const Flag& f) {
  const size_t colon = f.type.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const std::string text = f.type.substr(colon + 1), number = "([-+.0-9e]+)";
  std::smatch m;
  Range r;
  if (std::regex_match(text, m, std::regex(number + " or more"))) {
    r.low = std::stod(m[1]);
  } else if (std::regex_match(text, m, std::regex("(above )?" + number + " to " + number))) {
    r.low = std::stod(m[2]);
    r.high = std::stod(m[3]);
    r.without_low = m[1].matched;
  } else if (std::regex_match(text, m, std::regex("above " + number + " and below " + number))) {
    r.low = std::stod(m[1]);
    r.high = std::stod(m[2]);
    r.without_low = r.without_high = true;
  } else {
    return std::nullopt;
  }
  return r;
}

struct Line {
  Flag flag;
  std::string value;
  bool allowed = false;
};

std::string words_of(const Line& l) {
  std::string line;
  for (const char c : l.flag.command) line += c == ' ' ? '\t' : c;
  line += line.empty() ? "" : "\t";
  if (l.flag.positional) return line + l.value;
  // "-inf" as a word of its own would be a flag -i.
  const bool like_a_flag = l.value.size() > 1 && l.value[0] == '-' && (l.value[1] == 'i' || l.value[1] == 'n');
  return line + l.flag.name + (like_a_flag ? "=" : "\t") + l.value;
}

struct Answer {
  int status = -1;
  std::string message;
};
std::vector<Answer> answers_to(const std::vector<Line>& lines) {
  const auto folder = fresh_folder();
  {
    std::ofstream out(folder / "lines");
    for (const Line& l : lines) out << words_of(l) << '\n';
  }
  const std::string command = stepscope_program() + " --parse-only <" + (folder / "lines").string() + " >" + (folder / "out").string();
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::vector<Answer> answers;
  std::istringstream in(slurp(folder / "out"));
  for (std::string line; std::getline(in, line);) {
    const size_t tab = line.find('\t');
    answers.push_back({std::atoi(line.c_str()), line.substr(tab + 1)});
  }
  std::filesystem::remove_all(folder);
  return answers;
}

TEST(FlagValues, TheListHoldsTheFlagsOfEveryCommand) {
  std::map<std::string, int> numbers;
  for (const Flag& f : all_flags()) numbers[f.command] += is_number(f);
  for (const char* command : {"train", "profile", "ingest", "report", "diff", "gate", "data", "eval", "kernels", "arm", "experiment run",
                              "experiment aa", "experiment coverage", "experiment resample"})
    EXPECT_GT(numbers[command], 0) << command;
  EXPECT_GE(numbers["train"], 20);
}

// A flag that is gone, another default, range or word of help is a change that users see.
TEST(FlagValues, EveryFlagWithItsDefaultAndItsHelp) {
  std::string text;
  std::istringstream lines(stepscope("--list-flags").out);
  for (std::string line; std::getline(lines, line);) {
    const auto j = nlohmann::json::parse(line);
    const auto word = [&](const char* key) { return j.at(key).get<std::string>(); };
    text += word("command") + " " + word("name");
    for (const auto& [key, before] : {std::pair("type", " "), std::pair("default", " = ")})
      if (!word(key).empty()) text += before + word(key);
    for (const char* trait : {"positional", "hidden", "required"})
      if (j.at(trait).get<bool>()) text += std::string(", ") + trait;
    for (const char* relation : {"needs", "excludes"})
      for (const auto& other : j.at(relation)) text += std::string(", ") + relation + " " + other.get<std::string>();
    text += "\n    " + word("help") + "\n";
  }
  expect_golden("cli/data/flags.txt", text);
}

TEST(FlagValues, EveryNumberHasADocumentedRange) {
  for (const Flag& f : all_flags())
    if (is_number(f)) {
      EXPECT_TRUE(documented_range(f)) << f.command << " " << f.name << " is " << f.type
                                       << ": give it a range of cli/values.h with ->check(…)";
    }
}

TEST(FlagValues, EveryNumberIsInItsRangeOrRefusedByName) {
  std::vector<Line> lines;
  for (const Flag& f : all_flags()) {
    if (!is_number(f)) continue;
    const Range range = documented_range(f).value_or(Range{1, 0});  // none: everything must be refused, which the test above reports
    for (const char* value : {"nan", "-nan", "inf", "-inf", "infinity", "1e400", "-1e400", "1e-400", "text", "", " ", "5x", "0x10", "1'000",
                              "1,000", "1_000", "--", "99999999999999999999"})
      lines.push_back({f, value, std::string(value) == "99999999999999999999" && !is_whole(f) && range.holds(1e20)});
    for (const char* value : {"0", "-1", "1"}) lines.push_back({f, value, range.holds(std::atof(value))});
    for (const char* value : {"0.5", "-0.5"}) lines.push_back({f, value, !is_whole(f) && range.holds(std::atof(value))});
    if (is_whole(f)) lines.push_back({f, "010", false});  // CLI11 would read 8
    // Both ends.
    const auto text = [](double v) { return nlohmann::json(v).dump(); };
    if (is_whole(f)) {
      const auto low = static_cast<int64_t>(range.low);
      lines.push_back({f, std::to_string(low), true});
      lines.push_back({f, std::to_string(low - 1), false});
      if (std::isfinite(range.high) && range.high < 9e15) {
        lines.push_back({f, std::to_string(static_cast<int64_t>(range.high)), true});
        lines.push_back({f, std::to_string(static_cast<int64_t>(range.high) + 1), false});
      }
    } else {
      lines.push_back({f, text(range.low), !range.without_low});
      lines.push_back({f, text(range.high), !range.without_high});
      lines.push_back({f, text(range.high * 1.01 + 0.01), false});
      lines.push_back({f, text(std::nextafter(range.low, -1e300)), false});
    }
  }
  ASSERT_GT(lines.size(), 1000u);
  const std::vector<Answer> answers = answers_to(lines);
  ASSERT_EQ(answers.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& [flag, value, allowed] = lines[i];
    const std::string what = flag.command + " " + flag.name + " '" + value + "' (" + flag.type + "): " + answers[i].message;
    // "--" ends the flags, so it is a missing value; a flag may also need another one, which is no matter of
    // its value.
    const std::string refusal =
        value == "--" ? (flag.hidden ? "" : flag.name) : (flag.hidden ? "" : flag.name) + ": found '" + value + "', expected ";
    if (allowed) {
      EXPECT_EQ(answers[i].message.find("found '"), std::string::npos) << what;
    } else {
      EXPECT_EQ(answers[i].status, 2) << what;
      EXPECT_THAT(answers[i].message, HasSubstr(refusal)) << what;
    }
  }
}

// An empty text mostly meant "the default".
TEST(FlagValues, NoFlagTakesAnEmptyText) {
  std::vector<Line> lines;
  for (const Flag& f : all_flags())
    if (!(f.positional && f.name == "program")) lines.push_back({f, "", false});
  const std::vector<Answer> answers = answers_to(lines);
  ASSERT_EQ(answers.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string what = lines[i].flag.command + " " + lines[i].flag.name + ": " + answers[i].message;
    EXPECT_EQ(answers[i].status, 2) << what;
    EXPECT_THAT(answers[i].message, HasSubstr(lines[i].flag.hidden || lines[i].flag.positional ? "" : lines[i].flag.name)) << what;
  }
}

// The whole way, as it was seen: these trained with the defaults, or passed.
TEST(FlagValues, TheProgramItselfExitsWith2) {
  const std::string train = "train --trainer reference --model tiny --steps 1 ";
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {train + "--batch-size 0", "--batch-size: found '0', expected a whole number, 1 to 1048576"},
           {train + "--seq-len 0", "--seq-len: found '0', expected a whole number, 1 to "},
           {train + "--clip nan", "--clip: found 'nan', expected a number, 0 to "},
           {"diff a.json b.json --fail-if-slower nan", "--fail-if-slower: found 'nan', expected a number, 0 to 1000000"},
           {"experiment run x --minimum-effect nan", "--minimum-effect: found 'nan', expected a number, 0.01 to 50"},
           {"profile --model ''", "--model: found '', expected a value"}}) {
    const Outcome o = stepscope(arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(message)) << arguments;
    EXPECT_EQ(o.out, "") << arguments;
  }
}

// The arguments of the program to be profiled are its own.
TEST(FlagValues, AnotherProgramsArgumentsMayBeEmpty) {
  EXPECT_EQ(answers_to({{{"profile", "--", ""}, "program\t\t-x", true}}).at(0).status, 0);
}

}  // namespace
