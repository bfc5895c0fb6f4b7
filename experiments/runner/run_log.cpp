#include "experiments/runner/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "base/json_place.h"

namespace experiments {
namespace {

using nlohmann::ordered_json;

// Absent rather than null: "no answer" is no number.
void put(ordered_json& out, const char* key, const std::optional<double>& value) {
  if (value && std::isfinite(*value)) out[key] = *value;
}

std::optional<double> number(const ordered_json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// A recording is evidence: what it says of a pair must be what the pair's blocks say, where it holds whole quads of them.
void check_blocks(const ordered_json& pair, double log_ratio, const std::string& place) {
  const auto blocks = pair.find("blocks");
  if (blocks == pair.end()) return;
  std::vector<TimedBlock> timed;
  for (const ordered_json& b : *blocks) {
    const auto step_ns = number(b, "step_ns");
    const auto arm = b.find("arm"), quad = b.find("quad");
    if (!step_ns || !(*step_ns > 0) || arm == b.end() || !arm->is_string() || quad == b.end() || !quad->is_number_integer())
      throw stepscope::InputError(fmt::format("{}.blocks[{}]: expected arm, quad and a step_ns above 0", place, timed.size()));
    timed.push_back({*arm == "A" ? 'A' : 'B', quad->get<int64_t>(), *step_ns});
  }
  if (const auto value = pair_value_of(timed); value && !alike(value->log_ratio, log_ratio))
    throw stepscope::InputError(fmt::format("{}.log_ratio is {:.6f}, its blocks say {:.6f}", place, log_ratio, value->log_ratio));
}

// One measurement counts once: two that agree in every digit of every time are one.
void refuse_twins(const ordered_json& pairs, const std::string& source) {
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < pairs.size(); ++i)
    if (const auto [first, is_new] = seen.emplace(pairs[i].dump(), i); !is_new)
      throw stepscope::InputError(fmt::format("{}: pairs[{}] is pairs[{}] once more", source, i, first->second));
}

}  // namespace

std::vector<ArmFinding> worst_findings(const RunLog& log) {
  std::vector<ArmFinding> worst = log.audits;
  for (const PairRecord& p : log.pairs)
    for (const ArmFinding& f : p.audits) {
      const auto same = [&](const ArmFinding& w) {
        return std::tie(w.arm, w.finding.check, w.finding.what) == std::tie(f.arm, f.finding.check, f.finding.what);
      };
      const auto at = std::find_if(worst.begin(), worst.end(), same);
      if (at == worst.end())
        worst.push_back(f);
      else if (f.finding.value - f.finding.limit > at->finding.value - at->finding.limit)
        *at = f;
    }
  return worst;
}

ordered_json pairs_to_json(const RunLog& log) {
  ordered_json pairs = ordered_json::array();
  for (const PairRecord& p : log.pairs) {
    ordered_json row{{"log_ratio", p.time.log_ratio}};
    put(row, "error", p.time.error);
    if (p.cycles) row["log_ratio_cycles"] = p.cycles->log_ratio;
    row["started_first"] = std::string(1, p.started_first);
    row["stationary"] = p.stationary;
    row["seconds"] = p.seconds;
    ordered_json& blocks = row["blocks"] = ordered_json::array();
    for (const Block& b : p.blocks) {
      ordered_json block{{"arm", std::string(1, b.arm)},
                         {"quad", b.quad},
                         {"at_s", std::round(b.at_s * 1e4) / 1e4},
                         {"step_ns", b.step_ns},
                         {"steps", b.steps}};
      put(block, "loss", b.last_loss);
      if (b.environment) {
        if (b.environment->sm_clock_mhz > 0) block["sm_clock_mhz"] = b.environment->sm_clock_mhz;
        block["power_w"] = b.environment->power_w;
        block["samples"] = b.environment->samples;
        block["temperature_c"] = b.environment->temperature_c;
        block["throttle_reasons"] = b.environment->throttle_reasons;
      }
      blocks.push_back(std::move(block));
    }
    pairs.push_back(std::move(row));
  }
  return pairs;
}

ordered_json runs_to_json(std::span<const AloneRun> runs) {
  ordered_json out = ordered_json::array();
  for (const AloneRun& r : runs) {
    ordered_json row{{"arm", std::string(1, r.arm)}, {"pair", r.pair}, {"position", r.position}, {"at_s", std::round(r.at_s * 1e4) / 1e4}};
    row["start_s"] = std::round(r.start_s * 1e4) / 1e4;
    put(row, "rest_s", r.rest_s);
    row["settle_s"] = r.settle_s;
    row["settle_steps"] = r.settle_steps;
    row["steps"] = r.steps;
    row["total_ns"] = r.total_ns;
    row["step_ns"] = r.step_ns();
    row["stalls"] = r.stalls;
    row["stalled_ns"] = r.stalled_ns;
    put(row, "first_half_ns", r.first_half_ns);
    put(row, "second_half_ns", r.second_half_ns);
    put(row, "full_clock_ns", r.full_clock_ns);
    if (!r.full_clock_ns) row["full_clock_absent"] = r.full_clock_absent;
    const DeviceWindow& d = r.device;
    put(row, "sm_clock_mhz", d.sm_clock_mhz);
    put(row, "power_w", d.power_w);
    put(row, "sampled_power_w", d.sampled_power_w);
    put(row, "temperature_c", d.temperature_c);
    put(row, "joules", d.joules);
    put(row, "joules_per_step", r.joules_per_step);
    row["samples"] = d.samples;
    if (d.samples > 0) row["throttle_reasons"] = d.throttle_reasons;
    if (!d.absent.empty()) row["environment_absent"] = d.absent;
    if (!d.energy_absent.empty()) row["energy_absent"] = d.energy_absent;
    put(row, "loss", r.last_loss);
    put(row, "spread_quarter_s", r.spread_quarter_s);
    put(row, "spread_second", r.spread_second);
    row["burst"] = r.burst;
    row["tenths_ns"] = r.tenths_ns;
    row["tenths_mhz"] = r.tenths_mhz;
    out.push_back(std::move(row));
  }
  return out;
}

std::vector<AloneRun> runs_from_json(const ordered_json& runs, const std::string& source) {
  if (!runs.is_array()) throw stepscope::InputError(fmt::format("{}: runs: expected a list", source));
  std::vector<AloneRun> out;
  std::map<std::pair<int, char>, size_t> in_round;
  for (const ordered_json& row : runs) {
    AloneRun r;
    const stepscope::JsonPlace place{source, fmt::format("runs[{}]", out.size())};
    const auto whole = [&](const char* key, int& v) { place.in(key).get(row.at(key), v); };
    try {
      const std::string arm = row.at("arm").get<std::string>();
      r.arm = arm.empty() ? '?' : arm[0];
      whole("pair", r.pair);
      whole("position", r.position);
      r.at_s = row.at("at_s").get<double>();
      r.start_s = row.value("start_s", 0.0);
      r.settle_s = row.at("settle_s").get<double>();
      whole("settle_steps", r.settle_steps);
      whole("steps", r.steps);
      r.total_ns = row.at("total_ns").get<double>();
      whole("stalls", r.stalls);
      r.stalled_ns = row.value("stalled_ns", 0.0);
      r.full_clock_absent = row.value("full_clock_absent", "");
      r.device.samples = row.value("samples", 0);
      r.device.throttle_reasons = row.value("throttle_reasons", uint64_t{0});
      r.device.absent = row.value("environment_absent", "");
      r.device.energy_absent = row.value("energy_absent", "");
      r.burst = row.at("burst").get<bool>();
      if (row.contains("tenths_ns")) r.tenths_ns = row.at("tenths_ns").get<std::vector<double>>();
      if (row.contains("tenths_mhz")) r.tenths_mhz = row.at("tenths_mhz").get<std::vector<double>>();
    } catch (const nlohmann::json::exception& e) {
      throw stepscope::InputError(fmt::format("{}: runs[{}]: {}", source, out.size(), e.what()));
    }
    if ((r.arm != 'A' && r.arm != 'B') || r.steps < 1 || !(r.total_ns > 0) || !std::isfinite(r.total_ns))
      throw stepscope::InputError(
          fmt::format("{}: runs[{}]: expected an arm A or B with counted steps and their time", source, out.size()));
    // One of the two would be the round's, the other gone without a word.
    if (const auto [first, is_new] = in_round.emplace(std::pair(r.pair, r.arm), out.size()); !is_new)
      throw stepscope::InputError(
          fmt::format("{}: runs[{}] is of arm {} in round {}, as runs[{}] is", source, out.size(), r.arm, r.pair, first->second));
    if (const auto step_ns = number(row, "step_ns"); step_ns && !alike(*step_ns, r.step_ns()))
      throw stepscope::InputError(
          fmt::format("{}: runs[{}].step_ns is {:.6g}, its total_ns and steps say {:.6g}", source, out.size(), *step_ns, r.step_ns()));
    r.rest_s = number(row, "rest_s");
    r.first_half_ns = number(row, "first_half_ns");
    r.second_half_ns = number(row, "second_half_ns");
    r.full_clock_ns = number(row, "full_clock_ns");
    r.device.sm_clock_mhz = number(row, "sm_clock_mhz");
    r.device.power_w = number(row, "power_w");
    r.device.sampled_power_w = number(row, "sampled_power_w");
    r.device.temperature_c = number(row, "temperature_c");
    r.device.joules = number(row, "joules");
    r.joules_per_step = number(row, "joules_per_step");
    r.last_loss = number(row, "loss");
    r.spread_quarter_s = number(row, "spread_quarter_s");
    r.spread_second = number(row, "spread_second");
    out.push_back(std::move(r));
  }
  return out;
}

std::vector<PairValue> pair_values_from_json(const ordered_json& pairs, const std::string& source) {
  std::vector<PairValue> out;
  if (!pairs.is_array()) throw stepscope::InputError(fmt::format("{}: pairs: expected a list", source));
  for (const ordered_json& row : pairs) {
    const auto value = number(row, "log_ratio");
    if (!value || !std::isfinite(*value))
      throw stepscope::InputError(fmt::format("{}: pairs[{}].log_ratio: expected a number", source, out.size()));
    check_blocks(row, *value, fmt::format("{}: pairs[{}]", source, out.size()));
    out.push_back({*value, number(row, "error")});
  }
  refuse_twins(pairs, source);
  return out;
}

}  // namespace experiments
