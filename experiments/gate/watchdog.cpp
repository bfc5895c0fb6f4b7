#include "experiments/gate/watchdog.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/say.h"

namespace gate {

void end_of_a_hang(const std::string& what) {
  stepscope::say(fmt::format("gate: {} does not end: it hangs. The gate refuses it and asks nothing more of this device.", what));
  std::fflush(nullptr);
  std::_Exit(1);
}

Watchdog::Watchdog(OnHang on_hang) : thread_([this, on_hang = std::move(on_hang)] { watch(on_hang); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::watch(const OnHang& on_hang) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, on_hang.after / 20, [&] { return ends_; })) {
    if (!doing_ || std::chrono::steady_clock::now() - since_ < on_hang.after) continue;
    doing_ = false;  // said once
    const std::string what = what_;
    lock.unlock();
    on_hang.tell(what);
    lock.lock();
  }
}

Watchdog::Watched::Watched(Watchdog* dog, std::string_view what) : dog_(dog) {
  if (dog_ == nullptr) return;
  const std::lock_guard lock(dog_->mutex_);
  dog_->what_ = what;
  dog_->since_ = std::chrono::steady_clock::now();
  dog_->doing_ = true;
}

Watchdog::Watched::~Watched() {
  if (dog_ == nullptr) return;
  const std::lock_guard lock(dog_->mutex_);
  dog_->doing_ = false;
}

}  // namespace gate
