#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/errors.h"
#include "profiler/attribute/words.h"
#include "profiler/document/build_profile.h"
#include "profiler/document/missing_rows.h"
#include "profiler/ingest/metrics_table.h"
#include "profiler/ingest/to_recording.h"

namespace {

using namespace profiler;
using testing::HasSubstr;

// Three kernels of 10, 20 and 30 us; the last without DRAM bytes.
ForeignReport report() {
  ForeignReport r;
  r.tool = "ncu";
  r.form = "made";
  r.source = "made";
  r.metrics = {"gpu__time_duration.sum", "dram__bytes_read.sum", "device__attribute_chip", "device__attribute_multiprocessor_count"};
  for (int i = 0; i < 3; ++i) {
    ForeignResult k;
    k.name = "k" + std::to_string(i);
    k.values = {{0, 1e4 * (i + 1)}, {2, 384}, {3, 132}};
    if (i < 2) k.values.push_back({1, 1e6});
    r.results.push_back(k);
  }
  return r;
}
const MissingRecord* find(const Recording& r, const char* name) {
  const auto at = std::find_if(r.missing.begin(), r.missing.end(), [&](const MissingRecord& m) { return m.name == name; });
  return at == r.missing.end() ? nullptr : &*at;
}

TEST(ToRecording, LaunchesStandEndToEnd) {
  const Recording r = to_recording(report(), {});
  ASSERT_EQ(r.launches.size(), 3u);
  EXPECT_EQ(r.launches[1].start_ns, r.launches[0].end_ns);
  EXPECT_EQ(r.session.device.at("chip"), "GH100");
  EXPECT_EQ(r.session.device.at("sm_count"), "132");
  const ProfileDocument d = build_profile(r, std::nullopt, {}, {});
  EXPECT_DOUBLE_EQ(*d.totals.time_ns, 6e4);
  EXPECT_FALSE(d.totals.idle_ns);
  EXPECT_FALSE(d.timeline.busy_ns);
  EXPECT_EQ(d.collection.time_basis, "each_kernel_alone");
  for (const LaunchRow& l : d.launches) EXPECT_FALSE(l.start_ns);
}

// Of an export, which has no metrics for them.
TEST(ToRecording, SharedMemoryIsOfItsTwoKinds) {
  ForeignReport f = report();
  f.results[0].shared_static_bytes = 100, f.results[0].shared_dynamic_bytes = 7000, f.results[0].registers = 40;
  const Recording r = to_recording(f, {});
  const LaunchRecord& l = r.launches[0];
  EXPECT_EQ(l.shared_static_bytes, 100);
  EXPECT_EQ(l.shared_dynamic_bytes, 7000);
  EXPECT_EQ(l.registers, 40);
}

TEST(ToRecording, AKernelOfLessThanANanosecondStillRan) {
  ForeignReport f = report();
  f.results[1].values[0].second = 0.25;
  const Recording r = to_recording(f, {});
  EXPECT_EQ(r.launches[1].end_ns - r.launches[1].start_ns, 1);
  EXPECT_EQ(r.launches[2].start_ns, r.launches[1].end_ns);
}

TEST(ToRecording, ATimeIsRoundedToTheNearestNanosecond) {
  ForeignReport f = report();
  f.results[0].values[0].second = 1500.7;
  const Recording r = to_recording(f, {});
  EXPECT_EQ(r.launches[0].end_ns - r.launches[0].start_ns, 1501);
  EXPECT_EQ(r.stats.at(0).median_ns, 1500.7);
}

TEST(ToRecording, TheComputeCapabilityIsMajorDotMinor) {
  ForeignReport f = report();
  f.metrics.insert(f.metrics.end(), {"device__attribute_compute_capability_major", "device__attribute_compute_capability_minor"});
  for (ForeignResult& k : f.results) k.values.insert(k.values.end(), {{4, 9}, {5, 0}});
  EXPECT_EQ(to_recording(f, {}).session.device.at("compute_capability"), "9.0");
}

// 352 stood for TU102: no report of one named its chip.
TEST(ToRecording, AChipIsItsArchitectureAndImplementation) {
  const auto chip = [](double id) {
    ForeignReport f = report();
    for (auto& [metric, value] : f.results[0].values)
      if (metric == 2) value = id;
    return to_recording(f, {}).session.device["chip"];
  };
  EXPECT_EQ(chip(0x162), "TU102");
  EXPECT_EQ(chip(0x170), "GA100");
  EXPECT_EQ(chip(0x180), "GH100");
  EXPECT_EQ(chip(0x160), "");
}

TEST(ToRecording, AMetricOfSomeKernelsStaysWithThoseAndHasNoSum) {
  const ProfileDocument d = build_profile(to_recording(report(), {}), std::nullopt, {}, {});
  EXPECT_DOUBLE_EQ(*d.launches[0].dram_read_bytes, 1e6);
  EXPECT_FALSE(d.launches[2].dram_read_bytes);
  EXPECT_FALSE(d.totals.dram_read_bytes);
  EXPECT_FALSE(has_severe_missing(d));
}

// A metric that nobody has to ask for, and that a kernel lacks, cost all kernels all their counters: those with it were taken for another step.
TEST(ToRecording, AnExtraMetricOfSomeKernelsCostsNoCounters) {
  ForeignReport f;
  f.tool = "ncu";
  f.form = f.source = "made";
  f.metrics = read_metrics();
  const auto extra = static_cast<uint32_t>(f.metrics.size());
  f.metrics.push_back("sm__inst_executed_pipe_tensor.sum");
  for (int i = 0; i < 3; ++i) {
    ForeignResult k;
    k.name = "k" + std::to_string(i);
    for (uint32_t m = 0; m < extra; ++m) k.values.push_back({m, 10});
    if (i != 1) k.values.push_back({extra, 7});
    f.results.push_back(k);
  }
  const ProfileDocument d = build_profile(to_recording(f, {}), std::nullopt, {}, {});
  EXPECT_FALSE(is_missing(d, "metrics_not_in_report"));
  EXPECT_FALSE(is_missing(d, "counter_sequence_mismatch"));
  for (const LaunchRow& l : d.launches) EXPECT_EQ(l.dram_read_bytes, 10.0) << l.name;
  EXPECT_EQ(d.totals.dram_read_bytes, 30.0);
}

// The page details prints no attributes of the device.
TEST(ToRecording, TheNumberOfSmsMayComeFromTheLaunch) {
  ForeignReport f = report();
  f.metrics[3] = "launch__sm_count";
  EXPECT_EQ(to_recording(f, {}).session.device.at("sm_count"), "132");
  f.metrics[3] = "another";
  EXPECT_FALSE(to_recording(f, {}).session.device.contains("sm_count"));
}

// gpus_of named no GPU then, and no ceilings are refused for none.
TEST(ToRecording, AProcessWithoutResultsIsRefusedByAllThatAsksForIt) {
  IngestOptions o;
  o.process = 5;
  const auto refused = [](const auto& ask) {
    try {
      ask();
    } catch (const stepscope::InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused([&] { to_recording(report(), o); }), "made: no result of process 5; the report has 0");
  EXPECT_EQ(refused([&] { gpus_of(report(), o); }), "made: no result of process 5; the report has 0");
}

TEST(ToRecording, SaysWhichMetricsOfHowManyKernelsAreMissing) {
  const Recording r = to_recording(report(), {});
  ASSERT_NE(find(r, "metrics_not_in_report"), nullptr);
  EXPECT_THAT(find(r, "metrics_not_in_report")->detail, HasSubstr("dram__bytes_read.sum (of 1 kernels)"));
  EXPECT_THAT(find(r, "metrics_not_in_report")->detail, HasSubstr(",dram__bytes_write.sum,"));
}

TEST(ToRecording, AKernelWithoutATimeIsLostAndSaid) {
  ForeignReport f = report();
  f.results[1].values.erase(f.results[1].values.begin());
  const ProfileDocument d = build_profile(to_recording(f, {}), std::nullopt, {}, {});
  EXPECT_DOUBLE_EQ(*d.totals.time_ns, 4e4);
  const auto lost = [&] {
    const Recording r = to_recording(f, {});
    const MissingRecord* m = find(r, "results_without_time");
    return m ? fmt::format("{}: {}", m->count, m->detail) : "none";
  };
  EXPECT_EQ(lost(), "1: of 3 results; the report has gpu__time_duration.sum for others");
  EXPECT_FALSE(is_missing(d, "kernels_without_time")) << "said once";
  EXPECT_EQ(d.collection.measured_kernels, 3);
  f.metrics[0] = "another";
  EXPECT_EQ(lost(), "3: of 3 results");
  EXPECT_FALSE(is_missing(build_profile(to_recording(f, {}), std::nullopt, {}, {}), "phases_not_traced"));
  f = report();
  EXPECT_EQ(lost(), "none");
}

// Collecting again would give the same answer.
TEST(ToRecording, AMetricWithoutAValueIsNotOneToCollect) {
  ForeignReport f = report();
  f.results[2].no_value = {1};
  EXPECT_THAT(find(to_recording(f, {}), "metrics_not_in_report")->detail,
              testing::AllOf(HasSubstr("the report has no value (n/a) for dram__bytes_read.sum of 1 kernels"),
                             testing::Not(HasSubstr("dram__bytes_read.sum (of"))));
}

TEST(ToRecording, RulesMultiplyOnlyWhatTheySayAndSaySo) {
  IngestOptions o;
  o.rules = parse_rules(
      "schema: stepscope.rules/1\nname: t\nrules:\n- {kernel: k1, pass: forward, op: qkv, times: 12}\n- "
      "{kernel: k0, pass: encoder, op: embedding}\n",
      "t");
  const Recording r = to_recording(report(), o);
  ASSERT_EQ(r.launches.size(), 14u);
  EXPECT_EQ(r.measured_kernels, 3);
  EXPECT_EQ(r.launches[12].path, "step/forward/11/qkv");
  const ProfileDocument d = build_profile(r, std::nullopt, {}, {});
  EXPECT_DOUBLE_EQ(*d.totals.time_ns, 1e4 + 12 * 2e4 + 3e4);
  EXPECT_DOUBLE_EQ(*d.totals.unattributed_ns, 3e4);
  ASSERT_EQ(d.layers.size(), 12u);
  EXPECT_EQ(find(r, "launches_multiplied")->count, 1);
  EXPECT_EQ(find(r, "passes_from_rules")->count, 13);
  EXPECT_EQ(find(r, "kernels_without_rule")->count, 1);
}

// A row of 12 launches had the duration of 12 and the time of one.
TEST(ToRecording, ALaunchWithATimeStampStandsForNoOther) {
  ForeignReport f = report();
  f.tool = "nsys";
  for (size_t i = 0; i < f.results.size(); ++i) {
    f.results[i].start_ns = 1000 * static_cast<int64_t>(i) + 1;
    f.results[i].end_ns = f.results[i].start_ns + 500;
  }
  const auto refused = [&](const char* times) {
    IngestOptions o;
    o.rules = parse_rules(
        fmt::format("schema: stepscope.rules/1\nname: t\nrules:\n- {{kernel: k1, pass: forward, op: qkv, times: {}}}\n", times), "t");
    try {
      to_recording(f, o);
    } catch (const stepscope::InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused("12"), HasSubstr("rules 't': 'times: 12' fits 'k1', which made shows where it ran in a trace"));
  EXPECT_EQ(refused("1"), "");
}

// Ranges of the program win; passes_from_rules was said of them, and went on into the document.
TEST(ToRecording, RulesThatPlaceNothingAreNotNamedAsTheSourceOfPasses) {
  IngestOptions o;
  o.rules = parse_rules("schema: stepscope.rules/1\nname: t\nrules:\n- {kernel: k1, pass: backward, op: gelu}\n", "t");
  ForeignReport ours = report();
  for (ForeignResult& k : ours.results) k.path = "step/forward/3/qkv";
  const Recording by_ranges = to_recording(ours, o);
  EXPECT_EQ(find(by_ranges, "passes_from_rules"), nullptr);
  ASSERT_NE(find(by_ranges, "rules_not_used"), nullptr) << "a flag without effect is said";
  EXPECT_EQ(find(by_ranges, "rules_not_used")->count, 3);
  for (const LaunchRecord& l : by_ranges.launches) EXPECT_EQ(l.path, "step/forward/3/qkv");
  ours.results[1].path.clear();
  const Recording r = to_recording(ours, o);
  ASSERT_NE(find(r, "passes_from_rules"), nullptr);
  EXPECT_EQ(find(r, "passes_from_rules")->count, 1);
  EXPECT_EQ(find(r, "rules_not_used"), nullptr);
}

// Which of the kernels have ranges of their own says nothing about where the others are: every kernel has the place that it has where none
// has a range. Two steps of three layers; ranges are drawn by lot.
TEST(ToRecording, RulesPlaceWhatHasNoRangeWhereItStandsAmongAll) {
  IngestOptions o;
  o.rules = parse_rules(
      "schema: stepscope.rules/1\nname: t\nsections:\n- {name: start, begins_with: embed}\n- {name: back, begins_with: loss}\nrules:\n"
      "- {kernel: embed, pass: encoder, op: embedding}\n- {kernel: ln, pass: forward, op: ln1, layer: up}\n"
      "- {kernel: norm_back, pass: backward, op: ln1, layer: down}\n- {kernel: adamw, pass: optimizer, op: adamw}\n",
      "t");
  struct Put {
    std::string name, place;  // "": no rule is for it
    double ns;
  };
  std::vector<Put> put;
  double ns = 1;
  const auto add = [&](const char* name, const std::string& place) { put.push_back({name, place, ns *= 1.25}); };
  for (int step = 0; step < 2; ++step) {
    add("embed", "step/encoder/-/embedding");
    for (int layer = 0; layer < 3; ++layer) add("ln", fmt::format("step/forward/{}/ln1", layer)), add("other", "");
    add("loss", "");
    for (int layer = 2; layer >= 0; --layer) add("norm_back", fmt::format("step/backward/{}/ln1", layer)), add("other", "");
    add("adamw", "step/optimizer/-/adamw");
  }
  for (uint32_t lot = 0; lot < 200; ++lot) {
    SCOPED_TRACE(lot);
    ForeignReport f;
    f.tool = "ncu";
    f.form = "made";
    f.metrics = {"gpu__time_duration.sum"};
    f.has_ranges = true;
    int64_t by_rules = 0, by_ranges = 0, nowhere = 0;
    std::map<std::pair<std::string, int64_t>, double> of_layer;
    std::map<std::string, double> of_pass;
    double unattributed = 0;
    for (size_t i = 0; i < put.size(); ++i) {
      ForeignResult k;
      k.name = put[i].name;
      k.values = {{0, put[i].ns}};
      const bool annotated = lot * 2654435761u * static_cast<uint32_t>(2 * i + 1) >> 31;
      std::string place = put[i].place;
      if (annotated && place.empty()) place = "step/classifier/-/lm_head";  // a range may be where no rule is
      if (annotated) k.path = place;
      (place.empty() ? nowhere : annotated ? by_ranges : by_rules) += 1;
      f.results.push_back(k);
      const auto parsed = parse_range_path(place).place;
      ASSERT_EQ(parsed.has_value(), !place.empty()) << place;
      if (!parsed) {
        unattributed += put[i].ns;
        continue;
      }
      of_pass[place.substr(5, place.find('/', 5) - 5)] += put[i].ns;
      if (parsed->layer) of_layer[{place.substr(5, place.find('/', 5) - 5), *parsed->layer}] += put[i].ns;
    }
    const Recording r = to_recording(f, o);
    ASSERT_EQ(r.launches.size(), put.size());
    for (size_t i = 0; i < put.size(); ++i) {
      if (r.launches[i].path == "step/classifier/-/lm_head") continue;
      EXPECT_EQ(r.launches[i].path, put[i].place) << i;
    }
    const auto count = [&](const char* name) { return find(r, name) ? find(r, name)->count : 0; };
    EXPECT_EQ(count("passes_from_rules"), by_rules);
    EXPECT_EQ(count("kernels_without_rule"), nowhere);
    EXPECT_EQ(count("rules_not_used"), by_rules ? 0 : by_ranges);
    EXPECT_EQ(count("launches_multiplied") + count("passes_unknown"), 0);
    const ProfileDocument d = build_profile(r, std::nullopt, {}, {});
    EXPECT_NEAR(*d.totals.unattributed_ns, unattributed, 1e-9 * *d.totals.time_ns);
    ASSERT_EQ(d.layers.size(), of_layer.size());
    for (const LayerRow& l : d.layers) EXPECT_NEAR(l.time_ns, of_layer.at({l.pass, l.layer}), 1e-9 * l.time_ns) << l.pass << l.layer;
    ASSERT_EQ(d.passes.size(), of_pass.size());
    for (const PassRow& p : d.passes) EXPECT_NEAR(p.time_ns, of_pass.at(p.name), 1e-9 * p.time_ns) << p.name;
  }
}

TEST(ToRecording, WithoutRangesAndRulesPassesAreUnknown) {
  const Recording r = to_recording(report(), {});
  ASSERT_NE(find(r, "passes_unknown"), nullptr);
  EXPECT_EQ(find(r, "passes_unknown")->count, 3);
  ForeignReport ours = report();
  for (ForeignResult& k : ours.results) k.path = "step/forward/3/qkv";
  const Recording placed = to_recording(ours, {});
  EXPECT_EQ(find(placed, "passes_unknown"), nullptr);
  EXPECT_DOUBLE_EQ(build_profile(placed, std::nullopt, {}, {}).passes.at(0).time_ns, 6e4);
}

TEST(ToRecording, AWindowOfResultsCanBeTaken) {
  IngestOptions o;
  o.first = 1;
  o.count = 1;
  EXPECT_EQ(to_recording(report(), o).launches.at(0).name, "k1");
  o.first = 3;
  EXPECT_THROW(to_recording(report(), o), stepscope::InputError);
}

TEST(ToRecording, TheMetricsCommandAsksForEverythingThatIsRead) {
  const std::string command = metrics_command();
  for (const std::string& m : read_metrics()) EXPECT_THAT(command, HasSubstr(m));
  EXPECT_THAT(command, HasSubstr("--nvtx"));
}

TEST(MetricsCsv, HasEveryValueAtFullPrecisionAndAnEmptyCellForNone) {
  ForeignReport f = report();
  f.results[0].values[0].second = 0.1 + 0.2;
  const std::string csv = metrics_csv(f);
  EXPECT_THAT(csv, HasSubstr("0.30000000000000004"));
  EXPECT_THAT(csv, HasSubstr("\"k2\",\"\",0,0,0,\"(0, 0, 0)\",\"(0, 0, 0)\",384,132,,30000"));
}

TEST(MetricsCsv, HasAColumnForEveryMetricThatHasANumberOrAWordAnywhere) {
  ForeignReport f;
  f.metrics = {"word", "number", "unused", "a"};
  f.results.resize(2);
  f.results[0].name = "k \"0\"";
  f.results[0].path = "p";
  f.results[0].process = 5, f.results[0].context = 1, f.results[0].stream = 7, f.results[0].device = 2;
  f.results[0].grid = {1, 2, 3}, f.results[0].block = {4, 5, 6};
  f.results[0].texts = {{0, "x, y"}};
  f.results[1].name = "k1";
  f.results[1].values = {{1, 2.5}, {3, 1}};
  EXPECT_EQ(metrics_csv(f),
            "result,process,kernel,range,context,stream,device,grid,block,\"a\",\"number\",\"word\"\n"
            "0,5,\"k \"\"0\"\"\",\"p\",1,7,2,\"(1, 2, 3)\",\"(4, 5, 6)\",,,\"x, y\"\n"
            "1,0,\"k1\",\"\",0,0,0,\"(0, 0, 0)\",\"(0, 0, 0)\",1,2.5,\n");
}

}  // namespace
