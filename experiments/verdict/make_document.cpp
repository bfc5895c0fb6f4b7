#include "experiments/verdict/make_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "base/nvml.h"
#include "base/statistics.h"
#include "experiments/runner/run_log.h"
#include "experiments/verdict/campaign.h"
#include "experiments/verdict/fields.h"

namespace experiments {
namespace {

RatioSection ratio_section(const PairedRatio& r) {
  return {std::exp(r.log_ratio.mean), {std::exp(r.interval.low), std::exp(r.interval.high)}, r.log_ratio.sd, r.log_ratio.n};
}

std::optional<RatioSection> ratio_section(const std::optional<PairedRatio>& r) {
  return r ? std::optional(ratio_section(*r)) : std::nullopt;
}

ThresholdsSection thresholds_section(const Thresholds& t) {
  ThresholdsSection out{{}, t.alpha, 100 * t.minimum_effect, 100 * t.equivalence_bound(), t.power};
  for (const Look& l : t.looks) out.looks.push_back({l.pairs, l.alpha, l.equivalence_alpha, l.sign_flip_alpha});
  return out;
}

std::optional<double> memory_bytes(const Json& info) {
  const auto items = info.find("memory_bytes");
  if (!info.is_object() || items == info.end() || !items->is_object()) return std::nullopt;
  double sum = 0;
  for (const auto& item : *items)
    if (item.is_number()) sum += item.get<double>();
  return sum;
}

EnvironmentSection environment_of(const RunLog& log) {
  EnvironmentSection out;
  out.absent = log.environment_absent;
  if (!out.absent.empty() || log.pairs.empty()) return out;
  int64_t blocks = 0, sampled = 0, power_capped = 0, throttled = 0;
  double first_c = 0, hottest = 0, most_power = 0;
  std::map<char, std::vector<double>> clocks;
  const uint64_t other_slowdowns = stepscope::nvml::slowdowns(~stepscope::nvml::kPowerCap);
  for (const PairRecord& p : log.pairs)
    for (const Block& b : p.blocks) {
      ++blocks;
      if (!b.environment || b.environment->samples == 0) continue;
      if (sampled++ == 0) first_c = b.environment->temperature_c;
      power_capped += (b.environment->throttle_reasons & stepscope::nvml::kPowerCap) != 0;
      throttled += (b.environment->throttle_reasons & other_slowdowns) != 0;
      hottest = std::max(hottest, b.environment->temperature_c);
      most_power = std::max(most_power, b.environment->power_w);
      if (b.environment->sm_clock_mhz > 0) clocks[b.arm].push_back(b.environment->sm_clock_mhz);
    }
  out.blocks = blocks;
  out.sampled_blocks = sampled;
  if (sampled == 0) return out;
  out.power_capped_blocks = power_capped;
  out.throttled_blocks = throttled;   // thermal, hardware, power brake
  out.temperature_c_first = first_c;  // a device that still heats up slows down while it is measured
  out.temperature_c_max = hottest;
  out.power_w_max = most_power;
  if (const auto h = heating(log)) {
    out.heating_c_per_10_s_max = h->most_c_per_10_s;
    out.heating_pairs.assign(h->pairs.begin(), h->pairs.end());
  }
  for (const auto& [arm, values] : clocks) (arm == 'A' ? out.a_sm_clock_mhz_median : out.b_sm_clock_mhz_median) = stepscope::median(values);
  return out;
}

// nullopt for commands.
std::optional<AuditSection> audit_of(const RunLog& log) {
  AuditSection out{log.steps_again_checks, {}};
  for (const ArmFinding& f : worst_findings(log))
    out.worst.push_back({f.arm, f.finding.check, f.finding.what, f.finding.value, f.finding.limit});
  return out.worst.empty() ? std::nullopt : std::optional(out);
}

BlockRow block_row(const Block& b) {
  BlockRow out;
  out.arm = b.arm;
  out.quad = b.quad;
  out.at_s = std::round(b.at_s * 1e4) / 1e4;
  out.step_ns = b.step_ns;
  out.steps = b.steps;
  if (b.last_loss && std::isfinite(*b.last_loss)) out.loss = b.last_loss;
  if (!b.environment || b.environment->samples == 0) return out;
  const BlockEnvironment& e = *b.environment;
  if (e.sm_clock_mhz > 0) out.sm_clock_mhz = e.sm_clock_mhz;
  if (b.step_ns * b.steps >= kPowerWindow_ns) out.power_w = e.power_w;
  out.temperature_c = e.temperature_c;
  out.samples = e.samples;
  out.throttle_reasons = e.throttle_reasons;
  return out;
}

PairRow pair_row(const PairRecord& p) {
  PairRow out{p.time.log_ratio, p.time.error, std::nullopt, p.started_first, p.stationary, p.seconds, {}};
  if (p.cycles) out.log_ratio_cycles = p.cycles->log_ratio;
  for (const Block& b : p.blocks) out.blocks.push_back(block_row(b));
  return out;
}

ArmReport arm_report(ArmReport arm, const Json& info) {
  if (arm.launches)
    arm.launches_absent.clear();
  else if (arm.launches_absent.empty())
    arm.launches_absent = "not traced";
  arm.said = info;
  return arm;
}

// The rows below `least_ns` are folded by the waterfall's own writer; its shape is this section's.
WaterfallSection waterfall_section(const profiler::Waterfall& w) {
  WaterfallSection out;
  read_object(profiler::to_json(w), out, outermost("waterfall"));
  return out;
}

void fill_equal_clocks(WorkloadSection& w, const RunLog& log) {
  if (log.equal_clocks)
    w.equal_clocks = EqualClocksSection{log.equal_clocks->by, ratio_section(log.equal_clocks->ratio), log.equal_clocks->sm_clock_mhz};
  else
    w.equal_clocks_absent = log.equal_clocks_absent;
}

void fill_alone(WorkloadSection& w, const RunLog& log) {
  w.runs = log.runs;
  for (AloneRun& r : w.runs)
    for (double& ns : r.tenths_ns) ns = std::round(ns);  // a curve for eyes: whole nanoseconds
  SustainedSection& s = w.sustained.emplace();
  s.settle_s = log.settle_s;
  s.measure_s = log.measure_s;
  s.seconds_alone = log.seconds_alone;
  if (log.commands > 1) s.commands = log.commands;
  s.settle_rule = log.settle_rule;
  s.max_sm_clock_mhz = log.limits.max_sm_clock_mhz;
  s.power_limit_w = log.limits.power_limit_w;
  if (log.shared_baseline) s.shared_with = log.shared_with.empty() ? "other experiments of the same command" : log.shared_with;
  fill_sustained(w, log.decision.alpha);
  w.self_checks = log.self_checks;
  fill_equal_clocks(w, log);
  if (!w.sustained) return;
  w.a_step_ns = w.sustained->a.step_ns;
  w.b_step_ns = w.sustained->b.step_ns;
}

WorkloadSection workload_section(const WorkloadResult& r, const Thresholds& thresholds) {
  const Workload& w = r.workload;
  WorkloadSection out;
  out.workload = w.text();
  out.model = w.model;
  out.batch_size = w.batch_size;
  out.seq_len = w.seq_len;
  if (r.a_gpus != 1 || r.b_gpus != 1) {
    out.a_gpus = r.a_gpus;
    out.b_gpus = r.b_gpus;
  }
  out.matmul = w.matmul;
  out.procedure = r.log.procedure;
  out.statistics = statistics_of(r.log.decision);
  if (r.log.cycles) out.statistics_in_cycles = statistics_of(*r.log.cycles);
  if (r.planted_pct != 0) out.planted_pct = r.planted_pct;
  if (r.log.procedure == Procedure::alone) {
    fill_alone(out, r.log);
  } else {
    out.a_step_ns = median_step_ns(r.log, 'A');
    out.b_step_ns = median_step_ns(r.log, 'B');
  }
  out.whole_programs = r.log.a_info.is_object() && r.log.a_info.contains("command");
  fill_saving(out, r.log.decision);
  out.predicted_saving_ms = w.predicted_saving_ms;
  out.seed = r.log.seed;
  const auto a_bytes = memory_bytes(r.log.a_info), b_bytes = memory_bytes(r.log.b_info);
  if (a_bytes && b_bytes) out.memory = MemorySection{*a_bytes, *b_bytes, *b_bytes - *a_bytes};
  out.a = arm_report(r.a, r.log.a_info);
  out.b = arm_report(r.b, r.log.b_info);
  out.audit = audit_of(r.log);
  out.same_code = r.same_code;
  if (r.waterfall)
    out.waterfall = waterfall_section(*r.waterfall);
  else
    out.waterfall_absent = r.waterfall_absent;
  out.environment = environment_of(r.log);
  for (const PairRecord& p : r.log.pairs) out.pairs.push_back(pair_row(p));
  conclude(out, thresholds);
  return out;
}

}  // namespace

void WorkloadResult::make_invalid(std::string_view reason, std::string sentence) {
  log.decision.verdict = Verdict::invalid;
  log.decision.reason = reason;
  log.decision.sentence = std::move(sentence);
}

void fill_saving(WorkloadSection& w, const Decision& d) {
  if (!w.a_step_ns || !d.log_ratio) return;
  const auto saved_ms = [&](double log_ratio) { return -std::expm1(log_ratio) * *w.a_step_ns * 1e-6; };
  w.saved_ms = saved_ms(d.log_ratio->mean);
  if (d.interval) w.saved_ms_interval = Range{saved_ms(d.interval->high), saved_ms(d.interval->low)};
}

void fill_sustained(WorkloadSection& w, double alpha) {
  SustainedSection& s = w.sustained.value();
  const auto measured = sustained(w.runs, {s.max_sm_clock_mhz, s.power_limit_w}, alpha);
  if (!measured) {
    w.sustained.reset();
    return;
  }
  s.a = measured->a;
  s.b = measured->b;
  s.joules_per_step = ratio_section(measured->joules_per_step);
  s.sm_clock = ratio_section(measured->sm_clock);
  s.power = ratio_section(measured->power);
  if (!w.equal_clocks || w.equal_clocks->by != EqualClocksBy::full_clock) return;  // by turns it is of pairs that no document keeps
  if (const auto full_clock = equal_clocks_of(w.runs, {s.max_sm_clock_mhz, s.power_limit_w}, alpha))
    w.equal_clocks = EqualClocksSection{full_clock->by, ratio_section(full_clock->ratio), full_clock->sm_clock_mhz};
  else
    w.equal_clocks.reset();
}

VerdictDocument verdict_document(const std::string& name, const std::optional<Experiment>& e, const std::vector<WorkloadResult>& results,
                                 const RunFacts& f) {
  VerdictDocument out;
  out.name = name;
  out.at = f.at;
  if (e)
    out.experiment = ExperimentSection{e->question, e->hypothesis, e->change_text, e->baseline, e->trainer,
                                       e->compound, e->arithmetic, e->file_sha256, f.prediction};
  out.command = f.command;
  out.code = {f.git_revision, f.a_sources_sha256, f.b_sources_sha256, f.a_revision, f.patch_sha256, f.earlier_revisions};
  out.environment = {f.device, f.driver};
  out.thresholds = thresholds_section(f.thresholds);
  out.ledger = {f.ledger.trials, f.ledger.false_claims, f.ledger.bound_95_pct, f.ledger.text()};
  for (const WorkloadResult& r : results) out.workloads.push_back(r.decided_before ? *r.decided_before : workload_section(r, f.thresholds));
  out.verdict = verdict_of(out);
  return out;
}

}  // namespace experiments
