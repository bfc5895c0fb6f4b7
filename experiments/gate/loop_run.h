// What the checks of the loop stand on: token files of which the judge knows every token, and a trainer that notes what it is handed.
// Private to the loop's gate.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "gpt2/train_loop.h"
#include "gpt2/trainer.h"

namespace gate {

using Ids = std::vector<int32_t>;
using Shards = std::vector<std::vector<uint16_t>>;  // the tokens of each file

// Two files that end within a batch, and one that is a batch and the token after it; ids 0 and V-1 are among them. Gone with the object.
class TokenFiles {
 public:
  static constexpr int64_t kBatches = 3 + 2 + 1;

  // For batches of such a trainer. Throws stepscope::MachineError where a file cannot be written.
  TokenFiles(const gpt2::TrainerOptions& trainer, uint64_t seed);
  const std::filesystem::path& folder() const { return folder_.path(); }
  const Shards& shards() const { return shards_; }
  // Of a run on these files, in their order, with settings of AdamW that are not the defaults.
  gpt2::LoopOptions options(const std::string& schedule, int64_t steps) const;

 private:
  const stepscope::TemporaryFolder folder_;
  const uint64_t seed_;
  std::vector<std::string> paths_;
  Shards shards_;
};

// The batches of an unshuffled run, by the definition: consecutive pieces of B*T tokens with the one that follows,
// no piece across two files, files one after the other and from the front again.
struct BatchOfFile {
  Ids inputs, targets;
};
std::vector<BatchOfFile> in_order(const Shards& shards, size_t tokens_per_batch, size_t count);

// What a trainer was handed in a step, copied.
struct Handed {
  int64_t step = 0;
  gpt2::AdamW adamw;
  std::vector<Ids> inputs, targets;  // per micro-batch
  gpt2::StepOutcome outcome;
};
// Steps that one run was handed and the other not, or with other tokens, another rate or another number.
int64_t handed_otherwise(std::span<const Handed> got, std::span<const Handed> want);

// Hands everything on to `real`, and keeps what came.
class Recorder final : public gpt2::Trainer {
 public:
  explicit Recorder(std::unique_ptr<gpt2::Trainer> real) : real_(std::move(real)) {}
  const gpt2::TrainerOptions& options() const override { return real_->options(); }
  std::string_view name() const override { return real_->name(); }
  std::string device() const override { return real_->device(); }
  std::vector<gpt2::MemoryItem> memory() const override { return real_->memory(); }
  std::vector<gpt2::OpWork> work(int64_t n) const override { return real_->work(n); }
  std::optional<int64_t> memory_used_bytes() const override { return real_->memory_used_bytes(); }
  double logits_rounded_after_loss() const override { return real_->logits_rounded_after_loss(); }
  void read(gpt2::State which, std::span<float> values) override { real_->read(which, values); }
  void write(gpt2::State which, std::span<const float> values) override { real_->write(which, values); }
  void read_weights(std::span<float> values) override { real_->read_weights(values); }
  void enqueue_step(const gpt2::StepPlan& plan) override;
  gpt2::StepOutcome finish_step() override;
  double evaluate(const gpt2::Batch& b, std::span<float> logits) override {
    evaluated.emplace_back(b.inputs.begin(), b.inputs.end());
    return real_->evaluate(b, logits);
  }
  double forward_backward(const gpt2::Batch& b, std::span<float> logits) override { return real_->forward_backward(b, logits); }

  std::vector<Handed> handed;
  std::vector<Ids> evaluated;  // inputs
  int64_t leaves_out = 0;      // this step's update, by a limit that no loss is below; 0: none

 private:
  std::unique_ptr<gpt2::Trainer> real_;
  size_t finished_ = 0;
};

}  // namespace gate
