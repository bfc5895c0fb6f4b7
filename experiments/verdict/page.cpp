#include "experiments/verdict/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/atomic_file.h"
#include "base/read_file.h"
#include "base/text.h"
#include "experiments/verdict/prediction.h"
#include "experiments/verdict/words.h"
#include "profiler/report/names.h"

namespace experiments {
namespace {

using stepscope::ms_text;
using stepscope::signed_ms_text;

constexpr size_t kShownKernels = 16, kShownOps = 12, kKernelName = 48;
constexpr double kLeastOp_ns = 5e3;

std::string kernel_cell(const std::string& kernel) {
  return stepscope::markdown_escaped(profiler::elide(profiler::short_kernel_name(kernel), kKernelName));
}

std::string number(const std::optional<double>& v, int decimals) { return v ? fmt::format("{:.{}f}", *v, decimals) : "-"; }
std::string step(const std::optional<double>& ns) { return ns ? ms_text(*ns) : "-"; }

std::string prediction_text(const WorkloadSection& w) {
  if (!w.predicted_saving_ms) return "";
  std::string out = fmt::format("Predicted saving {:+.3f} ms", *w.predicted_saving_ms);
  if (!w.saved_ms) return out + ", not measured.";
  out += fmt::format(", measured {:+.3f} ms", *w.saved_ms);
  if (w.saved_ms_interval) out += fmt::format(" [{:+.3f}, {:+.3f}]", (*w.saved_ms_interval)[0], (*w.saved_ms_interval)[1]);
  if (prediction_is_off(w)) return out + ". **They differ by more than 30%: the explanation below must say why.**";
  return out + ".";
}

// "113 → 57": DRAM bytes of a step's launches of that kernel, in MB; nothing without counters.
std::string moved(const WaterfallKernel& k) {
  if (!k.a_dram_bytes && !k.b_dram_bytes) return "";
  // Where an arm does not run the kernel it moves nothing; where it does, and nothing was counted, nobody knows.
  const auto side = [](const auto& bytes, int64_t launches) {
    return bytes || launches == 0 ? fmt::format("{:.0f}", bytes.value_or(0) * 1e-6) : std::string("-");
  };
  return side(k.a_dram_bytes, k.a_launches) + " → " + side(k.b_dram_bytes, k.b_launches);
}

// What an idea did where it changed the kernels' names; "" for a waterfall without it.
std::string op_table(const WaterfallSection& f) {
  if (f.ops.empty()) return "";
  std::string out = "| op | A, ms | B, ms | B - A |\n|---|---|---|---|\n";
  double a_left = f.a_ns, b_left = f.b_ns;  // until everything has its row
  const auto row = [&](const std::string& words, double a, double b) {
    out += fmt::format("| {} | {} | {} | {} |\n", words, ms_text(a), ms_text(b), signed_ms_text(b - a));
    a_left -= a;
    b_left -= b;
  };
  for (size_t i = 0; i < std::min(kShownOps, f.ops.size()); ++i)
    if (const WaterfallOpRow& o = f.ops[i]; std::fabs(o.b_ns - o.a_ns) >= kLeastOp_ns)
      row(fmt::format("{} {}", o.pass, o.op), o.a_ns, o.b_ns);
  row("idle between kernels", f.idle.a_ns, f.idle.b_ns);
  row("everything else", a_left, b_left);
  return out + fmt::format("| step, traced | {} | {} | {} |\n\n", ms_text(f.a_ns), ms_text(f.b_ns), signed_ms_text(f.delta_ns));
}

std::string waterfall_table(const WaterfallSection& f) {
  std::string out = "| | ms | where | launches | DRAM MB | kernel |\n|---|---|---|---|---|---|\n";
  out += fmt::format("| A | {} | | | | whole step, traced |\n", ms_text(f.a_ns));
  double folded = f.other.delta_ns;
  int64_t folded_rows = f.other.kernels;
  for (size_t i = 0; i < f.kernels.size(); ++i) {
    const WaterfallKernel& k = f.kernels[i];
    if (i >= kShownKernels) {
      folded += k.delta_ns;
      ++folded_rows;
      continue;
    }
    out += fmt::format("| {} | {} | {} {} | {} → {} | {} | {} |\n", k.change, signed_ms_text(k.delta_ns), k.pass, k.op, k.a_launches,
                       k.b_launches, moved(k), kernel_cell(k.kernel));
  }
  if (folded_rows > 0) out += fmt::format("| other | {} | | | | {} more kernels |\n", signed_ms_text(folded), folded_rows);
  out += fmt::format("| idle | {} | | | | between kernels |\n", signed_ms_text(f.idle.delta_ns));
  out += fmt::format("| rest | {} | | | | unattributed, and what the profiles miss |\n", signed_ms_text(f.rest.delta_ns));
  return out + fmt::format("| B | {} | | | | whole step, traced ({} ms) |\n", ms_text(f.b_ns), signed_ms_text(f.delta_ns));
}

std::string heating_text(const EnvironmentSection& e) {
  if (e.heating_pairs.empty()) return "";
  return fmt::format(
      " **The device still warmed up**, by up to {:.1f} °C in 10 s, last after pair {}: both arms share "
      "that.",
      e.heating_c_per_10_s_max.value_or(0), e.heating_pairs.back());
}

// The device over the blocks in turns.
std::string environment_text(const EnvironmentSection& e) {
  if (!e.absent.empty()) return "Clocks: not sampled (" + e.absent + ").\n";
  if (!e.blocks) return "";
  if (!e.temperature_c_max) return "Clocks in turns: no block was sampled.\n";
  std::string out = "In turns: ";
  if (e.a_sm_clock_mhz_median && e.b_sm_clock_mhz_median)
    out +=
        fmt::format("SM clock (median of sampled blocks) A {:.0f} MHz, B {:.0f} MHz; ", *e.a_sm_clock_mhz_median, *e.b_sm_clock_mhz_median);
  out += fmt::format("at most {:.0f} W; {:.0f} °C at first, {:.0f} °C at most; ", e.power_w_max.value_or(0),
                     e.temperature_c_first.value_or(0), *e.temperature_c_max);
  if (e.power_capped_blocks)
    out += fmt::format("of {} blocks {} were sampled, {} of them at the power cap, {} slowed by heat or hardware.", *e.blocks,
                       e.sampled_blocks.value_or(0), *e.power_capped_blocks, e.throttled_blocks.value_or(0));
  else
    out += fmt::format("of {} blocks none had a sample of its own, so none has a clock.", *e.blocks);
  return out + heating_text(e) + "\n";
}

std::string launches_text(const WorkloadSection& w) {
  std::string out;
  for (const auto& [label, arm] : {std::pair("A", &w.a), std::pair("B", &w.b)}) {
    if (!arm->launches && arm->launches_absent.empty()) continue;
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", label,
                       arm->launches ? arm->launches->sentence : "not compared (" + arm->launches_absent + ")");
  }
  return out.empty() ? "" : "Launches: " + out + ".\n";
}

std::string gate_text(const WorkloadSection& w) {
  std::string out;
  for (const auto& [label, arm] : {std::pair("A", &w.a), std::pair("B", &w.b)})
    out += fmt::format("{}{}: {}{}{}", out.empty() ? "" : "; ", label,
                       arm->gate.passed                         ? ""
                       : arm->gate.sentence == kGateInterrupted ? "not judged, "
                                                                : "NOT passed, ",
                       arm->gate.sentence, arm->gate.checked_by.empty() ? "" : ", checked by " + arm->gate.checked_by);
  return out;
}

// " (look 2 of 3)"; "" where one was planned.
std::string look_text(const Statistics& s, const ThresholdsSection& t) {
  return t.looks.size() < 2 ? "" : fmt::format(" (look {} of {})", s.look, t.looks.size());
}

std::string statistics_text(const WorkloadSection& w, const ThresholdsSection& t) {
  const Statistics& s = w.statistics;
  if (!s.pairs) return "";
  std::string out = fmt::format("{} pairs of fresh processes{}, interval at {:.4g}%", *s.pairs, look_text(s, t), 100 * (1 - s.alpha));
  if (s.sign_flip_p_value) out += fmt::format(", exact sign-flip p = {:.2g}", *s.sign_flip_p_value);
  if (s.minimum_detectable_effect_pct) out += ", minimum detectable effect " + effect_pct(*s.minimum_detectable_effect_pct);
  if (s.process_modes) out += ", process-level modes";
  out += ".\n";
  if (w.sustained)
    out += fmt::format("Each process alone on the device: {:.1f} s not counted{}, {:.1f} s counted; {:.0f} s in all{}.\n",
                       w.sustained->settle_s, w.sustained->settle_rule.empty() ? "" : " (" + w.sustained->settle_rule + ")",
                       w.sustained->measure_s, w.sustained->seconds_alone,
                       w.sustained->commands ? fmt::format(", by {} commands that went on from each other", *w.sustained->commands) : "");
  return out;
}

// Median block of an arm in turns.
std::optional<double> step_in_turns(const WorkloadSection& w, char arm) {
  if (w.procedure == Procedure::in_turns) return arm == 'A' ? w.a_step_ns : w.b_step_ns;
  if (!w.equal_clocks || !w.sustained) return std::nullopt;
  if (w.equal_clocks->by == EqualClocksBy::full_clock) return arm == 'A' ? w.sustained->a.full_clock_ns : w.sustained->b.full_clock_ns;
  return median_step_ns(w.pairs, arm);
}

bool has_as_many_gpus(const WorkloadSection& w) { return !w.a_gpus || !w.b_gpus || *w.a_gpus == *w.b_gpus; }

std::string sustained_rows(const WorkloadSection& w) {
  const SustainedSection& s = *w.sustained;
  std::string out =
      fmt::format("| **step, {}, ms** | {} | {} | **{}** |\n", estimand(w), step(w.a_step_ns), step(w.b_step_ns), ratio_text(w.statistics));
  out += fmt::format("| step, at equal clocks ({}), ms | {} | {} | {} |\n", equal_clocks_words(w), step(step_in_turns(w, 'A')),
                     step(step_in_turns(w, 'B')), ratio_text(w.at_equal_clocks()));
  if (s.a.sm_clock_mhz || s.b.sm_clock_mhz)
    out += fmt::format("| SM clock, sustained, MHz{} | {} | {} | {} |\n",
                       s.max_sm_clock_mhz ? fmt::format(" (at most {:.0f})", *s.max_sm_clock_mhz) : "", number(s.a.sm_clock_mhz, 0),
                       number(s.b.sm_clock_mhz, 0), ratio_text(s.sm_clock));
  if (s.a.joules_per_step || s.b.joules_per_step)
    out += fmt::format("| energy, J/step | {} | {} | {} |\n", number(s.a.joules_per_step, 2), number(s.b.joules_per_step, 2),
                       has_as_many_gpus(w) ? ratio_text(s.joules_per_step) : "-");  // one GPU's share of each is no ratio of steps
  if (s.a.power_w || s.b.power_w)
    out += fmt::format("| power, W{} | {} | {} | {} |\n", s.power_limit_w ? fmt::format(" (limit {:.0f})", *s.power_limit_w) : "",
                       number(s.a.power_w, 0), number(s.b.power_w, 0), cap_cost_text(w));
  return out;
}

std::string turns_rows(const WorkloadSection& w) {
  std::string out =
      fmt::format("| step, {}, ms | {} | {} | {} |\n", estimand(w), step(w.a_step_ns), step(w.b_step_ns), ratio_text(w.statistics));
  if (w.statistics_in_cycles && w.statistics_in_cycles->ratio)
    out += fmt::format("| SM cycles | | | {} |\n", ratio_text(*w.statistics_in_cycles));
  if (w.solo)
    out += fmt::format("| one process of each alone for {:.0f} s, median, ms | {} | {} | {} |\n", w.solo->seconds,
                       ms_text(w.solo->a_step_ns), ms_text(w.solo->b_step_ns), change_pct(w.solo->b_step_ns / w.solo->a_step_ns));
  return out + "| step, sustained, ms | - | - | not measured |\n";
}

// Why a ratio in turns is not what a user gets.
std::string turns_text(const WorkloadSection& w, const ThresholdsSection& t) {
  if (w.procedure != Procedure::in_turns || !w.statistics.ratio) return "";
  std::string out = w.whole_programs
                        ? "Both arms ran as whole programs in turns, too short for the power cap to act: this is the ratio of a burst. "
                        : "Both arms took turns, so this is the ratio at one clock. ";
  out +=
      "At the power cap the ratio of sustained steps is another quantity, which this verdict does not have. The milliseconds are medians "
      "over "
      "all blocks and the ratio is a mean over pairs, so one is not quite the quotient of the others.\n";
  if (!w.solo) return out;
  const double alone = w.solo->b_step_ns / w.solo->a_step_ns;
  if (std::fabs(std::log(alone / *w.statistics.ratio)) >= std::log1p(t.minimum_effect_pct / 100))
    out += fmt::format("**One process of each alone gave B / A {}, in turns {}.**\n", change_pct(alone), change_pct(*w.statistics.ratio));
  return out;
}

std::string self_check_text(const WorkloadSection& w) {
  std::string notices, good;
  for (const SelfCheckResult& c : w.self_checks)
    (c.notice ? notices : good) += fmt::format("- {}{}{}\n", c.notice ? "**" : "", c.sentence, c.notice ? "**" : "");
  return w.self_checks.empty() ? "" : "\nThe measurement's checks on itself:\n\n" + notices + good + "\n";
}

std::string shared_text(const WorkloadSection& w) {
  if (!w.sustained || w.sustained->shared_with.empty()) return "";
  return fmt::format("Arm A's processes also served {}: an error of theirs is in all of these verdicts.\n", w.sustained->shared_with);
}

bool is_known(const SustainedArm& arm) { return arm.sm_clock_mhz || arm.joules_per_step || arm.power_w; }

// The device watch has one GPU.
std::string gpus_text(const WorkloadSection& w) {
  if (!w.a_gpus || !w.b_gpus) return "";
  const bool was_watched =
      w.sustained ? is_known(w.sustained->a) || is_known(w.sustained->b) : w.environment.sampled_blocks.value_or(0) > 0;
  std::string out;
  if (!has_as_many_gpus(w))
    out = "The arm of fewer GPUs ran on the first ones, and more are as fast as the slowest of them: where GPUs differ, B / A does too. ";
  if (was_watched) out += "Clock, energy and power are those of the first GPU alone; nobody looked for other processes on the others. ";
  if (!out.empty()) out.back() = '\n';
  return out;
}

std::string workload_section(const WorkloadSection& w, const ThresholdsSection& t) {
  std::string out = fmt::format("## {}: {}\n\n{} ({}).\n\n", w.workload, name(w.verdict), w.sentence, w.reason);
  out += "| | A | B | B / A |\n|---|---|---|---|\n" + (w.sustained ? sustained_rows(w) : turns_rows(w));
  if (w.memory)
    out += fmt::format("| memory, MB | {:.1f} | {:.1f} | {:+.1f} MB |\n", w.memory->a_bytes * 1e-6, w.memory->b_bytes * 1e-6,
                       w.memory->delta_bytes * 1e-6);
  out += "\n";
  if (const std::string cap = cap_text(w); !cap.empty()) out += cap + "\n";
  if (!w.equal_clocks_absent.empty()) out += fmt::format("No ratio at equal clocks: {}.\n", w.equal_clocks_absent);
  out += turns_text(w, t) + statistics_text(w, t) + shared_text(w) + gpus_text(w);
  if (w.planted_pct) out += fmt::format("Planted in B: {:+.1f}%.\n", *w.planted_pct);
  if (const std::string p = prediction_text(w); !p.empty()) out += p + "\n";
  out += self_check_text(w);
  out += "Gate: " + gate_text(w) + ".\n" + launches_text(w) + environment_text(w.environment) + "\n";
  if (w.waterfall)
    return out + "From A to B, device time of traced steps (a profile of each arm after the measurement):\n\n" + op_table(*w.waterfall) +
           waterfall_table(*w.waterfall) + "\n";
  return out + "No waterfall: " + w.waterfall_absent + ".\n\n";
}

// What arm A has beside the workload, read off its command; arm B has it too where the change does not say otherwise.
std::string common_flags(const VerdictDocument& d) {
  static const std::set<std::string> workload{"--trainer", "--model", "--batch-size", "--seq-len", "--matmul", "--steps", "--gpus"};
  if (d.workloads.empty() || !d.code.a_revision.empty()) return "";
  const std::vector<std::string>& command = d.workloads.front().a.command;
  std::vector<std::string> rest;
  for (size_t i = 2; i < command.size(); ++i) {  // behind the program and its subcommand
    if (workload.contains(command[i]))
      ++i;
    else
      rest.push_back(command[i]);
  }
  return fmt::format("{}", fmt::join(rest, " "));
}

std::string question_section(const VerdictDocument& d) {
  const ExperimentSection& e = *d.experiment;
  const std::string common = e.against_frozen() ? "" : common_flags(d);
  const std::string proof = e.prediction ? e.prediction->sentence : std::string(kNotShownEarlier) + ": nobody looked";
  return fmt::format("**Question.** {}\n\n**Hypothesis.** {}\n\n**Change.** {}{}, against {}.\n\n**Prediction.** {}\n({}.)\n\n", e.question,
                     e.hypothesis, e.change.starts_with("--") ? "`" + e.change + "`" : e.change, e.compound ? " (compound)" : "",
                     e.against_frozen() ? "the frozen baseline " + e.baseline
                     : common.empty()   ? "the defaults"
                                        : "the defaults with `" + common + "`",
                     e.arithmetic, proof);
}

std::string step_lines(const WorkloadSection& w) {
  std::string out;
  if (w.a_step_ns && w.b_step_ns)
    out += fmt::format("  step {}: A {} ms, B {} ms, B / A {}\n", estimand(w), ms_text(*w.a_step_ns), ms_text(*w.b_step_ns),
                       ratio_text(w.statistics));
  if (w.procedure == Procedure::alone)
    out += fmt::format("  step at equal clocks ({}): B / A {}\n", equal_clocks_words(w), ratio_text(w.at_equal_clocks()));
  if (w.sustained && (is_known(w.sustained->a) || is_known(w.sustained->b))) {
    const SustainedSection& s = *w.sustained;
    out += fmt::format("  SM clock {} MHz; {} J/step; {} W{}", both(s.a.sm_clock_mhz, s.b.sm_clock_mhz, 0),
                       both(s.a.joules_per_step, s.b.joules_per_step, 2), both(s.a.power_w, s.b.power_w, 0),
                       s.power_limit_w ? fmt::format(" of {:.0f}", *s.power_limit_w) : "");
    const std::string cost = cap_cost_text(w);
    out += (cost.empty() ? "" : "; " + cost) + "\n";
  }
  if (const std::string cap = cap_text(w); !cap.empty()) out += "  " + cap + "\n";
  if (w.saved_ms) {
    out += fmt::format("  saved {:+.3f} ms", std::fabs(*w.saved_ms) < 0.0005 ? 0 : *w.saved_ms);
    if (w.predicted_saving_ms) out += fmt::format(", predicted {:+.3f}", *w.predicted_saving_ms);
    if (w.statistics.minimum_detectable_effect_pct) out += "; detectable " + effect_pct(*w.statistics.minimum_detectable_effect_pct);
    out += "\n";
  }
  if (w.statistics_in_cycles && w.statistics_in_cycles->ratio)
    out += fmt::format("  in SM cycles B / A = {}\n", ratio_text(*w.statistics_in_cycles));
  return out;
}

std::string waterfall_lines(const WaterfallSection& f) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(3, f.ops.size()); ++i)
    out += fmt::format("  {} ms  {} {}\n", signed_ms_text(f.ops[i].delta_ns), f.ops[i].pass, f.ops[i].op);
  return out + fmt::format("  {} ms  idle; {} ms in all, traced\n", signed_ms_text(f.idle.delta_ns), signed_ms_text(f.delta_ns));
}

}  // namespace

std::string page_of(const VerdictDocument& v) {
  std::string out =
      fmt::format("# {}\n\n**{}**: {}, {}, revision {}.\n\n", v.name, name(v.verdict), v.environment.device, v.at, v.code.git_revision);
  if (const std::string differ = differences_text(v); !differ.empty()) out += "**" + differ + "**\n\n";
  if (!v.code.earlier_revisions.empty())
    out += fmt::format("What commands at {} measured counts too: no source of the step differs.\n\n",
                       fmt::join(v.code.earlier_revisions, ", "));
  if (v.code.dirty()) out += "**Measured on a tree with uncommitted changes**: the revision does not hold all of the code that ran.\n\n";
  if (v.experiment) out += question_section(v);
  for (const WorkloadSection& w : v.workloads) out += workload_section(w, v.thresholds);
  out += v.ledger.sentence + ".\n\n";
  return out + "Made by `" + v.command + "`.\n\n";
}

void write_page(const std::filesystem::path& file, const VerdictDocument& verdict) {
  std::string kept;
  if (const auto before = stepscope::read_file_if_there(file))
    if (const size_t at = before->find(kHandWritten); at != std::string::npos) kept = before->substr(at);
  if (kept.empty()) kept = std::string(kHandWritten) + "\n\n## Explanation\n\nNot written yet.\n";
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  gpt2::write_file_atomically(file, page_of(verdict) + kept);
}

std::string summary_of(const VerdictDocument& v) {
  std::string out;
  if (const std::string differ = differences_text(v); !differ.empty()) out += fmt::format("{}: {}\n", v.name, differ);
  for (const WorkloadSection& w : v.workloads) {
    out += fmt::format("{} | {}: {} ({})\n  {}\n", v.name, w.workload, name(w.verdict), w.reason, w.sentence);
    out += step_lines(w);
    for (const std::string& said : {shared_text(w), gpus_text(w)})
      if (!said.empty()) out += "  " + said;
    for (const SelfCheckResult& c : w.self_checks)
      if (c.notice) out += "  notice: " + c.sentence + "\n";
    if (w.waterfall) out += waterfall_lines(*w.waterfall);
    out += "  gate " + gate_text(w) + "\n";
  }
  if (v.code.dirty()) out += "measured on a tree with uncommitted changes\n";
  if (v.experiment && v.experiment->prediction && !v.experiment->prediction->shown_earlier)
    out += v.experiment->prediction->sentence + "\n";
  return out + v.ledger.sentence + "\n";
}

}  // namespace experiments
