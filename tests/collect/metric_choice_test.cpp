#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "profiler/collect/metric_catalogue.h"
#include "tests/golden.h"

namespace profiler::collect {
namespace {

using ::testing::ElementsAre;

// A chip with these metrics, where `conflict` names cannot share a pass.
MetricQueries chip(std::set<std::string> has, std::set<std::string> conflict) {
  MetricQueries q;
  q.exists = [has](const std::string& m) { return has.contains(m); };
  q.passes = [conflict](const std::vector<std::string>& list) -> std::optional<size_t> {
    if (list.empty()) return std::nullopt;
    const auto n = std::count_if(list.begin(), list.end(), [&](const std::string& m) { return conflict.contains(m); });
    return static_cast<size_t>(std::max<std::ptrdiff_t>(1, n));
  };
  return q;
}

TEST(ChooseMetrics, TakesTheFirstSpellingThatExists) {
  const auto c = choose_metrics({{"read", {"new", "old"}}, {"time", {"time"}}}, chip({"old", "time"}, {}));
  EXPECT_THAT(c.metrics, ElementsAre("old", "time"));
  EXPECT_TRUE(c.left_out.empty());
}

TEST(ChooseMetrics, DropsWhatDoesNotFitOnePassFromTheEndAndSaysSo) {
  const auto c = choose_metrics({{"a", {"a"}}, {"b", {"b"}}, {"c", {"c"}}}, chip({"a", "b", "c"}, {"a", "b"}));
  EXPECT_THAT(c.metrics, ElementsAre("a", "c"));
  ASSERT_EQ(c.left_out.size(), 1u);
  EXPECT_EQ(c.left_out[0].first, "b");
}

TEST(ChooseMetrics, NamesQuantitiesThatTheChipLacks) {
  const auto c = choose_metrics({{"time", {"time"}}, {"fp8_ops", {"fp8"}}}, chip({"time"}, {}));
  EXPECT_THAT(c.metrics, ElementsAre("time"));
  ASSERT_EQ(c.left_out.size(), 1u);
  EXPECT_EQ(c.left_out[0].first, "fp8_ops");
}

TEST(ChooseMetrics, NothingThatExistsIsAnEmptyChoice) { EXPECT_TRUE(choose_metrics({{"time", {"time"}}}, chip({}, {})).metrics.empty()); }

// Every name that CUPTI is asked for, in the order in which they are given up.
TEST(MetricSet, HoldsTheseQuantities) {
  std::string text;
  for (const char* set : {"portable", "bf16", "tf32"}) {
    text += std::string(set) + "\n";
    for (const Quantity& q : metric_set(set)) {
      text += "  " + q.name + ":";
      for (const std::string& candidate : q.candidates) text += " " + candidate;
      text += "\n";
    }
  }
  expect_golden("collect/data/metric_sets.txt", text);
}

TEST(WantedMetrics, ReadsThePlan) {
  EXPECT_EQ(wanted_metrics({}).size(), metric_set("bf16").size());
  EXPECT_EQ(wanted_metrics({"set:tf32"}).size(), metric_set("tf32").size());
  const auto own = wanted_metrics({"x.sum", "y.sum"});
  ASSERT_EQ(own.size(), 2u);
  EXPECT_THAT(own[1].candidates, ElementsAre("y.sum"));
  EXPECT_THROW(wanted_metrics({"set:nonsense"}), std::runtime_error);
}

}  // namespace
}  // namespace profiler::collect
