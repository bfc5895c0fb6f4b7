// The tokens of one step, in the micro-batches that a trainer takes: for whoever trains step by step.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpt2/data/token_source.h"
#include "gpt2/trainer.h"

namespace gpt2 {

class StepBatches {
 public:
  // `micro_batches` of them, 1 or more, each of as many tokens as `trainer` was built for.
  StepBatches(const TrainerOptions& trainer, int64_t micro_batches)
      : tokens_(static_cast<size_t>(trainer.batch_size * trainer.seq_len)),
        inputs_(tokens_ * static_cast<size_t>(micro_batches)),
        targets_(inputs_.size()) {
    for (size_t at = 0; at < inputs_.size(); at += tokens_)
      all_.push_back({std::span(inputs_).subspan(at, tokens_), std::span(targets_).subspan(at, tokens_)});
  }
  StepBatches(const StepBatches&) = delete;  // all() are views of its own memory
  StepBatches& operator=(const StepBatches&) = delete;

  // The step's next tokens of `source`, in the place of the last ones: micro-batch a of rank r is number a * ranks + r of the step. Throws
  // what `source` throws.
  void read(TokenSource& source, int64_t rank = 0, int64_t ranks = 1) {
    for (size_t at = 0; at < inputs_.size(); at += tokens_) {
      source.skip(rank);
      source.next(std::span(inputs_).subspan(at, tokens_), std::span(targets_).subspan(at, tokens_));
      source.skip(ranks - 1 - rank);
    }
  }

  const std::vector<Batch>& all() const { return all_; }
  size_t tokens_of_one() const { return tokens_; }
  size_t tokens() const { return inputs_.size(); }

 private:
  const size_t tokens_;
  std::vector<int32_t> inputs_, targets_;
  std::vector<Batch> all_;
};

}  // namespace gpt2
