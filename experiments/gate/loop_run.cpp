#include "experiments/gate/loop_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/errors.h"
#include "base/mapped_file.h"
#include "experiments/gate/random.h"

namespace gate {
namespace {

void write_tokens(const std::string& path, const std::vector<uint16_t>& tokens) {
  gpt2::LlmcHeader header{};
  header[0] = gpt2::kLlmcTokens;
  header[1] = 1;
  header[2] = static_cast<int32_t>(tokens.size());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(header.data()), gpt2::kLlmcHeaderBytes);
  out.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(2 * tokens.size()));
  if (!out.flush()) throw stepscope::MachineError(fmt::format("{}: cannot be written", path));
}

}  // namespace

TokenFiles::TokenFiles(const gpt2::TrainerOptions& trainer, uint64_t seed) : seed_(seed) {
  Random random(seed, 77);
  const int64_t B = trainer.batch_size, T = trainer.seq_len, V = trainer.model.vocab_size;
  for (const int64_t count : {3 * B * T + T + 1, 2 * B * T + T / 2 + 1, B * T + 1}) {
    std::vector<uint16_t> tokens(static_cast<size_t>(count));
    for (uint16_t& t : tokens) t = static_cast<uint16_t>(random.below(V));
    tokens.front() = 0;
    tokens.back() = static_cast<uint16_t>(V - 1);
    shards_.push_back(tokens);
    paths_.push_back((folder() / fmt::format("tokens_{}.bin", shards_.size())).string());
    write_tokens(paths_.back(), tokens);
  }
}

gpt2::LoopOptions TokenFiles::options(const std::string& schedule, int64_t steps) const {
  gpt2::LoopOptions o;
  o.data = paths_;
  o.seed = seed_;
  o.shuffle = false;
  o.steps = steps;
  o.learning_rate = {schedule, 1e-3f, 3, 0.1f, steps};
  o.adamw = {.beta1 = 0.85f, .beta2 = 0.97f, .eps = 1e-7f, .weight_decay = 0.1f, .clip = 0.9f};
  return o;
}

std::vector<BatchOfFile> in_order(const Shards& shards, size_t tokens_per_batch, size_t count) {
  std::vector<BatchOfFile> all;
  while (all.size() < count)
    for (const auto& file : shards)
      for (size_t at = 0; at + tokens_per_batch + 1 <= file.size(); at += tokens_per_batch) {
        BatchOfFile b;
        for (size_t i = 0; i < tokens_per_batch; ++i) {
          b.inputs.push_back(file[at + i]);
          b.targets.push_back(file[at + i + 1]);
        }
        all.push_back(std::move(b));
      }
  all.resize(count);
  return all;
}

int64_t handed_otherwise(std::span<const Handed> got, std::span<const Handed> want) {
  int64_t differ = std::abs(static_cast<int64_t>(got.size()) - static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
    differ += got[i].step != want[i].step || got[i].inputs != want[i].inputs || got[i].targets != want[i].targets ||
              got[i].adamw.learning_rate != want[i].adamw.learning_rate;
  return differ;
}

void Recorder::enqueue_step(const gpt2::StepPlan& plan) {
  Handed h;
  h.step = plan.step;
  h.adamw = plan.adamw;
  for (const gpt2::Batch& b : plan.micro_batches) {
    h.inputs.emplace_back(b.inputs.begin(), b.inputs.end());
    h.targets.emplace_back(b.targets.begin(), b.targets.end());
  }
  handed.push_back(std::move(h));
  gpt2::StepPlan limited = plan;
  if (plan.step == leaves_out) limited.skip_above_loss = 0;
  real_->enqueue_step(limited);
}

gpt2::StepOutcome Recorder::finish_step() {
  const gpt2::StepOutcome o = real_->finish_step();
  if (finished_ < handed.size()) handed[finished_++].outcome = o;
  return o;
}

}  // namespace gate
