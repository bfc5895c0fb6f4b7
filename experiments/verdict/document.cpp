#include "experiments/verdict/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "experiments/runner/run_log.h"
#include "gpt2/atomic_file.h"
#include "gpt2/errors.h"

namespace experiments {
namespace {

using nlohmann::ordered_json;
using stepscope::InputError;

ordered_json to_json(const Thresholds& t) {
  ordered_json looks = ordered_json::array();
  for (const Look& l : t.looks)
    looks.push_back({{"pairs", l.pairs}, {"alpha", l.alpha}, {"equivalence_alpha", l.equivalence_alpha}});
  return {{"looks", std::move(looks)},
          {"alpha", t.alpha},
          {"minimum_effect_pct", 100 * t.minimum_effect},
          {"equivalence_bound_pct", 100 * t.equivalence_bound()},
          {"power", t.power}};
}

ordered_json to_json(const ArmReport& arm, const ordered_json& info) {
  ordered_json out{{"command", arm.command}};
  if (!arm.trainer.empty()) out["trainer"] = arm.trainer;
  if (!arm.program_sha256.empty()) out["program_sha256"] = arm.program_sha256;
  out["gate"] = {{"checked", arm.gate.checked}, {"passed", arm.gate.passed}, {"sentence", arm.gate.sentence}};
  if (!arm.gate.failures.empty()) out["gate"]["failures"] = arm.gate.failures;
  if (arm.launches)
    out["launches"] = {{"same", arm.launches->same},
                       {"sentence", arm.launches->sentence},
                       {"operations", arm.launches->operations},
                       {"timed_steps", arm.launches->timed_steps},
                       {"checked_steps", arm.launches->checked_steps}};
  else
    out["launches_absent"] = arm.launches_absent;
  if (!info.is_null()) out["said"] = info;
  return out;
}

std::optional<double> memory_bytes(const ordered_json& info) {
  const auto items = info.find("memory_bytes");
  if (!info.is_object() || items == info.end() || !items->is_object()) return std::nullopt;
  double sum = 0;
  for (const auto& item : *items)
    if (item.is_number()) sum += item.get<double>();
  return sum;
}

ordered_json environment_of(const RunLog& log) {
  ordered_json out;
  if (!log.environment_absent.empty()) {
    out["absent"] = log.environment_absent;
    return out;
  }
  int blocks = 0, sampled = 0, power_capped = 0, throttled = 0;
  double first_c = 0, hottest = 0, most_power = 0;
  std::map<char, std::vector<double>> clocks;
  constexpr uint64_t kOtherSlowdowns = 0x8 | 0x10 | 0x20 | 0x40 | 0x80;  // nvmlClocksEventReason*
  for (const PairRecord& p : log.pairs)
    for (const Block& b : p.blocks) {
      ++blocks;
      if (!b.environment) continue;
      if (sampled++ == 0) first_c = b.environment->temperature_c;
      power_capped += (b.environment->throttle_reasons & kPowerCap) != 0;
      throttled += (b.environment->throttle_reasons & kOtherSlowdowns) != 0;
      hottest = std::max(hottest, b.environment->temperature_c);
      most_power = std::max(most_power, b.environment->power_w);
      if (b.environment->sm_clock_mhz > 0) clocks[b.arm].push_back(b.environment->sm_clock_mhz);
    }
  out = {{"blocks", blocks}, {"sampled_blocks", sampled}};
  if (sampled == 0) return out;
  out["power_capped_blocks"] = power_capped;
  out["throttled_blocks"] = throttled;   // thermal, hardware, power brake
  out["temperature_c_first"] = first_c;  // a device that still heats up slows down while it is measured
  out["temperature_c_max"] = hottest;
  out["power_w_max"] = most_power;
  if (const auto h = heating(log)) {
    out["heating_c_per_10_s_max"] = h->most_c_per_10_s;
    out["heating_pairs"] = h->pairs;
  }
  for (auto& [arm, values] : clocks) {
    std::sort(values.begin(), values.end());
    out[fmt::format("{}_sm_clock_mhz_median", arm == 'A' ? "a" : "b")] = values[values.size() / 2];
  }
  return out;
}

ordered_json workload_json(const WorkloadResult& r) {
  const Workload& w = r.workload;
  const Decision& d = r.log.decision;
  const bool same_code =
      r.same_code && r.same_code->same && r.planted_pct == 0 && d.verdict != Verdict::invalid;
  ordered_json out{
      {"workload", w.text()}, {"model", w.model}, {"batch_size", w.batch_size}, {"seq_len", w.seq_len}};
  if (!w.matmul.empty()) out["matmul"] = w.matmul;
  out["verdict"] = name(verdict_of(r));
  out["reason"] = same_code ? std::string(reason::kSameCode) : d.reason;
  out["sentence"] = same_code ? fmt::format("{}; the statistics said {} ({})", r.same_code->why,
                                            name(d.verdict), d.sentence)
                              : d.sentence;
  out["statistics"] = to_json(d);
  if (r.log.cycles) out["statistics_in_cycles"] = to_json(*r.log.cycles);
  const auto a_ns = median_step_ns(r.log, 'A'), b_ns = median_step_ns(r.log, 'B');
  if (a_ns) out["a_step_ns"] = *a_ns;
  if (b_ns) out["b_step_ns"] = *b_ns;
  if (a_ns && d.log_ratio) {
    const auto saved_ms = [&](double log_ratio) { return -std::expm1(log_ratio) * *a_ns * 1e-6; };
    out["saved_ms"] = saved_ms(d.log_ratio->mean);
    if (d.interval) out["saved_ms_interval"] = {saved_ms(d.interval->high), saved_ms(d.interval->low)};
  }
  if (w.predicted_saving_ms) out["predicted_saving_ms"] = *w.predicted_saving_ms;
  if (r.planted_pct != 0) out["planted_pct"] = r.planted_pct;
  out["seed"] = r.log.seed;
  const auto a_bytes = memory_bytes(r.log.a_info), b_bytes = memory_bytes(r.log.b_info);
  if (a_bytes && b_bytes)
    out["memory"] = {{"a_bytes", *a_bytes}, {"b_bytes", *b_bytes}, {"delta_bytes", *b_bytes - *a_bytes}};
  out["a"] = to_json(r.a, r.log.a_info);
  out["b"] = to_json(r.b, r.log.b_info);
  if (ordered_json audit = audit_to_json(r.log); !audit.is_null()) out["audit"] = std::move(audit);
  if (r.log.solo)
    out["solo"] = {{"a_step_ns", r.log.solo->a_step_ns}, {"b_step_ns", r.log.solo->b_step_ns}, {"seconds", r.log.solo->seconds}};
  else if (!r.log.solo_absent.empty())
    out["solo_absent"] = r.log.solo_absent;
  if (r.same_code) out["same_code"] = {{"same", r.same_code->same}, {"why", r.same_code->why}};
  if (r.waterfall)
    out["waterfall"] = to_json(*r.waterfall);
  else
    out["waterfall_absent"] = r.waterfall_absent;
  out["environment"] = environment_of(r.log);
  out["pairs"] = pairs_to_json(r.log);
  return out;
}

Verdict overall_of(const ordered_json& document) {
  std::vector<Verdict> all;
  for (const ordered_json& w : document.at("workloads"))
    all.push_back(verdict_from_name(w.at("verdict").get<std::string>()).value_or(Verdict::invalid));
  return overall(all);
}

}  // namespace

Verdict verdict_of(const WorkloadResult& r) {
  if (r.log.decision.verdict == Verdict::invalid) return Verdict::invalid;
  if (r.same_code && r.same_code->same && r.planted_pct == 0) return Verdict::same;
  return r.log.decision.verdict;
}

Verdict overall(const std::vector<Verdict>& verdicts) {
  for (const Verdict v : {Verdict::invalid, Verdict::slower, Verdict::undecided, Verdict::faster})
    if (std::find(verdicts.begin(), verdicts.end(), v) != verdicts.end()) return v;
  return verdicts.empty() ? Verdict::undecided : Verdict::same;
}

ordered_json verdict_document(const std::string& name_, const std::optional<Experiment>& e,
                              const std::vector<WorkloadResult>& results, const RunFacts& f) {
  std::vector<Verdict> verdicts;
  for (const WorkloadResult& r : results) verdicts.push_back(verdict_of(r));
  ordered_json out{
      {"schema", kVerdictSchema}, {"name", name_}, {"at", f.at}, {"verdict", name(overall(verdicts))}};
  if (e) {
    out["experiment"] = {{"question", e->question},     {"hypothesis", e->hypothesis},
                         {"change", e->change_text},    {"baseline", e->baseline},
                         {"trainer", e->trainer},       {"compound", e->compound},
                         {"arithmetic", e->arithmetic}, {"file_sha256", e->file_sha256}};
  }
  out["command"] = f.command;
  out["code"] = {{"git_revision", f.git_revision}};
  if (!f.a_sources_sha256.empty()) out["code"]["a_sources_sha256"] = f.a_sources_sha256;
  if (!f.b_sources_sha256.empty()) out["code"]["b_sources_sha256"] = f.b_sources_sha256;
  out["environment"] = {{"device", f.device}};
  if (!f.driver.empty()) out["environment"]["driver"] = f.driver;
  out["thresholds"] = to_json(f.thresholds);
  out["ledger"] = {{"trials", f.ledger.trials},
                   {"false_claims", f.ledger.false_claims},
                   {"bound_95_pct", f.ledger.bound_95_pct},
                   {"sentence", f.ledger.text()}};
  out["workloads"] = ordered_json::array();
  for (const WorkloadResult& r : results) out["workloads"].push_back(workload_json(r));
  return out;
}

ordered_json load_verdict(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw InputError(fmt::format("{}: cannot be read", file.string()));
  const ordered_json d =
      ordered_json::parse(std::string{std::istreambuf_iterator<char>(in), {}}, nullptr, false);
  if (!d.is_object() || !d.contains("schema"))
    throw InputError(fmt::format("{}: expected a {} document", file.string(), kVerdictSchema));
  if (d["schema"] != kVerdictSchema)
    throw InputError(
        fmt::format("{}: schema {}, expected {}", file.string(), d["schema"].dump(), kVerdictSchema));
  if (!d.contains("workloads") || !d["workloads"].is_array() || !d.contains("verdict") ||
      !d["verdict"].is_string() || !verdict_from_name(d["verdict"].get<std::string>()))
    throw InputError(fmt::format("{}: verdict or workloads are missing or no such things", file.string()));
  return d;
}

void save_verdict(const std::filesystem::path& file, const ordered_json& document) {
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  gpt2::write_file_atomically(file, document.dump(1) + "\n");
}

std::vector<bool> correct_campaign(std::vector<ordered_json>& documents, const Thresholds& t) {
  std::vector<Decision> decisions;
  std::vector<std::pair<size_t, size_t>> where;
  for (size_t i = 0; i < documents.size(); ++i)
    for (size_t k = 0; k < documents[i]["workloads"].size(); ++k) {
      const ordered_json& w = documents[i]["workloads"][k];
      Decision d = decision_from_json(w.at("statistics"), documents[i].at("name").get<std::string>());
      if (w.at("reason") == reason::kSameCode) d.verdict = Verdict::same;  // claims nothing
      decisions.push_back(std::move(d));
      where.emplace_back(i, k);
    }
  const std::vector<Decision> before = decisions;
  correct_for_campaign(decisions, t);
  std::vector<bool> changed(documents.size(), false);
  for (size_t n = 0; n < decisions.size(); ++n) {
    if (decisions[n].verdict == before[n].verdict) continue;
    ordered_json& w = documents[where[n].first]["workloads"][where[n].second];
    w["verdict"] = name(decisions[n].verdict);
    w["reason"] = decisions[n].reason;
    w["sentence"] = decisions[n].sentence;
    changed[where[n].first] = true;
  }
  for (size_t i = 0; i < documents.size(); ++i)
    if (changed[i]) documents[i]["verdict"] = name(overall_of(documents[i]));
  return changed;
}

int exit_code_of(Verdict v) {
  switch (v) {
    case Verdict::faster:
    case Verdict::same:
      return 0;
    case Verdict::slower:
    case Verdict::invalid:
      return 1;
    case Verdict::undecided:
      return 4;
  }
  return 1;
}

bool is_regression(std::optional<Verdict> before, Verdict now) {
  if (now == Verdict::invalid) return true;
  if (now == Verdict::slower) return before != Verdict::slower;
  if (now == Verdict::same) return before == Verdict::faster;
  return false;  // undecided is no answer, and neither a regression nor its absence
}

}  // namespace experiments
