// The document: what it says, that it survives the file, and that nothing is absent without a reason.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "profiler/document/fields.h"
#include "profiler/document/json.h"
#include "profiler/report/csv.h"
#include "profiler/report/facts.h"
#include "profiler/report/table.h"
#include "profiler/report/views.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;
using fixture::missing_row;
using nlohmann::json;

ProfileDocument gpt2_profile() {
  return build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
}

std::string error_of(const std::string& text) {
  try {
    profile_from_json(text, "p.json");
    return "";
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
}

// Of gpt2_profile() with another value at one place.
std::string error_with(const std::string& place, const json& value) {
  static const json good = json::parse(to_json(gpt2_profile()));
  json j = good;
  j.at(json::json_pointer(place)) = value;
  return error_of(j.dump());
}

TEST(Profile, KernelsOfSeveralGpusAreNotShownAsThoseOfOneWithoutAWord) {
  EXPECT_FALSE(missing_row(gpt2_profile(), "several_devices"));
  Recording r = fixture::gpt2_recording();
  r.launches[3].device = 1;
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  ASSERT_TRUE(missing_row(d, "several_devices"));
  EXPECT_EQ(missing_row(d, "several_devices")->count, 2);
  EXPECT_EQ(missing_row(d, "several_devices")->detail, "0, 1");
  r.missing.push_back({"several_devices", 3, "0, 1, 5"});
  EXPECT_EQ(missing_row(build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options()), "several_devices")->count, 3)
      << "what the reader of a report said, and once";
}

TEST(Profile, TimingComesFromTheTimedStepsAlone) {
  const ProfileDocument d = gpt2_profile();
  // Steps 10..17 (0-based): 5.00 ms + 10 us x (i % 8) for i = 2, 3, .., 7, 0, 1.
  EXPECT_EQ(d.timing.step_time_ns.samples.size(), 8u);
  EXPECT_DOUBLE_EQ(d.timing.step_time_ns.samples[0], 5.02e6);
  EXPECT_DOUBLE_EQ(*d.timing.step_time_ns.median, 5.035e6);
  std::vector<double> sorted = d.timing.step_time_ns.samples;
  std::sort(sorted.begin(), sorted.end());
  // Of eight values the quantile q lies at 7 q: 0.35 from the first, 6.65.
  EXPECT_DOUBLE_EQ(*d.timing.step_time_ns.p05, sorted[0] + 0.35 * (sorted[1] - sorted[0]));
  EXPECT_DOUBLE_EQ(*d.timing.step_time_ns.p95, sorted[6] + 0.65 * (sorted[7] - sorted[6]));
  EXPECT_DOUBLE_EQ(*d.timing.step_time_ns.interval_low, 5.00e6);
  EXPECT_DOUBLE_EQ(*d.timing.step_time_ns.interval_high, 5.07e6);
  EXPECT_DOUBLE_EQ(*d.timing.tokens_per_s, 4096 / 5.035e-3);
  EXPECT_DOUBLE_EQ(*d.timing.of_matmul_ceiling_pct, 2.5e10 / 5.035e-3 / 1e13 * 100);
  EXPECT_EQ(d.timing.matmul_ceiling, "fp32");
  EXPECT_NEAR(*d.collection.traced_overhead_pct, 2.0, 1e-9);
  EXPECT_DOUBLE_EQ(*d.collection.collecting_ns, 1e9);
}

// Which phase ran without the graph must be readable from the document: the traced step came from it, the counted one cannot have.
TEST(Profile, LaunchesFromACudaGraphAreCountedAndTheCountedStepIsSaidToHaveNone) {
  EXPECT_FALSE(gpt2_profile().collection.graph_launches);
  Recording r = fixture::gpt2_recording();
  for (LaunchRecord& l : r.launches)
    if (l.activity == Activity::kernel) l.graph_node = 0x100000017;
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  ASSERT_TRUE(d.collection.graph_launches);
  EXPECT_EQ(*d.collection.graph_launches, 19);
  EXPECT_NE(table_text(d, {}).find("1 counted without the CUDA graph"), std::string::npos);
  EXPECT_EQ(table_text(gpt2_profile(), {}).find("without the CUDA graph"), std::string::npos);
}

TEST(Profile, PassesUnattributedAndIdleAreTheStep) {
  const ProfileDocument d = gpt2_profile();
  double passes = 0;
  for (const PassRow& p : d.passes) passes += p.time_ns;
  EXPECT_DOUBLE_EQ(passes, *d.totals.passes_ns);
  EXPECT_NEAR(passes + *d.totals.unattributed_ns + *d.totals.idle_ns, *d.totals.time_ns, *d.totals.time_ns * 0.005);
  EXPECT_NEAR(*d.totals.conservation_error_pct, 0, 1e-9);
  EXPECT_DOUBLE_EQ(*d.totals.unattributed_ns, 0);
  ASSERT_EQ(d.passes.size(), 6u);
  EXPECT_EQ(d.passes[3].name, "backward");
  EXPECT_DOUBLE_EQ(d.passes[3].time_ns, 800e3 + 2 * 740e3 + 3e3 + 100e3);
  EXPECT_EQ(d.passes[3].launches, 8);
  EXPECT_EQ(d.passes[3].copies, 1);
  EXPECT_FALSE(has_severe_missing(d));
  ASSERT_EQ(d.missing.size(), 1u);
  EXPECT_EQ(d.missing.front().name, "energy_not_measured") << "40 ms of steps";
}

TEST(Profile, EverythingSurvivesTheFile) {
  const ProfileDocument d = gpt2_profile();
  const std::string text = to_json(d);
  EXPECT_EQ(to_json(profile_from_json(text, "p.json")), text);
}

TEST(Profile, HasTheNamesThatScriptsRelyOn) {
  const json j = json::parse(to_json(gpt2_profile()));
  EXPECT_EQ(j.at("schema"), "stepscope.profile/1");
  for (const char* key : {"median", "mean", "p05", "p95", "samples"}) EXPECT_TRUE(j.at("timing").at("step_time_ns").contains(key)) << key;
  EXPECT_TRUE(j.at("timing").contains("tokens_per_s"));
  for (const char* key : {"name", "time_ns", "launches", "dram_read_bytes", "dram_write_bytes", "tensor_active_pct"})
    EXPECT_TRUE(j.at("passes").at(0).contains(key)) << key;
  for (const char* key :
       {"name", "pass", "op", "launches", "time_ns", "dram_read_bytes", "dram_write_bytes", "tensor_active_pct", "bound", "headroom_ns"})
    EXPECT_TRUE(j.at("kernels").at(0).contains(key)) << key;
  for (const char* key : {"name", "grid", "block", "stream", "time_ns"}) EXPECT_TRUE(j.at("launches").at(0).contains(key)) << key;
  for (const char* key : {"time_ns", "idle_ns", "unattributed_ns"}) EXPECT_TRUE(j.at("totals").contains(key)) << key;
  EXPECT_EQ(j.at("launches").size(), fixture::gpt2_recording().launches.size());
  ProfileDocument with_missing;
  with_missing.missing.push_back({"n", "info", "collect", 1, "", "a"});
  const json m = json::parse(to_json(with_missing)).at("missing").at(0);
  for (const char* key : {"name", "severity", "count", "advice"}) EXPECT_TRUE(m.contains(key)) << key;
}

TEST(Profile, NoAnswerIsAbsentNotNull) {
  const json j = json::parse(to_json(build_profile(fixture::cpu_recording(), fixture::cpu_run(), {}, fixture::options())));
  EXPECT_FALSE(j.at("kernels").at(0).contains("dram_read_bytes"));
  EXPECT_FALSE(j.at("passes").at(0).contains("headroom_ns"));
  const std::function<void(const json&)> no_null = [&](const json& v) {
    ASSERT_FALSE(v.is_null());
    for (const json& e : v)
      if (v.is_structured()) no_null(e);
  };
  no_null(j);
}

TEST(Profile, NaNIsRefusedEverywhere) {
  ProfileDocument d = gpt2_profile();
  d.kernels[2].headroom_ns = std::nan("");
  try {
    to_json(d);
    FAIL();
  } catch (const stepscope::InputError& e) {
    EXPECT_NE(std::string(e.what()).find("kernels[2].headroom_ns"), std::string::npos);
  }
  ProfileDocument samples = gpt2_profile();
  samples.timing.step_time_ns.samples[3] = INFINITY;
  EXPECT_THROW(to_json(samples), stepscope::InputError);
  ProfileDocument memory = gpt2_profile();
  memory.run.memory_bytes["x"] = std::nan("");
  EXPECT_THROW(to_json(memory), stepscope::InputError);
}

TEST(Profile, ReadersRefuseWhatTheyDoNotKnow) {
  const std::string good = to_json(gpt2_profile());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return error_of(text.replace(at, from.size(), to));
  };
  EXPECT_NE(changed("profile/1", "profile/2").find("this program reads \"stepscope.profile/1\""), std::string::npos);
  EXPECT_NE(changed("\"tokens_per_s\"", "\"tokens_per_h\"").find("timing: unknown field 'tokens_per_h'"), std::string::npos);
  EXPECT_NE(changed("\"launches\": 1,", "").find("collection.counter_sets[1].launches: is missing"), std::string::npos);
  EXPECT_NE(changed("\"passes_ns\": ", "\"passes_ns\": null, \"x\": ").find("totals"), std::string::npos);
  EXPECT_NE(changed("\"median\": ", "\"median\": \"5\", \"mean2\": ").find("timing.step_time_ns.median: expected a number"),
            std::string::npos);
  EXPECT_NE(changed("\"totals\"", "\"total\"").find("unknown section 'total'"), std::string::npos);
  EXPECT_EQ(changed("\"run\": {", "\"run\": {\"shuffle\": 1,"), "p.json: run.shuffle: expected true or false");
  EXPECT_NE(error_of("[1]").find("not a profile document"), std::string::npos);
  EXPECT_NE(error_of("{}").find("not a profile document"), std::string::npos);
  EXPECT_THROW(load_profile("/no such file"), stepscope::InputError);
}

// A document that somebody edited by hand is not shown as if it had been measured.
TEST(Profile, ReadersRefuseNumbersThatCannotBe) {
  const json good = json::parse(to_json(gpt2_profile()));
  EXPECT_EQ(error_with("/totals/time_ns", -5), "p.json: totals.time_ns: found -5, expected 0 or more");
  EXPECT_EQ(error_with("/passes/2/time_ns", -1.5), "p.json: passes[2].time_ns: found -1.5, expected 0 or more");
  EXPECT_EQ(error_with("/kernels/0/launches", -1), "p.json: kernels[0].launches: found -1, expected 0 or more");
  EXPECT_EQ(error_with("/timing/step_time_ns/samples/3", -1), "p.json: timing.step_time_ns.samples: found -1, expected 0 or more");
  EXPECT_EQ(error_with("/launches/0/grid/1", -1), "p.json: launches[0].grid: found -1, expected 0 or more");
  EXPECT_EQ(error_with("/kernels/0/launches", uint64_t{1} << 63), "p.json: kernels[0].launches: expected an integer below 2^63");
  EXPECT_EQ(error_with("/kernels/0/time_ns", nullptr), "p.json: kernels[0].time_ns: expected a number");
  EXPECT_EQ(error_with("/missing/0/severity", "sever"), "p.json: missing[0].severity: found 'sever', expected info, notice or severe");
  EXPECT_EQ(error_with("/kernels/0/bound", "magic"),
            "p.json: kernels[0].bound: found 'magic', expected memory, tensor, latency or neither");
  EXPECT_EQ(error_with("/kernels/0/activity", "magic"),
            "p.json: kernels[0].activity: found 'magic', expected kernel, copy, memset or cpu_op");
  EXPECT_EQ(error_with("/launches/0/activity", "magic"),
            "p.json: launches[0].activity: found 'magic', expected kernel, copy, memset or cpu_op");
  for (const char* list : {"passes", "ops", "layers", "launches"})
    EXPECT_EQ(error_with(fmt::format("/{}/0/bound", list).c_str(), "power"),
              fmt::format("p.json: {}[0].bound: found 'power', expected memory, tensor, latency or neither", list));
  ProfileDocument joules = gpt2_profile();
  joules.ops[0].energy_bound = "power";
  EXPECT_EQ(error_of(to_json(joules)), "");
  joules.ops[0].energy_bound = "magic";
  EXPECT_EQ(error_of(to_json(joules)), "p.json: ops[0].energy_bound: found 'magic', expected memory, tensor, power, latency or neither");
  EXPECT_EQ(error_with("/timing/state", "lukewarm"), "p.json: timing.state: found 'lukewarm', expected cool or warm");
  EXPECT_EQ(error_with("/timing/states/0/state", "lukewarm"), "p.json: timing.states[0].state: found 'lukewarm', expected cool or warm");
  EXPECT_EQ(error_with("/timing/states/0/run", "some"), "p.json: timing.states[0].run: found 'some', expected timed or sustained");
  EXPECT_EQ(error_with("/timing/step_time_ns/median", 0),
            "p.json: timing.step_time_ns.median: found 0, expected 5000000 to 5070000: the samples lie there");
  EXPECT_EQ(error_with("/timing/step_time_ns/p95", 6e6),
            "p.json: timing.step_time_ns.p95: found 6000000, expected 5000000 to 5070000: the samples lie there");
  json without_total = good;
  without_total["totals"].erase("time_ns");
  EXPECT_EQ(error_of(without_total.dump()), "p.json: totals.time_ns: is missing, expected the time that the rows are parts of");
  const double step_ns = good.at("totals").at("time_ns").get<double>();
  for (const char* list : {"passes", "ops", "layers", "kernels"})
    for (const double wrong : {250.0, 0.0}) {
      const std::string error = error_with(std::string("/") + list + "/1/share_pct", wrong);
      EXPECT_EQ(error, fmt::format("p.json: {}[1].share_pct: found {}, expected {}: its time_ns in percent of totals.time_ns", list, wrong,
                                   good.at(list).at(1).at("time_ns").get<double>() / step_ns * 100));
    }
}

// "Rows sum to 4.313 of 8.626 ms (+0.00%)" stood below a table of such a document, and a pass that stood twice counted twice.
TEST(Profile, RowsThatDoNotAddUpAreRefused) {
  const json good = json::parse(to_json(gpt2_profile()));
  for (const char* list : {"passes", "ops", "layers", "kernels"}) {
    json twice = good;
    twice[list].push_back(twice[list][1]);
    EXPECT_EQ(error_of(twice.dump()),
              fmt::format("p.json: {0}[{1}]: the same row as {0}[1], expected each once", list, good.at(list).size()));
  }
  json fewer = good;
  fewer["passes"].erase(0);
  EXPECT_THAT(error_of(fewer.dump()), testing::HasSubstr("the sum of passes[].time_ns"));
  fewer = good;
  fewer["kernels"].erase(0);
  EXPECT_THAT(error_of(fewer.dump()), testing::HasSubstr("the sum of kernels[].time_ns"));
  fewer["missing"].push_back(fewer["missing"][0]);
  fewer["missing"].back()["name"] = "record_reduced";
  EXPECT_EQ(error_of(fewer.dump()), "");
  json error = good;
  error["totals"]["conservation_error_pct"] = 2;
  EXPECT_THAT(error_of(error.dump()), testing::HasSubstr("totals.conservation_error_pct: found 2, expected"));
}

// `diff --fail-if-slower` judges by the median, and the page draws the samples: a document in which the two disagree was edited.
TEST(Profile, NumbersThatOthersBesideThemContradictAreRefused) {
  const json good = json::parse(to_json(gpt2_profile()));
  EXPECT_EQ(error_with("/timing/step_time_ns/median", 5.07e6),
            "p.json: timing.step_time_ns.median: found 5070000, expected 5035000: the median of the samples");
  EXPECT_EQ(error_with("/timing/step_time_ns/mean", 5.03e6),
            "p.json: timing.step_time_ns.mean: found 5030000, expected 5035000: the mean of the samples");
  EXPECT_EQ(error_with("/timing/step_time_ns/samples/3", 9.05e6),
            "p.json: timing.step_time_ns.mean: found 5035000, expected 5535000: the mean of the samples");
  const auto twice = [&](const std::string& place) {
    const json& value = good.at(json::json_pointer(place));
    return error_with(place, value.is_number_integer() ? json(2 * value.get<int64_t>()) : json(2 * value.get<double>()));
  };
  EXPECT_EQ(twice("/totals/launches"), "p.json: totals.launches: found 38, expected 19: the sum of kernels[].launches");
  EXPECT_EQ(twice("/totals/copies"), "p.json: totals.copies: found 4, expected 2: the sum of kernels[].copies");
  EXPECT_EQ(twice("/kernels/0/launches"), "p.json: totals.launches: found 19, expected 21: the sum of kernels[].launches");
  EXPECT_EQ(twice("/totals/floor_ns"), "p.json: totals.floor_ns: found 2716000, expected 1358000: the sum of passes[].floor_ns");
  EXPECT_EQ(twice("/totals/headroom_ns"), "p.json: totals.headroom_ns: found 5650000, expected 2825000: the sum of passes[].headroom_ns");
  EXPECT_THAT(twice("/run/model_flops"), testing::HasSubstr("expected 9930486593843.098: run.model_flops / timing.step_time_ns.median"));
  EXPECT_THAT(twice("/timing/of_matmul_ceiling_pct"), testing::HasSubstr("model_flops_per_s in percent of ceilings.matmul_flops_per_s."));
}

// Tables, the page and `diff` show rows of passes, ops and layers, `diff` matches the launches below them: a row whose launches say otherwise
// was edited.
TEST(Profile, RowsThatTheirLaunchesContradictAreRefused) {
  const json good = json::parse(to_json(gpt2_profile()));
  const double step_ns = good.at("totals").at("time_ns").get<double>();
  for (const char* list : {"ops", "layers"}) {
    const std::string row = fmt::format("{}[1].", list), at = fmt::format("/{}/1/", list);
    const auto is = [&](const std::string& field, const json& found, const std::string& meaning) {
      const json& expected = good.at(json::json_pointer(at + field));
      EXPECT_EQ(error_with(at + field, found),
                fmt::format("p.json: {}{}: found {}, expected {}: {}", row, field, found.dump(), expected.get<double>(), meaning));
    };
    // What only launches know: of ops, passes would say it too.
    if (list == std::string("layers")) {
      is("launches", 7, "the kernels and CPU ops of this row in launches[]");
      is("copies", 7, "the copies and memsets of this row in launches[]");
      is("duration_ns", 7, "the sum of time_ns of its launches");
      json shifted = good;
      shifted[list][1]["time_ns"] = 7;
      shifted[list][1]["share_pct"] = 7 / step_ns * 100;
      EXPECT_THAT(error_of(shifted.dump()), testing::HasSubstr("layers[1].time_ns: found 7, expected"));
    }
    for (const char* field : {"dram_read_bytes", "dram_write_bytes", "kernel_floor_ns", "kernel_headroom_ns"})
      is(field, 7, "the sum over its launches");
    for (const char* field : {"dram_bytes_per_s", "dram_of_ceiling_pct"})
      EXPECT_THAT(error_with(at + field, 7),
                  testing::MatchesRegex(
                      fmt::format("p.json: {}.1.\\.{}: found 7, expected .*: the mean over its launches by their time", list, field)));
    EXPECT_THAT(error_with(at + "tensor_active_pct", 99), testing::HasSubstr(row + "tensor_active_pct: found 99, expected"));
    EXPECT_THAT(error_with(at + "bound", "latency"), testing::HasSubstr(row + "bound: found 'latency', expected '"));
  }
  EXPECT_EQ(error_with("/kernels/0/floor_ns", 7),
            fmt::format("p.json: kernels[0].floor_ns: found 7, expected {}: the sum over its launches",
                        good.at("kernels").at(0).at("floor_ns").get<double>()));
}

// Not only what no launch and no kernel has: also what one has that took less time.
TEST(Profile, ABoundOrATopKernelOfLessTimeIsRefused) {
  const json good = json::parse(to_json(gpt2_profile()));
  int bounds = 0, kernels = 0;
  for (size_t i = 0; i < good.at("layers").size(); ++i) {
    const json& row = good.at("layers").at(i);
    for (const json& l : good.at("launches")) {
      if (l.value("layer", -1) != row.at("layer") || l.at("pass") != row.at("pass") || !l.contains("bound") ||
          l.at("bound") == row.at("bound"))
        continue;
      ++bounds;
      EXPECT_THAT(error_with(fmt::format("/layers/{}/bound", i), l.at("bound")), testing::HasSubstr("most of the time of its launches"));
      break;
    }
  }
  for (size_t i = 0; i < good.at("passes").size(); ++i) {
    const json& pass = good.at("passes").at(i);
    for (const json& k : good.at("kernels")) {
      if (k.at("pass") != pass.at("name") || k.at("name") == pass.value("top_kernel", "")) continue;
      ++kernels;
      EXPECT_THAT(error_with(fmt::format("/passes/{}/top_kernel", i), k.at("name")), testing::HasSubstr("with the most time"));
      break;
    }
  }
  EXPECT_GT(bounds, 0);
  EXPECT_GT(kernels, 0);
}

TEST(Profile, LaunchesThatAreInNoRowAreRefused) {
  const json good = json::parse(to_json(gpt2_profile()));
  json j = good;
  j["layers"].erase(0);
  EXPECT_THAT(error_of(j.dump()),
              testing::ContainsRegex(R"(p.json: launches.[0-9]+.: found no row of layers that it is in, expected one)"));
  j = good;
  j["launches"].erase(0);
  EXPECT_THAT(error_of(j.dump()), testing::HasSubstr(".launches: found"));
}

TEST(Profile, ASumOverLaunchesOfWhichOneHasNoNumberIsRefused) {
  json j = json::parse(to_json(gpt2_profile()));
  for (json& l : j["launches"])
    if (l["name"] == j["kernels"][0]["name"]) l.erase("dram_read_bytes");
  EXPECT_THAT(error_of(j.dump()), testing::HasSubstr("dram_read_bytes: found"));
  EXPECT_THAT(error_of(j.dump()), testing::HasSubstr("expected none: not each of its launches has that"));
}

// Documents of before a number, and records that were cut down to their sums.
TEST(Profile, RowsWithoutLaunchesToCompareWithAreRead) {
  const json good = json::parse(to_json(gpt2_profile()));
  json j = good;
  j["launches"] = json::array();
  EXPECT_EQ(error_of(j.dump()), "");
  j = good;
  for (json& l : j["launches"]) l.erase("share_ns");
  EXPECT_EQ(error_of(j.dump()), "");
  j = good;
  for (const char* list : {"passes", "ops", "layers"})
    for (json& row : j[list]) row.erase("kernel_floor_ns"), row.erase("bound"), row.erase("dram_read_bytes");
  EXPECT_EQ(error_of(j.dump()), "");
}

TEST(Profile, TotalsAndATimelineThatOthersContradictAreRefused) {
  const json good = json::parse(to_json(gpt2_profile()));
  const auto refused = [&](const std::string& place, double found, const std::string& meaning) {
    EXPECT_THAT(error_with("/" + place, found), testing::MatchesRegex("p.json: .*: found .*, expected .*: " + meaning)) << place;
  };
  refused("totals/dram_read_bytes", 7, "the sum over its launches");
  refused("totals/dram_bytes_per_s", 7, "the mean over its launches by their time");
  refused("totals/kernel_floor_ns", 7, "the sum over its launches");
  refused("totals/kernel_headroom_ns", 7, "the sum over its launches");
  refused("timeline/busy_ns", 7, "busy_ns . idle_ns");
  refused("timeline/gaps/0/time_ns", 7e6, "the sum of timeline.gaps...time_ns");
  refused("timeline/copies/0/time_ns", 7, "the sum of time_ns of the launches of that name");
  for (const char* field : {"count", "bytes"}) {
    json j = good;
    j["timeline"]["copies"][0][field] = 7;
    EXPECT_THAT(error_of(j.dump()), testing::HasSubstr(fmt::format("timeline.copies[0].{}: found 7, expected", field)));
  }
  json j = good;  // idle time that the total takes from nowhere, in a sum that is still that of the step
  j["totals"]["idle_ns"] = j["totals"]["idle_ns"].get<double>() + 1e3;
  j["totals"]["conservation_error_pct"] =
      j["totals"]["conservation_error_pct"].get<double>() + 1e3 / j["totals"]["time_ns"].get<double>() * 100;
  EXPECT_THAT(error_of(j.dump()), testing::HasSubstr("totals.idle_ns: found"));
}

TEST(Profile, KernelsWithoutAFloorAreCountedBesideTheTotal) {
  json j = json::parse(to_json(gpt2_profile()));
  for (const char* list : {"passes", "ops", "layers", "kernels"})
    for (json& row : j[list])
      for (const char* field : {"kernel_floor_ns", "kernel_headroom_ns", "floor_ns", "headroom_ns", "bound"}) row.erase(field);
  json& totals = j["totals"];
  for (const char* field : {"floor_ns", "headroom_ns"}) totals.erase(field);
  ASSERT_EQ(error_of(j.dump()), "");
  const auto kernel = std::find_if(j["launches"].begin(), j["launches"].end(), [](const json& l) { return l.at("activity") == "kernel"; });
  ASSERT_NE(kernel, j["launches"].end());
  for (const char* of : {"floor_ns", "headroom_ns"}) {
    json& total = totals[fmt::format("kernel_{}", of)];
    const double others = total.get<double>() - (*kernel)[of].get<double>();
    kernel->erase(of);
    EXPECT_THAT(error_of(j.dump()), testing::HasSubstr(fmt::format("totals.kernel_{}: found", of)));
    total = others;
  }
  EXPECT_THAT(error_of(j.dump()), testing::HasSubstr("totals.launches_without_floor: found 0, expected 1: the kernels in launches[]"));
  totals["launches_without_floor"] = 1;
  EXPECT_THAT(error_of(j.dump()), testing::HasSubstr("totals.without_floor_ns: found 0, expected "));
  totals["without_floor_ns"] = (*kernel)["share_ns"];
  EXPECT_EQ(error_of(j.dump()), "");
}

TEST(Profile, PassesThatTheirOpsOrKernelsContradictAreRefused) {
  const json good = json::parse(to_json(gpt2_profile()));
  const json& pass = good.at("passes").at(1);
  const std::string name = pass.at("name").get<std::string>();
  for (const char* field : {"launches", "copies", "duration_ns", "flops", "min_bytes"})
    EXPECT_EQ(error_with(fmt::format("/passes/1/{}", field), 7),
              fmt::format("p.json: passes[1].{0}: found 7, expected {1}: the sum of ops[].{0} of {2}", field, pass.at(field).get<double>(),
                          name));
  EXPECT_EQ(error_with("/passes/1/top_kernel_ns", 7),
            fmt::format("p.json: passes[1].top_kernel_ns: found 7, expected {}: the kernels[] row of {} with the most time",
                        pass.at("top_kernel_ns").get<double>(), name));
  EXPECT_EQ(error_with("/passes/1/top_kernel", "another"),
            fmt::format("p.json: passes[1].top_kernel: found 'another', expected '{}': the kernels[] row of {} with the most time",
                        pass.at("top_kernel").get<std::string>(), name));
}

// Where a number below zero is an answer.
TEST(Profile, NumbersThatMayBeBelowZeroAreRead) {
  const json good = json::parse(to_json(gpt2_profile()));
  for (const char* place : {"/collection/traced_overhead_pct", "/run/seed", "/run/clip", "/run/last_loss", "/timeline/environment/0/at_ns",
                            "/launches/0/start_ns"}) {
    json j = good;
    j[json::json_pointer(place)] = -1;
    EXPECT_EQ(error_of(j.dump()), "") << place;
  }
  json j = good;
  json& totals = j["totals"];
  totals["conservation_error_pct"] = -0.5;
  totals["idle_ns"] = totals["idle_ns"].get<double>() - totals["time_ns"].get<double>() * 0.005;
  j["timeline"] = {{"gaps", json::array()}, {"copies", json::array()}, {"environment", json::array()}};  // of another idle time
  EXPECT_EQ(error_of(j.dump()), "");
  j["run"]["seed"] = -2;  // as programs until 2026-11-23 wrote 2^64 - 2
  EXPECT_EQ(profile_from_json(j.dump(), "p.json").run.seed, std::numeric_limits<uint64_t>::max() - 1);
  for (const char* field : {"energy_j", "energy_above_floor_j", "sustained_ns"}) j["ops"][0][field] = -1.5;
  EXPECT_EQ(error_of(j.dump()), "");
  j["ops"][0]["energy_error_j"] = -1.5;
  EXPECT_EQ(error_of(j.dump()), "p.json: ops[0].energy_error_j: found -1.5, expected 0 or more");
}

TEST(Profile, ARecordingIsCalledWhatItIs) {
  EXPECT_THAT(error_of("{\"schema\":\"stepscope.recording/1\",\"written_at\":\"x\"}\n{}\n"), testing::HasSubstr("a collector's recording"));
}

TEST(Profile, ANumberThatNoDoubleHoldsIsNamedWithItsLine) {
  EXPECT_EQ(error_of("{\n \"a\": 1e999}"), "p.json: not a profile document: line 2, column 7: 1e999 is too large for a number");
}

TEST(Profile, Utf16IsNamedAlsoWithoutItsMark) {
  std::string wide;
  for (const char c : to_json(gpt2_profile())) wide += {c, '\0'};
  EXPECT_EQ(error_of(wide),
            "p.json: not a profile document: the text is UTF-16, expected UTF-8; convert it with `iconv -f UTF-16 -t UTF-8 p.json > NEW`");
}

TEST(Profile, OnACpuTheCountersAreAbsentForThatReason) {
  const ProfileDocument d = build_profile(fixture::cpu_recording(), fixture::cpu_run(), {}, fixture::options());
  ASSERT_TRUE(missing_row(d, "no_gpu_counters"));
  EXPECT_FALSE(missing_row(d, "counters_unavailable"));
  EXPECT_FALSE(missing_row(d, "ceilings_not_measured"));
  EXPECT_FALSE(has_severe_missing(d));
  EXPECT_EQ(d.passes.size(), 5u);
  EXPECT_EQ(d.passes[3].launches, 8);
  EXPECT_EQ(d.kernels[0].activity, "cpu_op");
}

TEST(Profile, AbsentCountersAlwaysHaveAReason) {
  Recording r = fixture::gpt2_recording();
  r.counters.clear();
  r.counter_sets.clear();
  EXPECT_TRUE(missing_row(build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options()), "counters_unavailable"));
  r.missing.push_back({"counters_unavailable", 1, "no permission"});
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  ASSERT_TRUE(missing_row(d, "counters_unavailable"));
  EXPECT_EQ(missing_row(d, "counters_unavailable")->detail, "no permission");
  EXPECT_EQ(missing_row(d, "counters_unavailable")->count, 1);
}

TEST(Profile, CountersThatTheUserLeftOutAreNoLackOfTheMachine) {
  Recording r = fixture::gpt2_recording();
  r.counters.clear();
  r.counter_sets.clear();
  r.missing.push_back({"counters_not_asked", 1, ""});
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  EXPECT_TRUE(missing_row(d, "counters_not_asked"));
  EXPECT_FALSE(missing_row(d, "counters_unavailable"));
}

// The values of a metric that no column shows were in no output, and the document said that counters could not be had.
TEST(Profile, MetricsThatTheUserAskedForAreInTheDocumentByName) {
  Recording r = fixture::gpt2_recording();
  std::erase_if(r.counter_sets, [](const CounterSet& s) { return s.name != "core"; });
  std::erase_if(r.counters, [](const CounterRecord& c) { return c.set != "core"; });
  r.counter_sets[0].metrics = {"sm__foo.sum", "lts__t_bytes.sum", "sm__bar.min"};
  for (CounterRecord& c : r.counters) c.values = {100.0 + static_cast<double>(c.index), 64, -1};
  ProfileOptions asked = fixture::options();
  asked.metrics = {"sm__foo.sum", "lts__t_bytes.sum", "sm__nobody_has_it.sum"};
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), asked);
  const auto second =
      std::find_if(d.launches.begin(), d.launches.end(), [](const LaunchRow& l) { return l.activity == "kernel" && l.index == 1; });
  ASSERT_NE(second, d.launches.end());
  EXPECT_EQ(second->other_counters, (std::map<std::string, double>{{"lts__t_bytes.sum", 64}, {"sm__foo.sum", 101}}))
      << "what nobody asked for by name is of the built-in set";
  EXPECT_EQ(second->l2_bytes, 64);
  const auto copy = std::find_if(d.launches.begin(), d.launches.end(), [](const LaunchRow& l) { return l.activity == "copy"; });
  ASSERT_NE(copy, d.launches.end());
  EXPECT_FALSE(copy->other_counters);
  EXPECT_FALSE(missing_row(d, "counters_unavailable"));
  ASSERT_TRUE(missing_row(d, "built_in_metrics_not_asked"));
  EXPECT_EQ(missing_row(d, "built_in_metrics_not_asked")->severity, "info");
  EXPECT_EQ(missing_row(d, "built_in_metrics_not_asked")->detail, "counted: sm__foo.sum lts__t_bytes.sum sm__bar.min");
  const std::string text = to_json(d);
  EXPECT_EQ(to_json(profile_from_json(text, "p.json")), text);
  EXPECT_NE(csv_text(d, CsvRows::launch).find(",lts__t_bytes.sum=64;sm__foo.sum=101,"), std::string::npos);
  // Bytes among them: nothing of the built-in set that is worth a word is absent.
  r.counter_sets[0].metrics[1] = "dram__bytes_read.sum";
  EXPECT_FALSE(
      missing_row(build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options()), "built_in_metrics_not_asked"));
}

// `profile` measures device 0; rank 1, or a program that runs on device 1, had "this device's" ceilings of it.
TEST(Profile, CeilingsOfAnotherGpuAreNamed) {
  Ceilings ceilings = fixture::round_ceilings();
  EXPECT_FALSE(missing_row(gpt2_profile(), "ceilings_of_other_gpu"));
  EXPECT_EQ(ceilings_sentence(gpt2_profile()).find("Ceilings measured on this device (2026-11-20T12:00:00Z): copy 1000 GB/s"), 0u);
  ceilings.uuid = "GPU-1";
  Recording r = fixture::gpt2_recording();
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), ceilings, fixture::options());
  ASSERT_TRUE(missing_row(d, "ceilings_of_other_gpu"));
  EXPECT_EQ(missing_row(d, "ceilings_of_other_gpu")->detail, "measured on Test GPU GPU-1, the step ran on Test GPU GPU-0");
  EXPECT_EQ(ceilings_sentence(d).find("Ceilings measured on Test GPU (2026-11-20T12:00:00Z): copy 1000 GB/s"), 0u);
  EXPECT_NE(legend(d).find("its share of the measured ceiling"), std::string::npos);
  // Nobody knows which GPU the one or the other is of; `ingest` compares names.
  r.session.device.erase("uuid");
  EXPECT_FALSE(missing_row(build_profile(r, fixture::gpt2_run(), ceilings, fixture::options()), "ceilings_of_other_gpu"));
  Recording report = fixture::gpt2_recording();
  report.session.producer = "nsys";
  EXPECT_FALSE(missing_row(build_profile(report, std::nullopt, ceilings, fixture::options()), "ceilings_of_other_gpu"));
}

TEST(Profile, WithoutCeilingsThereAreNoSharesOfThem) {
  const ProfileDocument d = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), {}, fixture::options());
  EXPECT_TRUE(missing_row(d, "ceilings_not_measured"));
  EXPECT_FALSE(d.timing.of_matmul_ceiling_pct);
  EXPECT_FALSE(d.kernels[0].headroom_ns);
  EXPECT_TRUE(d.kernels[0].dram_bytes_per_s);
}

TEST(Profile, SevereRecordsMakeItFailAndStandFirst) {
  Recording r = fixture::gpt2_recording();
  r.missing.push_back({"counters_unavailable", 1, ""});
  r.missing.push_back({"dropped_activity_records", 4, "buffer 1"});
  r.missing.push_back({"dropped_activity_records", 3, "buffer 2"});
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  EXPECT_TRUE(has_severe_missing(d));
  EXPECT_EQ(d.missing[0].name, "dropped_activity_records");
  EXPECT_EQ(d.missing[0].count, 7);
  EXPECT_EQ(d.missing[0].detail, "buffer 1; buffer 2");
  EXPECT_FALSE(d.missing[0].advice.empty());
}

TEST(Profile, WhatTheCollectorReportedIsNotCountedASecondTime) {
  Recording r = fixture::gpt2_recording();
  r.counter_sets[0].ranges = 3;
  const ProfileDocument own = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  ASSERT_TRUE(missing_row(own, "counter_set_failed"));
  EXPECT_EQ(missing_row(own, "counter_set_failed")->count, 1);
  r.missing.push_back({"counter_set_failed", 1, "3 of 19 ranges"});
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  ASSERT_TRUE(missing_row(d, "counter_set_failed"));
  EXPECT_EQ(missing_row(d, "counter_set_failed")->count, 1);
  EXPECT_EQ(missing_row(d, "counter_set_failed")->detail, "3 of 19 ranges");
}

TEST(Profile, AKindOutsideTheCatalogueIsTakenSeriously) {
  Recording r = fixture::gpt2_recording();
  r.missing.push_back({"lost_socks", 1, ""});
  EXPECT_TRUE(has_severe_missing(build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options())));
}

TEST(Profile, ThrottlingDuringTimedStepsIsSaid) {
  Recording r = fixture::gpt2_recording();
  r.environment.push_back(r.environment[0]);
  r.environment[0].throttle_reasons = 0x4 | 0x1;
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  ASSERT_TRUE(missing_row(d, "clocks_throttled"));
  EXPECT_EQ(d.environment.throttle_reasons, std::vector<std::string>{"power_cap"}) << "a later sample without one takes nothing back";
  r.environment[0].throttle_reasons = 0x1 | 0x2;  // idle, application clocks: no throttling
  EXPECT_FALSE(missing_row(build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options()), "clocks_throttled"));
  r.environment.clear();
  EXPECT_TRUE(missing_row(build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options()), "environment_not_sampled"));
}

TEST(Profile, TheEnvironmentIsThatOfTheTimedSamples) {
  Recording r = fixture::gpt2_recording();
  r.environment.clear();
  int64_t at = 0;
  for (int i = 0; i < 3; ++i, at += 500'000'000) r.environment.push_back({at, Phase::warmup, 9000, 9000, 9000, 9000, 0});
  for (const double x : {1.0, 5.0, 2.0, 4.0, 3.0}) {
    r.environment.push_back({at, Phase::timed, 1000 + x, 2000 + x, 400 + x, 50 + x, 0});
    at += 500'000'000;
  }
  r.environment.push_back({at, Phase::activity, 9000, 9000, 9000, 9000, 0});
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  EXPECT_EQ(d.environment.samples, 5);
  EXPECT_EQ(d.environment.sm_clock_mhz_min, 1001.0);
  EXPECT_EQ(d.environment.sm_clock_mhz_median, 1003.0);
  EXPECT_EQ(d.environment.sm_clock_mhz_max, 1005.0);
  EXPECT_EQ(d.environment.memory_clock_mhz_median, 2003.0);
  EXPECT_EQ(d.environment.power_w_median, 403.0);
  EXPECT_EQ(d.environment.power_w_max, 404.0) << "405 W are of half a second after the first timed sample, so partly of what came before";
  EXPECT_EQ(d.environment.temperature_c_max, 55.0);
  r.environment.resize(3 + 2);
  const ProfileDocument brief = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  EXPECT_EQ(brief.environment.sm_clock_mhz_max, 1005.0);
  EXPECT_FALSE(brief.environment.power_w_median || brief.environment.power_w_max) << "no value is of these steps alone";
}

// NVML answers about every 20 ms: the nearest sample on each side belongs to the step, the others do not.
TEST(Profile, TheTimelineHasTheSamplesInsideTheStepAndItsNeighbours) {
  Recording r = fixture::gpt2_recording();
  const ProfileDocument before = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  ASSERT_FALSE(before.timeline.environment.empty());
  const auto window = static_cast<int64_t>(*before.timeline.window_ns);
  const int64_t zero = r.environment[0].time_ns - static_cast<int64_t>(before.timeline.environment[0].at_ns);
  r.environment.clear();
  for (const int64_t at : {window + 40, int64_t{-1}, int64_t{-30}, window / 2, window + 20, window / 3})
    r.environment.push_back({zero + at, Phase::timed, 1500, 3200, 400, 50, 0});
  std::vector<double> at;
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  for (const auto& s : d.timeline.environment) at.push_back(s.at_ns);
  const auto real = [](int64_t ns) { return static_cast<double>(ns); };
  EXPECT_EQ(at, (std::vector<double>{-1, real(window / 3), real(window / 2), real(window + 20)}));
}

TEST(Profile, APassCountedAsOneRangeHasAllItsNumbers) {
  Recording r = fixture::gpt2_recording();
  CounterSet& set = r.counter_sets.back();
  set.metrics.push_back("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed");
  r.counters.back().values.push_back(42.5);
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  for (const PassRow& p : d.passes) {
    EXPECT_EQ(p.whole_dram_read_bytes.has_value(), p.name == "backward") << p.name;
    if (p.name != "backward") continue;
    EXPECT_DOUBLE_EQ(p.whole_dram_read_bytes.value_or(0), 577e6);
    EXPECT_DOUBLE_EQ(p.whole_dram_write_bytes.value_or(0), 60e6 + 2 * 168e6 + 1e6 + 80e6);
    EXPECT_DOUBLE_EQ(p.whole_tensor_active_pct.value_or(0), 42.5);
  }
}

TEST(Profile, CopiesOfOneNameAreOneRowWithAllTheirBytes) {
  Recording r = fixture::gpt2_recording();
  LaunchRecord second = r.launches.back();
  second.index = 1, second.bytes = 100;
  second.start_ns += 3000, second.end_ns += 3000;
  r.launches.push_back(second);
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  const auto row = std::find_if(d.timeline.copies.begin(), d.timeline.copies.end(), [](const CopyRow& c) { return c.name == "copy DtoH"; });
  ASSERT_NE(row, d.timeline.copies.end());
  EXPECT_EQ(row->count, 2);
  EXPECT_EQ(row->bytes, 108);
  EXPECT_DOUBLE_EQ(row->time_ns, 4000);
}

TEST(Profile, TheStepsFloorAndHeadroomAreThoseOfItsPasses) {
  const ProfileDocument d = gpt2_profile();
  double floor = 0, headroom = 0;
  for (const PassRow& p : d.passes) floor += p.floor_ns.value_or(0), headroom += p.headroom_ns.value_or(0);
  EXPECT_DOUBLE_EQ(*d.totals.floor_ns, floor);
  EXPECT_DOUBLE_EQ(*d.totals.headroom_ns, headroom);
  EXPECT_GT(std::abs(floor - headroom), 1.0);
}

TEST(Profile, TimedStepsThatDoNotExistOrAreTooFewAreMissing) {
  ProfileOptions o = fixture::options();
  o.first_timed_step = 100;
  const ProfileDocument none = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), o);
  EXPECT_TRUE(missing_row(none, "timed_steps_missing"));
  EXPECT_FALSE(none.timing.step_time_ns.median);
  o.first_timed_step = 20;
  o.timed_steps = 50;
  const ProfileDocument few = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), o);
  EXPECT_EQ(few.run.timed_steps, 4);
  EXPECT_TRUE(missing_row(few, "too_few_timed_steps"));
  EXPECT_FALSE(few.timing.step_time_ns.interval_low);
}

// Tracing does not make a step shorter: the timed ones were made longer.
TEST(Profile, TimedStepsThatAreMuchLongerThanTracedOnesAreSaidToBeDisturbed) {
  const auto with_timed_steps_of = [](int64_t ns) {
    Recording r = fixture::gpt2_recording();
    for (StepRecord& s : r.steps)
      if (s.phase == Phase::timed) s.host_begin_ns = 100'000'000 + s.step * ns, s.host_end_ns = s.host_begin_ns + ns;
    return build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  };
  const ProfileDocument disturbed = with_timed_steps_of(6'000'000);
  EXPECT_NEAR(*disturbed.collection.traced_overhead_pct, -15, 1e-9);
  const auto* row = missing_row(disturbed, "timed_steps_disturbed");
  ASSERT_TRUE(row);
  EXPECT_EQ(row->detail, "-15.0%");
  EXPECT_FALSE(missing_row(with_timed_steps_of(5'500'000), "timed_steps_disturbed"));
}

// A host that queues steps ahead begins the few traced ones in quick succession, whatever the device takes for them.
TEST(Profile, ATracedStepIsAtLeastAsLongAsItsTimeOnTheDevice) {
  Recording r = fixture::gpt2_recording();
  const double on_device = *build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options()).totals.time_ns;
  int64_t begin = 0;
  for (StepRecord& s : r.steps) {
    if (s.phase == Phase::timed)
      s.host_begin_ns = 100'000'000 + s.step * static_cast<int64_t>(on_device), s.host_end_ns = s.host_begin_ns + 1000;
    if (s.phase != Phase::activity) continue;
    if (begin == 0) begin = s.host_begin_ns;
    s.host_begin_ns = begin + s.step * 1000;
    s.host_end_ns = s.host_begin_ns + 500;
  }
  const ProfileDocument ahead = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  EXPECT_NEAR(*ahead.collection.traced_overhead_pct, 0, 0.01);
  EXPECT_FALSE(missing_row(ahead, "timed_steps_disturbed"));
}

// A program without run.json: a step lasts until the next one begins, whatever is collected there.
TEST(Profile, StepsOfAForeignProgramAreTimedFromBeginToBegin) {
  Recording r = fixture::gpt2_recording();
  const ProfileDocument d = build_profile(r, std::nullopt, fixture::round_ceilings(), fixture::options());
  // Steps 2..9 are timed and 5 ms apart; step 10 is traced and begins much later in this fixture.
  ASSERT_EQ(d.timing.step_time_ns.samples.size(), 8u);
  EXPECT_DOUBLE_EQ(d.timing.step_time_ns.samples[6], 5e6);
  EXPECT_GT(d.timing.step_time_ns.samples[7], 5e6);
  EXPECT_DOUBLE_EQ(*d.timing.step_time_ns.median, 5e6);
  EXPECT_EQ(d.run.timed_steps, 8);
  EXPECT_FALSE(d.timing.tokens_per_s) << "nobody said how many tokens a step has";
  std::erase_if(r.steps, [](const StepRecord& s) { return s.step == 5 || s.step == 10; });
  // Without step 5 there is no end of step 4, and none of step 9 without step 10.
  EXPECT_EQ(build_profile(r, std::nullopt, fixture::round_ceilings(), fixture::options()).timing.step_time_ns.samples.size(), 5u);
  std::erase_if(r.steps, [](const StepRecord& s) { return s.phase == Phase::timed; });
  EXPECT_FALSE(build_profile(r, std::nullopt, fixture::round_ceilings(), fixture::options()).timing.step_time_ns.median);
}

// The page called the first timed step of such a program "step 1", whatever had warmed up before it.
TEST(Profile, TheFirstTimedStepOfAForeignProgramIsCountedBehindItsWarmUp) {
  Recording r = fixture::gpt2_recording();
  for (const int64_t number : {1, 0}) {
    StepRecord s = r.steps.front();
    s.step = number;
    s.phase = Phase::warmup;
    s.host_begin_ns = 400'000'000 + number * 5'000'000;
    r.steps.push_back(s);
  }
  const ProfileDocument d = build_profile(r, std::nullopt, fixture::round_ceilings(), fixture::options());
  EXPECT_EQ(d.run.steps, 13);
  EXPECT_EQ(d.run.first_timed_step, 2);
  EXPECT_EQ(step_view(d).rows.at(0).cells.at(0).text, "3");
}

// Nsight's exports come without a run.json; only our own collector's recordings lack something then.
TEST(Profile, OnlyOurOwnRecordingLacksItsRunJson) {
  Recording r = fixture::gpt2_recording();
  EXPECT_TRUE(missing_row(build_profile(r, std::nullopt, {}, {}), "run_info_missing"));
  EXPECT_FALSE(missing_row(build_profile(r, fixture::gpt2_run(), {}, fixture::options()), "run_info_missing"));
  for (const char* tool : {"nsys", "ncu"}) {
    r.session.producer = tool;
    EXPECT_FALSE(missing_row(build_profile(r, std::nullopt, {}, {}), "run_info_missing")) << tool;
  }
}

// Our trainers repeat their step, so one that does not is wrong; a program that is not ours may vary.
TEST(Profile, StepsThatDifferAreSevereInATrainerOfOursOnly) {
  Recording r = fixture::gpt2_recording();
  r.missing.push_back({"kernel_sequence_changed", 2, "step 11"});
  const ProfileDocument ours = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  EXPECT_TRUE(has_severe_missing(ours));
  const ProfileDocument other = build_profile(r, std::nullopt, fixture::round_ceilings(), fixture::options());
  EXPECT_FALSE(has_severe_missing(other));
  EXPECT_TRUE(missing_row(other, "steps_differ"));
  EXPECT_FALSE(missing_row(other, "kernel_sequence_changed"));
  for (const ProfileDocument& d : {ours, other}) EXPECT_EQ(d.collection.time_basis, "one_traced_step");
  r.session.producer = "nsys";
  const ProfileDocument exported = build_profile(r, std::nullopt, fixture::round_ceilings(), fixture::options());
  EXPECT_TRUE(missing_row(exported, "steps_differ"));
  EXPECT_FALSE(missing_row(exported, "kernel_sequence_changed"));
}

// Documents written before run had these fields are read, and say nothing about them.
TEST(Profile, ADocumentOfBeforeIsStillRead) {
  json j = json::parse(to_json(gpt2_profile()));
  for (const char* younger :
       {"model_name", "recompute", "weight_rounding", "deterministic", "direct_from", "direct_steps", "shuffle", "overfit", "lr_schedule",
        "learning_rate", "lr_warmup_steps", "lr_total_steps", "lr_final_fraction", "weight_decay", "clip", "beta1", "beta2", "eps"})
    j["run"].erase(younger);
  const ProfileDocument d = profile_from_json(j.dump(), "old.json");
  EXPECT_FALSE(d.run.recompute);
  EXPECT_EQ(d.run.layers, 2);
}

TEST(Profile, AnEmptyCaptureIsAnError) {
  Recording r = fixture::gpt2_recording();
  r.launches.clear();
  r.stats.clear();
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  EXPECT_TRUE(missing_row(d, "phases_not_traced"));
  EXPECT_TRUE(has_severe_missing(d));
  EXPECT_FALSE(d.totals.time_ns);
  EXPECT_EQ(to_json(profile_from_json(to_json(d), "p")), to_json(d));
}

// The revision of the stepscope that watched is not that of the program.
TEST(Profile, OfAnotherProgramNamesNoCode) {
  const Recording r = fixture::gpt2_recording();
  const ProfileDocument ours = build_profile(r, fixture::gpt2_run(), {}, fixture::options());
  EXPECT_EQ(ours.run.git_revision, "abc1234");
  EXPECT_EQ(ours.run.build_type, "RelWithDebInfo");
  const ProfileDocument another = build_profile(r, std::nullopt, {}, fixture::options());
  EXPECT_FALSE(another.run.git_revision);
  EXPECT_FALSE(another.run.build_type);
  EXPECT_EQ(another.run.profiled_at, ours.run.profiled_at);
}

TEST(Profile, ALostRecordMakesItFail) {
  Recording r = fixture::gpt2_recording();
  r.launches.erase(r.launches.begin() + 3);
  EXPECT_TRUE(has_severe_missing(build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options())));
}

TEST(Fields, AreNamedOncePerRowAndExplained) {
  for (const SectionDescription& s : describe_document()) {
    std::set<std::string> names;
    for (const FieldDescription& f : s.fields) {
      EXPECT_TRUE(names.insert(f.name).second) << s.path << "." << f.name;
      EXPECT_FALSE(f.source.empty()) << s.path << "." << f.name;
      for (const auto& [suffix, unit] : std::vector<std::pair<std::string, std::string>>{
               {"_ns", "ns"}, {"_bytes", "bytes"}, {"_pct", "%"}, {"_bytes_per_s", "bytes/s"}, {"_hz", "Hz"}, {"_w", "W"}})
        if (f.name.ends_with(suffix)) {
          EXPECT_EQ(f.unit, unit) << s.path << "." << f.name;
        }
    }
  }
}

TEST(Fields, DocsProfileDocumentIsNotStale) {
  std::ifstream in(SOURCE_DIR "/docs/profile-document.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  if (std::getenv("STEPSCOPE_WRITE_GOLDEN")) std::ofstream(SOURCE_DIR "/docs/profile-document.md") << document_schema_markdown();
  EXPECT_TRUE(page == document_schema_markdown()) << "run this test once with STEPSCOPE_WRITE_GOLDEN=1 and commit the page";
}

}  // namespace
