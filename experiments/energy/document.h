// What `stepscope energy` found: joules per op of one training step, how they add up, and how far each op is above its energy floor. Its
// own file ("stepscope.energy/1"); a profile document of the same run can take its joules over (cli/energy_command.cpp).
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/energy/estimate.h"

namespace energy {

// What was measured: the settings that make two documents comparable.
struct RunSettings {
  std::string trainer, device, model, matmul, recompute, weight_rounding, driver, git_revision, command, measured_at;
  int64_t batch_size = 0, seq_len = 0, accumulation = 1;
  std::map<std::string, std::string> variants;
  std::optional<std::string> uuid;  // of the GPU; documents of before 2026-11-30 have none
};

struct Method {
  double settle_s = 0, window_s = 0;  // of each window: first this long uncounted, then counted
  double added_share = 0;             // how much the copies of an op lengthen a step, as near as whole copies allow
  int64_t windows = 0;
  double window_noise = 0;  // standard deviation of a window's joules per step, as a share
  bool by_launch = false;
  bool full_clock = false;  // with pauses, below the power limit; else as training runs
  bool all_ops = true;      // only then do the ops add up to the step
};

// A repeated unit of work by itself: watts are its joules over its seconds.
struct ProbeRecord {
  std::string name;  // "spin" | "copy" | "product"
  Probe probe;
};

struct OpEnergy {
  std::string pass, op;
  int launch = -1;                      // from 0; -1: the whole op
  int64_t instances = 0, launches = 0;  // ranges and graph nodes of a step
  double copies = 0;
  Slope slope;
  bool resolved = false;
  double flops = 0, min_bytes = 0;
  bool has_work = false;  // the trainer tells the work of this op
  std::optional<Floor> floor;
  std::optional<Bound> bound;
  // What a copy adds to a step whose power is at the limit: joules as added / limit. Where the clock gives way, it is not the op's own joules.
  std::optional<double> sustained_s;
  // Launched back to back without the step around it (--alone): another clock, other caches.
  std::optional<double> alone_joules, alone_seconds, alone_sm_clock_mhz;

  double joules() const { return slope.joules_at_step_clock; }
  std::optional<double> above_floor_joules() const { return floor ? std::optional(joules() - floor->joules) : std::nullopt; }
};

struct StepEnergy {
  double joules = 0, seconds = 0;              // of training steps, measured before the step was captured
  double graph_joules = 0, graph_seconds = 0;  // of the captured step, over all its windows
  std::optional<double> sm_clock_mhz;
  double power_w = 0;
  std::optional<double> power_limit_w, max_sm_clock_mhz;
  bool clock_limited = false;  // base/sustained.h; false too where power, clock or limits are unknown
  // A step followed by a copy of the whole of it, against twice the step: 1 where appending copies costs nothing by itself.
  std::optional<double> twice_over_two;
  std::optional<double> clock_exponent;
  // With pauses, so at the highest clock: joules without those of the pauses.
  std::optional<double> full_clock_joules, full_clock_mhz;
  // The window of the captured step just before it, which clock_exponent compares it with; absent with --full-clock, and before 2026-11-30.
  std::optional<double> limited_joules, limited_mhz;
  double loss_before = 0, loss_after = 0;
};

struct Document {
  RunSettings run;
  Method method;
  StepEnergy step;
  std::vector<ProbeRecord> probes;
  std::optional<Coefficients> coefficients;
  std::string coefficients_absent;
  std::vector<OpEnergy> ops;      // as the step first comes to them
  Closure closure;                // of the joules as added
  Closure closure_at_step_clock;  // of the joules at the step's clock
};

// The ops with the most joules above their energy floor, most first.
std::vector<const OpEnergy*> most_above_floor(const Document& document, size_t count);

// Where the step's joules go, as far as the probes tell: power that the GPU draws for being awake, DRAM for the fewest bytes of each op, the
// arithmetic of each op's FLOPs, and what is left: traffic above the fewest bytes, instructions, ops without a work model, and another price
// of a FLOP at the step's clock than at the probe's. nullopt without coefficients or where not all ops were measured whole.
struct Shares {
  double awake_joules = 0, dram_joules = 0, math_joules = 0;
  double rest_joules = 0;  // less than nothing where the probes' prices are above the step's
};
std::optional<Shares> shares_of(const Document& document);

nlohmann::ordered_json to_json(const Document& document);
// Throws stepscope::InputError for another schema, a field that is missing or of another type, a number that no measurement has, and numbers
// that contradict each other (document_checks.h); `file` names it.
Document from_json(const nlohmann::ordered_json& json, const std::string& file);

// For people: the step, one line per op with the most joules first, the sum, the list of the five.
std::string table(const Document& document);

}  // namespace energy
