// A kernel that never ends: nothing that waits for it can say so, and nothing that frees its memory returns. So a thread of its own looks at
// the clock, says what was being done, and ends the process. It sleeps in between and nobody wakes it: the gate itself asks whether another
// thread runs (step_audit.h).
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace gate {

// Says it on stderr and ends the process with exit code 1: something is wrong.
void end_of_a_hang(const std::string& what);

struct OnHang {
  // With what was being done. It may not return to code that uses the device.
  std::function<void(const std::string& what)> tell = end_of_a_hang;
  // Far above what any launch of the gate takes, also where ten processes share the device or compute-sanitizer watches.
  std::chrono::milliseconds after = std::chrono::seconds(100);
};

class Watchdog {
 public:
  explicit Watchdog(OnHang on_hang = {});
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // While one lives, the clock runs; one at a time.
  class Watched {
   public:
    Watched(Watchdog* dog, std::string_view what);  // nullptr: nobody watches
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

   private:
    Watchdog* dog_;
  };

 private:
  void watch(const OnHang& on_hang);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  std::chrono::steady_clock::time_point since_;
  bool doing_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace gate
