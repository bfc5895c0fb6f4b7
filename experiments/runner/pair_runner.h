// The measurement: pairs of fresh processes that take turns in short ABBA blocks. Start order and the arm
// that begins a quad are drawn from a seed. What was measured is kept whatever ends the run: an arm that
// fails makes it invalid, ctrl-C undecided.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/nvml.h"
#include "experiments/runner/alone_run.h"
#include "experiments/runner/arm.h"
#include "experiments/statistics/decision.h"

namespace experiments {

// The machine during one block, from samples taken in it: a block may be shorter than the time between two samples and then
// has none. Absent values were not to be had (RunLog::environment_absent says why).
struct BlockEnvironment {
  double sm_clock_mhz = 0;  // mean; 0 of a command, most of whose block is its start
  double power_w = 0;
  double temperature_c = 0;
  uint64_t throttle_reasons = 0;  // all bits seen, nvmlClocksEventReasons
  int samples = 0;
};

struct Block {
  char arm = 'A';
  int quad = 0;
  int position = 0;    // 0..3 in the quad
  double at_s = 0;     // its begin, since the run began
  double step_ns = 0;  // median of its steps
  int steps = 0;
  std::optional<double> last_loss;
  std::optional<BlockEnvironment> environment;
};

// What an arm had to answer for.
struct ArmFinding {
  char arm = 'A';
  gate::AuditFinding finding;
};

struct PairRecord {
  PairValue time;
  // The same in SM cycles: the log ratio of the times plus that of the mean clocks during B's and A's blocks; absent unless
  // each arm has kFewestClocks blocks with a sample of their own. Its error is that of the times.
  std::optional<PairValue> cycles;
  char started_first = 'A';
  bool stationary = true;  // warm-up ended because the step time had settled, not because its limit was reached
  double seconds = 0;      // wall time of the pair, start-up included
  std::vector<Block> blocks;
  std::vector<ArmFinding> audits;  // none of commands
};

inline constexpr int kFewestQuads = 4;
inline constexpr int kFewestClocks = 8;

struct AlonePlan {
  double heat_s = 10;              // of the baseline, thrown away before the first pair
  std::optional<double> settle_s;  // left out of every process; absent: by the settle rule, from the processes that heat
  double measure_s = 3;
  int settle_steps = 3, measure_steps = 8;  // at least, whatever the seconds are
  // What a process takes to leave a GPU, and the runner to look for strangers. With the start of the next one it makes the rest between two.
  double teardown_s = 0.7;
  // Resident pairs in turns after the verdict, as a witness at equal clocks; only where three steps take at most kLongestTurn_s, because
  // blocks of 0.1 to 0.5 s sample the phase of the clock's cycle.
  int turns = 4;
  // What a command before this one measured of the same arms and was not let finish: complete rounds, which count as if this one had measured
  // them. Its processes settled for `earlier_settle_s`, and so do all others.
  std::vector<AloneRun> earlier{};
  double earlier_settle_s = 0, earlier_seconds = 0;  // the latter: of all of it
  int earlier_commands = 0;
};
inline constexpr double kLongestTurn_s = 0.060;

struct PairPlan {
  ArmSpec a, b;
  Thresholds thresholds;
  // Many short blocks: on an H200 at its power cap the clock wanders by percents within tenths of a second, and the shorter the blocks the
  // more of that both arms share. The spread of pairs of identical code was 0.84% with 4 quads of 0.1 s, 0.22% with 12 of 0.03 s, 0.13%
  // with 24 of 0.015 s, in the same GPU time (docs/experiment-procedure.md).
  int quads = 24;          // fewer, but at least kFewestQuads, where they would take longer than pair_s
  double block_s = 0.015;  // a block takes the longer of this and `block_steps`
  int block_steps = 2;
  double pair_s = 4;
  double warmup_s = 1;  // at least; up to 5 times as long until the step time has settled
  double start_timeout_s = 300;
  double block_timeout_s = 60;  // or 20 times what the block should take, whichever is longer
  uint64_t seed = 0;
  bool steps_again = true;  // of arms that step on command, after the first pair
  gate::AuditLimits audit;
  AlonePlan alone;  // of run_alone(), which reads neither quads nor blocks but for its pairs in turns
};

struct RunLog;

struct Hooks {
  const std::atomic<bool>* stop = nullptr;  // set by ctrl-C
  // Called around every measured block; both may be empty.
  std::function<void(char arm)> block_begins;
  std::function<std::optional<BlockEnvironment>()> block_ended;
  // A sentence when somebody else computes on the device while `own` of our processes live there. May be
  // empty.
  std::function<std::optional<std::string>(int own)> foreign_process;
  std::string environment_absent;  // why block_ended is empty
  // Alone, before every process. `device_between` is asked about what comes behind it when that process is gone. May be empty.
  std::function<void()> process_begins;
  // The device between two moments in the past; may wait a third of a second for the energy counter to pass the second one. May be empty.
  std::function<DeviceWindow(Clock::time_point from, Clock::time_point to)> device_between;
  DeviceLimits limits;
  // Replaced by tests, whose arms and clock are simulated. Empty: processes and the machine's clock.
  std::function<std::unique_ptr<Arm>(const ArmSpec&)> make_arm{};
  std::function<Clock::time_point()> now{};
  std::function<void(Clock::time_point)> wait_until{};
  struct Progress {
    int pairs_done = 0, pairs_planned = 0;
    double seconds_left = 0;
    std::optional<double> mean_log_ratio;
  };
  std::function<void(const Progress&)> progress;
  // Alone, after every round but the last: the logs as if an interrupt had come now, so that what was measured outlives this process.
  std::function<void(std::span<const RunLog>)> round_ended;
};

// Which ratio a verdict states.
enum class Procedure {
  alone,     // sustained: fresh processes, each alone on the device
  in_turns,  // at equal clocks: two resident processes in short blocks (`--quick`)
};
std::string_view name(Procedure procedure);

struct RunLog {
  Procedure procedure = Procedure::in_turns;
  Decision decision;  // of the procedure, or invalid / undecided with its reason; its levels are those of Thresholds::looks

  // Alone. Empty, and the rest absent, where nothing ran alone.
  std::vector<AloneRun> runs;    // in the order in which they were measured
  bool shared_baseline = false;  // the runs of A stand in the logs of other experiments of the same command too
  std::string shared_with;       // their names, "mixed-x, mixed-y"
  double settle_s = 0;           // fixed for all processes after the first pair
  double measure_s = 0;
  int commands = 1;                    // that measured it, each going on where the one before was stopped
  std::string settle_rule;             // how settle_s was found: "two means of 1.03 s in a row differed by less than 0.3%", "--settle-s"
  double seconds_alone = 0;            // wall time of all of it, start-up and rests included
  std::optional<Sustained> sustained;  // what decision (alone) is of, arm by arm
  std::vector<SelfCheckResult> self_checks;
  DeviceLimits limits;

  // At equal clocks: a witness beside a verdict alone, the same as `decision` of a verdict in turns. `turns` is a test of few pairs:
  // its ratio and interval count, not its verdict.
  std::vector<PairRecord> pairs;
  std::optional<Decision> turns;
  std::optional<EqualClocks> equal_clocks;  // by turns, else by steps 2 to 5
  std::string equal_clocks_absent;          // why there is none

  std::optional<Decision> cycles;         // the same statistic in SM cycles; informs, does not decide
  nlohmann::ordered_json a_info, b_info;  // what the arms said they are
  std::string environment_absent;
  uint64_t seed = 0;
  int steps_again_checks = 0;      // passed by each arm; 0: they are commands
  std::vector<ArmFinding> audits;  // of processes alone; those of pairs in turns are in the pairs
};

// Runs the looks of the plan. Throws only for a plan that makes no sense (stepscope::InputError); everything
// that an arm can do wrong is in the log.
RunLog run_pairs(const PairPlan& plan, const Hooks& hooks);

// The step time that a verdict of this log states for an arm: sustained, or in turns the median over the blocks.
std::optional<double> step_ns_of(const RunLog& log, char arm);
// Median of the blocks' step times of one arm; nullopt without blocks.
std::optional<double> median_step_ns(const RunLog& log, char arm);
std::vector<PairValue> pair_values(const RunLog& log);

// Whether the device still warmed up while it was measured: both arms share the drift, but figures in ms are then
// those of a colder device than a longer run would see.
struct Heating {
  double most_c_per_10_s = 0;  // between the means of two pairs that began at least 10 s apart
  std::vector<int> pairs;      // counted from 1: after them it rose by more than kHeating_c_per_10_s
};
inline constexpr double kHeating_c_per_10_s = 1;
// nullopt: no temperatures, or no two pairs so far apart.
std::optional<Heating> heating(const RunLog& log);

}  // namespace experiments
