// The document as text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/sustained.h"
#include "experiments/energy/document.h"

namespace energy {
namespace {

std::string label(const OpEnergy& op) {
  return fmt::format("{}/{}{}", op.pass, op.op, op.launch >= 0 ? fmt::format(" launch {}", op.launch + 1) : "");
}

template <class T>
std::string figure(const std::optional<T>& value, double scale, int digits) {
  return value ? fmt::format("{:.{}f}", *value * scale, digits) : "-";
}

std::string head(const Document& d) {
  const StepEnergy& s = d.step;
  std::string text = fmt::format("{} trainer on {}: {} B={} T={}, {} matmul\n", d.run.trainer, d.run.device, d.run.model, d.run.batch_size,
                                 d.run.seq_len, d.run.matmul);
  text += fmt::format("step {:.4g} J in {:.3f} ms: {:.0f} W", s.joules, s.seconds * 1e3, s.power_w);
  if (s.power_limit_w) text += fmt::format(" of {:.0f} W allowed", *s.power_limit_w);
  if (s.sm_clock_mhz) text += fmt::format(", SM clock {:.0f} MHz", *s.sm_clock_mhz);
  if (s.max_sm_clock_mhz) text += fmt::format(" of {:.0f}", *s.max_sm_clock_mhz);
  if (s.clock_limited)
    text += ". Power limits the clock.\n";
  else if (stepscope::clock_limited(s.power_w, s.sm_clock_mhz, s.power_limit_w, s.max_sm_clock_mhz))
    text += ". Power does not limit the clock.\n";
  else
    text += ". Whether power limits the clock is not known.\n";
  return text;
}

std::string op_line(const Document& d, const OpEnergy& op) {
  // At the power limit a copy adds joules and time in one proportion, the limit, whatever its op draws: no power of the op can be told there.
  const bool own_power = (d.method.full_clock || !d.step.clock_limited) && op.slope.seconds > 0;
  return fmt::format("{:<28} {:>8} {:>10.2f} {:>7.2f}{} {:>6.1f} {:>9.1f} {:>7} {:>9} {:>9} {:>8}\n", label(op), op.launches,
                     op.joules() * 1e3, op.slope.joules_error * 1e3, op.resolved ? ' ' : '?', 100 * op.joules() / d.step.joules,
                     op.slope.seconds * 1e6, own_power ? fmt::format("{:.0f}", op.slope.joules / op.slope.seconds) : "-",
                     figure(op.floor ? std::optional(op.floor->joules) : std::nullopt, 1e3, 2), figure(op.above_floor_joules(), 1e3, 2),
                     op.bound ? name(*op.bound) : "-");
}

std::string closure_lines(const Document& d) {
  const auto line = [&](const char* what, const Closure& c) {
    return fmt::format("{:<37} {:>10.2f} {:>7.2f}  {:>6.1f}\n{:<37} {:>10.2f} {:>7}  {:>6.1f}\n", what, c.placed_joules * 1e3,
                       c.placed_error * 1e3, 100 * c.placed_joules / c.step_joules, "not placed", c.not_placed_joules() * 1e3, "",
                       100 * c.not_placed_share());
  };
  std::string text;
  if (d.method.all_ops) {
    text += line("all ops, at the step's clock", d.closure_at_step_clock);
    text += line(d.method.full_clock ? "all ops, at the highest clock" : "all ops, as a copy adds", d.closure);
  }
  if (d.step.full_clock_joules)
    text += fmt::format(
        "with pauses the step takes {:.4g} J at {} MHz{}{}\n", *d.step.full_clock_joules, figure(d.step.full_clock_mhz, 1, 0),
        d.step.limited_joules ? fmt::format(", without {:.4g} J at {} MHz", *d.step.limited_joules, figure(d.step.limited_mhz, 1, 0)) : "",
        d.step.clock_exponent ? fmt::format(": joules go with the clock to the power of {:.2f}", *d.step.clock_exponent) : "");
  if (d.step.twice_over_two)
    text += fmt::format("the step with a copy of all of it takes {:.4f} of the joules of two steps\n", *d.step.twice_over_two);
  return text;
}

std::string share_lines(const Document& d) {
  const auto shares = shares_of(d);
  if (!shares) return "";
  const auto part = [&](const char* what, double joules) {
    return fmt::format("{} {:.0f} mJ ({:.0f}%)", what, joules * 1e3, 100 * joules / d.step.joules);
  };
  return fmt::format("of the step, at the probes' prices: {}, {}, {}, {}\n", part("awake", shares->awake_joules),
                     part("DRAM at the fewest bytes", shares->dram_joules), part("arithmetic", shares->math_joules),
                     part("the rest", shares->rest_joules));
}

std::string coefficient_lines(const Document& d) {
  std::string text;
  for (const ProbeRecord& p : d.probes) {
    text += fmt::format("{}: {:.0f} W", p.name, p.probe.watts);
    if (p.probe.bytes_per_s > 0 && p.probe.flops_per_s <= 0) text += fmt::format(", {:.2f} TB/s", p.probe.bytes_per_s * 1e-12);
    if (p.probe.flops_per_s > 0) text += fmt::format(", {:.1f} TFLOP/s", p.probe.flops_per_s * 1e-12);
    if (p.probe.sm_clock_mhz) text += fmt::format(" at {:.0f} MHz", *p.probe.sm_clock_mhz);
    text += "; ";
  }
  if (d.coefficients)
    text += fmt::format("floors: {:.1f} pJ/byte, {:.3f} pJ/FLOP, {:.0f} W static\n", d.coefficients->joules_per_byte * 1e12,
                        d.coefficients->joules_per_flop * 1e12, d.coefficients->static_w);
  else
    text += fmt::format("no floors: {}\n", d.coefficients_absent);
  return text;
}

std::string alone_lines(const Document& d) {
  std::string text;
  for (const OpEnergy& op : d.ops) {
    if (!op.alone_joules) continue;
    if (text.empty()) text = "\nalone, back to back, against what they take at the step's clock:\n";
    text += fmt::format("  {:<28} {:>10.2f} mJ at {} MHz, {:.2f} mJ at {} MHz: {}\n", label(op), *op.alone_joules * 1e3,
                        figure(op.alone_sm_clock_mhz, 1, 0), op.joules() * 1e3, figure(d.step.sm_clock_mhz, 1, 0),
                        op.joules() > 0 ? fmt::format("{:+.1f}%", 100 * (*op.alone_joules / op.joules() - 1)) : "-");
  }
  return text;
}

}  // namespace

std::optional<Shares> shares_of(const Document& d) {
  if (!d.coefficients || !d.method.all_ops || d.method.by_launch) return std::nullopt;
  Shares s;
  s.awake_joules = d.coefficients->static_w * d.step.seconds;
  for (const OpEnergy& op : d.ops) {
    s.dram_joules += op.min_bytes * d.coefficients->joules_per_byte;
    s.math_joules += op.flops * d.coefficients->joules_per_flop;
  }
  s.rest_joules = d.step.joules - s.awake_joules - s.dram_joules - s.math_joules;
  return s;
}

std::string table(const Document& d) {
  std::string text = head(d);
  text += fmt::format("\n{:<28} {:>8} {:>10} {:>8} {:>6} {:>9} {:>7} {:>9} {:>9} {:>8}\n", "op, all layers", "launches", "mJ", "+-", "%",
                      d.method.full_clock ? "us" : "adds us", "W", "floor mJ", "above mJ", "bound");
  std::vector<const OpEnergy*> ops;
  for (const OpEnergy& op : d.ops) ops.push_back(&op);
  std::stable_sort(ops.begin(), ops.end(), [](const OpEnergy* a, const OpEnergy* b) { return a->joules() > b->joules(); });
  for (const OpEnergy* op : ops) text += op_line(d, *op);
  text += closure_lines(d);
  if (std::any_of(d.ops.begin(), d.ops.end(), [](const OpEnergy& op) { return !op.resolved; }))
    text += "? joules not known to 1% of themselves or 0.05% of the step: more windows (--most-rounds) would tell\n";
  text += share_lines(d);
  text += coefficient_lines(d);
  if (const auto most = most_above_floor(d, 5); !most.empty()) {
    text += "\nmost joules above the energy floor:\n";
    for (const OpEnergy* op : most)
      text += fmt::format("  {:<28} {:>8.2f} mJ above {:.2f} mJ{}\n", label(*op), *op->above_floor_joules() * 1e3, op->floor->joules * 1e3,
                          d.step.clock_limited && d.step.power_limit_w
                              ? fmt::format(": {:.0f} us of a sustained step", *op->above_floor_joules() / *d.step.power_limit_w * 1e6)
                              : "");
  }
  return text + alone_lines(d);
}

}  // namespace energy
