#include "experiments/session/device_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace experiments {
namespace {

using ::testing::HasSubstr;

// 700 W; the counter is read every 5 ms and moves every 100 ms.
EnergyCounter steady(double until_s, double pace_s = 0.1) {
  EnergyCounter c;
  for (int i = 0; i * 0.005 < until_s; ++i) {
    const double at = i * 0.005;
    c.add(at, 700 * pace_s * static_cast<int>(at / pace_s + 1e-9));
  }
  return c;
}

TEST(energy_counter, is_interpolated_between_its_changes) {
  const EnergyCounter c = steady(6);
  std::string absent;
  EXPECT_NEAR(c.between(2.03, 5.04, absent).value(), 700 * 3.01, 0.01);
  EXPECT_EQ(absent, "");
}

TEST(energy_counter, has_no_answer_before_it_has_moved_past_both_ends) {
  std::string absent;
  EXPECT_FALSE(steady(5).between(2, 5.01, absent));
  EXPECT_THAT(absent, HasSubstr("did not move within 0.3 s"));
  EXPECT_FALSE(steady(6, 0.5).between(2.1, 5.1, absent)) << "a counter that moves every half a second resolves no second";
  EXPECT_FALSE(steady(6, 100).between(2, 5, absent));
  EXPECT_EQ(absent, "the energy counter does not move");
  EXPECT_FALSE(EnergyCounter().between(2, 5, absent));
}

TEST(energy_counter, forgets_what_is_long_over_and_keeps_the_rest) {
  EnergyCounter c = steady(6);
  c.forget_before(3.05);
  std::string absent;
  EXPECT_FALSE(c.between(2, 5, absent));
  EXPECT_NEAR(c.between(3.05, 5, absent).value(), 700 * 1.95, 0.01);
}

// A process that is counted for 300 s, or goes on for minutes behind its counted steps: samples of more than 120 s ago were gone when it was asked.
TEST(device_history, keeps_all_of_a_process_until_the_next_one_begins) {
  DeviceHistory h;
  const auto sample = [&](double at_s, double clock_mhz) {
    h.add({at_s, clock_mhz, 690, 60, 4});
    h.add_energy(at_s, 700 * at_s);
  };
  h.begin(10);
  for (int i = 0; i < 5000; ++i) sample(0.1 * i, i < 1700 ? 1500 : 1800);
  const DeviceWindow w = h.between(20.05, 320.05);
  EXPECT_EQ(w.samples, 3000);
  EXPECT_NEAR(w.sm_clock_mhz.value(), 1650, 0.2);
  EXPECT_NEAR(w.sampled_power_w.value(), 690, 1e-9);
  EXPECT_NEAR(w.joules.value_or(0), 700 * 300.0, 0.01) << w.energy_absent;
  EXPECT_EQ(w.throttle_reasons, 4u);
  EXPECT_EQ(h.since_begin().value().samples, 4900);
  h.begin(500);
  EXPECT_FALSE(h.since_begin());
  sample(500, 1800);
  EXPECT_EQ(h.since_begin().value().samples, 1);
  const DeviceWindow gone = h.between(20.05, 320.05);
  EXPECT_EQ(gone.absent, "no sample fell into it");
  EXPECT_FALSE(gone.joules);
}

TEST(device_watch, without_a_gpu_says_why) {
  DeviceWatch watch({false, "built without CUDA", "", ""}, true);
  Hooks hooks;
  watch.add_to(hooks);
  EXPECT_EQ(hooks.environment_absent, "no GPU: built without CUDA");
  EXPECT_FALSE(hooks.device_between);
  EXPECT_EQ(DeviceWatch({true, "", "X", ""}, false).absent(), "the arms do not use the GPU");
}

// "another process used the GPU" was never said where NVML knows the processes and not, say, the power.
TEST(device_watch, looks_for_strangers_where_another_reading_is_refused) {
  setenv("FAKE_NVML", "power, strangers", 1);
  DeviceWatch watch({true, "", "X", ""}, true, FAKE_NVML);
  Hooks hooks;
  watch.add_to(hooks);
  EXPECT_THAT(hooks.environment_absent, HasSubstr("nvmlDeviceGetPowerUsage: Not Supported"));
  EXPECT_FALSE(hooks.device_between);
  ASSERT_TRUE(hooks.foreign_process);
  EXPECT_THAT(hooks.foreign_process(1).value_or(""), HasSubstr("3 processes compute on the GPU and 1 of them is ours"));
  EXPECT_FALSE(hooks.foreign_process(3));
  unsetenv("FAKE_NVML");
}

}  // namespace
}  // namespace experiments
