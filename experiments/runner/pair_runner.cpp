#include "experiments/runner/pair_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/errors.h"
#include "base/statistics.h"
#include "experiments/runner/both_procedures.h"

namespace experiments {
namespace {

double mean(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size()); }

Clock::time_point now(const Hooks& h) { return h.now ? h.now() : Clock::now(); }

double seconds_since(Clock::time_point t, const Hooks& h) { return std::chrono::duration<double>(now(h) - t).count(); }

void check_plan(const PairPlan& p) {
  check_common(p);
  check_at_least("--quads", p.quads, 1);
  check_at_least("--block-steps", p.block_steps, 1);
  check_at_least("--block-s", p.block_s, 0);
  check_at_least("--pair-s", p.pair_s, 0);
  check_at_least("--warmup-s", p.warmup_s, 0);
  const std::vector<Look>& looks = p.thresholds.looks;
  if (looks.size() > 1 && looks.back().pairs > 26)
    throw stepscope::InputError(
        fmt::format("--pairs: a look at {} pairs, expected at most 26 (the exact test enumerates 2^pairs)", looks.back().pairs));
}

class PairRun {
 public:
  PairRun(const PairPlan& plan, const Hooks& hooks, Clock::time_point run_began, std::mt19937_64& random)
      : p_(plan), h_(hooks), run_began_(run_began), begin_(now(hooks)), random_(random) {
    arms_[0] = arm_of(plan.a, hooks);
    arms_[1] = arm_of(plan.b, hooks);
  }

  PairRecord measure() {
    const size_t first = coin();
    out_.started_first = "AB"[first];
    arms_[first]->start();
    arms_[1 - first]->start();
    for (const size_t arm : {first, 1 - first}) arms_[arm]->wait_ready(p_.start_timeout_s);
    const bool resident = arms_[0]->keeps_state();
    if (resident) warm_up(first);
    refuse_strangers(h_, resident ? 2 : 0);
    std::vector<Quad> time;
    std::array<std::vector<double>, 2> clocks;
    const int quads = affordable_quads();
    for (int q = 0; q < quads; ++q) {
      const size_t x = coin();
      Quad t;
      std::array<size_t, 2> next{};
      int position = 0;
      for (const size_t arm : {x, 1 - x, 1 - x, x}) {
        const Block b = block(arm, q, position++);
        auto& slot_t = arm == 0 ? t.a_ns : t.b_ns;
        slot_t[next[arm]++] = b.step_ns;
        if (b.environment && b.environment->sm_clock_mhz > 0) clocks[arm].push_back(b.environment->sm_clock_mhz);
      }
      time.push_back(t);
    }
    if (resident) refuse_strangers(h_, 2);  // who came meanwhile; a command leaves the device a moment after its end
    out_.time = pair_value(time).value();   // every time in it was checked to be > 0 and finite
    if (std::min(clocks[0].size(), clocks[1].size()) >= kFewestClocks)
      out_.cycles = PairValue{out_.time.log_ratio + std::log(mean(clocks[1]) / mean(clocks[0])), out_.time.error};
    for (size_t arm : {0, 1})
      for (gate::AuditFinding& f : gate::findings(audits_[arm], p_.audit)) {
        if (!f.passed()) throw ArmFailure(fmt::format("arm {}: {}: {}", "AB"[arm], f.check, f.sentence));
        out_.audits.push_back({"AB"[arm], std::move(f)});
      }
    out_.seconds = seconds_since(begin_, h_);
    return out_;
  }

  // After measure(): whether what was timed is what was checked. Returns the checks that each arm passed.
  int steps_again(uint64_t seed) {
    int checks = 0;
    for (const auto& arm : arms_) checks = arm->steps_again(seed, p_.start_timeout_s + p_.block_timeout_s);
    return checks;
  }

  const nlohmann::ordered_json& info(size_t arm) const { return arms_[arm]->info(); }

 private:
  size_t coin() { return random_() >> 63; }

  // Known after the warm-up; every block also takes a first step that is left out.
  int affordable_quads() const {
    const double quad_s = 2 * (expected_ns_[0] + expected_ns_[1]) * (block_steps_ + 1) * 1e-9;
    if (!(quad_s > 0)) return p_.quads;
    const double affordable = std::floor(p_.pair_s / quad_s);
    return affordable >= p_.quads ? p_.quads : std::min(p_.quads, std::max(kFewestQuads, static_cast<int>(affordable)));
  }

  // Interleaved like the measurement, thrown away. It also learns how many steps a block needs.
  void warm_up(size_t first) {
    const auto began = now(h_);
    std::array<std::vector<double>, 2> seen;
    int steps = 1;
    while (true) {
      for (const size_t arm : {first, 1 - first}) {
        const double expected_s = seen[arm].empty() ? 0 : seen[arm].back() * steps * 1e-9;
        // The very first step may compile or load a library.
        const double timeout = seen[arm].empty() ? p_.start_timeout_s : std::max(p_.block_timeout_s, 20 * expected_s);
        seen[arm].push_back(stepscope::median(arms_[arm]->block(steps, timeout).times_ns));
      }
      const double fastest_s = std::min(seen[0].back(), seen[1].back()) * 1e-9;
      block_steps_ = std::max(p_.block_steps, static_cast<int>(std::ceil(std::min(p_.block_s / fastest_s, 1e6))));
      steps = std::clamp(block_steps_ / 4, 1, block_steps_);
      const double elapsed = seconds_since(began, h_);
      if (elapsed < p_.warmup_s || seen[0].size() < 3) continue;
      const bool settled = std::all_of(seen.begin(), seen.end(),
                                       [](const std::vector<double>& s) { return std::fabs(std::log(s.back() / s[s.size() - 2])) < 0.01; });
      if (!settled && elapsed <= 5 * p_.warmup_s) continue;
      out_.stationary = settled;
      for (const size_t arm : {0, 1}) expected_ns_[arm] = seen[arm].back();
      return;
    }
  }

  Block block(size_t arm, int quad, int position) {
    const double expected_s = expected_ns_[arm] * (block_steps_ + 1) * 1e-9;
    const double at_s = seconds_since(run_began_, h_);
    if (h_.block_begins) h_.block_begins("AB"[arm]);
    const BlockTimes times = arms_[arm]->block(block_steps_, std::max(p_.block_timeout_s, 20 * expected_s));
    Block b;
    if (h_.block_ended) b.environment = h_.block_ended();
    if (b.environment && !arms_[arm]->keeps_state()) b.environment->sm_clock_mhz = 0;
    b.arm = "AB"[arm];
    b.quad = quad;
    b.position = position;
    b.at_s = at_s;
    b.step_ns = stepscope::median(times.times_ns);
    b.steps = static_cast<int>(times.times_ns.size());
    b.last_loss = times.last_loss;
    if (times.audit) audits_[arm].push_back(*times.audit);
    expected_ns_[arm] = b.step_ns;
    out_.blocks.push_back(b);
    return b;
  }

  const PairPlan& p_;
  const Hooks& h_;
  Clock::time_point run_began_, begin_;
  std::mt19937_64& random_;
  std::array<std::unique_ptr<Arm>, 2> arms_;
  std::array<double, 2> expected_ns_{};
  std::array<std::vector<gate::BlockAudit>, 2> audits_;  // of the measured blocks
  int block_steps_ = 1;
  PairRecord out_;
};

// Over all blocks that have a clock.
std::optional<double> mean_clock(const RunLog& log) {
  std::vector<double> clocks;
  for (const PairRecord& p : log.pairs)
    for (const Block& b : p.blocks)
      if (b.environment && b.environment->sm_clock_mhz > 0) clocks.push_back(b.environment->sm_clock_mhz);
  if (clocks.empty()) return std::nullopt;
  return mean(clocks);
}

std::optional<Decision> decide_in_cycles(const RunLog& log, const Thresholds& t, int look) {
  std::vector<PairValue> values;
  for (const PairRecord& p : log.pairs) {
    if (!p.cycles) return std::nullopt;
    values.push_back(*p.cycles);
  }
  return decide(values, t, look);
}

Hooks::Progress progress_of(const RunLog& log, int planned) {
  double seconds = 0, sum = 0;
  for (const PairRecord& p : log.pairs) {
    seconds += p.seconds;
    sum += p.time.log_ratio;
  }
  const double n = static_cast<double>(log.pairs.size());
  return {static_cast<int>(log.pairs.size()), planned, (planned - n) * seconds / n, sum / n};
}

}  // namespace

std::string_view name(Procedure procedure) { return procedure == Procedure::alone ? "alone" : "in_turns"; }

std::optional<double> step_ns_of(const RunLog& log, char arm) {
  if (log.procedure == Procedure::in_turns) return median_step_ns(log, arm);
  if (!log.sustained) return std::nullopt;
  return (arm == 'A' ? log.sustained->a : log.sustained->b).step_ns;
}

std::vector<PairValue> pair_values(const RunLog& log) {
  std::vector<PairValue> out;
  for (const PairRecord& p : log.pairs) out.push_back(p.time);
  return out;
}

std::optional<double> median_step_ns(const RunLog& log, char arm) {
  std::vector<double> v;
  for (const PairRecord& p : log.pairs)
    for (const Block& b : p.blocks)
      if (b.arm == arm) v.push_back(b.step_ns);
  if (v.empty()) return std::nullopt;
  return stepscope::median(std::move(v));
}

std::optional<Heating> heating(const RunLog& log) {
  struct Mean {
    double at_s = 0, temperature_c = 0;
    int pair = 0;
  };
  std::vector<Mean> means;
  for (size_t i = 0; i < log.pairs.size(); ++i) {
    Mean m{0, 0, static_cast<int>(i) + 1};
    int n = 0;
    for (const Block& b : log.pairs[i].blocks) {
      if (!b.environment) continue;
      ++n;
      m.at_s += b.at_s;
      m.temperature_c += b.environment->temperature_c;
    }
    if (n > 0) means.push_back({m.at_s / n, m.temperature_c / n, m.pair});
  }
  std::optional<Heating> out;
  for (size_t i = 0; i < means.size(); ++i) {
    // A sensor in whole degrees says nothing about shorter times.
    const auto later = std::find_if(means.begin() + static_cast<std::ptrdiff_t>(i), means.end(),
                                    [&](const Mean& m) { return m.at_s - means[i].at_s >= 10; });
    if (later == means.end()) break;
    if (!out) out.emplace();
    const double rise = (later->temperature_c - means[i].temperature_c) / (later->at_s - means[i].at_s) * 10;
    out->most_c_per_10_s = i == 0 ? rise : std::max(out->most_c_per_10_s, rise);
    if (rise > kHeating_c_per_10_s) out->pairs.push_back(means[i].pair);
  }
  return out;
}

RunLog run_pairs(const PairPlan& plan, const Hooks& hooks) {
  check_plan(plan);
  RunLog log;
  log.procedure = Procedure::in_turns;
  log.seed = plan.seed;
  log.environment_absent = hooks.block_ended ? "" : hooks.environment_absent;
  std::mt19937_64 random(plan.seed);
  const Thresholds& t = plan.thresholds;
  const std::vector<pid_t> others = children_of_this_process();
  const auto began = now(hooks);
  int look = 1, planned = t.looks.front().pairs;
  const auto finish = [&](Verdict verdict, std::string_view why, const std::string& sentence) {
    log.decision = decide(pair_values(log), t, look);
    log.decision.verdict = verdict;
    log.decision.reason = why;
    log.decision.sentence = sentence;
  };
  try {
    while (true) {
      while (static_cast<int>(log.pairs.size()) < planned) {
        if (hooks.stop && hooks.stop->load()) throw Interrupted();
        refuse_strangers_once_ours_left(hooks);
        {
          PairRun run(plan, hooks, began, random);
          log.pairs.push_back(run.measure());
          log.a_info = run.info(0);
          log.b_info = run.info(1);
          // Every pair takes the same steps from the same start, so once is enough; early, because a refusal spares the rest.
          if (plan.steps_again && log.pairs.size() == 1) log.steps_again_checks = run.steps_again(plan.seed);
        }
        kill_orphans(others);
        if (hooks.progress) hooks.progress(progress_of(log, planned));
      }
      log.decision = decide(pair_values(log), t, look);
      if (!wants_another_look(log.decision, t)) break;
      planned = t.looks[static_cast<size_t>(look++)].pairs;
    }
  } catch (const ArmFailure& e) {
    finish(Verdict::invalid, reason::kArmFailed, e.what());
  } catch (const ForeignProcess& e) {
    finish(Verdict::invalid, reason::kForeignProcess, e.what());
  } catch (const Interrupted&) {
    finish(Verdict::undecided, reason::kInterrupted, stopped_sentence(log.pairs.size(), planned));
  }
  kill_orphans(others);
  log.turns = log.decision;
  if (log.decision.log_ratio && log.decision.interval)
    log.equal_clocks = EqualClocks{EqualClocksBy::turns, {*log.decision.log_ratio, *log.decision.interval}, mean_clock(log)};
  else
    log.equal_clocks_absent = "fewer than two pairs in turns";
  log.limits = hooks.limits;
  log.cycles = decide_in_cycles(log, t, look);
  return log;
}

}  // namespace experiments
