#include "experiments/gate/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

namespace gate {
namespace {

// How much of its budget an error uses; NaN and a missed zero budget use all of it and more.
double use(double error, double budget) {
  if (!(error <= budget)) return std::isfinite(error) && budget > 0 ? error / budget : HUGE_VAL;
  return budget > 0 ? error / budget : 0;
}

std::string number(double x, const std::string& unit) {
  if (std::isnan(x)) return "nan";  // its sign is chance: inf - inf gives -nan on x86
  const bool relative = unit == "norm" || unit == "relative" || unit.starts_with("worst");
  if (unit == "roundings" || unit == "deviations") return fmt::format("{:.2f}", x);
  return relative ? fmt::format("{:.2e}", x) : fmt::format("{:.0f}", x);
}

std::string cut(std::string text, size_t width) {
  if (text.size() > width) text = text.substr(0, width - 2) + "..";
  return text;
}

std::string line(const CheckResult& r, const std::string& detail) {
  // 22 + 1 + 16 + 1 + 9 + 1 + 9 + 1 + 12 + 1 + 4 + 1 = 78; the rest is for the detail
  return fmt::format("{:<22} {:<16} {:>9} {:>9} {:<12} {:<4} {}\n", cut(r.name, 22), cut(r.tensor, 16), number(r.error, r.unit),
                     number(r.budget, r.unit), cut(r.unit, 12), r.passed ? "ok" : "FAIL", cut(detail, 22));
}

nlohmann::ordered_json finite_or_text(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

}  // namespace

std::string dearest(std::vector<PartTime> times, size_t shown) {
  const auto seconds = [](const PartTime& t) { return t.cases_s + t.checks_s; };
  std::ranges::stable_sort(times, std::greater(), seconds);
  std::string text;
  double others_s = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    if (i < shown)
      text += fmt::format("{}{} {:.1f} s{}", i == 0 ? "" : ", ", times[i].part, seconds(times[i]),
                          times[i].cases_s > 0 ? fmt::format(" (cases {:.1f})", times[i].cases_s) : "");
    else
      others_s += seconds(times[i]);
  }
  if (times.size() > shown) text += fmt::format(", {} others {:.1f} s", times.size() - shown, others_s);
  return text;
}

CheckResult make_result(std::string name, std::string tensor, std::vector<Measure> measures, std::string detail) {
  CheckResult r{std::move(name), std::move(tensor), 0, 0, "", !measures.empty(), std::move(detail), std::move(measures), {}};
  double worst = -HUGE_VAL;  // an error may be negative: a clock that is behind
  for (const Measure& m : r.measures) {
    r.passed = r.passed && m.passed();
    if (const double u = use(m.error, m.budget); u > worst) {
      worst = u;
      r.error = m.error;
      r.budget = m.budget;
      r.unit = m.unit;
      if (m.at >= 0 && !m.passed() && r.detail.empty()) r.detail = fmt::format("at {}", m.at);
    }
  }
  return r;
}

CheckResult from_metrics(std::string name, std::string tensor, const ErrorMetrics& metrics, const Tolerance& limit, std::string detail) {
  std::vector<Measure> measures{{"norm", metrics.norm, limit.norm, -1}};
  if (metrics.has_rows) measures.push_back({"worst row", metrics.worst_row, limit.row, metrics.worst_row_at});
  if (metrics.has_columns) measures.push_back({"worst column", metrics.worst_column, limit.column, metrics.worst_column_at});
  return make_result(std::move(name), std::move(tensor), std::move(measures), std::move(detail));
}

CheckResult must_be_zero(std::string name, std::string tensor, int64_t count, std::string unit, std::string detail) {
  return make_result(std::move(name), std::move(tensor), {{std::move(unit), static_cast<double>(count), 0, -1}}, std::move(detail));
}

CheckResult scalar_result(std::string name, std::string tensor, double got, double want, double budget, std::string detail) {
  const double difference = std::abs(got - want);
  const double error = difference == 0 ? 0 : difference / std::abs(want);
  if (detail.empty()) detail = fmt::format("{:.7g}", got);
  return make_result(std::move(name), std::move(tensor), {{"relative", error, budget, -1}}, std::move(detail));
}

bool GateReport::passed() const { return !results.empty() && failures() == 0; }

int64_t GateReport::failures() const {
  int64_t n = 0;
  for (const CheckResult& r : results) n += !r.passed;
  return n;
}

void GateReport::add(GateReport other) {
  for (auto& r : other.results) results.push_back(std::move(r));
  for (auto& n : other.notes) notes.push_back(std::move(n));
}

std::vector<CheckSummary> summarize(const GateReport& report) {
  std::vector<CheckSummary> out;
  std::map<std::string, size_t> at;
  for (const CheckResult& r : report.results) {
    const auto [found, is_new] = at.emplace(r.name, out.size());
    if (is_new) out.emplace_back();
    CheckSummary& check = out[found->second];
    check.results.push_back(&r);
    check.failures += !r.passed;
    if (check.worst == nullptr || use(r.error, r.budget) > use(check.worst->error, check.worst->budget)) check.worst = &r;
  }
  return out;
}

std::string to_table(const GateReport& report, bool every_tensor) {
  std::string out = fmt::format("gate: {}, matmul {}, {}\n{}\n", report.trainer, report.matmul, report.device, report.workload);
  if (report.seed) out += fmt::format("seed {} (repeat with --seed)\n", *report.seed);
  out += fmt::format("\n{:<22} {:<16} {:>9} {:>9} {:<12}\n", "check", "tensor", "error", "budget", "of");
  for (const CheckSummary& check : summarize(report)) {
    const size_t n = check.results.size();
    if (check.failures == 0 && n > 1 && !every_tensor) {
      out += line(*check.worst, fmt::format("worst of {}", n));
      continue;
    }
    for (const CheckResult* r : check.results)
      if (every_tensor || n == 1 || !r->passed) out += line(*r, r->detail);
    const int64_t passing = static_cast<int64_t>(n) - check.failures;
    if (passing > 0 && check.failures > 0 && !every_tensor)
      out += fmt::format("{:<22} ({} more within budget)\n", cut(check.worst->name, 22), passing);
  }
  for (const auto& note : report.notes) out += fmt::format("note: {}\n", note);
  if (report.results.empty()) return out + "FAILED: nothing was checked\n";
  out += report.passed() ? fmt::format("passed: {} checks\n", report.results.size())
                         : fmt::format("FAILED: {} of {} checks\n", report.failures(), report.results.size());
  return out;
}

nlohmann::ordered_json to_json(const CheckResult& r) {
  nlohmann::ordered_json j{{"name", r.name},
                           {"tensor", r.tensor},
                           {"passed", r.passed},
                           {"error", finite_or_text(r.error)},
                           {"budget", finite_or_text(r.budget)},
                           {"unit", r.unit}};
  if (!r.detail.empty()) j["detail"] = r.detail;
  if (r.cosine) j["cosine"] = finite_or_text(*r.cosine);
  if (r.measures.size() > 1)
    for (const Measure& m : r.measures)
      j["measures"].push_back({{"unit", m.unit}, {"error", finite_or_text(m.error)}, {"budget", finite_or_text(m.budget)}});
  return j;
}

nlohmann::ordered_json to_json(const GateReport& report) {
  nlohmann::ordered_json j{{"schema", "stepscope.gate/1"},
                           {"trainer", report.trainer},
                           {"matmul", report.matmul},
                           {"device", report.device},
                           {"workload", report.workload},
                           {"passed", report.passed()},
                           {"checks", nlohmann::ordered_json::array()}};
  if (report.seed) j["seed"] = *report.seed;
  for (const CheckResult& r : report.results) j["checks"].push_back(to_json(r));
  if (!report.notes.empty()) j["notes"] = report.notes;
  return j;
}

}  // namespace gate
