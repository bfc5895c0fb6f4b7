// The judge's clock around timed blocks: what it counts, and what a busy machine does to it.
#include "experiments/gate/step_audit.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "experiments/gate/timed_steps.h"
#include "tests/gate/cheating_trainer.h"

namespace gate {
namespace {

using gate_test::FakeDevice;
using std::chrono::milliseconds;

// Five steps of 10 ms. `disturb` is called after each, with its number.
template <class Disturb>
BlockAudit block(FakeDevice& device, const Disturb& disturb) {
  BlockClock clock(&device.hooks);
  for (int i = 0; i < 5; ++i) {
    device.now += milliseconds(10);
    disturb(i);
    clock.step_done(10e6);
  }
  return clock.end();
}

TEST(StepAudit, TimeInWhichTheJudgeHadNoCpuIsNotTheTrainers) {
  FakeDevice device;
  const BlockAudit a = block(device, [&](int i) {
    if (i == 4) device.lose_the_cpu(milliseconds(7));
  });
  EXPECT_EQ(a.steps, 4);
  EXPECT_DOUBLE_EQ(a.clock_ns, a.reported_ns);
  EXPECT_DOUBLE_EQ(a.late_ns, 0);
}

TEST(StepAudit, ACpuLostBeforeTheFirstStepEndsIsNoneOfTheBlocks) {
  FakeDevice device;
  const BlockAudit a = block(device, [&](int i) {
    if (i == 0) device.lose_the_cpu(milliseconds(7));
  });
  EXPECT_DOUBLE_EQ(a.clock_ns, a.reported_ns);
}

TEST(StepAudit, WaitingForTheDeviceIsCounted) {
  FakeDevice device;
  const BlockAudit a = block(device, [&](int i) {
    if (i == 4) device.now += milliseconds(7);
  });
  EXPECT_DOUBLE_EQ(a.clock_ns, a.reported_ns + 7e6);
}

TEST(StepAudit, ACpuLostBehindTheLastStepIsNoLateWork) {
  FakeDevice device;
  device.hooks.wait_idle = [&] {
    device.lose_the_cpu(milliseconds(9));
    device.now += milliseconds(2);
  };
  EXPECT_DOUBLE_EQ(block(device, [](int) {}).late_ns, 2e6);
}

// Its clock is `late` behind in the last step of each of the first `blocks` blocks.
class Disturbed : public gate_test::Cheat {
 public:
  Disturbed(const gpt2::TrainerOptions& o, FakeDevice& device, int blocks) : Cheat(o, device), blocks_(blocks) {}
  gpt2::StepOutcome finish_step() override {
    gpt2::StepOutcome o = Cheat::finish_step();
    if (++finished_ % 5 == 0 && finished_ <= 5 * blocks_) device_.now += milliseconds(6);
    return o;
  }

 private:
  int blocks_, finished_ = 0;
};

bool clock_agrees(int disturbed_blocks) {
  FakeDevice device;
  gpt2::TrainerOptions o;
  o.model = gate_model();
  o.model.layers = 1;
  o.batch_size = 1;
  o.seq_len = 16;
  TimedStepsOptions t;
  t.device = &device.hooks;
  t.wanted = [](const std::string& check) { return check == "clock"; };
  bool passed = true;
  for (const CheckResult& r : check_timed_steps([&] { return std::make_unique<Disturbed>(o, device, disturbed_blocks); }, t))
    passed = passed && r.passed;
  return passed;
}

// Another program woke up in two of the three blocks: no reason to refuse a trainer. What is there in every block is one.
TEST(TimedSteps, BlocksThatTheMachineDisturbedAreTakenAgain) {
  EXPECT_TRUE(clock_agrees(0));
  EXPECT_TRUE(clock_agrees(2));
  EXPECT_FALSE(clock_agrees(12));
}

// Four threads that want one CPU: each waits for it while another has it. A thread that never sleeps waits when it does not run.
TEST(CpuWait, IsTheTimeInWhichAThreadThatSharesItsCpuDoesNotRun) {
  if (access("/proc/thread-self/schedstat", R_OK) != 0) GTEST_SKIP() << "this kernel does not tell";
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i)
    others.emplace_back([&] {
      sched_setaffinity(0, sizeof one, &one);
      while (!stop) {
      }
    });
  const auto time_ns = [](clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
  };
  std::thread judge([&] {
    sched_setaffinity(0, sizeof one, &one);
    const CpuWait wait;
    const double waited_before = wait.so_far_ns(), wall_before = time_ns(CLOCK_MONOTONIC), cpu_before = time_ns(CLOCK_THREAD_CPUTIME_ID);
    double waited = 0;
    while (waited < 100e6) waited = wait.so_far_ns() - waited_before;  // a test that hangs here has failed
    const double wall = time_ns(CLOCK_MONOTONIC) - wall_before, cpu = time_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_before;
    EXPECT_NEAR(waited, wall - cpu, 0.25 * wall);
    stop = true;
  });
  judge.join();
  for (std::thread& t : others) t.join();
}

}  // namespace

// A thread that computes is seen however busy the machine is: one that waits for a core counts as running. One that sleeps is not.
TEST(StepAudit, AThreadThatComputesIsSeenAndOneThatSleepsIsNot) {
  std::atomic<int> state{0};  // 0: the thread computes; 1: it shall sleep; 2: it shall end
  std::thread other([&] {
    while (state == 0) {
    }
    state.wait(1);
  });
  EXPECT_TRUE(another_thread_runs());
  state = 1;
  while (another_thread_runs()) std::this_thread::yield();  // a test that hangs here has failed
  state = 2;
  state.notify_all();
  other.join();
}

// A thread may end between the listing of /proc/self/task and the reading of its state.
TEST(StepAudit, ThreadsThatEndWhileTheyAreLookedAtAreNoError) {
  std::atomic<bool> stop = false;
  std::thread churn([&] {
    while (!stop) std::thread([] {}).join();
  });
  for (int i = 0; i < 3000; ++i) another_thread_runs();
  stop = true;
  churn.join();
}

}  // namespace gate
