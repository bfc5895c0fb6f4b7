#include <fmt/format.h>

#include "profiler/document/fields.h"

namespace profiler {
namespace {

template <class Row>
std::pair<std::string, bool> type_of(const Field<Row>& f) {
  static const std::array<std::pair<const char*, bool>, 14> types = {{{"string", true},
                                                                      {"string", false},
                                                                      {"integer", true},
                                                                      {"integer", false},
                                                                      {"integer", false},
                                                                      {"number", true},
                                                                      {"number", false},
                                                                      {"true or false", false},
                                                                      {"list of numbers", true},
                                                                      {"list of strings", true},
                                                                      {"three integers", true},
                                                                      {"object of strings", true},
                                                                      {"object of numbers", true},
                                                                      {"object of numbers", false}}};
  const auto& [type, required] = types.at(f.member.index());
  return {type, required};
}

template <class Row>
SectionDescription describe(const char* path, const char* help, bool of_ranks = false) {
  SectionDescription s{path, help, {}, of_ranks};
  for (const Field<Row>& f : fields_of<Row>()) {
    const auto [type, required] = type_of(f);
    s.fields.push_back({std::string(f.name), type, std::string(f.unit), std::string(f.source), std::string(f.help), required});
  }
  return s;
}

}  // namespace

const std::vector<SectionDescription>& describe_document() {
  static const std::vector<SectionDescription> sections = {
      describe<RunSection>("run", "What ran."),
      describe<EnvironmentSection>("environment", "Where, and how the device was doing during the timed steps."),
      describe<CeilingsSection>("ceilings", "What this device was seen to reach; every percentage \"of ceiling\" is of these."),
      describe<CollectionSection>("collection", "How the numbers were taken, and what that cost."),
      describe<CounterSetRow>("collection.counter_sets[]", "Hardware counters taken together in one pass."),
      describe<TimingSection>("timing", "From steps with no collector on."),
      describe<StepTime>("timing.step_time_ns", "Wall time of a step, end to end."),
      describe<StateRow>("timing.states[]", "Steps in a row, by what clock and power did; absent without such rows."),
      describe<TotalsSection>("totals", "One step on the device. passes_ns + unattributed_ns + idle_ns = time_ns within 0.5%."),
      describe<PassRow>("passes[]", "In the order of a step."),
      describe<OpRow>("ops[]", "Per pass and semantic op, all layers together."),
      describe<LayerRow>("layers[]", "Per pass and layer, all ops together."),
      describe<KernelRow>("kernels[]", "Per kernel name, pass and op; longest first."),
      describe<LaunchRow>("launches[]", "Every operation of the step shown, by start time."),
      describe<TimelineSection>("timeline", "Busy and idle time of the step shown, by interval union."),
      describe<GapRow>("timeline.gaps[]", "Idle stretches by length."),
      describe<CopyRow>("timeline.copies[]", "Copies and memsets by kind."),
      describe<EnvironmentRow>("timeline.environment[]", "Samples in the step shown, and the nearest before and behind it."),
      describe<MissingRow>("missing[]", "Everything that was lost or could not be had."),
      describe<WorldSection>(
          "world",
          "A run of several ranks, all together. This section and those below it are absent in the document of one rank; "
          "the sections above are those of `main_rank`, whose step is the median one. `timing` and "
          "`run` of a trainer of this project are rank 0's, whose run.json has them. A reader refuses sections of ranks that contradict "
          "each other or those above.",
          true),
      describe<RankRow>("ranks[]", "Each rank. work_ns + exposed_ns + idle_ns is the step on its device.", true),
      describe<RankPassRow>("rank_passes[]", "Each pass on each rank.", true),
      describe<CollectiveRow>("collectives[]", "Each collective of the step shown, over all ranks (docs/metrics.md).", true),
      describe<CollectiveRankRow>("collective_ranks[]", "Each collective on each rank.", true),
      describe<LaneRow>("lanes[]", "Every operation of every rank in the step shown, by one clock.", true),
  };
  return sections;
}

std::string document_schema_markdown() {
  std::string out =
      "# The profile document\n\n"
      "Generated from the field lists in `profiler/document/fields.cpp` and `base/run_fields.cpp`; a test fails when this\n"
      "page is stale. How each number is computed and when it lies: `docs/metrics.md`.\n\n"
      "One JSON object. `schema` is `\"stepscope.profile/1\"`; a reader refuses any other. All numbers are "
      "per training step (a\n"
      "program without steps is one step), in base units. A field that is not marked *always* is absent when "
      "there is no answer;\n"
      "a row of `missing` says why. Never 0, -1, null or NaN instead. The section `sources` repeats where "
      "each number comes from, so\n"
      "that a document explains itself.\n";
  for (const SectionDescription& s : describe_document()) {
    out += fmt::format("\n## {}\n\n{}\n\n| field | type | unit | always | source | meaning |\n|---|---|---|---|---|---|\n", s.path, s.help);
    for (const FieldDescription& f : s.fields)
      out += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", f.name, f.type, f.unit, f.required ? "yes" : "", f.source, f.help);
  }
  return out;
}

}  // namespace profiler
