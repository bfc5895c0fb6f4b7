#include "cli/announced_communicator.h"

#include <utility>

#include "base/collective_words.h"
#include "cli/collective_sweep.h"

namespace cli {
namespace {

namespace dist = gpt2::distributed;

class Announced final : public dist::Communicator {
 public:
  Announced(std::unique_ptr<dist::Communicator> inner, CollectiveListener& listener) : inner_(std::move(inner)), listener_(listener) {}
  const dist::World& world() const override { return inner_->world(); }
  void enqueue(const dist::Collective& c, void* data, void* stream) override {
    const Range range(listener_, stepscope::collective_range({word(c.kind), word(c.type), c.elements, c.bucket}));
    inner_->enqueue(c, data, stream);
  }
  int64_t receive_bytes(int64_t slice_bytes) const override { return inner_->receive_bytes(slice_bytes); }
  void reserve(int64_t slice_bytes) override { inner_->reserve(slice_bytes); }
  void share(void* memory, int64_t bytes) override { inner_->share(memory, bytes); }
  void unshare() noexcept override { inner_->unshare(); }
  bool memory_is_host() const override { return inner_->memory_is_host(); }
  bool is_asynchronous() const override { return inner_->is_asynchronous(); }
  std::string name() const override { return inner_->name(); }
  std::optional<dist::Failure> failure() override { return inner_->failure(); }
  void abort() noexcept override { inner_->abort(); }

 private:
  class Range {
   public:
    Range(CollectiveListener& listener, const std::string& text) : listener_(listener) { listener_.begin_collective(text); }
    ~Range() { listener_.end_collective(); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    CollectiveListener& listener_;
  };
  std::unique_ptr<dist::Communicator> inner_;
  CollectiveListener& listener_;
};

}  // namespace

std::unique_ptr<dist::Communicator> announced(std::unique_ptr<dist::Communicator> communicator, CollectiveListener& listener) {
  return std::make_unique<Announced>(std::move(communicator), listener);
}

}  // namespace cli
