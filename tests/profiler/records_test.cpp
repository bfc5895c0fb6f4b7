// The recording file: what was written is what is read, and nothing else is read.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/errors.h"
#include "base/read_file.h"
#include "profiler/recording/collector.h"
#include "profiler/recording/recording.h"
#include "profiler/records/collect_plan.h"
#include "profiler/records/missing.h"
#include "profiler/records/names.h"
#include "profiler/records/record_json.h"
#include "profiler/records/recording_file.h"
#include "tests/profiler/fixture.h"
#include "tests/temporary_folder.h"

namespace {

using namespace profiler;

const std::string kHead = R"({"schema":"stepscope.recording/1"})"
                          "\n";
const std::string kSession = R"({"type":"session","producer":"cupti","program":"p","pid":1,"device":{},"versions":{}})"
                             "\n";
const std::string kEnd = R"({"type":"end"})"
                         "\n";
const std::string kMissing = R"({"type":"missing","name":"counters_unavailable","count":2,"detail":"mig"})"
                             "\n";

Recording read(const std::string& text) {
  std::istringstream in(text);
  return read_recording(in, "rec");
}

// The message of the stepscope::InputError that reading gives, "" if it reads.
std::string error_of(const std::string& text) {
  try {
    read(text);
    return "";
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
}

// Of this process; removed at its end.
std::filesystem::path temporary(const std::string& name) {
  struct Folder {
    std::filesystem::path path = fresh_test_folder();
    ~Folder() { std::filesystem::remove_all(path); }
  };
  static const Folder folder;
  return folder.path / name;
}

TEST(Recording, ARankThatCannotBeIsRefused) {
  const auto rank = [](int64_t number, int64_t size) {
    RankRecord r;
    r.rank = number, r.size = size, r.job = "j", r.host = "h", r.boot_id = "b", r.time_namespace = "t", r.build = "x";
    return kHead + kSession + record_to_json(r).dump() + "\n" + kEnd;
  };
  EXPECT_EQ(error_of(rank(0, 2)), "");
  EXPECT_EQ(error_of(rank(1, 2)), "");
  for (const auto& [number, size] : {std::pair<int64_t, int64_t>{0, 1}, {0, 0}, {-1, 2}, {2, 2}, {0, 4'000'000'000}})
    EXPECT_NE(error_of(rank(number, size)).find(std::to_string(number) + " of " + std::to_string(size) + " ranks"), std::string::npos)
        << error_of(rank(number, size));
  const std::string two = rank(0, 2);
  const std::string line = two.substr(kHead.size() + kSession.size(), two.size() - kHead.size() - kSession.size() - kEnd.size());
  EXPECT_NE(error_of(kHead + kSession + line + line + kEnd).find("a second rank line"), std::string::npos);
}

TEST(Recording, EveryRecordComesBackAsItWasWritten) {
  Recording r = fixture::gpt2_recording();
  r.missing.push_back({"counters_unavailable", 3, "mig \"x\"\n"});
  r.launches[0].graph_node = 0x200000017;
  r.environment[0].throttle_reasons = 0xffffffffffffffffULL;
  const auto path = temporary("roundtrip.jsonl");
  save_recording(r, path);
  const Recording back = load_recording(path);
  const auto same = [](const auto& a, const auto& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(record_to_json(a[i]).dump(), record_to_json(b[i]).dump());
  };
  EXPECT_EQ(record_to_json(r.session).dump(), record_to_json(back.session).dump());
  same(r.launches, back.launches);
  same(r.stats, back.stats);
  same(r.steps, back.steps);
  same(r.counter_sets, back.counter_sets);
  same(r.counters, back.counters);
  same(r.environment, back.environment);
  same(r.missing, back.missing);
  EXPECT_EQ(back.launches[0].graph_node, 0x200000017);
  EXPECT_EQ(back.environment[0].throttle_reasons, 0xffffffffffffffffULL);
  std::filesystem::remove(path);
}

TEST(Recording, WithoutItsEndLineItIsTruncatedAndStillRead) {
  const Recording r = read(kHead + kSession + kMissing);
  ASSERT_EQ(r.missing.size(), 2u);
  EXPECT_EQ(r.missing[0].name, "counters_unavailable");
  EXPECT_EQ(r.missing[1].name, "truncated_recording");
  EXPECT_TRUE(read(kHead + kSession + kEnd).missing.empty());
}

TEST(Recording, HalfALineAtTheEndIsTruncationButInTheMiddleAnError) {
  const Recording r = read(kHead + kSession + R"({"type":"missing","na)");
  EXPECT_TRUE(fixture::is_missing(r.missing, "truncated_recording"));
  EXPECT_EQ(r.missing.size(), 1u);
  EXPECT_NE(error_of(kHead + kSession + "{\"type\":\"missing\",\"na\n" + kEnd).find("rec:3: not JSON"), std::string::npos);
}

TEST(Recording, AWriterThatDiesLeavesWhatItWrote) {
  const auto path = temporary("killed.jsonl");
  {
    RecordingWriter writer(path);
    writer.write(MissingRecord{"counters_unavailable", 1, ""});
    // Another reader sees the line before the writer is closed.
    const Recording seen = load_recording(path);
    EXPECT_EQ(seen.missing.size(), 2u);
  }
  EXPECT_TRUE(fixture::is_missing(load_recording(path).missing, "truncated_recording"));
  std::filesystem::remove(path);
}

TEST(Recording, NothingCanBeAddedAfterFinish) {
  const auto path = temporary("finished.jsonl");
  RecordingWriter writer(path);
  writer.finish();
  EXPECT_THROW(writer.write(MissingRecord{}), std::runtime_error);
  EXPECT_THROW(RecordingWriter("/no such folder/x"), std::runtime_error);
  std::filesystem::remove(path);
}

TEST(Recording, ErrorsNameFileLineFieldAndWhatWasExpected) {
  EXPECT_EQ(error_of(""), "rec:1: not a recording: the file is empty");
  EXPECT_NE(error_of("hello\n").find("rec:1: not a recording"), std::string::npos);
  EXPECT_EQ(error_of("{\n \"schema\": \"stepscope.profile/1\",\n"),
            "rec:1: not a recording, but a profile document: `stepscope report rec` shows it");
  EXPECT_NE(error_of("{}\n").find("stepscope.recording/1"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":"stepscope.recording/2"})"
                     "\n")
                .find("reads \"stepscope.recording/1\""),
            std::string::npos);
  EXPECT_NE(error_of(kHead + kSession +
                     R"({"type":"luanch"})"
                     "\n")
                .find("rec:3: unknown type of line \"luanch\""),
            std::string::npos);
  EXPECT_NE(error_of(kHead + kSession +
                     R"({"type":"missing","name":"x","count":"2","detail":""})"
                     "\n")
                .find("rec:3: field 'count': expected an integer, found \"2\""),
            std::string::npos);
  for (const auto& [length, shown] : {std::pair(58, std::string(58, 'a') + '"'), std::pair(59, std::string(56, 'a') + "...")}) {
    const std::string text = error_of(kHead + kSession + R"({"type":"missing","name":"x","detail":"","count":")" +
                                      std::string(static_cast<size_t>(length), 'a') + "\"}\n");
    EXPECT_TRUE(text.ends_with("found \"" + shown)) << text;
  }
  EXPECT_NE(error_of(kHead + kSession +
                     R"({"type":"missing","name":"x","detail":""})"
                     "\n")
                .find("field 'count' is missing"),
            std::string::npos);
  EXPECT_NE(error_of(kHead + kSession +
                     R"({"type":"missing","name":"x","count":1,"detail":"","extra":1})"
                     "\n")
                .find("unknown field 'extra'"),
            std::string::npos);
  EXPECT_NE(error_of(kHead + kSession +
                     R"({"type":"missing","name":"x","count":9223372036854775808,"detail":""})"
                     "\n")
                .find("field 'count': expected an integer of 63 bits"),
            std::string::npos)
      << "it would be read as a negative one";
  EXPECT_NE(error_of(kHead + kSession + "[]\n").find("rec:3"), std::string::npos);
  EXPECT_NE(error_of(kHead + kSession + kSession).find("a second session line"), std::string::npos);
  EXPECT_NE(error_of(kHead + kSession + kEnd + kMissing).find("rec:4: a line after the end line"), std::string::npos);
  EXPECT_NE(error_of(kHead + kEnd).find("no session line"), std::string::npos);
  EXPECT_THROW(load_recording("/no such file"), stepscope::InputError);
}

TEST(Recording, AGridHasThreeSizes) {
  const nlohmann::ordered_json good = record_to_json(LaunchRecord());
  EXPECT_NO_THROW(record_from_json<LaunchRecord>(good));
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1, 2}, {1, 2, 3, 4}}) {
    nlohmann::ordered_json other = good;
    other["grid"] = sizes;
    EXPECT_THROW(record_from_json<LaunchRecord>(other), RecordError) << sizes.size();
  }
}

TEST(Recording, NaNIsRefusedOnBothSides) {
  CounterRecord c;
  c.set = "core";
  c.values = {1, std::nan("")};
  EXPECT_THROW(record_to_json(c), RecordError);
  LaunchStats s;
  s.median_ns = INFINITY;
  EXPECT_THROW(record_to_json(s), RecordError);
  const std::string line =
      R"({"type":"counters","set":"core","step":0,"index":0,"pass":"","kernel":"k","path":"","grid":[1,1,1],"values":[1,null]})";
  EXPECT_NE(error_of(kHead + kSession + line + "\n").find("field 'values': expected a list of numbers"), std::string::npos);
}

TEST(Recording, ANameThatIsNotUtf8DoesNotStopTheRecording) {
  const auto path = temporary("bytes.jsonl");
  {
    RecordingWriter writer(path);
    writer.write(SessionRecord{});
    LaunchRecord l;
    l.name = "kernel\xff\xfe";
    writer.write(l);
    writer.finish();
  }
  EXPECT_EQ(load_recording(path).launches.at(0).name.substr(0, 6), "kernel");
  std::filesystem::remove(path);
}

TEST(Recording, ARawTraceHasLaunchesOfManyStepsAndNoSession) {
  const auto path = temporary("raw.jsonl");
  {
    RecordingWriter writer(path);
    for (const int64_t step : {3, 4}) {
      LaunchRecord l;
      l.step = step;
      l.name = "k";
      writer.write(l);
    }
    EXPECT_THROW(load_raw_trace(path), stepscope::InputError);  // not ended: steps may be missing
    writer.finish();
  }
  const auto launches = load_raw_trace(path);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[1].step, 4);
  EXPECT_THROW(load_raw_trace("/no such file"), stepscope::InputError);
  std::filesystem::remove(path);
}

TEST(Recording, ProgramRunsAreJoinedWithoutLosingWhatTheSecondMissed) {
  Recording a = fixture::recording({{"", "k", 10, 0, 0, 0}});
  Recording b = a;
  a.counters.clear();
  a.counter_sets.clear();
  b.launches.clear();
  b.missing.push_back({"counters_unavailable", 1, ""});
  const Recording joined = join_program_runs(a, b);
  EXPECT_EQ(joined.launches.size(), 1u);
  EXPECT_EQ(joined.counters.size(), 1u);
  EXPECT_EQ(joined.counter_sets.size(), 1u);
  EXPECT_TRUE(fixture::is_missing(joined.missing, "counters_unavailable"));
}

// Both runs keep as many launches of the same program.
TEST(Recording, WhatTwoRunsOfAProgramDidNotKeepIsCountedOnce) {
  Recording a = fixture::recording({{"", "k", 10, 0, 0, 0}});
  a.missing.push_back({"launches_not_kept", 50, "the first 100 were kept"});
  Recording b = a;
  b.missing.back().count = 51;
  a = join_program_runs(std::move(a), b);
  ASSERT_EQ(a.missing.size(), 1u);
  EXPECT_EQ(a.missing[0].count, 51);
}

// The collector opens them in the folder where the program then is.
TEST(CollectPlan, NamesItsFilesFromTheRoot) {
  const std::filesystem::path folder = fresh_test_folder();
  const std::string file = (folder / "plan.json").string();
  CollectPlan p;
  p.output = "run.jsonl";
  write_plan(p, file);
  EXPECT_EQ(collect_plan_from_json(stepscope::read_file(file)).output, (std::filesystem::current_path() / "run.jsonl").string());
  EXPECT_EQ(collect_plan_from_json(stepscope::read_file(file)).raw_trace, "") << "none";
  std::filesystem::remove_all(folder);
}

TEST(Names, EveryEnumeratorHasAWordThatLeadsBackToIt) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(activity_from_name(name(static_cast<Activity>(i))), static_cast<Activity>(i));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(phase_from_name(name(static_cast<Phase>(i))), static_cast<Phase>(i));
  EXPECT_FALSE(activity_from_name("Kernel"));
  EXPECT_FALSE(phase_from_name(""));
}

TEST(CollectPlan, ComesBackAsItWasWritten) {
  CollectPlan p;
  p.output = "/tmp/a b.jsonl";
  p.raw_trace = "r";
  p.mode = "program_counters";
  p.step_range = "iteration";
  p.phases = {{Phase::warmup, 10}, {Phase::timed, 50}, {Phase::counters, 1}};
  p.metrics = {"dram__bytes_read.sum"};
  p.max_launches = 5;
  const CollectPlan q = collect_plan_from_json(to_json(p));
  EXPECT_EQ(to_json(p), to_json(q));
  EXPECT_EQ(q.output, "/tmp/a b.jsonl");
  ASSERT_EQ(q.phases.size(), 3u);
  EXPECT_EQ(q.phases[1].phase, Phase::timed);
  EXPECT_EQ(q.phases[1].steps, 50);
  EXPECT_EQ(q.max_launches, 5);
}

TEST(CollectPlan, ErrorsNameTheField) {
  const auto error = [](std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    try {
      collect_plan_from_json(text.replace(at, from.size(), to));
      return std::string();
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
  };
  CollectPlan p;
  p.phases = {{Phase::timed, 50}};
  const std::string good = to_json(p);
  EXPECT_NE(error(good, "\"steps\": 50", "\"steps\": -1").find("'steps'"), std::string::npos);
  EXPECT_NE(error(good, "\"timed\"", "\"tiemd\"").find("phases[].phase"), std::string::npos);
  EXPECT_NE(error(good, "\"mode\": \"steps\"", "\"mode\": \"all\"").find("'mode'"), std::string::npos);
  EXPECT_NE(error(good, "collect/1", "collect/2").find("'schema'"), std::string::npos);
  EXPECT_NE(error(good, "\"output\"", "\"outptu\"").find("'output'"), std::string::npos);
  EXPECT_THROW(collect_plan_from_json("{"), std::runtime_error);
}

TEST(MissingCatalogue, NamesAreUniqueAndEachRowGivesAdvice) {
  std::set<std::string_view> names;
  for (const MissingKind& k : missing_catalogue()) {
    EXPECT_TRUE(names.insert(k.name).second) << k.name;
    EXPECT_EQ(find_missing(k.name)->name, k.name);
    EXPECT_GT(k.advice.size(), 20u) << k.name;
    EXPECT_EQ(k.advice.back(), '.') << k.name;
  }
  for (const char* known :
       {"truncated_recording",       "dropped_activity_records", "kernels_without_time",    "unmatched_correlation",
        "torn_activity_buffer",      "launches_not_kept",        "counters_unavailable",    "counter_set_failed",
        "counter_sequence_mismatch", "counter_grid_differs",     "kernel_sequence_changed", "unattributed_kernels",
        "unknown_range_path",        "pass_sum_mismatch",        "pass_counters_mismatch",  "no_gpu_counters",
        "ceilings_not_measured",     "clocks_throttled",         "other_subscriber",        "graph_launch_in_counter_run",
        "environment_not_sampled",   "collector_overhead_high"})
    EXPECT_TRUE(find_missing(known)) << known;
  EXPECT_FALSE(find_missing("lost_socks"));
}

// Severe is what makes a shown number wrong; the command fails on it. Whoever changes one changes an exit code.
TEST(MissingCatalogue, TheSevereOnesAreThese) {
  std::set<std::string_view> severe;
  for (const MissingKind& k : missing_catalogue())
    if (k.severity == Severity::severe) severe.insert(k.name);
  EXPECT_EQ(severe, (std::set<std::string_view>{"collectives_not_joined",   "counter_sequence_mismatch",   "counter_set_failed",
                                                "dropped_activity_records", "graph_launch_in_counter_run", "graphs_traced_whole",
                                                "kernel_sequence_changed",  "kernels_without_time",        "other_subscriber",
                                                "pass_sum_mismatch",        "phases_not_traced",           "rank_missing",
                                                "rank_not_traced",          "records_lost_in_step",        "report_damaged",
                                                "results_without_time",     "timed_steps_missing",         "torn_activity_buffer",
                                                "truncated_recording",      "unmatched_correlation"}));
}

}  // namespace
