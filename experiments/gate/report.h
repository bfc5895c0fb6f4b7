// What a gate says: one CheckResult per (check, tensor), and the report that holds them. A report without
// results has not passed: a gate that measured nothing must not say yes.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/gate/metrics.h"

namespace gate {

// One number held against its budget.
struct Measure {
  std::string unit;  // "norm" "worst row" "worst column" (relative), "relative", "roundings", "elements", …
  double error = 0;
  double budget = 0;
  int64_t at = -1;                                 // row or column of the error; -1: of the whole tensor
  bool passed() const { return error <= budget; }  // NaN fails
};

struct CheckResult {
  std::string name;    // "gradients", "causality", … what tests/bugs names
  std::string tensor;  // "qkvw", "logits", "loss", …
  double error = 0;    // of the measure closest to (or furthest beyond) its budget
  double budget = 0;
  std::string unit;
  bool passed = false;  // every measure within its budget
  std::string detail;
  std::vector<Measure> measures;
  std::optional<double> cosine;  // of the angle between the tensor and the answer, where a check has it to say; no budget is on it
};

// Limits on one tensor. Rows and columns get more room than the whole, since a worst of many is above the
// mean.
struct Tolerance {
  double norm = 0;
  double row = 0;
  double column = 0;
};
inline Tolerance tolerance(double norm, double slice_factor = 8) { return {norm, norm * slice_factor, norm * slice_factor}; }

// The binding measure becomes error, budget and unit; NaN binds before everything.
CheckResult make_result(std::string name, std::string tensor, std::vector<Measure> measures, std::string detail = "");
CheckResult from_metrics(std::string name, std::string tensor, const ErrorMetrics& metrics, const Tolerance& limit,
                         std::string detail = "");
// A count that must be exactly zero (elements that differ, bytes touched).
CheckResult must_be_zero(std::string name, std::string tensor, int64_t count, std::string unit, std::string detail = "");
// |got - want| / |want| against a budget.
CheckResult scalar_result(std::string name, std::string tensor, double got, double want, double budget, std::string detail = "");

// Where the wall time of the checks went: of an op, or of a part of the model's.
struct PartTime {
  std::string part;
  double cases_s = 0;   // an op's inputs and the answers to them
  double checks_s = 0;  // the runs of its variants, and what was held against the answers
};
// "attention_backward 20.1 s (cases 8.0), lm_head 12.4 s (cases 11.9), 9 others 14.0 s": the dearest `shown`. "" without times.
inline constexpr size_t kPartsShown = 4;
std::string dearest(std::vector<PartTime> times, size_t shown = kPartsShown);

struct GateReport {
  std::string trainer;
  std::string matmul;
  std::string device;
  std::string workload;          // "tiny, B=4 T=64"
  std::optional<uint64_t> seed;  // repeats the run with --seed; absent when nothing was random
  std::vector<std::string> notes;
  std::vector<CheckResult> results;
  std::vector<PartTime> part_times;  // one for each op that was checked, or part of the model's checks; no receipt has them

  bool passed() const;
  int64_t failures() const;
  void add(CheckResult result) { results.push_back(std::move(result)); }
  void add(GateReport other);  // results and notes of another report
};

// All results of one name, and the one that uses most of its budget (NaN uses more than any).
struct CheckSummary {
  std::vector<const CheckResult*> results;  // borrowed from the report
  const CheckResult* worst = nullptr;
  int64_t failures = 0;
};
std::vector<CheckSummary> summarize(const GateReport& report);  // in order of first appearance

// Table of at most 100 columns. A check whose tensors all pass is one line, its worst tensor; failures are
// listed singly. `every_tensor` lists all.
std::string to_table(const GateReport& report, bool every_tensor);
nlohmann::ordered_json to_json(const GateReport& report);
// Of one result, as in the report and in receipts. Errors that are not finite are written as text.
nlohmann::ordered_json to_json(const CheckResult& result);

}  // namespace gate
