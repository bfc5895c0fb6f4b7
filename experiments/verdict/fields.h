// The field list of the verdict document (document.h): what each number is called, its unit and what it means, once.
#pragma once
#include <string>

#include "experiments/verdict/document.h"
#include "experiments/verdict/field_list.h"

namespace experiments {

template <>
struct WordsOf<Verdict> {
  static std::string_view name(Verdict v) { return experiments::name(v); }
  static std::optional<Verdict> parse(std::string_view text) { return verdict_from_name(text); }
};
template <>
struct WordsOf<Procedure> {
  static std::string_view name(Procedure v) { return experiments::name(v); }
  static std::optional<Procedure> parse(std::string_view text);
};
template <>
struct WordsOf<EqualClocksBy> {
  static std::string_view name(EqualClocksBy v) { return experiments::name(v); }
  static std::optional<EqualClocksBy> parse(std::string_view text);
};
template <>
struct WordsOf<SelfCheck> {
  static std::string_view name(SelfCheck v) { return experiments::name(v); }
  static std::optional<SelfCheck> parse(std::string_view text) { return self_check_from_name(text); }
};

// A struct that becomes an object, and its list in fields.cpp.
#define STEPSCOPE_LISTED(Row)                     \
  template <>                                     \
  struct FieldsOf<Row> {                          \
    static const std::vector<Field<Row>>& list(); \
  }
STEPSCOPE_LISTED(LookSection);
STEPSCOPE_LISTED(ThresholdsSection);
STEPSCOPE_LISTED(LedgerSection);
STEPSCOPE_LISTED(PredictionProof);
STEPSCOPE_LISTED(ExperimentSection);
STEPSCOPE_LISTED(CodeSection);
STEPSCOPE_LISTED(DeviceSection);
STEPSCOPE_LISTED(GateSummary);
STEPSCOPE_LISTED(SameLaunches);
STEPSCOPE_LISTED(ArmReport);
STEPSCOPE_LISTED(Statistics);
STEPSCOPE_LISTED(RatioSection);
STEPSCOPE_LISTED(EqualClocksSection);
STEPSCOPE_LISTED(SustainedArm);
STEPSCOPE_LISTED(SustainedSection);
STEPSCOPE_LISTED(SelfCheckResult);
STEPSCOPE_LISTED(MemorySection);
STEPSCOPE_LISTED(AuditRow);
STEPSCOPE_LISTED(AuditSection);
STEPSCOPE_LISTED(SoloSection);
STEPSCOPE_LISTED(SameCode);
STEPSCOPE_LISTED(WaterfallKernel);
STEPSCOPE_LISTED(WaterfallOther);
STEPSCOPE_LISTED(WaterfallSum);
STEPSCOPE_LISTED(WaterfallOpRow);
STEPSCOPE_LISTED(WaterfallSection);
STEPSCOPE_LISTED(EnvironmentSection);
STEPSCOPE_LISTED(AloneRun);
STEPSCOPE_LISTED(BlockRow);
STEPSCOPE_LISTED(PairRow);
STEPSCOPE_LISTED(WorkloadSection);
STEPSCOPE_LISTED(VerdictDocument);
#undef STEPSCOPE_LISTED

// docs/verdict-document.md
std::string verdict_schema_markdown();

}  // namespace experiments
