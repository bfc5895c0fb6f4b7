// What a timed block of steps has to answer for besides its times: does the judge's clock agree with them,
// did the process go on working after the last step was called done, did a launch fail unseen, was the
// cache's policy changed? An arm and the gate measure with BlockClock; whoever judges (the runner, the gate)
// asks findings().
//
// The trap: a trainer reports its own times, from events on its own stream. Work on another stream or in a
// thread is in none of them.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gate {

// The device as a judge sees it, past the trainer. Every member may be empty: a trainer on the host has no
// device.
struct DeviceHooks {
  std::function<void()> wait_idle;               // returns when no stream of this process has work left
  std::function<std::string()> launch_error;     // of a launch that nobody checked, which is then forgotten; "" = none
  std::function<int64_t()> persisting_l2_bytes;  // set aside beyond what was when these hooks were made
  // Red zones behind device memory and poison in it, where the device can have them (red_zones.h): from now on or no more; bytes of the zones
  // that were written.
  std::function<void(bool)> watch_memory{};
  std::function<int64_t()> bytes_beyond_memory{};
  // The judge's clock, and whether a thread of this process other than the caller runs. Empty: steady_clock and
  // another_thread_runs(). A test makes both up with its device, so that its answer does not depend on the machine's load.
  std::function<std::chrono::steady_clock::time_point()> now{};
  std::function<bool()> other_thread_runs{};
  std::function<double()> waited_for_cpu_ns{};  // of the calling thread, so far, as CpuWait tells it; empty: CpuWait
};

// How long the thread that made it has waited for a CPU while it could have run. On a busy machine that is most of what a judge sees late,
// and none of it is the trainer's. 0 where the kernel does not tell (/proc/thread-self/schedstat).
class CpuWait {
 public:
  CpuWait();
  ~CpuWait();
  CpuWait(const CpuWait&) = delete;
  CpuWait& operator=(const CpuWait&) = delete;
  double so_far_ns() const;

 private:
  int file_;
};

struct BlockAudit {
  int steps = 0;           // that count: all but the first
  double reported_ns = 0;  // sum of their times as the trainer gave them
  // By the judge's clock, without the time in which the judge waited for a CPU:
  double clock_ns = 0;       // from the end of the first step to the end of the last
  double late_ns = 0;        // from there until neither device nor another thread of this process worked
  std::string launch_error;  // "" = none
  int64_t persisting_l2_bytes = 0;
  // By the clock of another process, from the command to the answer, the first step included and without its waits for a CPU; absent
  // when nobody asked.
  std::optional<double> outside_ns;
};

// What the judge's clock says; `device` may be null.
std::chrono::steady_clock::time_point judges_now(const DeviceHooks* device);

// Around one block, on one thread. `device` may be null and must outlive the clock.
class BlockClock {
 public:
  explicit BlockClock(const DeviceHooks* device) : device_(device) {}
  void step_done(double time_ns);  // right after finish_step
  BlockAudit end();                // right after the last step_done; returns when the process is idle

 private:
  bool other_thread_runs() const;
  double waited_ns() const;

  const DeviceHooks* device_;
  CpuWait cpu_;
  std::chrono::steady_clock::time_point first_{}, last_{};
  double waited_at_first_ns_ = 0, waited_at_last_ns_ = 0;
  BlockAudit audit_;
};

// Whether a thread of this process other than the caller is running now. False where /proc does not tell.
bool another_thread_runs();

struct AuditLimits {
  double clock_share = 0.05;  // the clock may be ahead of the reported times by so much of them
  double clock_floor_ns = 3e5;
  double late_share = 0.10;  // of a step
  double late_floor_ns = 2e5;
  double outside_share = 0.10;  // start, answer and the pipe are in it
  double outside_floor_ns = 5e7;
};
// Of a trainer on the host: it works with threads of its own, which on a loaded machine leave a step some
// milliseconds after its last sum, and those of OpenMP spin before they sleep.
inline AuditLimits host_limits() {
  AuditLimits l;
  l.clock_floor_ns = 5e6;
  l.late_floor_ns = 2e7;
  return l;
}

// One measure of the audit against its limit.
struct AuditFinding {
  std::string check;  // "clock", "late work", "launch error", "persisting L2"
  std::string what;   // "own clock", "runner's clock", …
  double value = 0, limit = 0;
  std::string sentence;                           // what it means when value > limit
  bool passed() const { return value <= limit; }  // NaN fails
};

// Of the blocks of one arm. Clock and lateness are those of the block in the middle, since any one may be hit
// by something else on the machine; a failed launch or a changed cache in any block counts. Empty without
// blocks.
std::vector<AuditFinding> findings(std::span<const BlockAudit> blocks, const AuditLimits& limits = {});

nlohmann::ordered_json to_json(const BlockAudit& audit);
// Throws nlohmann's exceptions when a field is missing or no number.
BlockAudit block_audit_from_json(const nlohmann::ordered_json& json);

}  // namespace gate
