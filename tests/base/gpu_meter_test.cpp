// The meter on a made GPU (moving_nvml.cpp) whose power is known, with work that takes a known time.
#include "base/gpu_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "base/counter_error.h"
#include "base/errors.h"

namespace {

using energy::GpuMeter;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

struct Wrong {
  explicit Wrong(const char* how) { setenv("MOVING_NVML", how, 1); }
  ~Wrong() { unsetenv("MOVING_NVML"); }
};

// Units of 4 ms, one after the other, as a stream runs them.
struct Units {
  static constexpr auto kUnit = std::chrono::milliseconds(4);
  Clock::time_point end = Clock::now();
  int queued = 0, finished = 0, most_unfinished = 0;
  energy::Repeated repeated() {
    return {[this] {
              if (queued == finished) end = std::max(end, Clock::now());
              ++queued;
              most_unfinished = std::max(most_unfinished, queued - finished);
            },
            [this] {
              std::this_thread::sleep_until(end += kUnit);
              ++finished;
            }};
  }
};

// Threads that are not woken in time move power and steps apart, on a loaded machine nearly always. Of twenty windows one is undisturbed;
// arithmetic that is wrong is wrong in all.
TEST(GpuMeter, JoulesOfAUnitAreThoseOfItsTime) {
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; ++i) {
    GpuMeter meter("", MOVING_NVML);
    Units units;
    const auto begin = Clock::now();
    const energy::Window w = meter.measure(units.repeated(), 0.1, 0.3);
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    const bool undisturbed = std::abs(w.power_w() - 600) < 25 && std::abs(w.joules_per_step() - 600 * 0.004) < 0.2 && w.updates >= 15 &&
                             w.seconds() >= 0.3 && meter.poll_s() < 0.02;
    if (!undisturbed && i + 1 < kTries) continue;
    EXPECT_NEAR(w.power_w(), 600, 25);
    EXPECT_NEAR(w.joules_per_step(), 600 * 0.004, 0.2);
    EXPECT_NEAR(w.joules_per_step() / w.seconds_per_step(), w.power_w(), 1e-6);
    EXPECT_GE(w.seconds(), 0.3);
    EXPECT_GE(w.updates, 15);
    EXPECT_EQ(w.sm_clock_mhz, 1800);
    EXPECT_GE(took, 0.4);  // what settles does not count
    EXPECT_EQ(units.queued, units.finished);
    EXPECT_EQ(units.most_unfinished, 2);
    EXPECT_LT(meter.poll_s(), 0.02);
    EXPECT_EQ(meter.limits().power_limit_w, 700);
    EXPECT_EQ(meter.limits().max_sm_clock_mhz, 1980);
    EXPECT_EQ(meter.limits().driver, "580.65.06");
    return;
  }
}

TEST(GpuMeter, AWindowHasTenChangesOfTheCounterHoweverShortItWasAsked) {
  GpuMeter meter("", MOVING_NVML);
  Units units;
  const energy::Window w = meter.measure(units.repeated(), 0, 0.03);
  EXPECT_GE(w.updates, energy::kFewestUpdates);
  EXPECT_GT(w.seconds(), 0.06);  // ten changes are 0.2 s apart, less what the first was seen too late
}

TEST(GpuMeter, RunTakesItsTimeAndCountsNothing) {
  const GpuMeter meter("", MOVING_NVML);
  Units units;
  EXPECT_GE(meter.run(units.repeated(), 0.05), 0.05);
  EXPECT_EQ(units.queued, units.finished);
  EXPECT_GE(meter.run(units.repeated(), 0), 0.004);
}

std::string why_not(const char* how) {
  const Wrong wrong(how);
  try {
    GpuMeter meter("", MOVING_NVML);
    Units units;
    meter.measure(units.repeated(), 0.15, 0.1);
  } catch (const energy::CounterError& e) {
    return e.what();
  }
  return "nothing was wrong";
}

TEST(GpuMeter, SaysWhyJoulesCannotBeCounted) {
  EXPECT_THAT(why_not("none"), HasSubstr("energy counter cannot be read: nvmlDeviceGetTotalEnergyConsumption"));
  EXPECT_THAT(why_not("mig"), HasSubstr("MIG mode"));
  EXPECT_THAT(why_not("frozen"), HasSubstr("it did not move for 2 s"));
  EXPECT_THAT(why_not("back"), HasSubstr("energy counter went back"));
  EXPECT_THAT(why_not("gone"), HasSubstr("nvmlDeviceGetTotalEnergyConsumption"));
  EXPECT_EQ(why_not("fine"), "nothing was wrong");
  const auto before_measuring = [](const char* how) {
    const Wrong wrong(how);
    return energy::why_no_counter("", MOVING_NVML).value_or("");
  };
  EXPECT_EQ(before_measuring("none"), why_not("none"));
  EXPECT_EQ(before_measuring("mig"), why_not("mig"));
  EXPECT_EQ(before_measuring("frozen"), "");
  EXPECT_EQ(before_measuring("fine"), "");
  try {
    GpuMeter meter("", "libnot-there.so.1");
    FAIL();
  } catch (const stepscope::MachineError& e) {
    EXPECT_THAT(e.what(), HasSubstr("the energy of this GPU cannot be counted: libnot-there.so.1 cannot be loaded"));
  }
}

}  // namespace
