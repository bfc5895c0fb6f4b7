// Every field of the document, declared once: name, unit, where the number comes from, what it means, and the
// member that holds it; and how people see it. JSON writer and reader, docs/profile-document.md, CSV, tables,
// Markdown, page and diff all walk these lists. Numbers of launches are declared one floor below, in profiler/attribute/numbers.cpp.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "profiler/document/profile.h"

namespace profiler {

template <class Row>
struct Field {
  std::string_view name;
  std::string_view unit;    // "" = a word or a plain count
  std::string_view source;  // counter, activity, timer, run.json, device, model, formula
  std::string_view help;
  std::variant<std::string Row::*, Text Row::*, int64_t Row::*, Count Row::*, Bits Row::*, double Row::*, Number Row::*, Flag Row::*,
               std::vector<double> Row::*, std::vector<std::string> Row::*, std::array<int64_t, 3> Row::*,
               std::map<std::string, std::string> Row::*, std::map<std::string, double> Row::*,
               std::optional<std::map<std::string, double>> Row::*>
      member;
  Shown shown = {};         // default: in the document and the CSV only
  bool below_zero = false;  // a number below zero is an answer; of any other field the reader refuses it
};

// Specialized in fields.cpp for every struct of profile.h that becomes a JSON object.
template <class Row>
const std::vector<Field<Row>>& fields_of();
template <>
const std::vector<Field<RunSection>>& fields_of();
template <>
const std::vector<Field<EnvironmentSection>>& fields_of();
template <>
const std::vector<Field<CeilingsSection>>& fields_of();
template <>
const std::vector<Field<CounterSetRow>>& fields_of();
template <>
const std::vector<Field<CollectionSection>>& fields_of();
template <>
const std::vector<Field<StepTime>>& fields_of();
template <>
const std::vector<Field<StateRow>>& fields_of();
template <>
const std::vector<Field<TimingSection>>& fields_of();
template <>
const std::vector<Field<TotalsSection>>& fields_of();
template <>
const std::vector<Field<GapRow>>& fields_of();
template <>
const std::vector<Field<CopyRow>>& fields_of();
template <>
const std::vector<Field<EnvironmentRow>>& fields_of();
template <>
const std::vector<Field<TimelineSection>>& fields_of();
template <>
const std::vector<Field<PassRow>>& fields_of();
template <>
const std::vector<Field<OpRow>>& fields_of();
template <>
const std::vector<Field<LayerRow>>& fields_of();
template <>
const std::vector<Field<KernelRow>>& fields_of();
template <>
const std::vector<Field<LaunchRow>>& fields_of();
template <>
const std::vector<Field<MissingRow>>& fields_of();
template <>
const std::vector<Field<WorldSection>>& fields_of();
template <>
const std::vector<Field<RankRow>>& fields_of();
template <>
const std::vector<Field<RankPassRow>>& fields_of();
template <>
const std::vector<Field<CollectiveRow>>& fields_of();
template <>
const std::vector<Field<CollectiveRankRow>>& fields_of();
template <>
const std::vector<Field<LaneRow>>& fields_of();

// The lists as plain text, for the schema page and the provenance section.
struct FieldDescription {
  std::string name, type, unit, source, help;
  bool required;  // always there; the others are absent when there is no answer
};
struct SectionDescription {
  std::string path;  // "timing.step_time_ns", "kernels[]"
  std::string help;
  std::vector<FieldDescription> fields;
  bool of_ranks = false;  // only in the document of several ranks
};
const std::vector<SectionDescription>& describe_document();

// docs/profile-document.md
std::string document_schema_markdown();

}  // namespace profiler
