#include "experiments/runner/alone_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "base/errors.h"
#include "base/first_steps.h"
#include "base/sustained.h"
#include "experiments/runner/alone_window.h"
#include "experiments/runner/both_procedures.h"

namespace experiments {

using stepscope::kLongestSettle_s;
using stepscope::kPowerCycle_s;
using stepscope::kSettledChange;

namespace {

constexpr double kChangeHeat_s = 5, kShortHeat_s = 1;
constexpr const char* kSettledBefore = "as in the command before, which was stopped";
// A thread of the driver may wake up after one process or another, so lateness and clocks are judged over so many.
constexpr size_t kFewestAudits = 4;

Clock::duration seconds(double s) { return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s)); }
double seconds_between(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }

void check(std::span<const PairPlan> plans) {
  if (plans.empty()) throw stepscope::InputError("nothing to measure");
  const AlonePlan& alone = plans[0].alone;
  check_at_least("--settle-s", alone.settle_s.value_or(0), 0);
  check_at_least("--measure-s", alone.measure_s, 0.001);
  check_at_least("--turns", alone.turns, 0);
  for (const PairPlan& p : plans) {
    check_common(p);
    if (p.alone.earlier.empty() != alone.earlier.empty() || p.alone.earlier_settle_s != alone.earlier_settle_s)
      throw stepscope::InputError("experiments that go on together must have been stopped together");
    if (p.a.argv != plans[0].a.argv || p.a.environment != plans[0].a.environment)
      throw stepscope::InputError("experiments that are measured together need the same baseline");
  }
}

// An arm of the campaign and what is known of it.
struct Runner {
  ArmSpec spec;
  std::vector<gate::BlockAudit> audits;
  double step_ns = 0;
  size_t skipped = 0;  // the first steps of a whole program, which do not even settle
  nlohmann::ordered_json info;
  int again_checks = 0;
};

class Rounds {
 public:
  Rounds(std::span<const PairPlan> plans, std::span<const std::string> names, const Hooks& hooks)
      : plans_(plans), p_(plans[0]), h_(hooks), random_(plans[0].seed), others_(children_of_this_process()) {
    arms_.push_back({p_.a, {}, 0, {}, 0});
    for (const PairPlan& p : plans) arms_.push_back({p.b, {}, 0, {}, 0});
    logs_.resize(plans.size());
    looks_.assign(plans.size(), 1);
    for (size_t k = 0; k < plans.size(); ++k) {
      RunLog& log = logs_[k];
      log.procedure = Procedure::alone;
      log.seed = p_.seed;
      log.limits = h_.limits;
      log.measure_s = p_.alone.measure_s;
      log.environment_absent = h_.device_between ? "" : h_.environment_absent;
      log.shared_baseline = plans.size() > 1;
      std::vector<std::string> others;
      for (size_t i = 0; i < names.size(); ++i)
        if (i != k) others.push_back(names[i]);
      log.shared_with = fmt::format("{}", fmt::join(others, ", "));
      go_on(k);
    }
  }

  std::vector<RunLog> run() {
    began_ = now();
    try {
      heat();
      rounds_began_ = now();
      for (int round = 0; !active_.empty(); ++round) {
        run_round(round);
        look(round + 1);
        if (h_.round_ended && !active_.empty()) h_.round_ended(as_stopped_now());
      }
    } catch (const ArmFailure& e) {
      for (const size_t k : active_) end(k, logs_[k], Verdict::invalid, reason::kArmFailed, e.what());
    } catch (const ForeignProcess& e) {
      for (const size_t k : active_) end(k, logs_[k], Verdict::invalid, reason::kForeignProcess, e.what());
    } catch (const Interrupted&) {
      for (const size_t k : active_) stop(k, logs_[k]);
    }
    kill_orphans(others_);
    for (size_t k = 0; k < logs_.size(); ++k) {
      say_arms(k, logs_[k]);
      if (logs_[k].decision.verdict != Verdict::invalid && logs_[k].decision.reason != reason::kInterrupted) in_turns(k);
      sum_up(logs_[k]);
    }
    return std::move(logs_);
  }

 private:
  // Rounds of a command before this one. It went on behind every look that has fewer pairs, so that look did not decide; one that has just as
  // many decides as it did there, because that command may have been stopped behind it.
  void go_on(size_t k) {
    const AlonePlan& alone = plans_[k].alone;
    RunLog& log = logs_[k];
    log.runs = alone.earlier;
    // This one counts when it has measured a round.
    log.commands = std::max(1, alone.earlier_commands);
    if (!alone.earlier.empty()) {  // also where this command is stopped before it has settled anything
      log.settle_s = alone.earlier_settle_s;
      log.settle_rule = kSettledBefore;
    }
    earlier_rounds_.push_back(static_cast<int>(sustained_values(alone.earlier).size()));
    const auto looks = static_cast<int>(plans_[k].thresholds.looks.size());
    while (looks_[k] < looks && earlier_rounds_[k] > look_of(k).pairs) ++looks_[k];
    if (earlier_rounds_[k] >= look_of(k).pairs) {
      log.decision = decide(sustained_values(log.runs), plans_[k].thresholds, looks_[k]);
      if (!wants_another_look(log.decision, plans_[k].thresholds)) return;
      ++looks_[k];
    }
    active_.push_back(k);
  }

  Clock::time_point now() const { return h_.now ? h_.now() : Clock::now(); }
  void wait_until(Clock::time_point t) const {
    if (h_.wait_until) return h_.wait_until(t);
    while (now() < t) {
      stop_if_told();
      std::this_thread::sleep_for(std::min<Clock::duration>(t - now(), std::chrono::milliseconds(50)));
    }
  }
  void stop_if_told() const {
    if (h_.stop && h_.stop->load()) throw Interrupted();
  }
  const Look& look_of(size_t k) const { return plans_[k].thresholds.looks[static_cast<size_t>(looks_[k] - 1)]; }

  // One fresh process that has come and gone.
  struct Ran {
    AloneRun run;
    std::vector<double> times_ns;
    std::optional<Clock::time_point> began;  // of its first step
    double begin_s = 0, end_s = 0;           // of the counted steps, since then
  };

  // A fresh process that can step.
  struct Ready {
    std::unique_ptr<Arm> arm;
    double start_s = 0;
  };
  Ready start(const Runner& r) {
    stop_if_told();
    refuse_strangers_once_ours_left(h_);
    if (h_.process_begins) h_.process_begins();
    const auto started = now();
    Ready out{arm_of(r.spec, h_)};
    out.arm->start();
    out.arm->wait_ready(p_.start_timeout_s);
    out.start_s = seconds_between(started, now());
    return out;
  }

  Ran process(Runner& r, const StretchRequest& request, bool again) {
    const auto [arm, start_s] = start(r);
    const bool resident = arm->keeps_state();
    if (resident) {
      if (rest_s_ && last_step_) wait_until(*last_step_ + seconds(*rest_s_));
      refuse_strangers(h_, 1);
    }
    const double expected_s = request.settle_s + request.measure_s + 2 * r.step_ns * 1e-9 * (request.settle_steps + request.measure_steps);
    // The very first step may compile or load a library.
    const double patience_s = std::max({p_.block_timeout_s, 20 * expected_s, r.step_ns == 0 ? p_.start_timeout_s : 0});
    Stretch stretch = arm->stretch(request, patience_s);
    if (resident) refuse_strangers(h_, 1);
    r.info = arm->info();
    if (stretch.audit) r.audits.push_back(*stretch.audit);
    const int n = static_cast<int>(stretch.times_ns.size());
    if (!resident) r.skipped = std::max(first_steady_step(stretch.times_ns), static_cast<size_t>(std::max(r.spec.skip_steps, 0)));
    Counted c = resident
                    ? count_steps(stretch.times_ns, request)
                    : count_steps(stretch.times_ns, request, r.skipped,
                                  static_cast<size_t>(r.spec.skip_steps >= 0 ? r.spec.skip_steps : stepscope::first_steps_left_out(n)));
    r.step_ns = c.run.step_ns();
    c.run.last_loss = stretch.last_loss;
    if (resident) c.run.start_s = start_s;
    if (stretch.began) {
      c.run.at_s = seconds_between(began_, *stretch.began);
      if (resident && last_step_) c.run.rest_s = seconds_between(*last_step_, *stretch.began);
      last_step_ = *stretch.began + seconds(c.ends_s.back());
    } else {
      c.run.device.absent = c.run.device.energy_absent = stretch.began_absent;
      last_step_ = now();
    }
    if (again) r.again_checks = arm->steps_again(p_.seed, p_.start_timeout_s + p_.block_timeout_s);
    return {std::move(c.run), std::move(stretch.times_ns), stretch.began, c.begin_s, c.end_s};
  }

  // After the process is gone, because asking the device waits for its energy counter.
  void look_at_device(Ran& ran) const {
    AloneRun& run = ran.run;
    if (!ran.began) return;
    if (!h_.device_between) {
      run.device.absent = run.device.energy_absent = h_.environment_absent.empty() ? "nothing watches the device" : h_.environment_absent;
      return;
    }
    const auto at = [&](double s) { return *ran.began + seconds(s); };
    run.device = h_.device_between(at(ran.begin_s), at(ran.end_s));
    if (run.device.joules) {
      // Stalls are left out of the steps, their energy is not: this is of the whole counted time.
      run.joules_per_step = *run.device.joules / (run.steps + run.stalls);
      run.device.power_w = *run.device.joules / (ran.end_s - ran.begin_s);
    }
    for (size_t k = 0; k < run.tenths_ns.size(); ++k) {
      const double from_s = static_cast<double>(k) * kTenth_s;
      run.tenths_mhz.push_back(h_.device_between(at(from_s), at(from_s + kTenth_s)).sm_clock_mhz.value_or(0));
    }
  }

  StretchRequest request() const { return {settle_s_, p_.alone.measure_s, p_.alone.settle_steps, p_.alone.measure_steps}; }

  // Thrown away: one process of every arm, and one more start of it.
  void heat() {
    double longest_start_s = 0, settle_s = 0;
    bool settled = true;
    for (size_t i = 0; i < arms_.size(); ++i) {
      Runner& r = arms_[i];
      const double heat_s = i == 0 ? p_.alone.heat_s : std::min(p_.alone.heat_s, p_.alone.settle_s ? kShortHeat_s : kChangeHeat_s);
      const StretchRequest request{heat_s, 0, p_.alone.settle_steps, 1};
      try {
        const Ran ran = process(r, request, p_.steps_again);
        // An arm's first start may search and compile what later ones find on disk, so its second is asked.
        if (r.spec.steps_on_command) longest_start_s = std::max(longest_start_s, start(r).start_s);
        if (!p_.alone.settle_s && r.spec.steps_on_command) {
          const auto after = settled_after_s(ran.times_ns);
          settled = settled && after;
          settle_s = std::max(settle_s, after.value_or(std::min(kLongestSettle_s, heat_s)));
        }
      } catch (const ArmFailure& e) {
        if (i == 0) throw;
        fail(i - 1, e);
      }
      kill_orphans(others_);
      last_step_.reset();  // the check of steps taken again came after the last one
    }
    set_settle(settle_s, settled);
    if (longest_start_s > 0) rest_s_ = 1.1 * longest_start_s + p_.alone.teardown_s;
    for (Runner& r : arms_) {
      r.audits.clear();  // a first process may build what later ones find built
      if (!r.spec.takes_steps() || r.step_ns <= 0) continue;
      r.spec.steps =
          static_cast<int>(std::min(static_cast<double>(r.skipped) + 1.1 * (settle_s_ + p_.alone.measure_s) * 1e9 / r.step_ns, 1e6)) + 10;
    }
  }

  void set_settle(double settle_s, bool settled) {
    std::string rule;
    if (p_.alone.settle_s) {
      settle_s_ = *p_.alone.settle_s;
      rule = "--settle-s";
    } else if (!p_.alone.earlier.empty()) {
      settle_s_ = p_.alone.earlier_settle_s;
      rule = kSettledBefore;
    } else if (!p_.a.steps_on_command) {
      settle_s_ = kSustainedSettle_s;
      rule = "fixed, of commands";
    } else {
      settle_s_ = std::clamp(settle_s, kSustainedSettle_s, kLongestSettle_s);
      rule = settled ? fmt::format("two means over {} s in a row differed by less than {}%", kPowerCycle_s, 100 * kSettledChange)
                     : fmt::format("no two means over {} s in a row differed by less than {}%: the longest that was tried", kPowerCycle_s,
                                   100 * kSettledChange);
    }
    for (RunLog& log : logs_) {
      log.settle_s = settle_s_;
      log.settle_rule = rule;
    }
  }

  bool is_active(size_t k) const { return std::find(active_.begin(), active_.end(), k) != active_.end(); }

  // In how many more of its rounds A began than change k did.
  int lead_of_a(size_t k) const {
    const std::vector<AloneRun> runs = whole_rounds(logs_[k].runs);
    int lead = 0;
    for (size_t i = 0; i < runs.size(); i += 2) lead += runs[i].arm == 'A' ? 1 : -1;
    return lead;
  }
  bool begins_before(size_t arm, size_t other) const {
    return std::find(order_.begin(), order_.end(), arm) < std::find(order_.begin(), order_.end(), other);
  }

  // 0 is the baseline, k + 1 the change k. A round and the next run in opposite orders, without those that left between the two: what stays
  // must not be drawn anew there, or A might begin both.
  std::vector<size_t> order_of(int round) {
    if (round % 2 == 0) {
      order_ = {0};
      for (const size_t k : active_) order_.push_back(k + 1);
      // mt19937_64 is the same everywhere, std::shuffle is not.
      for (size_t i = order_.size() - 1; i > 0; --i) std::swap(order_[i], order_[random_() % (i + 1)]);
      // Commands that are stopped behind an odd round each would draw their way to an order that cancels no drift.
      int lead = 0;
      for (const size_t k : active_) lead += begins_before(0, k + 1) ? lead_of_a(k) : -lead_of_a(k);
      if (lead > 0) std::reverse(order_.begin(), order_.end());
    } else {
      std::erase_if(order_, [&](size_t i) { return i > 0 && !is_active(i - 1); });
      std::reverse(order_.begin(), order_.end());
    }
    return order_;
  }

  void run_round(int round) {
    const std::vector<size_t> order = order_of(round);
    for (size_t position = 0; position < order.size(); ++position) {
      const size_t i = order[position];
      if (i > 0 && !is_active(i - 1)) continue;
      Ran ran;
      try {
        ran = process(arms_[i], request(), false);
        check_audits(i);
      } catch (const ArmFailure& e) {
        if (i == 0) throw;
        fail(i - 1, e);
        continue;
      }
      kill_orphans(others_);
      look_at_device(ran);
      AloneRun& run = ran.run;
      run.arm = i == 0 ? 'A' : 'B';
      run.position = static_cast<int>(position);
      const auto keep = [&](size_t k) {
        run.pair = earlier_rounds_[k] + round;
        logs_[k].runs.push_back(run);
      };
      if (i > 0)
        keep(i - 1);
      else
        std::for_each(active_.begin(), active_.end(), keep);
    }
  }

  void check_audits(size_t i) const {
    for (const gate::AuditFinding& f : gate::findings(arms_[i].audits, p_.audit)) {
      const bool of_any = f.check == "launch error" || f.check == "persisting L2";
      if (!f.passed() && (of_any || arms_[i].audits.size() >= kFewestAudits))
        throw ArmFailure(fmt::format("arm {}: {}: {}", arms_[i].spec.label, f.check, f.sentence));
    }
  }

  void look(int rounds) {
    for (const size_t k : std::vector<size_t>(active_)) {
      logs_[k].commands = 1 + plans_[k].alone.earlier_commands;
      if (earlier_rounds_[k] + rounds < look_of(k).pairs) continue;
      RunLog& log = logs_[k];
      log.decision = decide(sustained_values(log.runs), plans_[k].thresholds, looks_[k]);
      if (wants_another_look(log.decision, plans_[k].thresholds))
        ++looks_[k];
      else
        std::erase(active_, k);
    }
    if (!h_.progress || logs_.empty()) return;
    int planned = 0;
    std::optional<double> mean;
    for (const size_t k : active_) planned = std::max(planned, look_of(k).pairs - earlier_rounds_[k]);
    if (const auto e = estimate(log_ratios_of(logs_[active_.empty() ? 0 : active_[0]]))) mean = e->mean;
    planned = std::max(planned, rounds);
    h_.progress({rounds, planned, (planned - rounds) * seconds_between(rounds_began_, now()) / rounds, mean});
  }

  static std::vector<double> log_ratios_of(const RunLog& log) {
    std::vector<double> out;
    for (const PairValue& v : sustained_values(log.runs)) out.push_back(v.log_ratio);
    return out;
  }

  void end(size_t k, RunLog& log, Verdict verdict, std::string_view why, const std::string& sentence) const {
    Decision& d = log.decision = decide(sustained_values(log.runs), plans_[k].thresholds, looks_[k]);
    d.verdict = verdict;
    d.reason = why;
    d.sentence = sentence;
  }
  void stop(size_t k, RunLog& log) const {
    end(k, log, Verdict::undecided, reason::kInterrupted, stopped_sentence(sustained_values(log.runs).size(), look_of(k).pairs));
  }
  std::vector<RunLog> as_stopped_now() const {
    std::vector<RunLog> logs = logs_;
    for (size_t k = 0; k < logs.size(); ++k) {
      // One that a look has decided still lacks what comes behind the rounds.
      if (logs[k].decision.verdict != Verdict::invalid) stop(k, logs[k]);
      say_arms(k, logs[k]);
      sum_up(logs[k]);
    }
    return logs;
  }
  void fail(size_t k, const ArmFailure& e) {
    end(k, logs_[k], Verdict::invalid, reason::kArmFailed, e.what());
    std::erase(active_, k);
  }

  // What is known of the arms and their processes.
  void say_arms(size_t k, RunLog& log) const {
    const Runner &a = arms_[0], &b = arms_[k + 1];
    log.seconds_alone = plans_[k].alone.earlier_seconds + seconds_between(began_, now());
    log.a_info = a.info;
    log.b_info = b.info;
    log.steps_again_checks = std::min(a.again_checks, b.again_checks);
    for (const auto& [arm, r] : {std::pair('A', &a), std::pair('B', &b)})
      for (gate::AuditFinding& f : gate::findings(r->audits, p_.audit)) log.audits.push_back({arm, std::move(f)});
  }

  static void sum_up(RunLog& log) {
    const double alpha = log.decision.alpha;
    log.sustained = sustained(log.runs, log.limits, alpha);
    const auto full_clock = equal_clocks_of(log.runs, log.limits, alpha);
    if (!log.equal_clocks && full_clock) log.equal_clocks = full_clock;
    if (log.equal_clocks)
      log.equal_clocks_absent.clear();
    else if (log.equal_clocks_absent.empty())
      log.equal_clocks_absent = "not every process took steps 2 to 5 at full clock, and no pairs ran in turns";
    log.self_checks = self_checks(log.runs, log.limits, log.equal_clocks, alpha);
  }

  // The witness at equal clocks. The verdict stands, whatever becomes of it.
  void in_turns(size_t k) {
    RunLog& log = logs_[k];
    PairPlan plan = plans_[k];
    const int n = p_.alone.turns;
    if (n < 2 || !plan.a.steps_on_command) return;
    const double turn_s = 3 * std::max(arms_[0].step_ns, arms_[k + 1].step_ns) * 1e-9;
    if (turn_s > kLongestTurn_s) {
      log.equal_clocks_absent = fmt::format("three steps take {:.0f} ms: turns longer than {:.0f} ms sample the phase of the clock's cycle",
                                            turn_s * 1e3, kLongestTurn_s * 1e3);
      return;
    }
    plan.thresholds.looks = extended_looks(n, n);
    plan.thresholds.looks[0].alpha = log.decision.alpha;  // their interval stands beside the verdict's
    plan.steps_again = false;
    plan.seed = p_.seed + 1 + k;
    Hooks hooks = h_;
    hooks.progress = nullptr;
    RunLog turns = run_pairs(plan, hooks);
    if (turns.decision.verdict == Verdict::invalid || turns.decision.reason == reason::kInterrupted) {
      log.equal_clocks_absent = "in turns: " + turns.decision.sentence;
      return;
    }
    log.pairs = std::move(turns.pairs);
    log.turns = std::move(turns.turns);
    log.equal_clocks = std::move(turns.equal_clocks);
    log.cycles = std::move(turns.cycles);
  }

  std::span<const PairPlan> plans_;
  const PairPlan& p_;
  const Hooks& h_;
  std::mt19937_64 random_;
  std::vector<pid_t> others_;
  std::vector<Runner> arms_;
  std::vector<RunLog> logs_;
  std::vector<int> looks_, earlier_rounds_;
  std::vector<size_t> active_, order_;
  Clock::time_point began_, rounds_began_;  // before and after the processes that heat
  double settle_s_ = 0;
  std::optional<double> rest_s_;
  std::optional<Clock::time_point> last_step_;
};

}  // namespace

std::vector<RunLog> run_alone(std::span<const PairPlan> plans, std::span<const std::string> names, const Hooks& hooks) {
  check(plans);
  return Rounds(plans, names, hooks).run();
}

RunLog run_alone(const PairPlan& plan, const Hooks& hooks) { return std::move(run_alone(std::span(&plan, 1), {}, hooks).front()); }

}  // namespace experiments
