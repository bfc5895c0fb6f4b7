#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/errors.h"
#include "ncu_report.pb.h"
#include "profiler/document/build_profile.h"
#include "profiler/ingest/metrics_table.h"
#include "profiler/ingest/to_recording.h"
#include "tests/ingest/fixture.h"

namespace {

using namespace profiler;
using testing::HasSubstr;

std::map<std::string, double> numbers(const ForeignReport& report, size_t result) {
  std::map<std::string, double> out;
  for (const auto& [index, value] : report.results[result].values) out[report.metrics[index]] = value;
  return out;
}

// ncu prints at most two decimals in base units.
void expect_same_results(const ForeignReport& report, const ForeignReport& csv) {
  ASSERT_EQ(report.results.size(), csv.results.size());
  size_t compared = 0;
  for (size_t i = 0; i < csv.results.size(); ++i) {
    const ForeignResult &a = report.results[i], &b = csv.results[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.path, b.path);
    EXPECT_EQ(a.grid, b.grid);
    EXPECT_EQ(a.block, b.block);
    EXPECT_EQ(a.stream, b.stream);
    EXPECT_EQ(a.process, b.process);
    const auto ours = numbers(report, i), printed = numbers(csv, i);
    for (const auto& [name, value] : printed) {
      const auto at = ours.find(name);
      ASSERT_NE(at, ours.end()) << name;
      EXPECT_LE(std::abs(at->second - value), 0.005 + 1e-9 * std::abs(value)) << name << " of result " << i;
      ++compared;
    }
    EXPECT_EQ(ours.size(), printed.size()) << "result " << i;
  }
  EXPECT_GT(compared, 1000u);
}

TEST(NcuReport, EveryMetricIsWhatNcuPrintsForIt) {
  expect_same_results(ncu_report("fp32_basic.ncu-rep"), ncu_csv("fp32_basic.raw.base.csv"));
  expect_same_results(ncu_report("fp32_nvtx.ncu-rep"), ncu_csv("fp32_nvtx.raw.base.csv"));
  expect_same_results(ncu_report("mixed_nvtx.ncu-rep"), ncu_csv("mixed_nvtx.raw.base.csv"));
}

TEST(NcuReport, RangesOfTheLaunchingThreadArePlaces) {
  const ForeignReport r = ncu_report("mixed_nvtx.ncu-rep");
  EXPECT_TRUE(r.has_ranges);
  ASSERT_FALSE(r.results.empty());
  for (const ForeignResult& k : r.results) EXPECT_TRUE(k.path.starts_with("step/")) << k.path;
  EXPECT_FALSE(ncu_report("fp32_basic.ncu-rep").has_ranges);
}

ProfileDocument document(const ForeignReport& r) { return build_profile(to_recording(r, {}), std::nullopt, {}, {}); }

void expect_close(const Number& a, const Number& b, double relative, double absolute, const char* what) {
  ASSERT_EQ(a.has_value(), b.has_value()) << what;
  if (a) {
    EXPECT_LE(std::abs(*a - *b), relative * std::abs(*b) + absolute) << what;
  }
}

// Scaled units print two decimals of the column's unit: what is lost depends on the largest value of the column.
TEST(NcuReport, AllFormsOfOneReportGiveOneDocument) {
  const ProfileDocument truth = document(ncu_report("mixed_nvtx.ncu-rep"));
  ASSERT_EQ(truth.launches.size(), 8u);
  ASSERT_FALSE(truth.passes.empty());
  for (const char* form :
       {"mixed_nvtx.raw.base.csv", "mixed_nvtx.raw.auto.csv", "mixed_nvtx.details.base.csv", "mixed_nvtx.details.auto.csv"}) {
    SCOPED_TRACE(form);
    const ProfileDocument d = document(ncu_csv(form));
    ASSERT_EQ(d.launches.size(), truth.launches.size());
    ASSERT_EQ(d.passes.size(), truth.passes.size());
    ASSERT_EQ(d.kernels.size(), truth.kernels.size());
    for (size_t i = 0; i < truth.launches.size(); ++i) {
      const LaunchRow &a = d.launches[i], &b = truth.launches[i];
      EXPECT_EQ(a.name, b.name);
      EXPECT_EQ(a.pass, b.pass);
      EXPECT_EQ(a.op, b.op);
      EXPECT_EQ(a.layer, b.layer);
      expect_close(a.time_ns, b.time_ns, 0, 10, "time");
      expect_close(a.dram_read_bytes, b.dram_read_bytes, 0, 10e3, "read");
      expect_close(a.dram_write_bytes, b.dram_write_bytes, 0, 10e3, "written");
      expect_close(a.tensor_active_pct, b.tensor_active_pct, 0, 0.01, "tensor");
      expect_close(a.occupancy_pct, b.occupancy_pct, 0, 0.01, "occupancy");
      // Page details has these only with the section of launch statistics, which this report lacks; they were 0 there.
      if (std::string_view(form).find("details") == std::string_view::npos) {
        EXPECT_EQ(a.registers, b.registers);
        EXPECT_EQ(a.shared_bytes, b.shared_bytes);
      } else {
        EXPECT_FALSE(a.registers || a.shared_bytes);
      }
    }
    for (size_t i = 0; i < truth.passes.size(); ++i) {
      EXPECT_EQ(d.passes[i].name, truth.passes[i].name);
      expect_close(d.passes[i].time_ns, truth.passes[i].time_ns, 1e-3, 0, "pass time");
    }
  }
}

TEST(NcuReport, LabelsOfSectionsAreTheMetricsTheyStandFor) {
  const ForeignReport report = ncu_report("fp32_basic.ncu-rep"), details = ncu_csv("fp32_basic.details.auto.csv");
  ASSERT_EQ(details.results.size(), report.results.size());
  const std::pair<const char*, double> read[] = {{"gpu__time_duration.sum", 10},
                                                 {"sm__cycles_active.avg", 0.01},
                                                 {"gpc__cycles_elapsed.max", 0.01},
                                                 {"gpc__cycles_elapsed.avg.per_second", 0.01e9},
                                                 {"sm__warps_active.avg.pct_of_peak_sustained_active", 0.01},
                                                 {"launch__registers_per_thread", 0},
                                                 {"launch__shared_mem_per_block_static", 10}};
  for (size_t i = 0; i < report.results.size(); ++i)
    for (const auto& [name, tolerance] : read) {
      const auto ours = value_of(report.results[i], metric_index(report, name)),
                 theirs = value_of(details.results[i], metric_index(details, name));
      ASSERT_TRUE(ours && theirs) << name;
      EXPECT_LE(std::abs(*ours - *theirs), tolerance) << name;
    }
}

TEST(NcuReport, WhatAReportDoesNotHoldIsMissingAndNotZero) {
  const ProfileDocument d = document(ncu_report("fp32_basic.ncu-rep"));
  for (const LaunchRow& l : d.launches) {
    EXPECT_FALSE(l.dram_read_bytes);
    EXPECT_TRUE(l.time_ns && *l.time_ns > 0);
  }
  EXPECT_FALSE(d.totals.idle_ns);
  const auto row = std::find_if(d.missing.begin(), d.missing.end(), [](const MissingRow& m) { return m.name == "metrics_not_in_report"; });
  ASSERT_NE(row, d.missing.end());
  EXPECT_THAT(row->detail, HasSubstr("ncu --metrics dram__bytes_read.sum,dram__bytes_write.sum"));
}

// What ncu recorded of none of our programs is made with the schema that the reader uses.
std::string sized(const std::string& message) {
  const auto n = static_cast<uint32_t>(message.size());
  return std::string(reinterpret_cast<const char*>(&n), sizeof n) + message;
}
std::string file_of(const std::string& blocks) {
  ncu::FileHeader header;
  header.set_version(7);
  return std::string("NVR\0", 4) + sized(header.SerializeAsString()) + blocks;
}

// What `ncu --target-processes all` makes of a launcher's two ranks: they take turns, a block names its process, and ids of metrics count
// through all blocks.
TEST(NcuReport, EachResultIsOfTheProcessThatItsBlockNames) {
  struct Launch {
    uint32_t process;
    const char* name;
    double ns;
  };
  const std::vector<std::vector<Launch>> blocks = {
      {{41, "a", 1000}, {41, "b", 2000}}, {{52, "a", 30000}}, {{41, "c", 4000}}, {{52, "c", 50000}, {52, "b", 60000}}};
  std::string all;
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::string payload;
    for (const Launch& l : blocks[i]) {
      ncu::KernelResult k;
      k.set_function(l.name);
      k.set_stream(7);
      ncu::Metric& m = *k.add_metrics();
      m.set_name_id(static_cast<uint32_t>(i % 2));
      m.mutable_value()->set_number(l.ns);
      payload += sized(k.SerializeAsString());
    }
    ncu::BlockHeader block;
    block.set_kernel_results(static_cast<uint32_t>(blocks[i].size()));
    block.mutable_process()->set_id(blocks[i][0].process);
    block.mutable_process()->set_path(blocks[i][0].process == 41 ? "/bin/first" : "/bin/second");
    if (i == 0) block.mutable_strings()->add_text("gpu__time_duration.sum");
    if (i == 1) block.mutable_strings()->add_text("gpu__time_duration.max");
    block.set_payload_bytes(static_cast<uint32_t>(payload.size()));
    all += sized(block.SerializeAsString()) + payload;
  }
  const std::string bytes = file_of(all);
  const ForeignReport r = read_ncu_report(as_bytes(bytes), "made");
  const std::string csv = metrics_csv(r);
  size_t n = 0;
  for (const auto& block : blocks)
    for (const Launch& l : block) {
      EXPECT_EQ(r.results.at(n).process, l.process) << n;
      EXPECT_THAT(csv, HasSubstr(fmt::format("\n{},{},\"{}\",", n, l.process, l.name)));
      ++n;
    }
  EXPECT_EQ(r.results.size(), n);
  const auto of_both = to_recording(r, {}).missing;
  const auto said = std::find_if(of_both.begin(), of_both.end(), [](const auto& m) { return m.name == "several_processes"; });
  ASSERT_NE(said, of_both.end());
  EXPECT_EQ(said->count, 2);
  EXPECT_EQ(said->detail, "41, 52");
  for (const uint32_t process : {41u, 52u}) {
    IngestOptions options;
    options.process = process;
    const Recording own = to_recording(r, options);
    EXPECT_EQ(own.session.pid, process);
    EXPECT_EQ(own.session.program, process == 41 ? "/bin/first" : "/bin/second");
    const ProfileDocument d = build_profile(own, std::nullopt, {}, {});
    EXPECT_EQ(d.collection.measured_kernels, 3);
    EXPECT_DOUBLE_EQ(*d.totals.time_ns, process == 41 ? 7000 : 140000);
    EXPECT_FALSE(std::any_of(d.missing.begin(), d.missing.end(), [](const auto& m) { return m.name == "several_processes"; }));
  }
}

// A result of the second GPU was shown as one of the first, without a word.
TEST(NcuReport, ItsMetricsSayOnWhichGpuAResultRan) {
  EXPECT_EQ(ncu_report("fp32_basic.ncu-rep").results.at(0).device, 0);
  ncu::BlockHeader block;
  for (const char* name : {"gpu__time_duration.sum", "launch__device_id", "device__attribute_device_index"})
    block.mutable_strings()->add_text(name);
  std::string payload;
  for (const uint32_t metric : {1u, 2u, 0u}) {  // the last says nothing
    ncu::KernelResult k;
    k.set_function("a");
    ncu::Metric& time = *k.add_metrics();
    time.set_name_id(0);
    time.mutable_value()->set_number(1000);
    if (metric) {
      ncu::Metric& device = *k.add_metrics();
      device.set_name_id(metric);
      device.mutable_value()->set_u32(metric + 1);
    }
    payload += sized(k.SerializeAsString());
  }
  block.set_kernel_results(3);
  block.set_payload_bytes(static_cast<uint32_t>(payload.size()));
  const std::string bytes = file_of(sized(block.SerializeAsString()) + payload);
  const Recording r = to_recording(read_ncu_report(as_bytes(bytes), "made"), {});
  ASSERT_EQ(r.launches.size(), 3u);
  EXPECT_EQ(r.launches[0].device, 2);
  EXPECT_EQ(r.launches[1].device, 3);
  EXPECT_EQ(r.launches[2].device, 0);
  const auto said = std::find_if(r.missing.begin(), r.missing.end(), [](const auto& m) { return m.name == "several_devices"; });
  ASSERT_NE(said, r.missing.end());
  EXPECT_EQ(said->detail, "0, 2, 3");
}

// ncu stores NaN for what its CSV prints as n/a, and no value of a metric that it has per instance alone. For such a CSV the notice said so;
// for the report itself it asked to collect again what the report holds.
TEST(NcuReport, AMetricWithoutANumberIsNotOneToCollect) {
  ncu::BlockHeader block;
  ncu::KernelResult k;
  k.set_function("a");
  for (const std::string& name : read_metrics()) {
    ncu::Metric& m = *k.add_metrics();
    m.set_name_id(static_cast<uint32_t>(block.strings().text_size()));
    block.mutable_strings()->add_text(name);
    if (name != "dram__bytes_write.sum") m.mutable_value()->set_number(name == "dram__bytes_read.sum" ? std::nan("") : 1);
  }
  const std::string payload = sized(k.SerializeAsString());
  block.set_kernel_results(1);
  block.set_payload_bytes(static_cast<uint32_t>(payload.size()));
  const std::string bytes = file_of(sized(block.SerializeAsString()) + payload);
  const auto missing = to_recording(read_ncu_report(as_bytes(bytes), "made"), {}).missing;
  const auto row = std::find_if(missing.begin(), missing.end(), [](const auto& m) { return m.name == "metrics_not_in_report"; });
  ASSERT_NE(row, missing.end());
  EXPECT_EQ(row->count, 2);
  EXPECT_EQ(row->detail, "the report has no value (n/a) for dram__bytes_read.sum of 1 kernels, dram__bytes_write.sum of 1 kernels");
}

TEST(NcuReport, RangesAndGraphsAreResultsLikeKernels) {
  const auto result = [&](const char* range, double ns) {
    ncu::GroupResult g;
    g.set_thread(7);
    ncu::Metric& m = *g.add_metrics();
    m.set_name_id(0);
    m.mutable_value()->set_number(ns);
    ncu::NvtxThread& other = *g.mutable_nvtx()->add_threads();
    other.set_id(8);
    other.add_domains()->add_stack()->set_name("another thread's");
    ncu::NvtxThread& t = *g.mutable_nvtx()->add_threads();
    t.set_id(7);
    t.add_domains()->add_stack()->set_name(range);
    return sized(g.SerializeAsString());
  };
  const std::string payload = result("step/forward/-/lnf", 1000) + result("epoch", 2500);
  ncu::BlockHeader block;
  block.set_range_results(1);
  block.set_graph_results(1);
  block.mutable_strings()->add_text("gpu__time_duration.sum");
  block.set_payload_bytes(static_cast<uint32_t>(payload.size()));
  const std::string bytes = file_of(sized(block.SerializeAsString()) + payload);
  const ForeignReport r = read_ncu_report(as_bytes(bytes), "made");
  ASSERT_EQ(r.results.size(), 2u);
  EXPECT_EQ(r.results[0].kind, ForeignKind::range);
  EXPECT_EQ(r.results[0].name, "range step/forward/-/lnf");
  EXPECT_EQ(r.results[1].kind, ForeignKind::graph);
  EXPECT_EQ(r.results[1].path, "epoch");
  const ProfileDocument d = document(r);
  EXPECT_DOUBLE_EQ(*d.totals.time_ns, 3500);
  ASSERT_EQ(d.passes.size(), 1u);
  EXPECT_DOUBLE_EQ(d.passes[0].time_ns, 1000);
}

// ---- damage ---------------------------------------------------------------------------------------------------

std::string report_error_of(const std::string& bytes) {
  try {
    read_ncu_report(as_bytes(bytes), "x.ncu-rep");
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

bool damaged(const ForeignReport& r) {
  return std::any_of(r.missing.begin(), r.missing.end(), [](const MissingRecord& m) { return m.name == "report_damaged"; });
}

// Where a block ends nothing tells that another one should follow.
std::vector<size_t> block_ends(const std::string& bytes) {
  const auto u32 = [&](size_t at) {
    uint32_t v;
    std::memcpy(&v, bytes.data() + at, sizeof v);
    return v;
  };
  std::vector<size_t> ends;
  size_t at = 8 + u32(4);
  while (at < bytes.size()) {
    const uint32_t header = u32(at);
    // payload_bytes is field 5, a varint
    size_t p = at + 4;
    const size_t header_end = p + header;
    uint64_t payload = 0;
    const auto varint = [&] {
      uint64_t v = 0;
      for (int shift = 0;; shift += 7) {
        const auto c = static_cast<uint8_t>(bytes[p++]);
        v |= static_cast<uint64_t>(c & 127) << shift;
        if (c < 128) return v;
      }
    };
    while (p < header_end) {
      const uint64_t key = varint(), value = varint();
      if (key >> 3 == 5) payload = value;
      if ((key & 7) == 2) p += value;
    }
    at = header_end + payload;
    ends.push_back(at);
  }
  return ends;
}

TEST(NcuReport, ACutAnywhereIsAnErrorOrShowsWhatCameBefore) {
  const std::string whole = file_text("fp32_nvtx.ncu-rep");
  const size_t results = ncu_report("fp32_nvtx.ncu-rep").results.size();
  const std::vector<size_t> ends = block_ends(whole);
  size_t last = 0, errors = 0, partial = 0;
  for (size_t length = 0; length < whole.size(); length += length < 400 ? 1 : 13) {
    const std::string cut = whole.substr(0, length);
    try {
      const ForeignReport r = read_ncu_report(as_bytes(cut), "cut");
      EXPECT_LE(r.results.size(), results);
      EXPECT_GE(r.results.size(), last);
      last = r.results.size();
      ++partial;
      const bool between_blocks = std::find(ends.begin(), ends.end(), length) != ends.end();
      EXPECT_TRUE(between_blocks || damaged(r)) << "cut at " << length;
    } catch (const stepscope::InputError& e) {
      EXPECT_EQ(last, 0u) << "cut at " << length;
      ++errors;
    }
  }
  EXPECT_GT(errors, 100u);
  EXPECT_GT(partial, 100u);
}

TEST(NcuReport, DamageBehindAResultIsSevereInTheDocument) {
  const std::string whole = file_text("fp32_nvtx.ncu-rep");
  const std::string cut = whole.substr(0, whole.size() - 100);
  const ForeignReport r = read_ncu_report(as_bytes(cut), "cut");
  ASSERT_TRUE(damaged(r));
  EXPECT_THAT(r.missing.back().detail, HasSubstr("at byte"));
  EXPECT_TRUE(has_severe_missing(document(r)));
}

TEST(NcuReport, FlippedBytesNeverEndTheProgram) {
  const std::string whole = file_text("fp32_nvtx.ncu-rep");
  size_t read = 0;
  for (size_t at = 0; at < whole.size(); at += 7) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    try {
      document(read_ncu_report(as_bytes(flipped), "flipped"));
      ++read;
    } catch (const stepscope::InputError&) {
    }
  }
  EXPECT_GT(read, 100u);
}

// The file has no check sum, so a flipped bit shows only where the number cannot be one.
TEST(NcuReport, ANumberThatItsMetricCannotHaveIsDamage) {
  const ForeignReport good = ncu_report("fp32_nvtx.ncu-rep");
  const double time = value_of(good.results[2], metric_index(good, "gpu__time_duration.sum")).value();
  std::string bytes = file_text("fp32_nvtx.ncu-rep"), negative(8, '\0'), value(8, '\0');
  std::memcpy(value.data(), &time, 8);
  const double wrong = -time;
  std::memcpy(negative.data(), &wrong, 8);
  size_t at = bytes.find(value), changed = 0;
  for (; at != std::string::npos; at = bytes.find(value, at + 8), ++changed) bytes.replace(at, 8, negative);
  ASSERT_GT(changed, 0u);
  const ForeignReport r = read_ncu_report(as_bytes(bytes), "x");
  ASSERT_TRUE(damaged(r));
  EXPECT_EQ(r.results.size(), 2u);
  EXPECT_THAT(r.missing.back().detail, testing::AllOf(HasSubstr("result 2"), HasSubstr("gpu__time_duration."), HasSubstr(" is -"),
                                                      HasSubstr("expected a time above 0")));
}

TEST(NcuReport, SaysWhereALengthRunsPastTheEnd) {
  std::string bytes = file_text("fp32_nvtx.ncu-rep");
  uint32_t header;
  std::memcpy(&header, bytes.data() + 4, 4);
  const uint32_t huge = 0x7fffffff;
  std::memcpy(bytes.data() + 8 + header, &huge, 4);  // the first block header claims 2 GB
  EXPECT_THAT(report_error_of(bytes), HasSubstr("x.ncu-rep: at byte"));
  EXPECT_THAT(report_error_of(bytes), HasSubstr("a block header has 2147483647 bytes"));
}

TEST(NcuReport, RefusesWhatIsNoReport) {
  EXPECT_THAT(report_error_of(""), HasSubstr("this file of 0 bytes does not"));
  EXPECT_THAT(report_error_of("PK\3\4"), HasSubstr("begins with \"NVR"));
  EXPECT_THAT(report_error_of(std::string("NVR\0", 4)), HasSubstr("the file header has 4 bytes, 0 are left"));
}

TEST(NcuReport, AReportWithoutResultsIsAnError) {
  const std::string header_only(std::string("NVR\0\2\0\0\0\x08\x07", 10));
  EXPECT_THAT(report_error_of(header_only), HasSubstr("holds no result"));
}

TEST(NcuReport, AnUnknownFileVersionIsSaid) {
  std::string bytes = file_text("fp32_nvtx.ncu-rep");
  ASSERT_EQ(bytes[9], 7);  // FileHeader.version
  bytes[9] = 9;
  const ForeignReport r = read_ncu_report(as_bytes(bytes), "x");
  ASSERT_FALSE(r.missing.empty());
  EXPECT_EQ(r.missing.front().name, "report_version_unknown");
}

TEST(KernelName, LosesCastsAndInnerScopesAsNcuPrintsIt) {
  EXPECT_EQ(simplified_kernel_name("void f<(int)4, (bool)1>(float *, int)"), "void f<4, 1>(float *, int)");
  EXPECT_EQ(simplified_kernel_name("g(int)"), "g(int)");
  EXPECT_EQ(simplified_kernel_name("void fp32::<unnamed>::k<(int)-4>(long)"), "void fp32::<unnamed>::k<-4>(long)");
  EXPECT_EQ(simplified_kernel_name("void cub::V::detail::K<cub::V::hub<unsigned int>::Policy, (cub::V::SortOrder)0>(const T3 *)"),
            "void cub::K<cub::hub<unsigned int>::Policy, 0>(const T3 *)");
  EXPECT_EQ(simplified_kernel_name("void k<(E)2>(int)"), "void k<2>(int)");
  EXPECT_EQ(simplified_kernel_name("void k(A<4>, int[8])"), "void k(A<4>, int[8])") << "no cast, though a number follows the bracket";
  EXPECT_EQ(simplified_kernel_name(""), "");
}

}  // namespace
