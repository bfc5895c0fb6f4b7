#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "profiler/ingest/metric_units.h"

namespace {

using profiler::to_base_factor;

TEST(MetricUnits, TimesAreNanosecondsAndRatesPerSecond) {
  EXPECT_EQ(to_base_factor("ns"), 1);
  EXPECT_EQ(to_base_factor("usecond"), 1e3);
  EXPECT_EQ(to_base_factor("s"), 1e9);
  EXPECT_EQ(to_base_factor("Gbyte/s"), 1e9);
  EXPECT_EQ(to_base_factor("byte/us"), 1e6);
  EXPECT_EQ(to_base_factor("cycle/nsecond"), 1e9);
}
TEST(MetricUnits, EveryUnitOfTimeAboveAndBelowTheSlash) {
  for (const auto& [unit, ns] : {std::pair{"ns", 1.0},
                                 {"nsecond", 1.0},
                                 {"us", 1e3},
                                 {"usecond", 1e3},
                                 {"ms", 1e6},
                                 {"msecond", 1e6},
                                 {"s", 1e9},
                                 {"second", 1e9}}) {
    EXPECT_EQ(to_base_factor(unit), ns) << unit;
    EXPECT_EQ(to_base_factor(std::string("byte/") + unit), 1e9 / ns) << unit;
  }
  EXPECT_EQ(to_base_factor("Mbyte/ms"), 1e9);
}
TEST(MetricUnits, EveryPrefix) {
  for (const auto& [prefix, factor] : {std::pair{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}})
    for (const char* stem : {"byte", "hz", "Hz"}) EXPECT_EQ(to_base_factor(std::string(prefix) + stem), factor) << prefix << stem;
}
TEST(MetricUnits, PrefixesAreDecimal) {
  EXPECT_EQ(to_base_factor("Kbyte"), 1e3);
  EXPECT_EQ(to_base_factor("Tbyte"), 1e12);
  EXPECT_EQ(to_base_factor("Ghz"), 1e9);
  EXPECT_EQ(to_base_factor("Kbyte/block"), 1e3);
  EXPECT_EQ(to_base_factor("%/Kbyte"), 1e-3);
}
TEST(MetricUnits, UnitsWithoutAPrefixStay) {
  for (const char* unit : {"", "%", "inst", "cycle", "sector", "register/thread", "inst/cycle", "SM"})
    EXPECT_EQ(to_base_factor(unit), 1) << unit;
}
TEST(MetricUnits, AnUnknownPrefixHasNoFactor) {
  EXPECT_FALSE(to_base_factor("Xbyte"));
  EXPECT_FALSE(to_base_factor("Mibyte"));  // not the factor of "byte"
  EXPECT_FALSE(to_base_factor("furlongbyte/s"));
  EXPECT_EQ(to_base_factor("Minst"), 1e6);
  EXPECT_FALSE(to_base_factor("Xhz/block"));
}

}  // namespace
