// What a rank's training step does with the other ranks: exchange gradients bucket by bucket, sum norm and loss, update, gather weights,
// and bring divided states together. It owns the second stream of the step and everything that only a run of several ranks needs.
//
// Inside a captured step the second stream forks from the step's stream by an event and joins it again before the capture ends.
// Every function queues work and returns, if the communicator is asynchronous; `read` waits.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/distributed/communicator.h"
#include "gpt2/ops/adamw_blocks.cuh"
#include "gpt2/ops/gradient_arenas.h"
#include "gpt2/ops/rank_plan.h"
#include "gpt2/ops/step_scalars.h"

namespace gpt2::ops {

// How a state lies on a rank: the whole arena; the whole arena of which only the own slices are right; the own slices, one after the other.
enum class Held { whole, own_slices_of_whole, own_slices };

class GradientExchange {
 public:
  // `stream`: of the step. The communicator outlives this. One whose memory is the host's is reached through copies.
  GradientExchange(const RankPlan& plan, distributed::Communicator& communicator, cudaStream_t stream);
  ~GradientExchange();
  // Before weights and gradients are freed, with nothing queued.
  void let_go() noexcept { communicator_->unshare(); }
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  const RankPlan& plan() const { return plan_; }
  distributed::Communicator& communicator() const { return *communicator_; }

  // Around the backward pass whose gradients are final: begin, then `ready` with each layer when its gradients stand in the arena
  // (kNoLayer: the embedding's too, which are the last), then end, after which the stream may read sums. A backward pass without begin
  // exchanges nothing. `tokens`: inputs of this micro-batch (rows), read where rows are gathered.
  void begin(const BlockGradients& gradients, const int32_t* tokens);
  void ready(int layer);
  void end();

  // Where the plan gathers_rows(): ready(kAfterHead), when the classifier's part of wte's gradient stands in the arena, sends the last
  // bucket, which holds what earlier micro-batches added to wte and wpe too. `gather_rows`, when the gradient of the embedding's output
  // and those of the layers are final: `bring` queues on a stream what puts the former into memory of embedding_rows rows. Afterwards the
  // step's stream may read those of all ranks, rank after rank. From them and the tokens every rank makes the embedding's part of all.
  static constexpr int kAfterHead = -2;
  struct Gathered {
    const void* rows;
    int64_t ranks;
  };
  bool gathers_rows() const { return exchanging_ && plan_.gathers_rows(); }
  // After begin: queues on a stream what the tokens of all ranks are enough for, so that it runs beside the backward pass. gather_rows waits
  // for it.
  void with_tokens(const std::function<void(const int32_t* tokens, int64_t count, cudaStream_t on)>& use);
  Gathered gather_rows(const std::function<void(void* mine, cudaStream_t on)>& bring);

  // Where the plan gathers_ahead(): the weights of all layers behind layer 0's bucket, in the order of the forward pass, on the second stream;
  // then `need` before a layer's weights are read, which waits for them. What a step begins with, layer 0's bucket and the embedding's, has
  // come with the last update. Gathering twice changes nothing.
  template <class S>
  void gather_ahead(S* weights);
  void need(int layer);
  // The same at once, on the step's stream.
  template <class S>
  void gather_all(S* weights);

  // Gradient norm, clip factor and loss over all ranks, into stats, which holds this rank's part of the loss.
  void norm(const BlockGradients& gradients, StepStats* stats, const StepScalars* scalars);
  // AdamW of what this rank updates; afterwards every rank has all weights, but for those that are gathered ahead. Arguments as in adamw_blocks.
  template <class Parameters, class Moments>
  void update(Rounding rounding, const Parameters& parameters, const Moments& moments, const BlockGradients& gradients,
              const StepStats* stats, const StepScalars* scalars);
  // bf16 weights of all ranks from masters, after these were written.
  template <class Parameters>
  void round_weights(Rounding rounding, const Parameters& parameters, const StepScalars* scalars);
  // Every collective of a step once, on memory whose contents do not matter: NCCL connects at the first use of each.
  template <class S>
  void warm_up(S* weights, const BlockGradients& gradients, StepStats* stats, const StepScalars* scalars);

  // Between the order of the tensor table on the host and a state on the ranks. Host-synchronous; read is a collective.
  void read(std::span<float> values, const float* state, Held held);
  void write(std::span<const float> values, float* state, Held held);
  void read(std::span<bf16> values, const bf16* weights);
  // The same of a state that is not one fp32 vector (RankPlan::split_states). bring queues on the step's stream what puts a stretch of it into
  // `to`, take what reads it from `from`. No stretch straddles two tensors or buckets; one begins at a multiple of 8, and ends at one or with
  // its tensor.
  struct Stretch {
    int64_t held;   // first element, in what this rank holds
    int64_t arena;  // and in the arena
    int64_t count;
  };
  void read(std::span<float> values, Held held, const std::function<void(float* to, const Stretch&)>& bring);
  void write(std::span<const float> values, Held held, const std::function<void(const float* from, const Stretch&)>& take);

 private:
  // Calls use(file, stretch) for what this rank holds.
  void own_stretches(Held held, const std::function<void(int64_t file, const Stretch&)>& use) const;
  void reduce(int bucket);
  void reduce_next();
  void come_together();
  template <class S>
  void gather_weights(S* arena, const distributed::Bucket& bucket, int index, cudaStream_t stream);
  // The first bucket that holds weights of `layer`; those of the layers before it, and the embedding's, stand behind it.
  int bucket_of(int layer) const;
  int read_first() const { return bucket_of(0); }
  void fork();
  void join();
  bool overlaps() const { return plan_.communication != Communication::all_reduce; }
  cudaStream_t collective_stream() const { return overlaps() ? beside_.get() : stream_; }

  RankPlan plan_;
  std::unique_ptr<distributed::Communicator> staged_;
  distributed::Communicator* communicator_;
  cudaStream_t stream_;
  cuda::Stream beside_;
  std::unique_ptr<cuda::Fence> forked_, joined_;
  bool exchanging_ = false;                                  // in a backward pass between begin and end
  BlockGradients exchanged_;                                 // its gradients
  size_t sent_ = 0;                                          // buckets
  std::vector<int> sending_;                                 // buckets in the order in which they are sent
  std::vector<std::unique_ptr<cuda::Fence>> weights_there_;  // [bucket], where weights are gathered ahead
  int weights_missing_ = 0;                                  // buckets below this number have not been waited for

  cuda::DeviceBuffer<distributed::ArenaBlock> blocks_;
  cuda::DeviceBuffer<int32_t> order_;
  cuda::DeviceBuffer<double> own_sums_;  // where this rank makes all of them
  cuda::DeviceBuffer<double> gathered_;  // sums_stride() of each rank: block sums where they are divided, then the loss
  cuda::DeviceBuffer<float> gather_;
  cuda::DeviceBuffer<bf16> rounded_;
  cuda::DeviceBuffer<unsigned char> rows_;
  cuda::DeviceBuffer<int32_t> tokens_;
  cuda::DeviceBuffer<float> arrivals_;  // one of each rank; what they hold does not matter
};

}  // namespace gpt2::ops
