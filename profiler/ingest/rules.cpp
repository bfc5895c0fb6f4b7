#include "profiler/ingest/rules.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/yaml_document.h"
#include "profiler/attribute/words.h"

namespace profiler {
namespace {

constexpr char kSchema[] = "stepscope.rules/1";
// Of a name; a pattern takes each of them times its own length. And of a pattern: std::regex calls itself for every parenthesis.
constexpr size_t kSearchedCharacters = 2000, kMostPatternCharacters = 1000;
constexpr int64_t kMostTimes = 1000, kMostRepeats = 100;

// libstdc++'s search without backtracking. The usual one does not end for `^((a|b)*)+$` in a name that does not fit, and calls itself for
// every character of one that does, so that a long name ends the stack. It knows no back-references.
std::regex regex_of(const std::string& pattern) {
  std::regex::flag_type how = std::regex::ECMAScript | std::regex::nosubs;
#ifdef __GLIBCXX__
  how |= std::regex_constants::__polynomial;
#endif
  return std::regex(pattern, how);
}

// How often `{n}` and `{n,m}` have their parts repeated, one within the other: the library copies them so many times.
int64_t repeats_of(const std::string& pattern) {
  int64_t all = 1;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;  // what follows stands for itself
      continue;
    }
    if (pattern[i] != '{') continue;
    int64_t most = 1, number = 0;
    for (size_t k = i + 1; k < pattern.size() && (std::isdigit(static_cast<unsigned char>(pattern[k])) != 0 || pattern[k] == ','); ++k) {
      number = pattern[k] == ',' ? 0 : std::min<int64_t>(10 * number + (pattern[k] - '0'), kMostRepeats + 1);
      most = std::max(most, number);
    }
    all = std::min(all * most, kMostRepeats + 1);
  }
  return all;
}

class Parser {
 public:
  Parser(const std::string& yaml, std::string source) : source_(std::move(source)) {
    try {
      root_ = stepscope::only_yaml_document(yaml, [&](const YAML::Node& at, const std::string& what) { fail(at, what); });
    } catch (const YAML::Exception& e) {
      throw stepscope::InputError(fmt::format("{}: line {}: not YAML: {}", source_, e.mark.line + 1, stepscope::yaml_problem(yaml, e)));
    }
  }

  Rules parse() {
    if (!root_.IsMap()) fail(root_, "expected a map with schema, name and rules");
    check_keys(root_, {"schema", "name", "sections", "rules"});
    const std::string schema = text(root_, "schema");
    if (schema != kSchema) fail(root_["schema"], fmt::format("schema is '{}', expected {}", schema, kSchema));
    Rules r;
    r.name = text(root_, "name");
    std::set<std::string> sections;
    for (const YAML::Node& n : list("sections")) {
      check_keys(n, {"name", "begins_with", "from"});
      r.sections.push_back({text(n, "name"), text(n, "begins_with"), texts(n, "from")});
      check_regex(n, r.sections.back().begins_with);
      sections.insert(r.sections.back().name);
    }
    for (const YAML::Node& n : list("sections")) check_sections(n, texts(n, "from"), sections);
    for (const YAML::Node& n : list("rules")) r.rules.push_back(rule(n, sections));
    if (r.rules.empty()) fail(root_, "there are no rules");
    return r;
  }

 private:
  [[noreturn]] void fail(const YAML::Node& at, const std::string& what) const {
    throw stepscope::InputError(fmt::format("{}: line {}: {}", source_, at.Mark().line + 1, what));
  }
  void check_keys(const YAML::Node& n, const std::set<std::string>& known) const {
    if (!n.IsMap()) fail(n, "expected a map");
    std::set<std::string> seen;  // of two equal keys yaml-cpp finds the first
    for (const auto& entry : n) {
      if (!entry.first.IsScalar() || !known.contains(entry.first.Scalar()))
        fail(entry.first,
             fmt::format("unknown key '{}'; known: {}", entry.first.IsScalar() ? entry.first.Scalar() : "?", fmt::join(known, ", ")));
      if (!seen.insert(entry.first.Scalar()).second)
        fail(entry.first, fmt::format("'{}' stands twice: expected it once", entry.first.Scalar()));
    }
  }
  std::vector<YAML::Node> list(const char* key) const {
    const YAML::Node n = root_[key];
    if (!n) return {};
    if (!n.IsSequence()) fail(n, fmt::format("{} is not a list", key));
    return {n.begin(), n.end()};
  }
  std::string text(const YAML::Node& n, const char* key, bool needed = true) const {
    const YAML::Node v = n[key];
    if (!v && needed) fail(n, fmt::format("'{}' is missing", key));
    if (!v) return "";
    if (!v.IsScalar()) fail(v, fmt::format("'{}' is not a text", key));
    return v.Scalar();
  }
  // A text, or a list of texts.
  std::vector<std::string> texts(const YAML::Node& n, const char* key) const {
    const YAML::Node v = n[key];
    if (!v) return {};
    if (v.IsScalar()) return {v.Scalar()};
    if (!v.IsSequence()) fail(v, fmt::format("'{}' is neither a text nor a list", key));
    std::vector<std::string> out;
    for (const YAML::Node& e : v) {
      if (!e.IsScalar()) fail(v, fmt::format("'{}' holds something that is not a text", key));
      out.push_back(e.Scalar());
    }
    return out;
  }
  void check_sections(const YAML::Node& n, const std::vector<std::string>& names, const std::set<std::string>& known) const {
    for (const std::string& name : names)
      if (!known.contains(name)) fail(n, fmt::format("no section is named '{}'", name));
  }
  int64_t integer(const YAML::Node& n, const char* key, int64_t low, int64_t high) const {
    int64_t v = 0;
    if (!YAML::convert<int64_t>::decode(n[key], v) || v < low || v > high)
      fail(n[key], fmt::format("'{}' is not a number from {} to {}", key, low, high));
    return v;
  }
  void check_regex(const YAML::Node& n, const std::string& pattern) const {
    if (pattern.size() > kMostPatternCharacters)
      fail(n, fmt::format("a regular expression of {} characters, expected at most {}", pattern.size(), kMostPatternCharacters));
    if (const int64_t repeats = repeats_of(pattern); repeats > kMostRepeats)
      fail(n, fmt::format("'{}' has its parts more than {} times by counts in braces", pattern, kMostRepeats));
    try {
      regex_of(pattern);
    } catch (const std::regex_error& e) {
      fail(n, fmt::format("'{}' is not a regular expression: {}", pattern, e.what()));
    }
  }
  void check_word(const YAML::Node& n, const char* key, const std::string& word, std::span<const std::string_view> words) const {
    if (std::find(words.begin(), words.end(), word) == words.end())
      fail(n, fmt::format("{} '{}' is none of {}", key, word, fmt::join(words, ", ")));
  }

  Rule rule(const YAML::Node& n, const std::set<std::string>& sections) const {
    check_keys(n, {"kernel", "range", "in", "previous", "next", "pass", "op", "layer", "times"});
    Rule r;
    r.kernel = text(n, "kernel", false);
    r.range = text(n, "range", false);
    r.in = texts(n, "in");
    r.previous = text(n, "previous", false);
    r.next = text(n, "next", false);
    r.pass = text(n, "pass");
    r.op = text(n, "op");
    if (r.kernel.empty() && r.range.empty() && r.in.empty()) fail(n, "a rule needs 'kernel', 'range' or 'in'");
    for (const std::string* pattern : {&r.kernel, &r.range, &r.previous, &r.next}) check_regex(n, *pattern);
    check_sections(n, r.in, sections);
    check_word(n, "pass", r.pass, pass_words());
    check_word(n, "op", r.op, op_words());
    const std::string layer = text(n, "layer", false);
    if (layer == "up") {
      r.layer = LayerRule::up;
    } else if (layer == "down") {
      r.layer = LayerRule::down;
    } else if (!layer.empty()) {
      r.layer = LayerRule::number;
      r.layer_number = integer(n, "layer", 0, 100000);
    }
    if (n["times"]) {
      r.times = integer(n, "times", 1, kMostTimes);
      if (r.layer != LayerRule::none && r.times > 1) fail(n, "'times' makes layers 0 to times-1 itself; leave 'layer' out");
    }
    return r;
  }

  std::string source_;
  YAML::Node root_;
};

// Patterns are few and names repeat: each pair is searched once.
class Searched {
 public:
  bool found(const std::string& pattern, const std::string& text) {
    const auto [at, is_new] = results_.try_emplace({&pattern, text}, false);
    if (is_new) {
      auto expression = expressions_.find(&pattern);
      if (expression == expressions_.end()) expression = expressions_.emplace(&pattern, regex_of(pattern)).first;
      at->second = std::regex_search(text.substr(0, kSearchedCharacters), expression->second);
    }
    return at->second;
  }

 private:
  std::map<const std::string*, std::regex> expressions_;
  std::map<std::pair<const std::string*, std::string>, bool> results_;
};

}  // namespace

Rules parse_rules(const std::string& yaml, const std::string& source) { return Parser(yaml, source).parse(); }

std::vector<std::optional<RulePlace>> place_by_rules(const Rules& rules, const std::vector<ForeignResult>& results) {
  Searched searched;
  std::vector<size_t> order;  // copies neither have a place nor stand between two kernels
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].kind != ForeignKind::copy && results[i].kind != ForeignKind::memset) order.push_back(i);
  // Each process has steps of its own, whichever others launched between them.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return results[a].process < results[b].process; });

  const auto is_in = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };

  std::vector<std::optional<RulePlace>> places(results.size());
  struct Fit {
    size_t result;
    const Rule* rule;
    int64_t step;
    std::string counted;  // what `layer` counts: a section, or the rule itself
    int64_t position;
  };
  std::vector<Fit> fits;
  std::map<std::pair<int64_t, std::string>, int64_t> count;  // (step, what is counted) -> so far
  std::string section;
  int64_t step = 0;
  for (size_t n = 0; n < order.size(); ++n) {
    const ForeignResult& r = results[order[n]];
    const auto same_process = [&](size_t other) { return other < order.size() && results[order[other]].process == r.process; };
    if (!same_process(n - 1)) {  // at the first, n - 1 is beyond the last
      section.clear();
      ++step;
    }
    for (const Section& s : rules.sections) {
      if (s.from.empty() ? section == s.name : !is_in(s.from, section)) continue;
      if (!searched.found(s.begins_with, r.name)) continue;
      section = s.name;
      if (&s == &rules.sections.front()) ++step;
      ++count[{step, section}];
      break;
    }
    static const std::string none;
    const std::string& before = same_process(n - 1) ? results[order[n - 1]].name : none;
    const std::string& behind = same_process(n + 1) ? results[order[n + 1]].name : none;
    for (const Rule& rule : rules.rules) {
      if (!rule.in.empty() && !is_in(rule.in, section)) continue;
      if (!rule.kernel.empty() && !searched.found(rule.kernel, r.name)) continue;
      if (!rule.range.empty() && !searched.found(rule.range, r.path)) continue;
      if (!rule.previous.empty() && !searched.found(rule.previous, before)) continue;
      if (!rule.next.empty() && !searched.found(rule.next, behind)) continue;
      // A name that no section can have.
      const std::string counted = !rule.in.empty() ? section : fmt::format("\n{}", &rule - rules.rules.data());
      if (rule.in.empty()) ++count[{step, counted}];
      fits.push_back({order[n], &rule, step, counted, count[{step, counted}] - 1});
      break;
    }
  }
  for (const Fit& f : fits) {
    if (parse_range_path(results[f.result].path).place) continue;  // counted, because what follows it has its layer by number
    RulePlace p{f.rule->pass, f.rule->op, std::nullopt, f.rule->times};
    if (f.rule->layer == LayerRule::up) p.layer = f.position;
    if (f.rule->layer == LayerRule::down) p.layer = count[{f.step, f.counted}] - 1 - f.position;
    if (f.rule->layer == LayerRule::number) p.layer = f.rule->layer_number;
    places[f.result] = std::move(p);
  }
  return places;
}

}  // namespace profiler
