// Latency and bandwidth from a sweep, by numbers that were worked out by hand.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "profiler/ranks/collectives.h"
#include "profiler/ranks/link_model.h"

namespace {

using namespace profiler;

TEST(BusFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor("reduce_scatter", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("all_gather", 2), 0.5);
  EXPECT_DOUBLE_EQ(bus_factor("broadcast", 2), 0);
}

// 10 us + S / 200 GB/s up to 1 MB, 20 us + S / 400 GB/s above; two ranks, all_reduce: S bytes cross the link.
std::vector<LinkPoint> two_lines() {
  std::vector<LinkPoint> points;
  for (const int64_t kb : {4, 16, 64, 256, 1000})
    points.push_back({"all_reduce", "fp32", 2, kb * 1000, 10'000 + static_cast<double>(kb) * 5});
  for (const int64_t mb : {8, 32, 128, 512})
    points.push_back({"all_reduce", "fp32", 2, mb * 1'000'000, 20'000 + static_cast<double>(mb) * 2500});
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
    points.push_back({"all_gather", "bf16", 2, mb * 1'000'000, 5'000 + static_cast<double>(mb) * 2000});
  const LinkFit fit = fit_link(points).value();
  // Half a byte crosses the link per byte of the array.
  EXPECT_NEAR(fit.large.latency_ns, 5'000, 1e-2);
  EXPECT_NEAR(fit.large.bus_bytes_per_s, 250e9, 1e3);
}

TEST(LinkModel, APointOfMicrosecondsCountsAsMuchAsOneOfMilliseconds) {
  // No line goes through all three; the one with the least absolute error misses the first by half.
  const LinkFit fit = fit_link({{"all_reduce", "fp32", 2, 1'000'000, 20'000},
                                {"all_reduce", "fp32", 2, 100'000'000, 1'000'000},
                                {"all_reduce", "fp32", 2, 200'000'000, 2'200'000}})
                          .value();
  EXPECT_NEAR(predicted_ns(fit, 1'000'000), 20'000, 1'000);
}

TEST(LinkModel, ALatencyIsNeverNegative) {
  const LinkFit fit = fit_link({{"all_reduce", "fp32", 2, 1000, 100}, {"all_reduce", "fp32", 2, 2000, 300}}).value();
  EXPECT_EQ(fit.large.latency_ns, 0);
  // The line through the origin, each point weighed by 1/t^2: 0.1 ns a byte for one and 0.15 for the other; the first counts 9/4 as much
  // by its time and 1/4 by its size.
  const double ns_per_byte = (1000 / 100. + 2000 / 300.) / (1000. * 1000 / (100. * 100) + 2000. * 2000 / (300. * 300));
  EXPECT_NEAR(predicted_ns(fit, 4000), 4000 * ns_per_byte, 1e-6);
  EXPECT_FALSE(fit_link({{"all_reduce", "fp32", 2, 1000, 100}}));
}

TEST(LinkModel, BetweenMeasuredSizesTheTimeLiesBetweenTheirTimes) {
  LinkCeilings links;
  links.points = {{"all_reduce", "fp32", 2, 1'000'000, 10'000}, {"all_reduce", "fp32", 2, 4'000'000, 40'000}};
  EXPECT_NEAR(measured_ns(links, "all_reduce", "fp32", 2, 2'000'000).value(), 20'000, 1e-6);
  EXPECT_NEAR(measured_ns(links, "all_reduce", "fp32", 2, 8'000'000).value(), 80'000, 1e-6);
  EXPECT_NEAR(measured_ns(links, "all_reduce", "fp32", 2, 1000).value(), 10'000, 1e-6);
  EXPECT_FALSE(measured_ns(links, "all_reduce", "bf16", 2, 2'000'000));
  EXPECT_FALSE(measured_ns(links, "all_reduce", "fp32", 4, 2'000'000));
}

TEST(LinkModel, TheFileReadsBackAndAnotherFileIsRefused) {
  LinkCeilings links{"Test GPU", "nccl 2.28", "580", "2026-11-22T12:00:00Z", {"GPU-0", "GPU-1"}, two_lines(), {}};
  links.fits = fit_links(links.points);
  const std::string text = links_to_json(links);
  const LinkCeilings back = links_from_json(text, "links.json");
  EXPECT_EQ(links_to_json(back), text);
  ASSERT_EQ(back.fits.size(), 1u);
  EXPECT_EQ(back.fits[0].knee_bytes, 1'000'000);
  const LinkCeilings empty = links_from_json(links_to_json({"Test GPU", "nccl 2.28", "580", "2026-11-22T12:00:00Z", {}, {}, {}}), "x");
  EXPECT_TRUE(empty.points.empty()) << "a sweep that measured nothing reads back";
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
  EXPECT_EQ(error_after("\"points\": [", "\"points\": [5,"), "links.json: points[0].kind is missing, expected a string");
  EXPECT_EQ(error_after("\"bytes\": ", "\"bytes\": -"),
            "links.json: points[0].bytes: found -" + std::to_string(links.points[0].bytes) + ", expected a whole number above 0");
  EXPECT_EQ(error_after("\"time_ns\": ", "\"time_ns\": -").find("links.json: points[0].time_ns: found -"), 0u);
}

}  // namespace
