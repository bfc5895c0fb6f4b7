// Latency and bandwidth from a sweep, by numbers that were worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "profiler/ranks/collectives.h"
#include "profiler/ranks/link_model.h"

namespace {

using namespace profiler;
using ::testing::HasSubstr;

TEST(BusFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor("reduce_scatter", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("all_gather", 2), 0.5);
  EXPECT_DOUBLE_EQ(bus_factor("all_gather_in_place", 2), 0.5);
  EXPECT_DOUBLE_EQ(bus_factor("broadcast", 2), 0);
}

// 10 us + S / 200 GB/s up to 1 MB, 20 us + S / 400 GB/s above; two ranks, all_reduce: S bytes cross the link.
std::vector<LinkPoint> two_lines() {
  std::vector<LinkPoint> points;
  for (const int64_t kb : {4, 16, 64, 256, 1000})
    points.push_back({"nccl", "all_reduce", "fp32", 2, kb * 1000, 10'000 + static_cast<double>(kb) * 5});
  for (const int64_t mb : {8, 32, 128, 512})
    points.push_back({"nccl", "all_reduce", "fp32", 2, mb * 1'000'000, 20'000 + static_cast<double>(mb) * 2500});
  return points;
}

TEST(LinkModel, FindsBothLinesAndTheSizeWhereTheyMeet) {
  const LinkFit fit = fit_link(two_lines()).value();
  EXPECT_EQ(fit.knee_bytes, 1'000'000);
  EXPECT_NEAR(fit.small.latency_ns, 10'000, 1e-3);
  EXPECT_NEAR(fit.small.bus_bytes_per_s, 200e9, 1e3);
  EXPECT_NEAR(fit.large.latency_ns, 20'000, 1e-2);
  EXPECT_NEAR(fit.large.bus_bytes_per_s, 400e9, 1e3);
  EXPECT_NEAR(predicted_ns(fit, 28'000'000), 90'000, 0.1);
  EXPECT_LT(fit.worst_error_pct, 1e-6);
}

TEST(LinkModel, OneLineIsOneLine) {
  std::vector<LinkPoint> points;
  for (const int64_t mb : {1, 2, 4, 8, 16, 32, 64})
    points.push_back({"nccl", "all_gather", "bf16", 2, mb * 1'000'000, 5'000 + static_cast<double>(mb) * 2000});
  const LinkFit fit = fit_link(points).value();
  // Half a byte crosses the link per byte of the array.
  EXPECT_NEAR(fit.large.latency_ns, 5'000, 1e-2);
  EXPECT_NEAR(fit.large.bus_bytes_per_s, 250e9, 1e3);
}

TEST(LinkModel, APointOfMicrosecondsCountsAsMuchAsOneOfMilliseconds) {
  // No line goes through all three; the one with the least absolute error misses the first by half.
  const LinkFit fit = fit_link({{"nccl", "all_reduce", "fp32", 2, 1'000'000, 20'000},
                                {"nccl", "all_reduce", "fp32", 2, 100'000'000, 1'000'000},
                                {"nccl", "all_reduce", "fp32", 2, 200'000'000, 2'200'000}})
                          .value();
  EXPECT_NEAR(predicted_ns(fit, 1'000'000), 20'000, 1'000);
}

TEST(LinkModel, ALatencyIsNeverNegative) {
  const LinkFit fit = fit_link({{"nccl", "all_reduce", "fp32", 2, 1000, 100}, {"nccl", "all_reduce", "fp32", 2, 2000, 300}}).value();
  EXPECT_EQ(fit.large.latency_ns, 0);
  // The line through the origin, each point weighed by 1/t^2: 0.1 ns a byte for one and 0.15 for the other; the first counts 9/4 as much
  // by its time and 1/4 by its size.
  const double ns_per_byte = (1000 / 100. + 2000 / 300.) / (1000. * 1000 / (100. * 100) + 2000. * 2000 / (300. * 300));
  EXPECT_NEAR(predicted_ns(fit, 4000), 4000 * ns_per_byte, 1e-6);
  EXPECT_FALSE(fit_link({{"nccl", "all_reduce", "fp32", 2, 1000, 100}}));
}

TEST(LinkModel, BetweenMeasuredSizesTheTimeLiesBetweenTheirTimes) {
  LinkCeilings links;
  links.points = {{"nccl", "all_reduce", "fp32", 2, 1'000'000, 10'000}, {"nccl", "all_reduce", "fp32", 2, 4'000'000, 40'000}};
  EXPECT_NEAR(measured_ns(links, "nccl", "all_reduce", "fp32", 2, 2'000'000).value(), 20'000, 1e-6);
  EXPECT_NEAR(measured_ns(links, "nccl", "all_reduce", "fp32", 2, 8'000'000).value(), 80'000, 1e-6);
  EXPECT_NEAR(measured_ns(links, "nccl", "all_reduce", "fp32", 2, 1000).value(), 10'000, 1e-6);
  EXPECT_FALSE(measured_ns(links, "peer", "all_reduce", "fp32", 2, 2'000'000));
  EXPECT_FALSE(measured_ns(links, "nccl", "all_reduce", "bf16", 2, 2'000'000));
  EXPECT_FALSE(measured_ns(links, "nccl", "all_reduce", "fp32", 4, 2'000'000));
}

TEST(LinkModel, TheFileReadsBackAndAnotherFileIsRefused) {
  LinkCeilings links{"Test GPU", "nccl 2.28", "580", "2026-11-22T12:00:00Z", {"GPU-0", "GPU-1"}, two_lines(), {}, {}, {}};
  links.beside = {{"nccl", "all_reduce", "fp32", 2, 8'000'000, "product", 4096, 100'000, 110'000, -3'000}};
  links.fits = fit_links(links.points);
  links.awake = {2, 24e6, 24.5e6};
  const std::string text = links_to_json(links);
  const LinkCeilings back = links_from_json(text, "links.json");
  EXPECT_EQ(links_to_json(back), text);
  ASSERT_EQ(back.fits.size(), 1u);
  EXPECT_EQ(back.fits[0].knee_bytes, 1'000'000);
  ASSERT_TRUE(back.awake);
  EXPECT_NEAR(back.awake->slower(), 0.5 / 24, 1e-12);
  const LinkCeilings empty =
      links_from_json(links_to_json({"Test GPU", "nccl 2.28", "580", "2026-11-22T12:00:00Z", {}, {}, {}, {}, {}}), "x");
  EXPECT_TRUE(empty.points.empty()) << "a sweep that measured nothing reads back";
  EXPECT_FALSE(empty.awake);
  EXPECT_THROW(links_from_json("{}", "x"), stepscope::InputError);
  const auto error_after = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    try {
      links_from_json(changed.replace(at, from.size(), to), "links.json");
      return std::string();
    } catch (const stepscope::InputError& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(error_after("\"device\"", "\"devise\""), "links.json: device is missing, expected a string");
  EXPECT_EQ(error_after("\"points\": [", "\"points\": [5,"), "links.json: points[0].communicator is missing, expected a string");
  EXPECT_EQ(error_after("\"beside\": [", "\"beside\": [5,"), "links.json: beside[0].communicator is missing, expected a string");
  EXPECT_EQ(error_after("\"asleep_ns\": ", "\"asleep_ns\": -"),
            "links.json: awake.asleep_ns: found -24000000.0, expected a number of 0 or more");
  EXPECT_EQ(error_after("\"rows\": ", "\"rows\": -"), "links.json: beside[0].rows: found -4096, expected a whole number of 0 or more");
  EXPECT_EQ(error_after("\"slowed_ns\": ", "\"slowed_ns\": false, \"x\": "),
            "links.json: beside[0].slowed_ns: found false, expected a number");
  EXPECT_EQ(error_after("\"bytes\": ", "\"bytes\": -"),
            "links.json: points[0].bytes: found -" + std::to_string(links.points[0].bytes) + ", expected a whole number above 0");
  EXPECT_EQ(error_after("\"time_ns\": ", "\"time_ns\": -").find("links.json: points[0].time_ns: found -"), 0u);
  const auto is_refused = [&](const std::string& from, const std::string& to, const std::string& why) {
    EXPECT_THAT(error_after(from, to), HasSubstr(why)) << to;
  };
  is_refused("\"time_ns\": ", "\"time_ns\": 0, \"x\": ", "points[0].time_ns: found 0, expected nanoseconds above 0 and below 1e15");
  is_refused("\"time_ns\": ", "\"time_ns\": 1e300, \"x\": ", "below 1e15");
  is_refused("\"ranks\": 2", "\"ranks\": 1", "points[0].ranks: found 1, expected a whole number of 2 or more");
  is_refused("\"kind\": \"all_reduce\"", "\"kind\": \"foo\"", "points[0].kind: found \"foo\", expected all_reduce");
  is_refused("\"bytes\": " + std::to_string(links.points[0].bytes) + ",", "\"bytes\": " + std::to_string(links.points[1].bytes) + ",",
             "points[1] has the communicator, kind, type, ranks and bytes of points[0]");
}

TEST(LinkModel, ASweepOfTheFirstSchemaIsOfOneCommunicator) {
  const std::string old = R"({"schema": "stepscope.links/1", "device": "Test GPU", "communicator": "nccl 2.28.3", "driver": "580",
    "measured_at": "2026-11-22T12:00:00Z", "uuids": [], "points": [
    {"kind": "all_reduce", "type": "fp32", "ranks": 2, "bytes": 1000000, "time_ns": 20000},
    {"kind": "all_reduce", "type": "fp32", "ranks": 2, "bytes": 2000000, "time_ns": 30000}], "fits": []})";
  const LinkCeilings links = links_from_json(old, "old.json");
  ASSERT_EQ(links.points.size(), 2u);
  EXPECT_EQ(links.points[0].communicator, "nccl");
  ASSERT_EQ(links.fits.size(), 1u);
  EXPECT_EQ(links.fits[0].communicator, "nccl");
  EXPECT_TRUE(links.beside.empty());
  EXPECT_NEAR(measured_ns(links, "nccl", "all_reduce", "fp32", 2, 2'000'000).value(), 30'000, 1e-6);
}

TEST(LinkModel, FitsAreOfOneCommunicator) {
  std::vector<LinkPoint> points = two_lines();
  for (LinkPoint p : two_lines()) {
    p.communicator = "peer";
    p.time_ns *= 2;
    points.push_back(p);
  }
  const std::vector<LinkFit> fits = fit_links(points);
  ASSERT_EQ(fits.size(), 2u);
  EXPECT_EQ(fits[1].communicator, "peer");
  EXPECT_NEAR(fits[1].large.bus_bytes_per_s, 200e9, 1e3);
}

// Beside products of 4096 rows a collective of 8 MB takes 1/2 of the work's speed, one of 32 MB 1/4; beside 16384 rows 1/4 and 1/8.
LinkCeilings beside_products() {
  LinkCeilings l;
  const auto add = [&](int64_t mb, int64_t rows, double slowed) {
    l.beside.push_back({"peer", "reduce_scatter", "fp32", 2, mb * 1'000'000, "product", rows, 80, 100, slowed});
  };
  add(8, 4096, 50), add(32, 4096, 25), add(8, 16384, 25), add(32, 16384, 12.5);
  return l;
}

TEST(LinkModel, SpeedsBesideWorkLieBetweenMeasuredSizesAndRows) {
  const LinkCeilings l = beside_products();
  const auto work = [&](int64_t mb, int64_t rows) {
    return speeds_beside(l, "peer", "reduce_scatter", "fp32", mb * 1'000'000, rows, 1).value().work;
  };
  EXPECT_NEAR(work(8, 4096), 0.5, 1e-9);
  EXPECT_NEAR(work(16, 4096), 0.625, 1e-9);  // half way between by the logarithm
  EXPECT_NEAR(work(16, 8192), (0.625 + 0.8125) / 2, 1e-9);
  EXPECT_NEAR(work(1, 1024), 0.5, 1e-9) << "outside of what was measured the nearest counts";
  EXPECT_NEAR(work(999, 65536), 0.875, 1e-9);
  EXPECT_NEAR(speeds_beside(l, "peer", "reduce_scatter", "bf16", 8'000'000, 4096, 1).value().collective, 0.8, 1e-9);
  EXPECT_FALSE(speeds_beside(l, "nccl", "reduce_scatter", "fp32", 8'000'000, 4096, 1));
  EXPECT_FALSE(speeds_beside(l, "peer", "all_reduce", "fp32", 8'000'000, 4096, 1));
}

TEST(LinkModel, NoiseMakesNothingFasterBesideWork) {
  LinkCeilings l;
  l.beside = {{"peer", "all_gather", "bf16", 2, 8'000'000, "memory", 0, 110, 100, -5}};
  const BesideSpeeds speeds = speeds_beside(l, "peer", "all_gather", "bf16", 8'000'000, 4096, 0.5).value();
  EXPECT_DOUBLE_EQ(speeds.work, 1);
  EXPECT_DOUBLE_EQ(speeds.collective, 1);
}

TEST(LinkModel, TheTypeThatWasMeasuredBesideWorkCountsBeforeOthers) {
  LinkCeilings l = beside_products();
  l.beside.push_back({"peer", "reduce_scatter", "bf16", 2, 8'000'000, "product", 4096, 90, 100, 10});
  EXPECT_NEAR(speeds_beside(l, "peer", "reduce_scatter", "bf16", 8'000'000, 4096, 1).value().work, 0.9, 1e-9);
  EXPECT_NEAR(speeds_beside(l, "peer", "reduce_scatter", "fp32", 8'000'000, 4096, 1).value().work, 0.5, 1e-9);
}

}  // namespace
