// The half of json.h that reads, a source of its own because each half takes long to compile.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/errors.h"
#include "base/json_place.h"
#include "base/json_read.h"
#include "base/read_file.h"
#include "profiler/attribute/roofline.h"
#include "profiler/document/checks.h"
#include "profiler/document/fields.h"
#include "profiler/document/json.h"
#include "profiler/document/missing_rows.h"
#include "profiler/document/statistics.h"
#include "profiler/records/missing.h"
#include "profiler/records/names.h"
#include "profiler/records/record_json.h"
#include "profiler/records/records.h"

namespace profiler {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
inline constexpr bool kOptional = false;
template <class T>
inline constexpr bool kOptional<std::optional<T>> = true;

template <class Row, class... T>
bool may_be_absent(const std::variant<T Row::*...>& member) {
  constexpr bool kOfType[] = {kOptional<T>...};
  return kOfType[member.index()];
}

// `nested`: keys that are objects or lists of their own.
template <class Row>
void read_object(const Json& o, Row& row, const std::string& source, const std::string& place, const std::set<std::string>& nested = {}) {
  const stepscope::JsonPlace here{source, place};
  here.type(o.is_object(), "an object");
  std::set<std::string> known = nested;
  for (const Field<Row>& f : fields_of<Row>()) {
    const std::string key(f.name);
    known.insert(key);
    const stepscope::JsonPlace r{source, place + "." + key, f.below_zero};
    const auto at = o.find(key);
    if (at != o.end())
      std::visit([&](auto member) { r.get(*at, row.*member); }, f.member);
    else if (!may_be_absent(f.member))
      r.fail("is missing");
  }
  for (const auto& [key, v] : o.items())
    if (!known.contains(key)) here.fail(fmt::format("unknown field '{}'", key));
}

const Json& member(const Json& o, const char* key, const std::string& source, const std::string& place) {
  const auto at = o.find(key);
  if (at == o.end()) throw stepscope::InputError(fmt::format("{}: {}{} is missing", source, place, key));
  return *at;
}

template <class Row>
void read_list(const Json& list, std::vector<Row>& rows, const std::string& source, const std::string& place) {
  stepscope::JsonPlace{source, place}.type(list.is_array(), "a list");
  for (size_t i = 0; i < list.size(); ++i) read_object(list[i], rows.emplace_back(), source, fmt::format("{}[{}]", place, i));
}

template <class Row>
void check_shares(const std::vector<Row>& rows, double step_ns, const std::string& source, const char* place) {
  for (size_t i = 0; i < rows.size(); ++i)
    check_number(rows[i].share_pct, step_ns > 0 ? rows[i].time_ns / step_ns * 100 : 0, source, fmt::format("{}[{}].share_pct", place, i),
                 "its time_ns in percent of totals.time_ns");
}

// A row that stands twice would count twice wherever rows are added up.
template <class Row, class Key>
void check_no_row_twice(const std::vector<Row>& rows, const std::string& source, const char* place, Key key_of) {
  std::map<decltype(key_of(rows.front())), size_t> seen;
  for (size_t i = 0; i < rows.size(); ++i)
    if (const auto [first, is_new] = seen.emplace(key_of(rows[i]), i); !is_new)
      throw stepscope::InputError(
          fmt::format("{}: {}[{}]: the same row as {}[{}], expected each once", source, place, i, place, first->second));
}

void check_sum_of_passes(const ProfileDocument& d, const Number& found, Number Floored::*member, const std::string& source,
                         std::string_view field) {
  if (found)
    check_number(*found, sum_passes(d.passes, member).value_or(0), source, fmt::format("totals.{}", field),
                 fmt::format("the sum of passes[].{}", field));
}

// Tables and differences are added up from these rows, and say that they sum to the step.
void check_sums(const ProfileDocument& d, const std::string& source) {
  check_no_row_twice(d.passes, source, "passes", [](const PassRow& r) { return r.name; });
  check_no_row_twice(d.ops, source, "ops", [](const OpRow& r) { return std::pair(r.pass, r.op); });
  check_no_row_twice(d.layers, source, "layers", [](const LayerRow& r) { return std::pair(r.pass, r.layer); });
  check_no_row_twice(d.kernels, source, "kernels", [](const KernelRow& r) { return std::tuple(r.name, r.activity, r.pass, r.op); });
  const TotalsSection& t = d.totals;
  if (!t.passes_ns) return;
  double passes_ns = 0;
  for (const PassRow& p : d.passes) passes_ns += p.time_ns;
  check_number(*t.passes_ns, passes_ns, source, "totals.passes_ns", "the sum of passes[].time_ns");
  if (!t.unattributed_ns) return;
  if (!is_missing(d, "record_reduced")) {
    double kernels_ns = 0, launches = 0, copies = 0;
    for (const KernelRow& k : d.kernels) {
      kernels_ns += k.time_ns;
      launches += static_cast<double>(k.launches);
      copies += static_cast<double>(k.copies);
    }
    check_number(*t.passes_ns + *t.unattributed_ns, kernels_ns, source, "totals.passes_ns + unattributed_ns",
                 "the sum of kernels[].time_ns");
    if (t.launches) check_number(static_cast<double>(*t.launches), launches, source, "totals.launches", "the sum of kernels[].launches");
    if (t.copies) check_number(static_cast<double>(*t.copies), copies, source, "totals.copies", "the sum of kernels[].copies");
  }
  check_sum_of_passes(d, t.floor_ns, &Floored::floor_ns, source, "floor_ns");
  check_sum_of_passes(d, t.headroom_ns, &Floored::headroom_ns, source, "headroom_ns");
  if (t.time_ns && *t.time_ns > 0 && t.idle_ns && t.conservation_error_pct)
    check_number(*t.conservation_error_pct, (*t.passes_ns + *t.unattributed_ns + *t.idle_ns - *t.time_ns) / *t.time_ns * 100, source,
                 "totals.conservation_error_pct", "what passes_ns, unattributed_ns and idle_ns differ from time_ns by");
}

// `diff --fail-if-slower` judges by the median, and charts draw the samples. Quantiles and the interval lie among the samples, whichever way
// they were computed.
void check_step_times(const StepTime& t, const std::string& source) {
  if (t.samples.empty()) return;
  const auto [low, high] = std::minmax_element(t.samples.begin(), t.samples.end());
  const double slack = *high * 1e-9;
  for (const Field<StepTime>& f : fields_of<StepTime>())
    if (const auto* member = std::get_if<Number StepTime::*>(&f.member))
      if (const Number v = t.*(*member); v && !(*v >= *low - slack && *v <= *high + slack))
        throw stepscope::InputError(
            fmt::format("{}: timing.step_time_ns.{}: found {}, expected {} to {}: the samples lie there", source, f.name, *v, *low, *high));
  const auto is = [&](const char* name, const Number& found, const Number& expected) {
    if (found && expected)
      check_number(*found, *expected, source, fmt::format("timing.step_time_ns.{}", name), fmt::format("the {} of the samples", name));
  };
  is("median", t.median, quantile(t.samples, 0.5));
  is("mean", t.mean, mean(t.samples));
}

// A word of a closed list: tables, the page's roofline and `diff` go by it.
using Words = std::vector<std::string_view>;
void check_word(const std::string& found, const Words& words, const std::string& source, const std::string& place) {
  if (std::find(words.begin(), words.end(), found) != words.end()) return;
  const std::vector<std::string_view> first(words.begin(), words.end() - 1);
  throw stepscope::InputError(
      fmt::format("{}: {}: found '{}', expected {} or {}", source, place, found, fmt::join(first, ", "), words.back()));
}
void check_word(const Text& found, const Words& words, const std::string& source, const std::string& place) {
  if (found) check_word(*found, words, source, place);
}
template <class Row, class Word>
void check_words(const std::vector<Row>& rows, Word Row::*member, const Words& words, const std::string& source, const char* list,
                 const char* field) {
  for (size_t i = 0; i < rows.size(); ++i) check_word(rows[i].*member, words, source, fmt::format("{}[{}].{}", list, i, field));
}

void check_vocabularies(const ProfileDocument& d, const std::string& source) {
  const Words bounds{name(Bound::memory), name(Bound::tensor), name(Bound::latency), name(Bound::neither)};
  const Words activities{name(Activity::kernel), name(Activity::copy), name(Activity::memset), name(Activity::cpu_op)};
  const Words states{"cool", "warm"};
  check_words<PassRow, Text>(d.passes, &PassRow::bound, bounds, source, "passes", "bound");
  check_words<OpRow, Text>(d.ops, &OpRow::bound, bounds, source, "ops", "bound");
  check_words(d.ops, &OpRow::energy_bound, {"memory", "tensor", "power", "latency", "neither"}, source, "ops", "energy_bound");
  check_words<LayerRow, Text>(d.layers, &LayerRow::bound, bounds, source, "layers", "bound");
  check_words<KernelRow, Text>(d.kernels, &KernelRow::bound, bounds, source, "kernels", "bound");
  check_words(d.kernels, &KernelRow::activity, activities, source, "kernels", "activity");
  check_words(d.launches, &LaunchRow::bound, bounds, source, "launches", "bound");
  check_words(d.launches, &LaunchRow::activity, activities, source, "launches", "activity");
  check_words(d.lanes, &LaneRow::activity, activities, source, "lanes", "activity");
  check_word(d.timing.state, states, source, "timing.state");
  check_words(d.timing.states, &StateRow::state, states, source, "timing.states", "state");
  check_words(d.timing.states, &StateRow::run, {"timed", "sustained"}, source, "timing.states", "run");
  check_words(d.missing, &MissingRow::severity, {name(Severity::info), name(Severity::notice), name(Severity::severe)}, source, "missing",
              "severity");
}

double per_second(double of_a_step, double step_ns) { return of_a_step / step_ns * 1e9; }

// Documents of several ranks had those of one rank in timing.states before 2026-11-29.
void take_tokens_of_all_ranks(ProfileDocument& d) {
  for (StateRow& row : d.timing.states) {
    if (!d.world.size || !row.tokens_per_s || d.run.tokens_per_step.value_or(0) <= 0 || !(row.step_time_ns > 0)) continue;
    const double one = per_second(static_cast<double>(*d.run.tokens_per_step), row.step_time_ns);
    if (std::abs(*row.tokens_per_s - one) <= 1e-6 * one) row.tokens_per_s = one * static_cast<double>(*d.world.size);
  }
}

// Times, tokens/s and FLOP/s are worked out of what stands beside them.
void check_rates(const ProfileDocument& d, const std::string& source) {
  const TimingSection& t = d.timing;
  const Number tokens = d.run.tokens_per_step.value_or(0) > 0 ? Number(static_cast<double>(*d.run.tokens_per_step)) : std::nullopt;
  const auto check_per_median = [&](const Number& found, const Number& of_a_step, const char* field, const char* formula) {
    if (found && of_a_step && t.step_time_ns.median.value_or(0) > 0)
      check_number(*found, per_second(*of_a_step, *t.step_time_ns.median), source, field, formula);
  };
  check_per_median(t.model_flops_per_s, d.run.model_flops, "timing.model_flops_per_s", "run.model_flops / timing.step_time_ns.median");
  const auto ceiling = d.ceilings.matmul_flops_per_s.find(t.matmul_ceiling.value_or(""));
  if (ceiling != d.ceilings.matmul_flops_per_s.end() && ceiling->second > 0 && t.of_matmul_ceiling_pct && t.model_flops_per_s)
    check_number(*t.of_matmul_ceiling_pct, *t.model_flops_per_s / ceiling->second * 100, source, "timing.of_matmul_ceiling_pct",
                 "model_flops_per_s in percent of ceilings.matmul_flops_per_s." + ceiling->first);
  check_per_median(t.tokens_per_s, tokens, "timing.tokens_per_s", "run.tokens_per_step / timing.step_time_ns.median");
  const auto ranks = static_cast<double>(d.world.size.value_or(1));
  for (size_t i = 0; i < d.timing.states.size(); ++i) {
    const StateRow& row = d.timing.states[i];
    const std::string place = fmt::format("timing.states[{}].", i);
    if (row.steps > 0)
      check_number(row.step_time_ns, row.time_ns / static_cast<double>(row.steps), source, place + "step_time_ns", "time_ns / steps");
    if (tokens && row.tokens_per_s && row.step_time_ns > 0)
      check_number(*row.tokens_per_s, per_second(*tokens * ranks, row.step_time_ns), source, place + "tokens_per_s",
                   "tokens of all ranks / step_time_ns");
  }
}

// Behind a refusal of another schema: what reads a document of that kind, where it is one of ours.
std::string what_reads(std::string_view schema) {
  for (const auto& [kind, reader] : {std::pair<std::string_view, const char*>{"stepscope.energy/", "`stepscope energy --from` shows it"},
                                     {"stepscope.verdict/", "its page is README.md beside it, and `stepscope experiment check` checks it"},
                                     {"stepscope.links/", "`stepscope scaling --ceilings` takes it"},
                                     {"stepscope.run/", "`stepscope report` shows a run by its log, which `train --log` writes"}})
    if (schema.starts_with(kind)) return fmt::format("; {}", reader);
  return "";
}

}  // namespace

ProfileDocument profile_from_json(std::string_view text, const std::string& source) {
  const Json j = stepscope::read_json<Json>(text);
  if (j.is_discarded() && (text.starts_with("NVR") || text.starts_with("SQLite format 3") || text.starts_with("\"ID\",")))
    throw stepscope::InputError(
        fmt::format("{}: not a profile document, but a report of Nsight: `stepscope ingest {}` makes a document of it", source, source));
  if (text.starts_with(fmt::format("{{\"schema\":\"{}\"", kRecordingSchema)))
    throw stepscope::InputError(fmt::format(
        "{}: not a profile document, but a collector's recording, of which `stepscope profile` and, of ranks, `stepscope join` make one",
        source));
  if (text.substr(0, text.find('\n')).find("\"schema\":\"stepscope.log/") != std::string_view::npos)
    throw stepscope::InputError(
        fmt::format("{}: not a profile document, but a run's log: `stepscope report` shows it, and several side by side", source));
  if (j.is_discarded() || !j.is_object())
    throw stepscope::InputError(fmt::format("{}: not a profile document: {}", source, stepscope::why_no_object(text, source)));
  const auto schema = j.find("schema");
  if (schema == j.end() || !schema->is_string())
    throw stepscope::InputError(fmt::format("{}: not a profile document: expected \"schema\": \"{}\"", source, kProfileSchema));
  if (schema->get<std::string>() != kProfileSchema)
    throw stepscope::InputError(fmt::format("{}: schema \"{}\"; this program reads \"{}\"{}", source, schema->get<std::string>(),
                                            kProfileSchema, what_reads(schema->get<std::string>())));
  static const std::set<std::string> sections = {
      "schema",  "run",   "environment", "ceilings",    "collection",  "timing",           "totals",
      "passes",  "ops",   "layers",      "kernels",     "launches",    "timeline",         "missing",
      "sources", "world", "ranks",       "rank_passes", "collectives", "collective_ranks", "lanes"};
  for (const auto& [key, v] : j.items())
    if (!sections.contains(key)) throw stepscope::InputError(fmt::format("{}: unknown section '{}'", source, key));

  ProfileDocument d;
  const auto section = [&](const char* key) -> const Json& { return member(j, key, source, ""); };
  const auto object = [&](const char* key, auto& into) { read_object(section(key), into, source, key); };
  const auto rows = [&](const char* key, auto& into) { read_list(section(key), into, source, key); };
  object("run", d.run);
  object("environment", d.environment);
  object("ceilings", d.ceilings);
  read_object(section("collection"), d.collection, source, "collection", {"counter_sets"});
  read_list(member(section("collection"), "counter_sets", source, "collection."), d.collection.counter_sets, source,
            "collection.counter_sets");
  read_object(section("timing"), d.timing, source, "timing", {"step_time_ns", "states"});
  if (const auto states = section("timing").find("states"); states != section("timing").end())
    read_list(*states, d.timing.states, source, "timing.states");
  read_object(member(section("timing"), "step_time_ns", source, "timing."), d.timing.step_time_ns, source, "timing.step_time_ns");
  object("totals", d.totals);
  rows("passes", d.passes);
  rows("ops", d.ops);
  rows("layers", d.layers);
  rows("kernels", d.kernels);
  rows("launches", d.launches);
  read_object(section("timeline"), d.timeline, source, "timeline", {"gaps", "copies", "environment"});
  read_list(member(section("timeline"), "gaps", source, "timeline."), d.timeline.gaps, source, "timeline.gaps");
  read_list(member(section("timeline"), "copies", source, "timeline."), d.timeline.copies, source, "timeline.copies");
  read_list(member(section("timeline"), "environment", source, "timeline."), d.timeline.environment, source, "timeline.environment");
  rows("missing", d.missing);
  check_step_times(d.timing.step_time_ns, source);
  if (!d.totals.time_ns && !(d.passes.empty() && d.kernels.empty()))
    throw stepscope::InputError(fmt::format("{}: totals.time_ns: is missing, expected the time that the rows are parts of", source));
  const double step_ns = d.totals.time_ns.value_or(0);
  check_shares(d.passes, step_ns, source, "passes");
  check_shares(d.ops, step_ns, source, "ops");
  check_shares(d.layers, step_ns, source, "layers");
  check_shares(d.kernels, step_ns, source, "kernels");
  check_sums(d, source);
  const bool of_ranks = j.contains("ranks");
  if (of_ranks) {
    object("world", d.world);
    rows("ranks", d.ranks);
    rows("rank_passes", d.rank_passes);
    rows("collectives", d.collectives);
    rows("collective_ranks", d.collective_ranks);
    rows("lanes", d.lanes);
  } else {
    for (const char* key : {"world", "rank_passes", "collectives", "collective_ranks", "lanes"})
      if (j.contains(key))
        throw stepscope::InputError(fmt::format("{}: ranks: is missing, expected one row of each rank: {} is there", source, key));
  }
  check_vocabularies(d, source);
  check_rows(d, source);
  if (of_ranks) check_ranks(d, source);
  take_tokens_of_all_ranks(d);
  check_rates(d, source);
  return d;
}

ProfileDocument load_profile(const std::string& path) { return profile_from_json(stepscope::read_file(path), path); }

}  // namespace profiler
