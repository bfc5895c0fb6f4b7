// Exports in which several things come together, and documents of them, number by number. What is expected is computed from what was put
// in, nanosecond by nanosecond where it can be, by the text of docs/ingest.md and docs/profile-document.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "profiler/document/build_profile.h"
#include "profiler/ingest/nsys_export.h"
#include "profiler/ingest/to_recording.h"
#include "tests/ingest/made_export.h"

namespace {

using namespace profiler;

ProfileDocument document(const Export& e, const IngestOptions& options = {}, const Ceilings& ceilings = {}) {
  return build_profile(to_recording(read_nsys_export(e.path(), "step"), options), std::nullopt, ceilings, {});
}
std::map<std::string, int64_t> missing(const ProfileDocument& d) {
  std::map<std::string, int64_t> out;
  for (const MissingRow& m : d.missing) out[m.name] = m.count;
  return out;
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

struct Operation {
  std::string name, pass, op;  // pass "": in no leaf range
  int64_t copy_kind = 0, bytes = 0, stream = 0;
  int64_t start[3] = {}, end[3] = {};
};

// Three steps of the same launches on three streams, which wait for nothing but what lies before them on their own. `jitter`: by how many
// nanoseconds a launch comes later in one step than in another, and takes longer where that is more than 10.
std::vector<Operation> racing_steps(std::mt19937& random, int64_t jitter) {
  const auto from_to = [&](int64_t a, int64_t b) { return std::uniform_int_distribution<int64_t>(a, b)(random); };
  const std::map<int64_t, const char*> kinds = {{1, "copy HtoD"}, {2, "copy DtoH"}, {8, "copy DtoD"}, {10, "copy PtoP"}};
  std::vector<Operation> list;
  for (int i = 0; i < 14; ++i) {
    Operation o;
    o.stream = 7 + from_to(0, 2);
    if (i % 3 == 2) {
      o.copy_kind = std::next(kinds.begin(), from_to(0, 3))->first;
      o.bytes = from_to(1, 9000);
      o.name = kinds.at(o.copy_kind);
    } else {
      o.name = i % 2 ? "g" : "void f<4>(float *)";
    }
    if (i < 5) o.pass = "forward", o.op = "qkv";
    if (i >= 8 && i < 12) o.pass = "backward", o.op = "gelu";
    std::fill(o.end, o.end + 3, (jitter > 10 ? 20 : 200) * from_to(1, 5));  // its length, until its start is known
    list.push_back(o);
  }
  for (int step = 0; step < 3; ++step) {
    std::map<int64_t, int64_t> free_at;
    for (Operation& o : list) {
      int64_t& at = free_at.try_emplace(o.stream, 100'000 * step + 1000 + from_to(0, jitter)).first->second;
      o.start[step] = at + from_to(0, std::min<int64_t>(jitter, 40));
      o.end[step] = at = o.start[step] + o.end[step] + (jitter > 10 ? from_to(0, jitter) : 0);
    }
  }
  return list;
}
void put(Export& e, const std::vector<Operation>& list) {
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t t = 100'000 * step;
    e.range("step", t + 100, t + 800);
    e.range("forward/0/qkv", t + 105, t + 155);
    e.range("backward/0/gelu", t + 185, t + 225);
    for (size_t i = 0; i < list.size(); ++i) {
      const Operation& o = list[i];
      const Export::Launch l{t + 110 + 10 * static_cast<int64_t>(i), o.start[step], o.end[step], o.stream};
      if (o.copy_kind)
        e.copy(o.copy_kind, o.bytes, l);
      else
        e.kernel(o.name == "g" ? 2 : 1, l);
    }
  }
  e.close();
}

// Nothing that races changes which launch is which; it is only seen in what ran beside what.
TEST(NsysTogether, StreamsThatRaceAreTheSameLaunchesInEveryStep) {
  int by_medians = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::vector<Operation> put_in = racing_steps(random, seed % 2 ? 90 : 2);
    Export e;
    put(e, put_in);
    Ceilings ceilings;
    ceilings.copy_bytes_per_s = 4e9;  // 4 bytes/ns
    const ProfileDocument d = document(e, {}, ceilings);

    int64_t in_no_leaf = 0, kernels_in_no_leaf = 0;
    for (const Operation& o : put_in) in_no_leaf += o.pass.empty(), kernels_in_no_leaf += o.pass.empty() && !o.copy_kind;
    double begin[3], length[3];
    for (int s = 0; s < 3; ++s) {
      begin[s] = 1e18;
      double end = 0;
      for (const Operation& o : put_in)
        begin[s] = std::min(begin[s], static_cast<double>(o.start[s])), end = std::max(end, static_cast<double>(o.end[s]));
      length[s] = end - begin[s];
    }
    const double middle = median({length[0], length[1], length[2]});
    int shown = 2;
    for (int s = 1; s >= 0; --s)
      if (std::abs(length[s] - middle) < std::abs(length[shown] - middle)) shown = s;
    EXPECT_EQ(d.collection.traced_steps, 3);
    ASSERT_EQ(*d.collection.shown_step, shown);
    const bool medians = d.collection.time_basis == "median_over_traced_steps";
    by_medians += medians;

    std::map<std::string, int64_t> expected = {
        {"trace_without_counters", 1}, {"passes_unknown", 3 * kernels_in_no_leaf}, {"unattributed_kernels", in_no_leaf}};
    for (const MissingRow& m : d.missing)  // of the document, whatever was ingested
      if (m.name == "traced_steps_vary" || m.stage == "document") expected[m.name] = m.count;
    EXPECT_EQ(missing(d), expected);
    EXPECT_EQ(missing(d).contains("traced_steps_vary"), !medians);

    // Who runs in each nanosecond of the step shown.
    const auto steps = static_cast<size_t>(length[shown]);
    std::vector<std::vector<size_t>> running(steps);
    for (size_t i = 0; i < put_in.size(); ++i)
      for (int64_t t = put_in[i].start[shown]; t < put_in[i].end[shown]; ++t)
        running[static_cast<size_t>(t - static_cast<int64_t>(begin[shown]))].push_back(i);
    double busy = 0, overlap = 0;
    std::vector<double> share(put_in.size());
    for (const auto& now : running) {
      busy += !now.empty();
      overlap += now.size() > 1;
      for (const size_t i : now) share[i] += 1.0 / static_cast<double>(now.size());
    }
    EXPECT_DOUBLE_EQ(*d.timeline.window_ns, length[shown]);
    EXPECT_DOUBLE_EQ(*d.timeline.busy_ns, busy);
    EXPECT_DOUBLE_EQ(*d.timeline.overlap_ns, overlap);
    EXPECT_DOUBLE_EQ(*d.timeline.idle_ns, length[shown] - busy);
    EXPECT_DOUBLE_EQ(*d.totals.time_ns, medians ? middle : length[shown]);
    std::set<int64_t> streams;
    for (const Operation& o : put_in) streams.insert(o.stream);
    EXPECT_EQ(*d.timeline.streams, static_cast<int64_t>(streams.size()));

    std::map<std::string, double> of_pass;
    std::map<std::string, std::tuple<int64_t, int64_t, double>> of_copy;
    std::map<std::string, int64_t> next;
    ASSERT_EQ(d.launches.size(), put_in.size());
    for (size_t i = 0; i < put_in.size(); ++i) {
      const Operation& o = put_in[i];
      const std::string activity = o.copy_kind ? "copy" : "kernel";
      const int64_t index = next[activity]++;
      const auto row = std::find_if(d.launches.begin(), d.launches.end(),
                                    [&](const LaunchRow& l) { return l.activity == activity && l.index == index; });
      ASSERT_NE(row, d.launches.end());
      std::vector<double> own;
      for (int s = 0; s < 3; ++s) own.push_back(static_cast<double>(o.end[s] - o.start[s]));
      const auto shown_ns = own[static_cast<size_t>(shown)];
      const double time = medians ? median(own) : shown_ns;
      EXPECT_EQ(row->name, o.name) << activity << " " << index;
      EXPECT_EQ(row->stream, o.stream);
      EXPECT_EQ(row->pass.value_or(""), o.pass);
      EXPECT_EQ(row->op.value_or(""), o.op);
      EXPECT_EQ(*row->start_ns, static_cast<double>(o.start[shown]) - begin[shown]);
      EXPECT_EQ(*row->shown_ns, shown_ns);
      EXPECT_EQ(*row->time_ns, time);
      EXPECT_EQ(row->samples, 3);
      EXPECT_NEAR(*row->share_ns, share[i] * time / shown_ns, 1e-6);
      // A copy within one GPU reads and writes its bytes there; of what goes over a link or leaves the GPU no floor is known.
      ASSERT_EQ(row->floor_ns.has_value(), o.copy_kind == 8) << o.name;
      if (row->floor_ns) {
        EXPECT_DOUBLE_EQ(*row->floor_ns, 2 * static_cast<double>(o.bytes) / 4);
      }
      EXPECT_EQ(row->bound.has_value(), o.copy_kind == 8) << o.name;
      if (!o.pass.empty()) of_pass[o.pass] += *row->share_ns;
      if (!o.copy_kind) continue;
      EXPECT_EQ(*row->bytes, o.bytes);
      auto& [count, bytes, copying] = of_copy[o.name];
      ++count, bytes += o.bytes, copying += time;
    }
    ASSERT_EQ(d.passes.size(), of_pass.size());
    for (const PassRow& p : d.passes) EXPECT_NEAR(p.time_ns, of_pass.at(p.name), 1e-6) << p.name;
    ASSERT_EQ(d.timeline.copies.size(), of_copy.size());
    for (const CopyRow& c : d.timeline.copies) EXPECT_EQ(std::tuple(c.count, c.bytes, c.time_ns), of_copy.at(c.name)) << c.name;
  }
  EXPECT_TRUE(by_medians > 0 && by_medians < 20) << by_medians;
}

// Two ranks of one launcher. The second began outside its steps, has a kernel without a call, was cut in its last step, and sees the other
// GPU alone, which it calls 0 as well.
TEST(NsysTogether, OfAnotherProcessNothingIsSaid) {
  Export e;
  e.run("DROP TABLE TARGET_INFO_GPU");
  e.run("CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, smCount INT, computeMajor INT, computeMinor INT)");
  e.run("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA T4', 40, 7, 5), (1, 'NVIDIA H200', 132, 9, 0)");
  e.run("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INT, cudaId INT, pid INT)");
  e.run("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 77), (1, 0, 99)");
  for (const int64_t process : {77, 99}) {
    e.process = process;
    const int64_t late = process == 99 ? 3 : 0;
    for (int64_t step = 0; step < 3; ++step) {
      const int64_t t = 1000 * step + late;
      e.range("step", t + 100, t + 300);
      e.kernel(1, {t + 120, t + 400, t + 440 + 10 * late});
      if (process == 77 || step < 2) e.kernel(2, {t + 200, t + 520, t + 600});
    }
  }
  e.kernel(1, {20, 40, 50});
  e.kernel(2, {60, 2700, 2710}, e.call(2150) + 50);  // a correlation id that no call has
  e.close();
  const auto of = [&](int64_t process) {
    IngestOptions options;
    options.process = process;
    return document(e, options);
  };
  const auto without_of_document = [](const ProfileDocument& d) {
    std::map<std::string, int64_t> out;
    for (const MissingRow& m : d.missing)
      if (m.stage == "ingest" || m.stage == "collect") out[m.name] = m.count;
    return out;
  };
  const ProfileDocument first = of(77), second = of(99);
  EXPECT_EQ(*first.environment.gpu, "NVIDIA T4");
  const ForeignReport report = read_nsys_export(e.path(), "step");
  IngestOptions options;
  using Names = std::set<std::string>;
  EXPECT_EQ(gpus_of(report, options), (Names{"NVIDIA H200", "NVIDIA T4"}));
  options.process = 99;
  EXPECT_EQ(gpus_of(report, options), (Names{"NVIDIA H200"})) << "so ceilings of an H200 are right for it";
  EXPECT_EQ(*second.environment.gpu, "NVIDIA H200");
  EXPECT_EQ(*second.environment.sm_count, 132);
  EXPECT_EQ(first.collection.traced_steps, 3);
  EXPECT_EQ(second.collection.traced_steps, 2);
  EXPECT_DOUBLE_EQ(*first.totals.time_ns, 200);
  EXPECT_DOUBLE_EQ(*first.totals.idle_ns, 80);
  EXPECT_DOUBLE_EQ(*second.totals.idle_ns, 50);
  using Missing = std::map<std::string, int64_t>;
  EXPECT_EQ(without_of_document(first), (Missing{{"passes_unknown", 6}, {"trace_without_counters", 1}}));
  EXPECT_FALSE(has_severe_missing(first)) << "the kernel without a call is the other's";
  Missing expected = {{"outside_steps", 2},
                      {"unmatched_correlation", 1},
                      {"last_step_incomplete", 1},
                      {"trace_without_counters", 1},
                      {"passes_unknown", 4}};
  EXPECT_EQ(without_of_document(second), expected);
  EXPECT_TRUE(has_severe_missing(second));
  expected["passes_unknown"] = 10;
  expected["several_processes"] = 2;
  EXPECT_EQ(without_of_document(document(e)), expected);
}

// kernel_sequence_changed, which is severe, was said of steps that replay one graph.
TEST(NsysTogether, BranchesOfAGraphThatRaceAreTheSameLaunchesInEveryStep) {
  Export e;
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t t = 1000 * step;
    e.range("step", t + 100, t + 300);
    const int64_t launch = e.call(t + 120);
    const int64_t first = t + (step == 1 ? 430 : 400), second = t + (step == 1 ? 400 : 430);
    e.kernel(1, {0, first, first + 100, 7, 0, (5ll << 32) + 1}, launch);
    e.kernel(2, {0, second, second + 100, 9, 0, (5ll << 32) + 2}, launch);
  }
  e.close();
  const ProfileDocument d = document(e);
  EXPECT_FALSE(missing(d).contains("kernel_sequence_changed"));
  EXPECT_EQ(*d.collection.graph_launches, 2);
  ASSERT_EQ(d.launches.size(), 2u);
  for (const LaunchRow& l : d.launches) EXPECT_EQ(l.name, l.index == 0 ? "void f<4>(float *)" : "g");
  EXPECT_DOUBLE_EQ(*d.totals.time_ns, 130);
  EXPECT_DOUBLE_EQ(*d.timeline.overlap_ns, 70);
}

TEST(NsysTogether, AllGpusOfOneProcessAreNamedForItsCeilings) {
  Export e;
  e.run("DROP TABLE TARGET_INFO_GPU");
  e.run("CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT)");
  e.run("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA T4'), (1, 'NVIDIA H200')");
  e.kernel(1, {100, 200, 300, 7, 1});
  e.copy(8, 64, {120, 310, 320, 7, 0});
  e.close();
  const ForeignReport report = read_nsys_export(e.path(), "step");
  EXPECT_EQ(report.processes.at(77).device.at("name"), "NVIDIA H200");
  EXPECT_EQ(gpus_of(report, {}), (std::set<std::string>{"NVIDIA H200", "NVIDIA T4"})) << "a copy has a floor too";
}

}  // namespace
