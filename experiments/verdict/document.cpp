#include "experiments/verdict/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/read_file.h"
#include "base/statistics.h"
#include "experiments/runner/run_log.h"

namespace experiments {
namespace {

using nlohmann::ordered_json;
using stepscope::InputError;

ordered_json to_json(const Thresholds& t) {
  ordered_json looks = ordered_json::array();
  for (const Look& l : t.looks)
    looks.push_back(
        {{"pairs", l.pairs}, {"alpha", l.alpha}, {"equivalence_alpha", l.equivalence_alpha}, {"sign_flip_alpha", l.sign_flip_alpha}});
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
  const uint64_t other_slowdowns = stepscope::nvml::slowdowns(~stepscope::nvml::kPowerCap);
  for (const PairRecord& p : log.pairs)
    for (const Block& b : p.blocks) {
      ++blocks;
      if (!b.environment) continue;
      if (sampled++ == 0) first_c = b.environment->temperature_c;
      power_capped += (b.environment->throttle_reasons & stepscope::nvml::kPowerCap) != 0;
      throttled += (b.environment->throttle_reasons & other_slowdowns) != 0;
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
  for (const auto& [arm, values] : clocks) out[fmt::format("{}_sm_clock_mhz_median", arm == 'A' ? "a" : "b")] = stepscope::median(values);
  return out;
}

bool claims(Verdict v) { return v == Verdict::faster || v == Verdict::slower; }

std::string same_code_sentence(const std::string& why, const Decision& d) {
  if (claims(d.verdict))
    return fmt::format("{}, and yet measured {} ({}): a kernel's arguments differ, or this is a false claim", why, name(d.verdict),
                       d.sentence);
  return fmt::format("{}; the statistics said {} ({})", why, name(d.verdict), d.sentence);
}

ordered_json workload_json(const WorkloadResult& r) {
  const Workload& w = r.workload;
  const Decision& d = r.log.decision;
  const bool same_code = r.same_code && r.same_code->same && r.planted_pct == 0 && d.verdict != Verdict::invalid;
  ordered_json out{{"workload", w.text()}, {"model", w.model}, {"batch_size", w.batch_size}, {"seq_len", w.seq_len}};
  if (!w.matmul.empty()) out["matmul"] = w.matmul;
  out["verdict"] = name(verdict_of(r));
  out["reason"] = same_code ? std::string(reason::kSameCode) : d.reason;
  out["sentence"] = same_code ? same_code_sentence(r.same_code->why, d) : d.sentence;
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
  if (a_bytes && b_bytes) out["memory"] = {{"a_bytes", *a_bytes}, {"b_bytes", *b_bytes}, {"delta_bytes", *b_bytes - *a_bytes}};
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

// Older documents gave a block without a sample of its own the clock of an earlier one.
bool has_borrowed_clocks(const ordered_json& pairs) {
  for (const ordered_json& p : pairs)
    for (const ordered_json& b : p.at("blocks"))
      if (b.contains("sm_clock_mhz")) return !b.contains("samples");
  return false;
}

Verdict overall_of(const ordered_json& document) {
  std::vector<Verdict> all;
  for (const ordered_json& w : document.at("workloads")) all.push_back(verdict_in(w));
  return overall(all);
}

}  // namespace

Verdict verdict_of(const WorkloadResult& r) {
  if (r.log.decision.verdict == Verdict::invalid) return Verdict::invalid;
  if (r.same_code && r.same_code->same && r.planted_pct == 0) return claims(r.log.decision.verdict) ? Verdict::undecided : Verdict::same;
  return r.log.decision.verdict;
}

Verdict overall(const std::vector<Verdict>& verdicts) {
  for (const Verdict v : {Verdict::invalid, Verdict::slower, Verdict::undecided, Verdict::faster})
    if (std::find(verdicts.begin(), verdicts.end(), v) != verdicts.end()) return v;
  return verdicts.empty() ? Verdict::undecided : Verdict::same;
}

ordered_json verdict_document(const std::string& name_, const std::optional<Experiment>& e, const std::vector<WorkloadResult>& results,
                              const RunFacts& f) {
  std::vector<Verdict> verdicts;
  for (const WorkloadResult& r : results) verdicts.push_back(verdict_of(r));
  ordered_json out{{"schema", kVerdictSchema}, {"name", name_}, {"at", f.at}, {"verdict", name(overall(verdicts))}};
  if (e) {
    out["experiment"] = {{"question", e->question},     {"hypothesis", e->hypothesis},  {"change", e->change_text},
                         {"baseline", e->baseline},     {"trainer", e->trainer},        {"compound", e->compound},
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
  const ordered_json d = ordered_json::parse(stepscope::read_file(file), nullptr, false);
  if (!d.is_object() || !d.contains("schema")) throw InputError(fmt::format("{}: expected a {} document", file.string(), kVerdictSchema));
  if (d["schema"] != kVerdictSchema)
    throw InputError(fmt::format("{}: schema {}, expected {}", file.string(), d["schema"].dump(), kVerdictSchema));
  // What pages, list and index read without asking.
  const auto is_text = [](const ordered_json& at, const char* key) { return at.contains(key) && at.at(key).is_string(); };
  const auto is_object = [](const ordered_json& at, const char* key) { return at.contains(key) && at.at(key).is_object(); };
  const auto has_verdict = [&](const ordered_json& at) {
    return is_text(at, "verdict") && verdict_from_name(at.at("verdict").get<std::string>());
  };
  bool good = is_text(d, "name") && is_text(d, "at") && is_text(d, "command") && has_verdict(d) && is_object(d, "code") &&
              is_object(d, "environment") && is_object(d, "thresholds") && is_object(d, "ledger") && d.contains("workloads") &&
              d["workloads"].is_array();
  if (good)
    for (const ordered_json& w : d["workloads"])
      good = good && w.is_object() && has_verdict(w) && is_text(w, "workload") && is_text(w, "reason") && is_text(w, "sentence") &&
             is_object(w, "statistics") && is_object(w, "environment") && is_object(w, "a") && is_object(w, "b") &&
             is_object(w["a"], "gate") && is_object(w["b"], "gate") && w.contains("pairs");
  if (!good) throw InputError(fmt::format("{}: a part of a verdict is missing or no such thing", file.string()));
  return d;
}

std::string verdict_text(const ordered_json& j, int depth) {
  constexpr size_t kLine = 600;  // a whole block of a pair, with its steps and clocks
  std::string flat = j.dump();
  if (!j.is_structured() || j.empty() || (depth > 0 && flat.size() <= kLine)) return flat;
  const std::string indent = "\n" + std::string(static_cast<size_t>(depth) + 1, ' ');
  std::string out(1, j.is_object() ? '{' : '[');
  for (auto it = j.begin(); it != j.end(); ++it) {
    if (it != j.begin()) out += ',';
    out += indent;
    if (j.is_object()) out += ordered_json(it.key()).dump() + ": ";
    out += verdict_text(*it, depth + 1);
  }
  return out + "\n" + std::string(static_cast<size_t>(depth), ' ') + (j.is_object() ? "}" : "]");
}

void save_verdict(const std::filesystem::path& file, const ordered_json& document) {
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  gpt2::write_file_atomically(file, verdict_text(document) + "\n");
}

std::vector<bool> correct_campaign(std::vector<ordered_json>& documents, const Thresholds& t) {
  std::vector<Decision> decisions;
  std::vector<std::pair<size_t, size_t>> where;
  for (size_t i = 0; i < documents.size(); ++i)
    for (size_t k = 0; k < documents[i]["workloads"].size(); ++k) {
      const ordered_json& w = documents[i]["workloads"][k];
      Decision d = decision_from_json(w.at("statistics"), documents[i].at("name").get<std::string>());
      if (w.at("reason") == reason::kSameCode) {  // claims nothing, and is no test of an effect
        d.verdict = Verdict::same;
        d.p_value.reset();
      }
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

std::string text_in(const ordered_json& document, const char* section, const char* key) {
  const auto at = document.find(section);
  if (at == document.end() || !at->is_object()) return "";
  const auto found = at->find(key);
  return found == at->end() || !found->is_string() ? "" : found->get<std::string>();
}

Verdict verdict_in(const ordered_json& at) { return verdict_from_name(at.at("verdict").get<std::string>()).value_or(Verdict::invalid); }

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

bool is_regression(const std::optional<ordered_json>& before, const ordered_json& now) {
  if (verdict_in(now) == Verdict::invalid) return true;
  if (!before || verdict_in(*before) == Verdict::invalid ||
      text_in(*before, "environment", "device") != text_in(now, "environment", "device") ||
      text_in(*before, "experiment", "file_sha256") != text_in(now, "experiment", "file_sha256"))
    return false;
  const bool frozen = text_in(now, "experiment", "baseline") != "defaults";
  const double least = std::log1p(now.at("thresholds").value("minimum_effect_pct", 0.3) / 100);
  for (const ordered_json& w : now.at("workloads"))
    for (const ordered_json& old : before->at("workloads")) {
      if (w.at("workload") != old.at("workload")) continue;
      const Verdict v = verdict_in(w), was = verdict_in(old);
      if (v == Verdict::slower && was != Verdict::slower) return true;
      if (v == Verdict::same && was == Verdict::faster) return true;
      // Where A is not frozen, a ratio that rises may be A that became faster. Undecided is no answer.
      if (!frozen || v == Verdict::undecided || was == Verdict::undecided) continue;
      const ordered_json &s = w.at("statistics"), &s_old = old.at("statistics");
      if (!s.contains("ratio_interval") || !s_old.contains("ratio_interval")) continue;
      if (s.at("ratio_interval").at(0).get<double>() > s_old.at("ratio_interval").at(1).get<double>() &&
          std::log(s.at("ratio").get<double>() / s_old.at("ratio").get<double>()) >= least)
        return true;
    }
  return false;
}

bool was_cut_short(const ordered_json& document) {
  const ordered_json& workloads = document.at("workloads");
  return std::any_of(workloads.begin(), workloads.end(), [](const ordered_json& w) {
    return w.at("reason") == reason::kInterrupted || w.at("reason") == reason::kForeignProcess;
  });
}

void decide_again(ordered_json& document) {
  Thresholds t;
  const ordered_json& recorded = document.at("thresholds");
  t.minimum_effect = recorded.at("minimum_effect_pct").get<double>() / 100;
  if (!recorded.contains("looks")) return;
  t.looks.clear();
  for (const ordered_json& l : recorded.at("looks")) {
    const double alpha = l.at("alpha").get<double>();
    t.looks.push_back({l.at("pairs").get<int>(), alpha, l.at("equivalence_alpha").get<double>(), l.value("sign_flip_alpha", alpha)});
  }
  for (ordered_json& w : document.at("workloads")) {
    const Decision old = decision_from_json(w.at("statistics"), document.at("name").get<std::string>());
    if (old.verdict == Verdict::invalid || old.reason == reason::kInterrupted) continue;
    const Decision d = decide(pair_values_from_json(w.at("pairs"), "pairs"), t, old.look);
    w["statistics"] = to_json(d);
    if (has_borrowed_clocks(w.at("pairs"))) w.erase("statistics_in_cycles");
    const bool same_code = w.contains("same_code") && w.at("same_code").at("same") == true && !w.contains("planted_pct");
    w["verdict"] = name(!same_code ? d.verdict : claims(d.verdict) ? Verdict::undecided : Verdict::same);
    w["reason"] = same_code ? std::string(reason::kSameCode) : d.reason;
    w["sentence"] = same_code ? same_code_sentence(w.at("same_code").at("why").get<std::string>(), d) : d.sentence;
  }
  document["verdict"] = name(overall_of(document));
}

}  // namespace experiments
