// One side of a comparison: a process that takes steps when told to, or a command that is run to its end.
//
// The stepping protocol, lines over stdin and stdout ("stepscope.arm/3"); stderr is free:
//   arm    → {"ready": {...}}                      what runs: any object; kept in the verdict
//   runner → step N
//   arm    → {"times_ns": [N numbers], "losses": [N numbers or null], "audit": {…}}   as experiments/gate/step_audit.h writes it
//   runner → run SETTLE_S SETTLE_STEPS MEASURE_S MEASURE_STEPS
//            steps until both SETTLE_S seconds and SETTLE_STEPS steps are over, then on until both others are; nothing in between
//   arm    → {"began_ns": N, "times_ns": […], "losses": […], "audit": {…}}            of all of these steps, however many they are;
//            began_ns: begin of the first by CLOCK_MONOTONIC of this machine
//   runner → again SEED                            no step follows it
//   arm    → {"checks": [{"name", "tensor", "passed", "detail"}, …]}                  of check_steps_again, at least one
//   runner → quit                                  or end of input
//   arm    → {"error": "sentence"}                 instead of an answer; then it ends
// Anything else, silence, or an end is a failure of the arm, with the reason.
#pragma once
#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/gate/step_audit.h"
#include "experiments/runner/child_process_group.h"
#include "experiments/runner/step_lines.h"

namespace experiments {

struct ArmSpec {
  std::string label;  // "A", "B"
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;
  bool steps_on_command = true;  // else: run to its end once per block, its step lines read
  std::string step_regex;        // of a command; "" = the default
  int skip_steps = -1;           // of a command: left out at the start; -1 = a tenth, 1 to 10
  bool in_real_time = false;     // of a command: refused where its steps take longer than its process did; no clock that a test made up
  // Of a command: replaces "{steps}" in its arguments. Whoever runs it alone raises it to what the seconds need.
  int steps = 40;
  bool takes_steps() const;  // "{steps}" stands in an argument
};

// The arm did not do what it must: the comparison is invalid. what() is a sentence that begins with the arm.
struct ArmFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Somebody else computes on the device: no arm's fault, and the comparison is invalid. what() says who.
struct ForeignProcess : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// ctrl-C while an arm was waited for.
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

// All steps of a process that has the device to itself, from its first one on.
struct StretchRequest {
  double settle_s = 2, measure_s = 3;
  int settle_steps = 3, measure_steps = 8;
};
struct Stretch {
  std::vector<double> times_ns;            // all finite and > 0, at least settle_steps + measure_steps of a process that steps on command
  std::optional<Clock::time_point> began;  // of the first step; absent where nobody knows
  std::string began_absent;
  std::optional<double> last_loss;
  std::optional<gate::BlockAudit> audit;  // absent: a command
};

struct BlockTimes {
  std::vector<double> times_ns;  // of the kept steps, all finite and > 0
  std::optional<double> last_loss;
  std::optional<gate::BlockAudit> audit;  // absent: a command, which answers for nothing but its lines
};

class Arm {
 public:
  virtual ~Arm() = default;
  // Starts the process and returns; wait_ready() waits until it can step. Both arms of a pair start up side
  // by side.
  virtual void start() = 0;
  virtual void wait_ready(double timeout_s) = 0;
  // `steps` steps, the first left out (it carries the gap since the last block). Throws ArmFailure,
  // Interrupted.
  virtual BlockTimes block(int steps, double timeout_s) = 0;
  // One uninterrupted stretch of steps. A command is run to its end and takes the steps that it takes.
  virtual Stretch stretch(const StretchRequest& request, double timeout_s) = 0;
  // Has the arm take steps again with a fresh trainer, and throws ArmFailure for a check that did not pass. Returns how many passed;
  // 0 of an arm that cannot. The arm takes no step afterwards.
  virtual int steps_again(uint64_t seed, double timeout_s) = 0;
  virtual bool keeps_state() const = 0;  // lives from block to block, so that it can be warmed up
  virtual const nlohmann::ordered_json& info() const = 0;
};

// `stop` may be null and must outlive the arm.
std::unique_ptr<Arm> make_arm(const ArmSpec& spec, const std::atomic<bool>* stop);

// A command as a reader can type it: the folder of a program on the measuring machine means nothing elsewhere. Not empty.
std::vector<std::string> without_folder(std::vector<std::string> argv);

}  // namespace experiments
