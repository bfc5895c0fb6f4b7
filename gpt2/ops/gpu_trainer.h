// gpt2::Trainer over a StepModel: tokens in, steps queued, outcomes out. What precision adds to it, a trainer overrides.
//
// Ring of three step slots for at most two unfinished steps: the third keeps the end event of the step before the oldest unfinished
// one, which is where that step's time begins.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops/step_model.h"
#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace gpt2::ops {

// Left to the libraries: kernels are loaded lazily, and cuBLASLt keeps some memory of its own.
inline constexpr int64_t kReservedBytes = int64_t{512} << 20;

// S: what logits are stored in. Instances: float, bf16.
template <class S>
class GpuTrainer : public Trainer {
 public:
  ~GpuTrainer() override;

  const TrainerOptions& options() const override { return options_; }
  std::vector<std::string> notices() const override { return notices_; }
  std::string device() const override { return device_name_; }
  std::vector<MemoryItem> memory() const override { return memory_; }
  std::vector<OpWork> work(int64_t micro_batches) const override { return work_of_this_rank(Trainer::work(micro_batches)); }

  void read(State which, std::span<float> values) override;
  void write(State which, std::span<const float> values) override;
  void enqueue_step(const StepPlan& plan) override;
  StepOutcome finish_step() override;
  void complete_weights() override;
  double evaluate(const Batch& batch, std::span<float> logits) override;
  double forward_backward(const Batch& batch, std::span<float> logits) override;
  // One row comes back instead of the (B, T, V) of the default: at B=4, T=1024 a 4096th of it.
  std::vector<float> next_token_logits(std::span<const int32_t> context) override;

 protected:
  // What a trainer was made of.
  struct Parts {
    TrainerOptions options;
    std::vector<std::string> notices;
    std::vector<MemoryItem> memory;
    std::string device_name;
  };
  // Whoever derives calls start_from_zero before the first step.
  GpuTrainer(Parts parts, const std::function<std::unique_ptr<StepModel>(cudaStream_t)>& make_model);

  // A piece of the step, which runs for every step or for every micro-batch of it.
  // The last one is a piece of its own only where ranks exchange gradients in it.
  enum class Piece { whole_step, first_micro_batch, later_micro_batch, last_micro_batch, update };
  static constexpr size_t kPieces = 5;
  // Queues the piece. `graph_allowed`: StepPlan::graph_allowed of its step.
  virtual void queue(Piece, bool graph_allowed, const std::function<void()>& work);
  // After the upload of a micro-batch, before it.
  virtual void uploaded() {}
  // After the parameters were written from outside.
  virtual void parameters_written() {}

  // With what ranks do together, where there are several.
  std::vector<OpWork> work_of_this_rank(std::vector<OpWork> alone) const;

  // Zero state, whatever the memory held. Does not wait.
  void start_from_zero();
  void check_size(size_t size) const;  // throws stepscope::InputError unless it is the number of parameters
  // Other work than steps is about to use the device.
  void interrupt() { interrupted_ = true; }

  cudaStream_t stream() const { return stream_.get(); }
  void synchronize() { stream_.synchronize(); }
  StepModel& model() { return *model_; }
  // Whether a piece may be captured: a communicator that waits on the host cannot be.
  bool capturable() const { return model_->exchange() == nullptr || model_->exchange()->communicator().is_asynchronous(); }

 private:
  // Owner of everything that a step in flight needs besides the model.
  struct StepSlot {
    cuda::Event begin, end;
    cuda::PinnedBuffer<unsigned char> uploads;  // one after the other, as StepModel::upload takes them
    cuda::PinnedBuffer<StepStats> stats{1};
    int64_t step = 0;
    bool follows_previous = false;  // nothing but the step before used the device since its end
  };
  static constexpr int64_t kSlots = 3;
  static constexpr int64_t kMostUnfinished = 2;

  void queue_step(const StepPlan& plan, const StepSlot& slot);
  void wait_for(const cuda::Event& end);
  void fill_upload(unsigned char* pinned, const StepScalars& scalars, const Batch& batch) const;
  void download_stats(StepStats* pinned);
  std::vector<S> download_logits(size_t count);
  int ranks() const { return model_->exchange() == nullptr ? 1 : model_->exchange()->plan().buckets.ranks(); }
  void upload_once(const Batch& batch, int64_t rows);  // `rows`: that the loss is a mean of
  double run_once(const Batch& batch, std::span<float> logits, bool with_gradients);

  TrainerOptions options_;
  std::vector<std::string> notices_;
  std::vector<MemoryItem> memory_;
  std::string device_name_;
  int64_t parameter_count_;
  cuda::Stream stream_;
  std::unique_ptr<StepModel> model_;
  std::array<StepSlot, kSlots> slots_;
  cuda::PinnedBuffer<unsigned char> once_upload_;
  cuda::PinnedBuffer<StepStats> once_stats_{1};
  int64_t queued_ = 0;
  int64_t finished_ = 0;
  bool weights_behind_ = false;  // other ranks' slices are of the step before
  bool interrupted_ = false;     // something else than steps used the device since the last enqueue_step
};

}  // namespace gpt2::ops
