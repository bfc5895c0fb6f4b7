#include "experiments/gate/false_alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

namespace gate {
namespace {

// Checks of one name up to what follows " t=": "adam m t=3 clip 0.2" differs from seed to seed.
std::string base_of(const std::string& name) { return name.substr(0, name.find(" t=")); }

double share(const Measure& m) {
  if (m.budget > 0) return std::isnan(m.error) ? HUGE_VAL : m.error / m.budget;
  return m.error == 0 ? 0 : HUGE_VAL;
}

// P(X > 1) of a Gumbel variable with the mean and the deviation of `values`.
double beyond_one(const std::vector<double>& values) {
  if (values.size() < 5) return 0;
  const double n = static_cast<double>(values.size());
  double mean = 0, variance = 0;
  for (const double x : values) mean += x / n;
  for (const double x : values) variance += (x - mean) * (x - mean) / (n - 1);
  if (!std::isfinite(mean)) return 1;
  const double scale = std::sqrt(variance * 6) / std::numbers::pi;
  if (scale == 0) return mean > 1 ? 1 : 0;
  return -std::expm1(-std::exp(-(1 - (mean - std::numbers::egamma * scale)) / scale));
}

}  // namespace

double SeedsReport::false_alarm_rate() const {
  double sum = 0;
  for (const CheckOverSeeds& c : checks) sum += c.false_alarm_rate;
  return std::min(sum, 1.0);
}

SeedsReport over_seeds(const std::string& configuration, std::span<const GateReport> reports) {
  SeedsReport out;
  out.configuration = configuration;
  out.seeds = static_cast<int64_t>(reports.size());
  std::vector<std::string> order;
  std::map<std::string, CheckOverSeeds> checks;
  std::map<std::string, std::vector<double>> shares;
  std::set<std::string> notes;
  for (const GateReport& report : reports) {
    if (out.device.empty()) out.device = report.device;
    out.refused += !report.passed();
    notes.insert(report.notes.begin(), report.notes.end());
    std::map<std::string, double> largest;
    std::set<std::string> failed;
    for (const CheckResult& r : report.results) {
      const std::string name = base_of(r.name);
      if (checks.try_emplace(name).second) order.push_back(name);
      if (!r.passed) failed.insert(name);
      CheckOverSeeds& check = checks[name];
      double& own = largest[name];
      for (const Measure& m : r.measures) {
        own = std::max(own, share(m));
        if (check.worst_tensor.empty() || share(m) > check.worst) {
          check.worst = share(m);
          check.worst_seed = report.seed.value_or(0);
          check.worst_tensor = r.tensor;
        }
      }
    }
    for (const std::string& name : failed) ++checks[name].refusals;
    for (const auto& [name, value] : largest) shares[name].push_back(value);
  }
  for (const std::string& name : order) {
    CheckOverSeeds& c = checks[name];
    c.name = name;
    c.false_alarm_rate = beyond_one(shares[name]);
    out.checks.push_back(c);
  }
  out.notes.assign(notes.begin(), notes.end());
  return out;
}

int exit_code_of(std::span<const SeedsReport> reports) {
  if (reports.empty()) return 2;
  return std::ranges::any_of(reports, [](const SeedsReport& r) { return r.refused > 0; }) ? 1 : 0;
}

std::string to_table(const SeedsReport& report) {
  std::string out = fmt::format("{}, {}: {} seeds, {} refused, estimated false alarms {:.1e} per run\n", report.configuration,
                                report.device, report.seeds, report.refused, report.false_alarm_rate());
  out += fmt::format("{:<22} {:>9} {:>8} {:>9}  {}\n", "check", "of budget", "refused", "per run", "worst");
  for (const CheckOverSeeds& c : report.checks)
    out += fmt::format("{:<22} {:>8.0f}% {:>8} {:>9.1e}  {} (seed {})\n", c.name, 100 * c.worst, c.refusals, c.false_alarm_rate,
                       c.worst_tensor, c.worst_seed);
  for (const std::string& note : report.notes) out += fmt::format("note: {}\n", note);
  return out;
}

nlohmann::ordered_json to_json(const SeedsReport& report) {
  nlohmann::ordered_json j{{"configuration", report.configuration},
                           {"device", report.device},
                           {"seeds", report.seeds},
                           {"refused", report.refused},
                           {"false_alarm_rate", report.false_alarm_rate()},
                           {"checks", nlohmann::ordered_json::array()}};
  for (const CheckOverSeeds& c : report.checks) {
    nlohmann::ordered_json one{{"name", c.name},           {"worst_share_of_budget", nullptr}, {"seed", c.worst_seed},
                               {"tensor", c.worst_tensor}, {"refusals", c.refusals},           {"false_alarm_rate", c.false_alarm_rate}};
    if (std::isfinite(c.worst)) one["worst_share_of_budget"] = c.worst;
    j["checks"].push_back(std::move(one));
  }
  if (!report.notes.empty()) j["notes"] = report.notes;
  return j;
}

}  // namespace gate
