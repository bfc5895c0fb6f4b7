#include "cli/silent_steps.h"

namespace cli {
namespace {

namespace dist = gpt2::distributed;

struct Steps {
  int64_t from = 0, count = 0;
  bool silent = false;
  bool holds(int64_t step) const { return step >= from && step - from < count; }
};

class SilentCommunicator final : public dist::Communicator {
 public:
  SilentCommunicator(dist::Communicator& inner, const Steps& steps) : inner_(inner), steps_(steps) {}
  void enqueue(const dist::Collective& c, void* data, void* stream) override {
    if (!steps_.silent) inner_.enqueue(c, data, stream);
  }
  const dist::World& world() const override { return inner_.world(); }
  int64_t receive_bytes(int64_t slice_bytes) const override { return inner_.receive_bytes(slice_bytes); }
  void reserve(int64_t slice_bytes) override { inner_.reserve(slice_bytes); }
  void share(void* memory, int64_t bytes) override { inner_.share(memory, bytes); }
  void unshare() noexcept override { inner_.unshare(); }
  bool memory_is_host() const override { return inner_.memory_is_host(); }
  bool is_asynchronous() const override { return inner_.is_asynchronous(); }
  std::string name() const override { return inner_.name(); }
  std::optional<dist::Failure> failure() override { return inner_.failure(); }
  void abort() noexcept override { inner_.abort(); }

 private:
  dist::Communicator& inner_;
  const Steps& steps_;
};

class StepChannel final : public dist::ControlChannel {
 public:
  StepChannel(dist::ControlChannel& inner, Steps& steps) : inner_(inner), steps_(steps) {}
  // What is enqueued from here on is of this step; steps before it may still run.
  void now(dist::Phase phase, int64_t step) override {
    steps_.silent = phase == dist::Phase::step && steps_.holds(step);
    inner_.now(phase, step);
  }
  // Ranks that exchanged nothing have another loss each, which is no failure.
  void finished(int64_t step, double loss, double grad_norm) override {
    const bool silent = steps_.holds(step);
    inner_.finished(step, silent ? 0 : loss, silent ? 0 : grad_norm);
  }
  const dist::World& world() const override { return inner_.world(); }
  std::vector<dist::Bytes> all_gather(const dist::Bytes& mine) override { return inner_.all_gather(mine); }
  void exchange(const dist::Collective& c, void* data) override { inner_.exchange(c, data); }
  std::optional<dist::Failure> failure() override { return inner_.failure(); }
  void abort() noexcept override { inner_.abort(); }
  void waits(bool yes) override { inner_.waits(yes); }
  std::optional<int64_t> last_step(int64_t enqueued) override { return inner_.last_step(enqueued); }

 private:
  dist::ControlChannel& inner_;
  Steps& steps_;
};

}  // namespace

struct SilentSteps::State {
  State(dist::Communicator& c, dist::ControlChannel& ch, int64_t from, int64_t count)
      : steps{from, count}, communicator(c, steps), channel(ch, steps) {}
  Steps steps;
  SilentCommunicator communicator;
  StepChannel channel;
};

SilentSteps::SilentSteps(dist::Communicator& communicator, dist::ControlChannel& channel, int64_t from, int64_t count)
    : state_(std::make_unique<State>(communicator, channel, from, count)) {}
SilentSteps::~SilentSteps() = default;
dist::Communicator& SilentSteps::communicator() { return state_->communicator; }
dist::ControlChannel& SilentSteps::channel() { return state_->channel; }

}  // namespace cli
