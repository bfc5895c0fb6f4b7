// The trace: slices of one track nest strictly, or viewers drop them without a word.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "profiler/report/trace.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;
using nlohmann::json;

json trace_of(const Recording& r, const std::optional<RunInfo>& run = fixture::gpt2_run()) {
  return json::parse(trace_text(build_profile(r, run, fixture::round_ceilings(), fixture::options())));
}

// Begin and end in whole ns, so that rounding of microseconds cannot hide an overlap.
std::pair<int64_t, int64_t> span(const json& e) {
  const double begin = e.at("ts").get<double>() * 1000, length = e.at("dur").get<double>() * 1000;
  return {std::llround(begin), std::llround(begin + length)};
}

void expect_strict_nesting(const json& trace) {
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>> tracks;
  for (const json& e : trace.at("traceEvents"))
    if (e.at("ph") == "X") tracks[{e.at("pid"), e.at("tid")}].push_back(span(e));
  EXPECT_FALSE(tracks.empty());
  for (const auto& [track, spans] : tracks)
    for (size_t i = 0; i < spans.size(); ++i)
      for (size_t j = i + 1; j < spans.size(); ++j) {
        const auto& [a, b] = spans[i];
        const auto& [c, d] = spans[j];
        const bool apart = b <= c || d <= a, inside = (a <= c && d <= b) || (c <= a && b <= d);
        EXPECT_TRUE(apart || inside) << a << ".." << b << " and " << c << ".." << d;
      }
}

TEST(Trace, SlicesNestStrictlyOnEveryTrack) { expect_strict_nesting(trace_of(fixture::gpt2_recording())); }

TEST(Trace, WithoutTheLengthOfAStepThereIsNoSliceOfIt) {
  const auto steps = [](bool known) {
    ProfileDocument d = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
    d.collection.shown_step = 7;
    d.timeline.window_ns = known ? std::optional(5e6) : std::nullopt;
    const json trace = json::parse(trace_text(d));
    return std::ranges::count_if(trace.at("traceEvents"), [](const json& e) { return e.at("name") == "step 7"; });
  };
  EXPECT_EQ(steps(true), 1);
  EXPECT_EQ(steps(false), 0);
}

TEST(Trace, AKernelBeginsAtTheMicrosecondAtWhichTheDocumentHasIt) {
  const ProfileDocument d = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  std::map<int64_t, double> begin_ns;
  for (const LaunchRow& l : d.launches)
    if (l.activity == "kernel") begin_ns[l.index] = l.start_ns.value();
  const json t = json::parse(trace_text(d));
  size_t seen = 0;
  for (const json& e : t.at("traceEvents"))
    if (e.at("ph") == "X" && e.at("cat") == "kernel") {
      ++seen;
      EXPECT_DOUBLE_EQ(e.at("ts").get<double>() * 1000, begin_ns.at(e.at("args").at("index").get<int64_t>()));
    }
  EXPECT_EQ(seen, begin_ns.size());
}

TEST(Trace, TwoStreamsAreTwoTracksAndOverlappingRecordsAreCut) {
  Recording r = fixture::gpt2_recording();
  for (size_t i = 3; i < 9; ++i) {
    r.launches[i].stream = 8;
    r.launches[i].start_ns -= 150'000;
    r.launches[i].end_ns -= 150'000;
  }
  r.launches[1].end_ns += 1500;  // 500 ns into the next kernel of its stream
  const json t = trace_of(r);
  expect_strict_nesting(t);
  std::map<int64_t, int> kernels;
  for (const json& e : t.at("traceEvents"))
    if (e.at("ph") == "X" && e.at("cat") == "kernel") ++kernels[e.at("tid").get<int64_t>()];
  EXPECT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[9], 6);
}

// Kernels of two branches of a CUDA graph: the first was cut where the second begins, to nothing where they begin together.
TEST(Trace, WhatRunsBesideItsNeighbourOnOneStreamKeepsItsLength) {
  Recording r = fixture::gpt2_recording();
  const int64_t begin_ns = r.launches[0].start_ns;
  std::map<int64_t, int64_t> length_ns;
  for (const size_t i : {0u, 1u, 2u, 3u}) {
    r.launches[i].start_ns = begin_ns + (i == 3 ? 300 : 0), r.launches[i].end_ns = begin_ns + (i == 3 ? 800 : 60'000);
    length_ns[r.launches[i].index] = r.launches[i].end_ns - r.launches[i].start_ns;
  }
  const json t = trace_of(r);
  expect_strict_nesting(t);
  std::map<int64_t, int64_t> shown_ns;
  std::set<int64_t> tracks;
  for (const json& e : t.at("traceEvents"))
    if (e.at("ph") == "X" && e.at("cat") == "kernel" && e.at("args").at("index") < 4) {
      shown_ns[e.at("args").at("index")] = span(e).second - span(e).first;
      tracks.insert(e.at("tid").get<int64_t>());
    }
  EXPECT_EQ(shown_ns, length_ns);
  EXPECT_EQ(tracks.size(), 4u);
  std::map<std::string, int> names;
  for (const json& e : t.at("traceEvents"))
    if (e.at("name") == "thread_name") ++names[e.at("args").at("name").get<std::string>()];
  EXPECT_EQ(names["stream 7"], 1);
  EXPECT_EQ(names["stream 7 (4)"], 1);
}

TEST(Trace, KernelsLieInOpsAndOpsInPasses) {
  const json t = trace_of(fixture::gpt2_recording());
  std::map<std::string, int> count;
  int layer1 = 0;
  for (const json& e : t.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    ++count[e.at("cat")];
    layer1 += e.at("name") == "layer 1 qkv";
  }
  EXPECT_EQ(count["kernel"], 19);
  EXPECT_EQ(count["memset"], 1);
  EXPECT_EQ(count["copy"], 1);
  // encoder, forward, classifier, backward, optimizer, backward (its memset comes last), other
  EXPECT_EQ(count["pass"], 7);
  EXPECT_EQ(layer1, 2) << "once forward, once backward";
  EXPECT_EQ(count["step"], 1);
}

TEST(Trace, TheSameOpOfTheNextPassIsASliceOfItsOwn) {
  const json t = trace_of(fixture::recording({{"forward/0/qkv", "a", 10'000, 1e6, 1e6, 0}, {"backward/0/qkv", "b", 20'000, 1e6, 1e6, 0}}));
  const json& events = t.at("traceEvents");
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const json& e) { return e.value("name", "") == "layer 0 qkv"; }), 2);
}

TEST(Trace, AnUnattributedKernelLiesInNoPass) {
  auto kernels = fixture::gpt2_kernels();
  kernels[4].path = "";
  const json t = trace_of(fixture::recording(kernels));
  expect_strict_nesting(t);
  std::pair<int64_t, int64_t> lonely;
  for (const json& e : t.at("traceEvents"))
    if (e.at("ph") == "X" && e.at("cat") == "kernel" && e.at("args").at("index") == 4) lonely = span(e);
  for (const json& e : t.at("traceEvents"))
    if (e.at("ph") == "X" && e.at("cat") == "pass") {
      EXPECT_TRUE(span(e).second <= lonely.first || lonely.second <= span(e).first);
    }
}

TEST(Trace, CountersEndAtZeroAndHaveTheirTracks) {
  const json t = trace_of(fixture::gpt2_recording());
  std::map<std::string, std::vector<double>> tracks;
  for (const json& e : t.at("traceEvents"))
    if (e.at("ph") == "C") tracks[e.at("name")].push_back(e.at("args").begin()->get<double>());
  for (const char* name : {"DRAM GB/s", "tensor %", "SM clock MHz", "power W"}) EXPECT_TRUE(tracks.contains(name)) << name;
  EXPECT_DOUBLE_EQ(tracks["DRAM GB/s"].front(), 800);  // 8 MB in 10 us
  EXPECT_DOUBLE_EQ(tracks["DRAM GB/s"].back(), 0);
  EXPECT_EQ(t.at("displayTimeUnit"), "ns");
}

TEST(Trace, CountersOfKernelsThatTouchFollowEachOther) {
  Recording r = fixture::gpt2_recording();
  const int64_t moved = r.launches[1].start_ns - r.launches[0].end_ns;
  ASSERT_GT(moved, 0);
  r.launches[1].start_ns -= moved;
  r.launches[1].end_ns -= moved;
  const auto tracks_of = [](const Recording& of) {
    std::map<std::string, std::vector<double>> tracks;
    const json trace = trace_of(of);
    for (const json& e : trace.at("traceEvents"))
      if (e.at("ph") == "C") tracks[e.at("name")].push_back(e.at("args").begin()->get<double>());
    return tracks;
  };
  auto tracks = tracks_of(r), apart = tracks_of(fixture::gpt2_recording());
  for (const char* name : {"DRAM GB/s", "tensor %"}) {
    EXPECT_NEAR(tracks[name].back(), 0, 1e-9) << name;
    EXPECT_EQ(*std::ranges::max_element(tracks[name]), *std::ranges::max_element(apart[name])) << name;
  }
}

// A viewer would show nothing from the step's begin to the first sample in it, and a time axis that begins before the step.
TEST(Trace, ASampleBeforeTheStepHoldsFromItsBegin) {
  const json t = trace_of(fixture::gpt2_recording());
  int clocks = 0;
  for (const json& e : t.at("traceEvents"))
    if (e.at("ph") == "C" && e.at("name") == "SM clock MHz") {
      EXPECT_GE(e.at("ts").get<double>(), 0);
      clocks += e.at("ts").get<double>() == 0;
    }
  EXPECT_EQ(clocks, 1);
}

TEST(Trace, MicrosecondsKeepTheirNanoseconds) {
  Recording r = fixture::recording({{"forward/0/qkv", "k", 1'234'567, 0, 0, 0}});
  const json t = trace_of(r);
  for (const json& e : t.at("traceEvents"))
    if (e.at("ph") == "X" && e.at("cat") == "kernel") {
      EXPECT_DOUBLE_EQ(e.at("dur").get<double>(), 1234.567);
    }
}

}  // namespace
