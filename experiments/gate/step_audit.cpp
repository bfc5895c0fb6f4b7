#include "experiments/gate/step_audit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace gate {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLongestWait_ns = 2e9;  // for threads: what runs longer than this is late by any measure

double ns(Clock::duration d) { return std::chrono::duration<double, std::nano>(d).count(); }

struct Measured {
  double value = 0, limit = 0;
};
void sort_by_excess(std::vector<Measured>& v) {
  std::sort(v.begin(), v.end(), [](Measured x, Measured y) { return x.value - x.limit < y.value - y.limit; });
}
// Of the block in the middle, of two middle ones the better: what most blocks show.
Measured middle(std::vector<Measured> v) {
  sort_by_excess(v);
  return v[(v.size() - 1) / 2];
}
// What three of four blocks exceed. A thread of the driver or of the oracle may wake up in some (0.48 ms in one report of 26, where the
// others saw 0.002 ms; H200, 2026-11-21); work that a trainer leaves behind is there in all.
Measured first_quarter(std::vector<Measured> v) {
  sort_by_excess(v);
  return v[(v.size() - 1) / 4];
}

}  // namespace

bool another_thread_runs() {
  const auto self = std::to_string(syscall(SYS_gettid));
  std::error_code error;  // a thread may be gone before it is looked at
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end; !error && task != end; task.increment(error)) {
    if (task->path().filename() == self) continue;
    std::ifstream in(task->path() / "stat");
    // read() swallows the error of a thread that ends in between; a stream iterator would throw it.
    std::array<char, 512> buffer;
    in.read(buffer.data(), buffer.size());
    const std::string_view text(buffer.data(), static_cast<size_t>(in.gcount()));
    // "ID (name) STATE …"; a name may hold anything, so the last bracket counts.
    const size_t bracket = text.rfind(')');
    if (bracket != std::string::npos && text.size() > bracket + 2 && text[bracket + 2] == 'R') return true;
  }
  return false;
}

CpuWait::CpuWait() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
CpuWait::~CpuWait() {
  if (file_ >= 0) close(file_);
}

// "TIME_ON_CPU TIME_WAITED TIMESLICES", in ns.
double CpuWait::so_far_ns() const {
  std::array<char, 128> buffer;
  const ssize_t n = file_ >= 0 ? pread(file_, buffer.data(), buffer.size(), 0) : -1;
  if (n <= 0) return 0;
  const char* end = buffer.data() + n;
  const char* second = std::find(static_cast<const char*>(buffer.data()), end, ' ');
  int64_t waited = 0;
  if (second == end || std::from_chars(second + 1, end, waited).ec != std::errc()) return 0;
  return static_cast<double>(waited);
}

Clock::time_point judges_now(const DeviceHooks* device) { return device != nullptr && device->now ? device->now() : Clock::now(); }

bool BlockClock::other_thread_runs() const {
  return device_ != nullptr && device_->other_thread_runs ? device_->other_thread_runs() : another_thread_runs();
}

double BlockClock::waited_ns() const {
  return device_ != nullptr && device_->waited_for_cpu_ns ? device_->waited_for_cpu_ns() : cpu_.so_far_ns();
}

void BlockClock::step_done(double time_ns) {
  last_ = judges_now(device_);
  waited_at_last_ns_ = waited_ns();
  if (first_ == Clock::time_point{}) {
    first_ = last_;
    waited_at_first_ns_ = waited_at_last_ns_;
    return;
  }
  ++audit_.steps;
  audit_.reported_ns += time_ns;
}

BlockAudit BlockClock::end() {
  const auto idle = [&] {
    if (device_ != nullptr && device_->wait_idle) device_->wait_idle();
  };
  idle();
  auto done = judges_now(device_);
  double waited_at_done_ns = waited_ns();
  // Looking at the threads takes a while itself, so a look that finds none at work is not counted.
  while (other_thread_runs() && ns(judges_now(device_) - last_) < kLongestWait_ns) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    idle();
    done = judges_now(device_);
    waited_at_done_ns = waited_ns();
  }
  audit_.clock_ns = std::max(0.0, ns(last_ - first_) - (waited_at_last_ns_ - waited_at_first_ns_));
  audit_.late_ns = std::max(0.0, ns(done - last_) - (waited_at_done_ns - waited_at_last_ns_));
  if (device_ != nullptr && device_->launch_error) audit_.launch_error = device_->launch_error();
  if (device_ != nullptr && device_->persisting_l2_bytes) audit_.persisting_l2_bytes = device_->persisting_l2_bytes();
  return audit_;
}

std::vector<AuditFinding> findings(std::span<const BlockAudit> blocks, const AuditLimits& limits) {
  std::vector<AuditFinding> out;
  if (blocks.empty()) return out;
  std::vector<Measured> ahead, late, outside;
  std::string launch_error;
  int64_t persisting = 0;
  for (const BlockAudit& b : blocks) {
    const double one_step = b.steps > 0 ? b.reported_ns / b.steps : 0, whole = b.reported_ns + one_step;
    ahead.push_back({b.clock_ns - b.reported_ns, std::max(limits.clock_share * b.reported_ns, limits.clock_floor_ns)});
    late.push_back({b.late_ns, std::max(limits.late_share * one_step, limits.late_floor_ns)});
    if (b.outside_ns) outside.push_back({*b.outside_ns - whole, std::max(limits.outside_share * whole, limits.outside_floor_ns)});
    if (launch_error.empty()) launch_error = b.launch_error;
    persisting = std::max(persisting, b.persisting_l2_bytes);
  }
  const auto ms = [](double t) { return fmt::format("{:.3f} ms", t * 1e-6); };
  const auto add = [&](const char* check, const char* what, Measured m, std::string sentence) {
    out.push_back({check, what, m.value, m.limit, std::move(sentence)});
  };
  const Measured own = middle(ahead), after = first_quarter(late);
  add("clock", "own clock", own,
      fmt::format("a block took {} longer by the arm's clock than the times that its trainer reported", ms(own.value)));
  if (!outside.empty()) {
    const Measured theirs = middle(outside);
    add("clock", "runner's clock", theirs,
        fmt::format("a block took {} longer by the runner's clock than the times that were reported", ms(theirs.value)));
  }
  add("late work", "after a block", after,
      fmt::format("device or threads worked for {} more after the last step of a block was called done", ms(after.value)));
  add("launch error", "blocks", {launch_error.empty() ? 0.0 : 1.0, 0}, "a kernel launch failed and nobody looked: " + launch_error);
  add("persisting L2", "blocks", {static_cast<double>(persisting), 0},
      fmt::format("{} bytes of L2 were set aside for persisting lines", persisting));
  return out;
}

nlohmann::ordered_json to_json(const BlockAudit& a) {
  return {{"steps", a.steps},     {"reported_ns", a.reported_ns},   {"clock_ns", a.clock_ns},
          {"late_ns", a.late_ns}, {"launch_error", a.launch_error}, {"persisting_l2_bytes", a.persisting_l2_bytes}};
}

BlockAudit block_audit_from_json(const nlohmann::ordered_json& j) {
  BlockAudit a;
  a.steps = j.at("steps").get<int>();
  a.reported_ns = j.at("reported_ns").get<double>();
  a.clock_ns = j.at("clock_ns").get<double>();
  a.late_ns = j.at("late_ns").get<double>();
  a.launch_error = j.at("launch_error").get<std::string>();
  a.persisting_l2_bytes = j.at("persisting_l2_bytes").get<int64_t>();
  return a;
}

}  // namespace gate
