#include "experiments/energy/document_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/errors.h"

namespace energy {
namespace {

// So many of its own errors may an op's joules lie below zero, or this share of the step: an error out of three windows may come out small.
constexpr double kErrors = 5, kNoiseShare = 0.01;
// The clock of the windows without copies is known to this share: they stand minutes apart, and the device warms.
constexpr double kClockShare = 0.05;
// By the exponent the joules at the highest clock become about the step's: its clock in the document is that of training, not of the windows
// that the exponent is from.
constexpr double kExponentFactor = 2;

struct Checks {
  const Document& d;
  const std::string& file;

  [[noreturn]] void fail(const std::string& place, const std::string& what) const {
    throw stepscope::InputError(fmt::format("{}: {}: {}", file, place, what));
  }
  template <class T>
  void more(const T& value, const std::string& place) const {
    if (!(value > 0)) fail(place, fmt::format("found {}, expected more than 0", value));
  }
  template <class T>
  void more(const std::optional<T>& value, const std::string& place) const {
    if (value) more(*value, place);
  }
  void same(double found, double expected, const std::string& place, const char* meaning) const {
    if (!(std::abs(found - expected) <= 1e-6 * std::abs(expected) + 1e-15))
      fail(place, fmt::format("found {}, expected {}: {}", found, expected, meaning));
  }
  void at_least(double found, double least, const std::string& place, const char* meaning) const {
    if (!(found >= least)) fail(place, fmt::format("found {}, expected {} or more: {}", found, least, meaning));
  }

  void step() const {
    const StepEnergy& s = d.step;
    same(s.power_w, s.joules / s.seconds, "step.power_w", "step.joules / step.seconds");
    if (s.sm_clock_mhz && s.max_sm_clock_mhz) at_least(*s.max_sm_clock_mhz, *s.sm_clock_mhz, "step.max_sm_clock_mhz", "step.sm_clock_mhz");
    if (s.clock_limited && !s.power_limit_w) fail("step.power_limit_w", "is missing, expected the limit: step.clock_limited is true");
    if (!s.clock_exponent) return;
    if (!s.full_clock_joules || !s.full_clock_mhz)
      fail("step.full_clock_joules and full_clock_mhz", "are missing, expected what step.clock_exponent was measured by");
    if (!s.sm_clock_mhz) return;
    const double brought = *s.full_clock_joules * std::pow(*s.sm_clock_mhz / *s.full_clock_mhz, *s.clock_exponent);
    const double of_step = d.method.full_clock ? s.joules : s.graph_joules;
    if (!(brought >= of_step / kExponentFactor && brought <= of_step * kExponentFactor))
      fail("step.clock_exponent",
           fmt::format("found {}, by which {:.4g} J at {:.0f} MHz are {:.3g} J at {:.0f} MHz, expected the step's {:.4g} J "
                       "within a factor of {}",
                       *s.clock_exponent, *s.full_clock_joules, *s.full_clock_mhz, brought, *s.sm_clock_mhz, of_step, kExponentFactor));
    if (s.limited_joules && s.limited_mhz)
      same(*s.clock_exponent, std::log(*s.full_clock_joules / *s.limited_joules) / std::log(*s.full_clock_mhz / *s.limited_mhz),
           "step.clock_exponent", "ln(full_clock_joules / limited_joules) / ln(full_clock_mhz / limited_mhz)");
  }

  void coefficients() const {
    if (!d.coefficients) return;
    if (d.probes.size() != 3)
      fail("coefficients", fmt::format("found {} probes, expected spin, copy and product, which the coefficients are of", d.probes.size()));
    const auto expected = coefficients_of(d.probes[0].probe, d.probes[1].probe, d.probes[2].probe);
    if (!expected) fail("coefficients", "found coefficients, expected none: a probe drew no more than the idle one");
    const char* meaning = "what the probes give";
    same(d.coefficients->static_w, expected->static_w, "coefficients.static_w", meaning);
    same(d.coefficients->joules_per_byte, expected->joules_per_byte, "coefficients.joules_per_byte", meaning);
    same(d.coefficients->joules_per_flop, expected->joules_per_flop, "coefficients.joules_per_flop", meaning);
    same(d.coefficients->bytes_per_s, expected->bytes_per_s, "coefficients.bytes_per_s", meaning);
    same(d.coefficients->flops_per_s, expected->flops_per_s, "coefficients.flops_per_s", meaning);
  }

  void floor_and_sustained(const OpEnergy& op, const std::string& place) const {
    if (op.floor) {
      if (!d.coefficients) fail(place + ".floor", "found a floor, expected none: there are no coefficients");
      const Floor expected = floor_of(op.flops, op.min_bytes, *d.coefficients);
      const char* meaning = "what flops, min_bytes and the coefficients give";
      same(op.floor->memory_s, expected.memory_s, place + ".floor.memory_s", meaning);
      same(op.floor->math_s, expected.math_s, place + ".floor.math_s", meaning);
      same(op.floor->joules, expected.joules, place + ".floor.joules", meaning);
    }
    if (!op.sustained_s) return;
    if (!d.step.power_limit_w) fail(place + ".sustained_s", "found seconds at a power limit, expected none: step.power_limit_w is missing");
    same(*op.sustained_s, op.slope.joules / *d.step.power_limit_w, place + ".sustained_s", "added.joules / step.power_limit_w");
  }

  // An op takes no less than nothing, but what is measured is a difference of two windows of the whole step: by its noise, and by what the
  // clock of the windows is not known to, it may come out below.
  void not_below_noise(const OpEnergy& op, const std::string& place) const {
    const Slope& s = op.slope;
    const double noise = std::max(kErrors * s.joules_error, kNoiseShare * d.step.joules / op.copies), of_clock = kClockShare / op.copies;
    // Windows that differ by more than a whole step with all its copies measured nothing.
    if (!(s.joules_error * op.copies <= d.step.joules))
      fail(place + ".joules_error",
           fmt::format("found {}, expected at most {}: step.joules / copies", s.joules_error, d.step.joules / op.copies));
    at_least(s.joules, -noise, place + ".joules", "its noise below 0");
    const double exponent = d.method.full_clock ? 0 : std::abs(d.step.clock_exponent.value_or(0));
    if (exponent > 0)
      at_least(s.joules_at_step_clock, -noise - exponent * of_clock * d.step.joules, place + ".joules_at_step_clock",
               "its noise and 5% of the clock below 0");
    else
      same(s.joules_at_step_clock, s.joules * (d.method.full_clock ? d.step.joules / d.step.graph_joules : 1),
           place + ".joules_at_step_clock",
           d.method.full_clock ? "joules x step.joules / step.graph_joules" : "joules, as there is no step.clock_exponent");
    const double of_seconds = (noise / d.step.joules + of_clock) * d.step.seconds;
    at_least(s.seconds, -of_seconds, place + ".seconds", "the noise of the joules and 5% of the clock below 0");
    if (!(s.seconds <= d.step.seconds + of_seconds))
      fail(place + ".seconds",
           fmt::format("found {}, expected at most step.seconds and the noise: {}", s.seconds, d.step.seconds + of_seconds));
  }

  void ops() const {
    if (d.ops.empty()) fail("ops", "found none, expected the ops that the sums are of");
    std::map<std::tuple<std::string, std::string, int>, size_t> seen;
    for (size_t i = 0; i < d.ops.size(); ++i) {
      const OpEnergy& op = d.ops[i];
      const std::string place = fmt::format("ops[{}]", i);
      const auto [first, is_new] = seen.emplace(std::tuple(op.pass, op.op, op.launch), i);
      if (!is_new) fail(place, fmt::format("the same op as ops[{}], {}/{}, expected each once", first->second, op.pass, op.op));
      if (!d.method.by_launch && op.launch >= 0)
        fail(place + ".launch", fmt::format("found {}, expected -1, the whole op: method.by_launch is false", op.launch));
      floor_and_sustained(op, place);
      not_below_noise(op, place + ".added");
    }
  }

  void closures() const {
    std::vector<Slope> slopes;
    for (const OpEnergy& op : d.ops) slopes.push_back(op.slope);
    const auto against = [&](const Closure& found, bool at_step_clock, const std::string& place, const char* sum) {
      const bool of_graph = d.method.full_clock && !at_step_clock;
      const Closure expected = close_over(slopes, of_graph ? d.step.graph_joules : d.step.joules, at_step_clock);
      same(found.step_joules, expected.step_joules, place + ".step_joules", of_graph ? "step.graph_joules" : "step.joules");
      same(found.placed_joules, expected.placed_joules, place + ".placed_joules", sum);
      same(found.placed_error, expected.placed_error, place + ".placed_error",
           "the root of the sum of the squares of ops[].added.joules_error");
    };
    against(d.closure, false, "closure", "the sum of ops[].added.joules");
    against(d.closure_at_step_clock, true, "closure_at_step_clock", "the sum of ops[].added.joules_at_step_clock");
  }
};

}  // namespace

void check_more_than_zero(const Document& d, const std::string& file) {
  const Checks c{d, file};
  c.more(d.run.batch_size, "run.batch_size");
  c.more(d.run.seq_len, "run.seq_len");
  c.more(d.run.accumulation, "run.accumulation");
  c.more(d.step.joules, "step.joules");
  c.more(d.step.seconds, "step.seconds");
  c.more(d.step.graph_joules, "step.graph_joules");
  c.more(d.step.graph_seconds, "step.graph_seconds");
  c.more(d.step.sm_clock_mhz, "step.sm_clock_mhz");
  c.more(d.step.power_limit_w, "step.power_limit_w");
  c.more(d.step.max_sm_clock_mhz, "step.max_sm_clock_mhz");
  c.more(d.step.full_clock_mhz, "step.full_clock_mhz");
  c.more(d.step.limited_joules, "step.limited_joules");
  c.more(d.step.limited_mhz, "step.limited_mhz");
  c.more(d.step.twice_over_two, "step.twice_over_two");
  c.more(d.method.window_s, "method.window_s");
  for (size_t i = 0; i < d.probes.size(); ++i) c.more(d.probes[i].probe.sm_clock_mhz, fmt::format("probes[{}].sm_clock_mhz", i));
  for (size_t i = 0; i < d.ops.size(); ++i) {
    c.more(d.ops[i].instances, fmt::format("ops[{}].instances", i));
    c.more(d.ops[i].launches, fmt::format("ops[{}].launches", i));
    c.more(d.ops[i].copies, fmt::format("ops[{}].copies", i));
    c.more(d.ops[i].slope.windows, fmt::format("ops[{}].added.windows", i));
    c.more(d.ops[i].alone_joules, fmt::format("ops[{}].alone_joules", i));
    c.more(d.ops[i].alone_seconds, fmt::format("ops[{}].alone_seconds", i));
    c.more(d.ops[i].alone_sm_clock_mhz, fmt::format("ops[{}].alone_sm_clock_mhz", i));
  }
}

void check_agreement(const Document& document, const std::string& file) {
  const Checks checks{document, file};
  checks.step();
  checks.coefficients();
  checks.ops();
  checks.closures();
}

}  // namespace energy
