#include "gpt2/distributed/staged_communicator.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <utility>

namespace gpt2::distributed {
namespace {

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(ControlChannel& channel, std::string name) : channel_(channel), name_(std::move(name)) {}
  const World& world() const override { return channel_.world(); }
  void enqueue(const Collective& collective, void* data, void*) override { channel_.exchange(collective, data); }
  bool memory_is_host() const override { return true; }
  bool is_asynchronous() const override { return false; }
  std::string name() const override { return name_; }
  std::optional<Failure> failure() override { return channel_.failure(); }
  void abort() noexcept override { channel_.abort(); }

 private:
  ControlChannel& channel_;
  std::string name_;
};

// What the threads share: one gathering at a time, which begins when the one before has been read by all.
struct Meeting {
  explicit Meeting(size_t ranks) : parts(ranks) {}
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Bytes> parts;
  size_t arrived = 0, left = 0;
  bool reading = false;
  std::optional<Failure> failure;
};

class ThreadChannel final : public ControlChannel {
 public:
  ThreadChannel(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)) {
    world_.rank = world_.local_rank = rank;
    world_.size = world_.local_size = static_cast<int>(meeting_->parts.size());
    world_.job = "threads";
    world_.found_by = "threads";
  }
  const World& world() const override { return world_; }

  std::vector<Bytes> all_gather(const Bytes& mine) override {
    Meeting& m = *meeting_;
    std::unique_lock lock(m.mutex);
    const auto wait_for = [&](auto ready) {
      m.changed.wait(lock, [&] { return m.failure || ready(); });
      if (m.failure) throw RankFailure(*m.failure);
    };
    wait_for([&] { return !m.reading; });
    m.parts[static_cast<size_t>(world_.rank)] = mine;
    if (++m.arrived == m.parts.size()) {
      m.reading = true;
      m.left = 0;
      m.changed.notify_all();
    }
    wait_for([&] { return m.reading; });
    std::vector<Bytes> all = m.parts;
    if (++m.left == m.parts.size()) {
      m.reading = false;
      m.arrived = 0;
      m.changed.notify_all();
    }
    return all;
  }

  std::optional<Failure> failure() override {
    const std::lock_guard lock(meeting_->mutex);
    return meeting_->failure;
  }
  void abort() noexcept override {
    const std::lock_guard lock(meeting_->mutex);
    if (!meeting_->failure) meeting_->failure = Failure{world_.rank, fmt::format("rank {} ended the run", world_.rank)};
    meeting_->changed.notify_all();
  }

 private:
  World world_;
  std::shared_ptr<Meeting> meeting_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged(ControlChannel& channel, std::string name) {
  return std::make_unique<StagedCommunicator>(channel, std::move(name));
}

std::vector<std::unique_ptr<ControlChannel>> make_thread_channels(int ranks) {
  auto meeting = std::make_shared<Meeting>(static_cast<size_t>(ranks));
  std::vector<std::unique_ptr<ControlChannel>> channels;
  for (int r = 0; r < ranks; ++r) channels.push_back(std::make_unique<ThreadChannel>(meeting, r));
  return channels;
}

}  // namespace gpt2::distributed
