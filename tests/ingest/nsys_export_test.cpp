#include "profiler/ingest/nsys_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/errors.h"
#include "profiler/document/build_profile.h"
#include "profiler/ingest/to_recording.h"
#include "tests/ingest/made_export.h"

namespace {

using namespace profiler;
using testing::HasSubstr;

// Two steps: in each one kernel in a leaf range, one outside leaves; kernels run long after their launch.
void two_steps(Export& e) {
  for (int64_t step = 0; step < 2; ++step) {
    const int64_t t = 1000 * step;
    e.range("step", t + 100, t + 300);
    e.range("", t + 110, t + 150, 3);
    e.kernel(1, t + 120, t + 400, t + 500);
    e.kernel(2, t + 200, t + 520, t + 600 + 10 * step);
  }
  e.close();
}

TEST(NsysExport, KernelsBelongToTheRangesOpenAtTheirLaunch) {
  Export e;
  two_steps(e);
  const ForeignReport r = read_nsys_export(e.path(), "step");
  ASSERT_EQ(r.results.size(), 4u);
  EXPECT_EQ(r.results[0].name, "void f<4>(float *)");
  EXPECT_EQ(r.results[0].path, "step/forward/0/qkv");
  EXPECT_EQ(r.results[1].path, "step");
  EXPECT_EQ(r.results[0].process, 77);
  EXPECT_EQ(r.results[0].thread, 78);
  EXPECT_EQ(r.results[0].block[0], 128);
  EXPECT_EQ(r.results[0].shared_static_bytes, 0);
  EXPECT_EQ(r.results[0].shared_dynamic_bytes, 16);
  EXPECT_EQ(r.processes.at(77).device.at("chip"), "GH100");
}

// The GPU of the first row was named, whichever ran the kernels.
TEST(NsysExport, TheDeviceIsTheOneThatRanTheKernels) {
  Export e;
  e.kernel(1, 100, 200, 300);
  e.run("DROP TABLE TARGET_INFO_GPU");
  e.run("CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, smCount INT, computeMajor INT, computeMinor INT)");
  e.run("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA T4', 40, 7, 5), (1, 'NVIDIA H200', 132, 9, 0)");
  EXPECT_EQ(read_nsys_export(e.path(), "step").processes.at(77).device.at("name"), "NVIDIA T4");
  e.run("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1");
  EXPECT_EQ(read_nsys_export(e.path(), "step").processes.at(77).device.at("name"), "NVIDIA H200");
  EXPECT_EQ(read_nsys_export(e.path(), "step").processes.at(77).device.at("compute_capability"), "9.0");
  // CUDA calls the only GPU that it may see 0.
  e.run("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 0");
  e.run("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INT, cudaId INT, pid INT)");
  e.run("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (1, 0, 7)");
  EXPECT_EQ(read_nsys_export(e.path(), "step").processes.at(77).device.at("name"), "NVIDIA H200");
}

TEST(NsysExport, KernelsOfTwoGpusAreShownAsOneAndThatIsSaid) {
  Export e;
  e.kernel(1, 100, 200, 300);
  const auto said = [&] {
    const auto missing = to_recording(read_nsys_export(e.path(), "step"), {}).missing;
    return std::any_of(missing.begin(), missing.end(), [](const auto& m) { return m.name == "several_devices" && m.detail == "0, 1"; });
  };
  EXPECT_FALSE(said());
  e.kernel(1, 400, 500, 600);
  e.run("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 WHERE start = 500");
  EXPECT_TRUE(said());
}

TEST(NsysExport, CopiesAreNamedByTheirDirection) {
  Export e;
  e.kernel(1, 100, 200, 300);
  e.run("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (310,320,0,7,1,0,4096,1), (330,340,3,9,2,0,64,2), (350,360,0,7,3,0,8,8)");
  e.close();
  const ForeignReport r = read_nsys_export(e.path(), "step");
  ASSERT_EQ(r.results.size(), 4u);
  EXPECT_EQ(r.results[1].name, "copy HtoD");
  EXPECT_EQ(r.results[1].bytes, 4096);
  EXPECT_EQ(r.results[1].device, 0);
  EXPECT_EQ(r.results[1].stream, 7);
  EXPECT_EQ(r.results[2].name, "copy DtoH");
  EXPECT_EQ(r.results[2].device, 3);
  EXPECT_EQ(r.results[2].stream, 9);
  EXPECT_EQ(r.results[3].name, "copy DtoD");
}

TEST(NsysExport, EachStepRangeIsAStepOfTheDocument) {
  Export e;
  two_steps(e);
  const ProfileDocument d = build_profile(to_recording(read_nsys_export(e.path(), "step"), {}), std::nullopt, {}, {});
  EXPECT_EQ(d.collection.traced_steps, 2);
  EXPECT_EQ(*d.collection.shown_step, 1);
  ASSERT_EQ(d.passes.size(), 1u);
  EXPECT_DOUBLE_EQ(d.passes[0].time_ns, 100);
  EXPECT_DOUBLE_EQ(*d.totals.idle_ns, 20);
  EXPECT_FALSE(d.totals.dram_read_bytes);
  EXPECT_TRUE(std::any_of(d.missing.begin(), d.missing.end(), [](const MissingRow& m) { return m.name == "trace_without_counters"; }));
}

// Two ranks in one export. Steps of both were those of either, and only the last step of all was looked at for a cut.
TEST(NsysExport, EachProcessHasItsOwnStepsAndItsOwnLastOne) {
  Export e;
  for (const int64_t process : {77, 99}) {
    e.process = process;
    for (int64_t step = 0; step < 3; ++step) {
      const int64_t t = 1000 * step + (process == 99 ? 50'000 : 0), length = process == 99 ? 40 : 100;
      e.range("step", t + 100, t + 300);
      e.kernel(1, t + 120, t + 400, t + 400 + length);
      if (step < 2) e.kernel(2, t + 200, t + 520, t + 520 + length);
    }
  }
  e.close();
  const ForeignReport r = read_nsys_export(e.path(), "step");
  for (const int64_t process : {77, 99}) EXPECT_EQ(r.processes.at(process).missing.at(0).name, "last_step_incomplete");
  EXPECT_EQ(r.steps.size(), 4u);
  IngestOptions options;
  options.process = 99;
  const ProfileDocument d = build_profile(to_recording(r, options), std::nullopt, {}, {});
  EXPECT_EQ(d.collection.traced_steps, 2);
  EXPECT_DOUBLE_EQ(*d.totals.time_ns, 160) << "of the process that was asked for";
}

TEST(ToRecording, ACountBeyondTheEndTakesWhatThereIs) {
  Export e;
  e.kernel(1, 20, 40, 50);
  e.kernel(1, 60, 70, 90);
  e.close();
  IngestOptions options;
  options.first = 1;
  options.count = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(to_recording(read_nsys_export(e.path(), "step"), options).launches.size(), 1u);
}

// The document would hold it, and no reader of documents would take it.
TEST(NsysExport, SizesAndIdsBelowZeroAreRefusedWithTableAndRow) {
  for (const char* column :
       {"gridX", "blockZ", "streamId", "deviceId", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory"}) {
    Export e;
    two_steps(e);
    e.reopen();
    e.run(fmt::format("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {} = -4", column));
    e.close();
    try {
      read_nsys_export(e.path(), "step");
      ADD_FAILURE() << column;
    } catch (const stepscope::InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("table CUPTI_ACTIVITY_KIND_KERNEL, row 1 in the order of reading"));
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("'{}' is '-4', expected a whole number of 0 or more", column)));
    }
  }
  Export e;
  e.kernel(1, 120, 400, 500);
  e.run("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (510, 520, 0, 7, 900, 0, -64, 1)");
  e.close();
  try {
    read_nsys_export(e.path(), "step");
    ADD_FAILURE();
  } catch (const stepscope::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'bytes' is '-64', expected a whole number of 0 or more"));
  }
}

TEST(NsysExport, ALaunchWhereOneRangeEndsAndTheNextBeginsIsInTheNext) {
  Export e;
  e.range("first", 100, 150);
  e.range("second", 150, 300);
  e.kernel(2, 150, 400, 500);
  e.close();
  EXPECT_EQ(read_nsys_export(e.path(), "step").results.at(0).path, "second");
}

TEST(NsysExport, AStepEndsOnTheDeviceWithWhateverEndsLast) {
  Export e;
  e.range("step", 100, 300);
  e.kernel(1, 120, 400, 900);
  e.kernel(2, 200, 410, 600);  // launched later, on another stream
  e.close();
  const ForeignReport r = read_nsys_export(e.path(), "step");
  ASSERT_EQ(r.steps.size(), 1u);
  EXPECT_EQ(r.steps[0].gpu_begin_ns, r.results.at(0).start_ns);
  EXPECT_EQ(r.steps[0].gpu_end_ns - r.steps[0].gpu_begin_ns, 500);
}

TEST(NsysExport, AProgramWithoutStepRangesIsOneWhole) {
  Export e;
  two_steps(e);
  const Recording r = to_recording(read_nsys_export(e.path(), "iteration"), {});
  EXPECT_TRUE(r.steps.empty());
  EXPECT_EQ(r.launches.size(), 4u);
}

TEST(NsysExport, WhatRanOutsideTheStepsIsLeftOutAndCounted) {
  Export e;
  e.kernel(2, 10, 20, 30);
  two_steps(e);
  const ForeignReport r = read_nsys_export(e.path(), "step");
  EXPECT_EQ(r.results.size(), 4u);
  const MissingRecord& outside = r.processes.at(77).missing.at(0);
  EXPECT_EQ(outside.name, "outside_steps");
  EXPECT_EQ(outside.count, 1);
}

// The first step may search and allocate: what the last one is held against is the step before it.
TEST(NsysExport, AFirstStepThatDidMoreDoesNotMakeTheLastOneACutOne) {
  Export e;
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t t = 1000 * step;
    e.range("step", t + 100, t + 300);
    e.kernel(1, t + 120, t + 400, t + 500);
    if (step == 0) e.kernel(2, t + 200, t + 520, t + 600);
  }
  e.close();
  EXPECT_EQ(read_nsys_export(e.path(), "step").results.size(), 4u);
}

TEST(NsysExport, ALastStepThatIsCutIsLeftOut) {
  Export e;
  e.range("step", 5000, 5300);
  e.kernel(1, 5120, 5400, 5500);
  two_steps(e);
  const ForeignReport r = read_nsys_export(e.path(), "step");
  EXPECT_EQ(r.results.size(), 4u);
  EXPECT_EQ(r.processes.at(77).missing.at(0).name, "last_step_incomplete");
}

TEST(NsysExport, AKernelWithoutItsCallIsSevere) {
  Export e;
  e.run("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (900,950,0,1,7,9999," + std::to_string(e.global_pid()) +
        ",1,1,32,4,1,1,128,1,1,0,16,NULL)");
  e.close();
  const ForeignReport r = read_nsys_export(e.path(), "step");
  EXPECT_EQ(r.processes.at(77).missing.at(0).name, "unmatched_correlation");
}

std::string export_error_of(const std::filesystem::path& path) {
  try {
    read_nsys_export(path, "step");
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

TEST(NsysExport, SaysWhatAnExportLacks) {
  Export e;
  e.close();
  EXPECT_THAT(export_error_of(e.path()), HasSubstr("holds no kernel"));
  Export without;
  without.run("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL");
  without.close();
  EXPECT_THAT(export_error_of(without.path()), HasSubstr("no table CUPTI_ACTIVITY_KIND_KERNEL"));
}

// nsys's default. The step was shown as 99.5% idle, and nothing said why.
TEST(NsysExport, GraphsTracedAsAWholeAreCountedAndSevere) {
  Export e;
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t t = 1'000'000 * step;
    e.range("step", t + 100, t + 900'000);
    e.kernel(1, t + 120, t + 400, t + 2400);
    e.whole_graph({t + 150, t + 6000, t + 790'000});
    e.kernel(2, t + 200, t + 800'000, t + 802'000);
  }
  e.close();
  const ForeignReport r = read_nsys_export(e.path(), "step");
  EXPECT_EQ(r.results.size(), 6u);
  const auto& missing = r.processes.at(77).missing;
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].name, "graphs_traced_whole");
  EXPECT_EQ(missing[0].count, 3);
  EXPECT_EQ(missing[0].detail, "2.352 ms on the GPU");
  const ProfileDocument d = build_profile(to_recording(r, {}), std::nullopt, {}, {});
  EXPECT_DOUBLE_EQ(*d.totals.time_ns, 801'600);
  EXPECT_TRUE(has_severe_missing(d));
}

// Only what is shown lacks their kernels: all of the program where it has no steps.
TEST(NsysExport, AGraphTracedAsAWholeOutsideTheStepsLacksInNone) {
  Export e;
  e.whole_graph({10, 20, 30});
  two_steps(e);
  EXPECT_TRUE(read_nsys_export(e.path(), "step").processes.at(77).missing.empty());
  const auto missing = read_nsys_export(e.path(), "iteration").processes.at(77).missing;
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].name, "graphs_traced_whole");
}

// With or without an empty table of kernels. The advice was to record what had been recorded.
TEST(NsysExport, AnExportOfGraphsTracedAsAWholeAloneSaysHowToRecordTheirKernels) {
  Export e;
  e.whole_graph({10, 20, 30});
  const std::string expected =
      e.path().string() +
      ": the export holds no kernel, but 1 launch of CUDA graphs whose kernels nsys did not trace; record again with "
      "`nsys profile --trace cuda,nvtx --cuda-graph-trace=node`";
  EXPECT_EQ(export_error_of(e.path()), expected);
  e.run("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL");
  EXPECT_EQ(export_error_of(e.path()), expected);
}

// The step's time stayed right, because they overlap, and the kernels' did not.
TEST(NsysExport, AnOperationThatStandsTwiceIsRefused) {
  Export e;
  e.range("step", 100, 300);
  e.kernel(1, 120, 400, 500);
  e.run("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL");
  e.close();
  EXPECT_THAT(export_error_of(e.path()), HasSubstr("x.sqlite: 'void f<4>(float *)' with correlation id 101 stands twice on stream 7"));
}

// Each was compared with all before it, which took 4 s of these 25,000.
TEST(NsysExport, ManyOperationsOfOneStartTakeTheTimeOfTheirNumber) {
  Export e;
  e.run(
      "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 25000) INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL "
      "SELECT 400, 500, 0, 1, 7, i, 0, 1, 1, 32, 4, 1, 1, 128, 1, 1, 0, 16, NULL FROM c");
  EXPECT_EQ(read_nsys_export(e.path(), "step").results.size(), 25'000u);
  e.run("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE correlationId = 3");
  EXPECT_THAT(export_error_of(e.path()), HasSubstr("with correlation id 3 stands twice on stream 7"));
}

// Nodes of one graph have one call, and two of them that ran at once were taken for a row that stands twice.
TEST(NsysExport, CopiesOfAGraphAreToldApartByTheirNodes) {
  Export e;
  for (const char* column : {"contextId", "graphNodeId"})
    e.run(fmt::format("ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY ADD COLUMN {} INT", column));
  e.run(
      "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT, "
      "globalPid INT, bytes INT, graphNodeId INT)");
  const int64_t call = e.call(100);
  e.kernel(1, {.start = 200, .end = 300, .graph_node = 5}, call);
  for (const int node : {11, 12}) {
    e.run(
        fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (310, 320, 0, 7, {}, {}, 4096, 8, 3, {})", call, e.global_pid(), node));
    e.run(
        fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (310, 320, 0, 3, 7, {}, {}, 64, {})", call, e.global_pid(), node + 10));
  }
  const ForeignReport r = read_nsys_export(e.path(), "step");
  ASSERT_EQ(r.results.size(), 5u);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(r.results[i].graph_node, 10 * static_cast<int64_t>((i + 1) / 2) + (i % 2 == 1 ? 1 : 2));
    EXPECT_EQ(r.results[i].context, 3);
  }
  e.run("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET SELECT * FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE graphNodeId = 21");
  EXPECT_THAT(export_error_of(e.path()), HasSubstr("'memset' with correlation id 101 stands twice"));
}

// `profile` took these for steps, `ingest` of the same program's export for none.
TEST(NsysExport, StepsHaveTheNamesThatProfileTakes) {
  for (const char* name : {"step ", "ProfilerStep#"}) {
    Export e;
    for (int64_t step = 0; step < 2; ++step) {
      const int64_t t = 1000 * step;
      e.range(name + std::to_string(17 + step), t + 100, t + 300);
      e.range("", t + 110, t + 150, 3);
      e.kernel(1, t + 120, t + 400, t + 500);
      e.range("step", t + 160, t + 250);
      e.kernel(2, t + 200, t + 520, t + 600);
    }
    e.close();
    const ForeignReport r = read_nsys_export(e.path(), "step");
    EXPECT_EQ(r.steps.size(), 2u) << name;
    ASSERT_EQ(r.results.size(), 4u) << name;
    EXPECT_EQ(r.results[0].path, "step/forward/0/qkv");
    EXPECT_EQ(r.results[1].path, "step/step");
    EXPECT_EQ(r.results[1].step, 0) << "a step opens in no other";
    EXPECT_EQ(r.results[2].step, 1);
  }
}

TEST(NsysExport, OneThatIsCutInItsHeaderSaysHowLongAHeaderIs) {
  Export e;
  two_steps(e);
  e.close();
  std::filesystem::resize_file(e.path(), 30);
  EXPECT_THAT(export_error_of(e.path()), HasSubstr("the file has 30 bytes, an SQLite file begins with a header of 100"));
}

TEST(NsysExport, ACutAnywhereIsAnError) {
  Export e;
  two_steps(e);
  e.close();
  const auto size = std::filesystem::file_size(e.path());
  const auto whole = e.path(), cut = std::filesystem::path(whole.string() + ".cut");
  for (uintmax_t length = 100; length < size; length += 997) {
    std::filesystem::copy_file(whole, cut, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(cut, length);
    EXPECT_THAT(export_error_of(cut), testing::AllOf(HasSubstr("cut"), HasSubstr(fmt::format("has {} bytes, expected {}", length, size))));
  }
}

// Pages filled with another byte: whatever table they belonged to, none may be read as if nothing had
// happened.
TEST(NsysExport, AnOverwrittenPageIsAnError) {
  Export e;
  two_steps(e);
  e.close();
  std::ifstream in(e.path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const auto rows = read_nsys_export(e.path(), "step").results.size();
  const size_t page = 4096;
  ASSERT_EQ(static_cast<unsigned char>(whole[16]) << 8 | static_cast<unsigned char>(whole[17]), page);
  size_t errors = 0;
  for (size_t at = page; at < whole.size(); at += page) {
    std::string text = whole;
    std::fill(text.begin() + static_cast<std::ptrdiff_t>(at), text.begin() + static_cast<std::ptrdiff_t>(at + page), '\x55');
    std::ofstream(e.path(), std::ios::binary) << text;
    try {
      // A page of a table that nobody reads.
      EXPECT_EQ(read_nsys_export(e.path(), "step").results.size(), rows) << "page at " << at;
    } catch (const stepscope::InputError&) {
      ++errors;
    }
  }
  EXPECT_GE(errors, 4u);
}

// Both took all memory.
TEST(NsysExport, ASmallFileWithRowsWithoutEndOrAnEndlessTextIsRefused) {
  const auto with_strings = [](const std::string& definition) {
    Export e;
    two_steps(e);
    e.reopen();
    e.run("DROP TABLE StringIds");
    e.run(definition);
    e.close();
    return export_error_of(e.path());
  };
  EXPECT_THAT(with_strings("CREATE VIEW stringids AS WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c) "
                           "SELECT id, 'x' AS value FROM c LIMIT 100000"),
              HasSubstr("StringIds is a view, expected a table"));
  EXPECT_THAT(with_strings("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT AS (hex(zeroblob(4000000)))); "
                           "INSERT INTO StringIds VALUES (1), (2), (3)"),
              HasSubstr("column 'value' of StringIds is generated"));
  EXPECT_THAT(with_strings("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); "
                           "INSERT INTO StringIds VALUES (1, hex(zeroblob(9000000)))"),
              HasSubstr("too big"));
}

TEST(NsysExport, CellsThatCannotBeAreRefusedWithTheirPlace) {
  const auto with = [](const std::string& change) {
    Export e;
    two_steps(e);
    e.reopen();
    if (!change.empty()) e.run(change);
    e.close();
    return export_error_of(e.path());
  };
  EXPECT_EQ(with(""), "");
  EXPECT_THAT(
      with("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET \"end\" = start - 5"),
      testing::AllOf(HasSubstr("table CUPTI_ACTIVITY_KIND_KERNEL, row 1"), HasSubstr("'end' is"), HasSubstr("not before its start")));
  EXPECT_THAT(with("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = NULL"),
              testing::AllOf(HasSubstr("'start' is 'NULL'"), HasSubstr("a time")));
  EXPECT_THAT(with("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = -1"), HasSubstr("'start' is '-1'"));
  // A quarter of 2^63 ns is 73 years; later times would overflow where two are added.
  EXPECT_THAT(with("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET \"end\" = 2305843009213693952"),
              HasSubstr("'end' is '2305843009213693952', expected a time below 2^61 ns"));
  EXPECT_THAT(with("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'many'"),
              testing::AllOf(HasSubstr("'gridX' is 'many'"), HasSubstr("a whole number")));
}

}  // namespace
