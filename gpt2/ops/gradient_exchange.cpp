#include "gpt2/ops/gradient_exchange.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "gpt2/distributed/device_staged.h"
#include "gpt2/op_range.h"
#include "gpt2/ops/arena_norm.cuh"

namespace gpt2::ops {

using distributed::ArenaBlock;
using distributed::Bucket;
using distributed::Collective;
using distributed::CollectiveKind;
using distributed::Element;
using distributed::kBlock;

namespace {

template <class S>
constexpr Element kElement = Element::fp32;
template <>
constexpr Element kElement<bf16> = Element::bf16;

std::vector<ArenaBlock> blocks_of(const RankPlan& plan) {
  return plan.divides_the_update() ? plan.buckets.owned_blocks(plan.rank) : plan.buckets.blocks(0, plan.buckets.elements());
}

// Where the sums of the blocks with parameters lie, in the order of the arena.
std::vector<int32_t> order_of(const RankPlan& plan) {
  std::vector<int32_t> order;
  for (const Bucket& bucket : plan.buckets.buckets()) {
    const int64_t slice = plan.buckets.slice_elements(bucket) / kBlock;
    const auto blocks = plan.buckets.blocks(bucket.begin, bucket.elements);
    for (int64_t i = 0; i < static_cast<int64_t>(blocks.size()); ++i) {
      if (blocks[static_cast<size_t>(i)].valid == 0) continue;
      const int64_t in_bucket = bucket.begin / kBlock;
      order.push_back(static_cast<int32_t>(
          plan.divides_the_update() ? i / slice * plan.sums_stride() + in_bucket / plan.buckets.ranks() + i % slice : in_bucket + i));
    }
  }
  return order;
}

template <class T>
cuda::DeviceBuffer<T> on_device(const std::vector<T>& values) {
  cuda::DeviceBuffer<T> buffer(static_cast<int64_t>(values.size()));
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(buffer.data(), values.data(), static_cast<size_t>(buffer.bytes()), cudaMemcpyHostToDevice));
  return buffer;
}

void copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream));
}

}  // namespace

GradientExchange::GradientExchange(const RankPlan& plan, distributed::Communicator& communicator, cudaStream_t stream)
    : plan_(plan),
      staged_(communicator.memory_is_host() ? std::make_unique<distributed::DeviceStaged>(communicator) : nullptr),
      communicator_(staged_ ? staged_.get() : &communicator),
      stream_(stream),
      beside_(cuda::Stream::highest_priority()),
      forked_(std::make_unique<cuda::Fence>()),
      joined_(std::make_unique<cuda::Fence>()),
      blocks_(on_device(blocks_of(plan))),
      order_(on_device(order_of(plan))),
      own_sums_(plan.divides_the_update() ? 0 : plan.blocks()),
      gathered_(plan.buckets.ranks() * plan.sums_stride()),
      gather_(plan.buckets.ranks() * plan.gather_elements()),
      rounded_(plan.rounded_elements()),
      rows_(plan.gathered_row_bytes()),
      tokens_(plan.gathered_tokens()),
      arrivals_(plan.buckets.ranks()) {
  communicator_->reserve(plan_.slice_bytes());
  const auto count = static_cast<int>(plan_.buckets.buckets().size());
  if (plan_.gathers_rows()) sending_.push_back(count - 1);
  for (int b = 0; b < count - (plan_.gathers_rows() ? 1 : 0); ++b) sending_.push_back(b);
  for (int b = 0; plan_.gathers_ahead() && b < count; ++b) weights_there_.push_back(std::make_unique<cuda::Fence>());
}

GradientExchange::~GradientExchange() { STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaStreamSynchronize(beside_.get())); }

void GradientExchange::fork() {
  if (overlaps()) forked_->order(stream_, beside_.get());
}
void GradientExchange::join() {
  if (overlaps()) joined_->order(beside_.get(), stream_);
}

// ---- gradients ----------------------------------------------------------------------------------------------------------

void GradientExchange::begin(const BlockGradients& gradients, const int32_t* tokens) {
  exchanging_ = true;
  exchanged_ = gradients;
  sent_ = 0;
  if (!plan_.gathers_rows()) return;
  const OpRange range(Pass::communication, kNoLayer, Op::reduce_gradients);
  fork();
  const int64_t each = plan_.embedding_rows, bytes = each * static_cast<int64_t>(sizeof(int32_t));
  if (tokens != nullptr) copy(tokens_.data() + plan_.rank * each, tokens, bytes, cudaMemcpyDeviceToDevice, beside_.get());
  // Nothing but a copy, so whatever has four bytes will do.
  communicator_->enqueue({CollectiveKind::all_gather, Element::fp32, tokens_.size(), -1}, tokens_.data(), beside_.get());
}

void GradientExchange::with_tokens(const std::function<void(const int32_t* tokens, int64_t count, cudaStream_t on)>& use) {
  use(tokens_.data(), tokens_.size(), beside_.get());
}

// The blocks of a large collective spin until the last rank has come, each on an SM that the backward pass could use; those of a small one
// are one.
void GradientExchange::come_together() {
  switch (plan_.start) {
    case ExchangeStart::when_ready:
      return;
    case ExchangeStart::together:
      break;
  }
  const OpRange range(Pass::communication, kNoLayer, Op::reduce_gradients);
  communicator_->enqueue({CollectiveKind::all_gather, Element::fp32, arrivals_.size(), -1}, arrivals_.data(), collective_stream());
}

void GradientExchange::reduce_next() {
  come_together();
  reduce(sending_[sent_]);
  ++sent_;
}

void GradientExchange::ready(int layer) {
  if (!exchanging_ || !overlaps()) return;
  for (bool forked = false; sent_ < sending_.size(); forked = true) {
    const bool head = plan_.gathers_rows() && sent_ == 0;
    const int after = plan_.buckets.buckets()[static_cast<size_t>(sending_[sent_])].ready_after;
    if ((head ? kAfterHead : after) != layer) return;
    // What layer 0 completes goes behind the rows, which the embedding waits for.
    if (plan_.gathers_rows() && !head && after == 0) return;
    if (!forked) fork();
    reduce_next();
  }
}

GradientExchange::Gathered GradientExchange::gather_rows(const std::function<void(void* mine, cudaStream_t on)>& bring) {
  const int64_t bytes = plan_.embedding_rows * plan_.embedding_row_bytes;
  {
    const OpRange range(Pass::communication, kNoLayer, Op::reduce_gradients);
    fork();
    bring(rows_.data() + plan_.rank * bytes, beside_.get());
    communicator_->enqueue({CollectiveKind::all_gather, Element::bf16, plan_.buckets.ranks() * bytes / 2, -1}, rows_.data(), beside_.get());
    join();
  }
  while (sent_ < sending_.size()) reduce_next();
  return {rows_.data(), plan_.buckets.ranks()};
}

void GradientExchange::end() {
  if (!exchanging_) return;
  while (!overlaps() && sent_ < sending_.size()) reduce_next();
  if (sent_ != sending_.size()) throw std::logic_error("a bucket of gradients never became ready");
  join();
  exchanging_ = false;
}

void GradientExchange::reduce(int index) {
  const Bucket& bucket = plan_.buckets.buckets()[static_cast<size_t>(index)];
  const OpRange range(Pass::communication, bucket.ready_after, Op::reduce_gradients);
  const cudaStream_t on = collective_stream();
  const bool divided = plan_.divides_the_update();
  const CollectiveKind kind = divided ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
  if (bucket.narrow) {
    communicator_->enqueue({kind, Element::bf16, bucket.elements, index}, exchanged_.narrow + bucket.begin, on);
    return;
  }
  float* gradients = exchanged_.wide + (bucket.begin - exchanged_.narrow_elements);
  switch (plan_.reduction) {
    case GradientReduction::as_stored:
      communicator_->enqueue({kind, Element::fp32, bucket.elements, index}, gradients, on);
      break;
    case GradientReduction::as_bf16: {
      const int64_t from = divided ? plan_.rank * plan_.buckets.slice_elements(bucket) : 0;
      narrow_gradients(rounded_.data(), gradients, bucket.elements, on);
      communicator_->enqueue({kind, Element::bf16, bucket.elements, index}, rounded_.data(), on);
      widen_gradients(gradients + from, rounded_.data() + from, divided ? plan_.buckets.slice_elements(bucket) : bucket.elements, on);
      break;
    }
  }
}

void GradientExchange::norm(const BlockGradients& gradients, StepStats* stats, const StepScalars* scalars) {
  const int64_t stride = plan_.sums_stride();
  const int ranks = plan_.buckets.ranks();
  double* mine = gathered_.data() + plan_.rank * stride;
  double* sums = plan_.divides_the_update() ? mine : own_sums_.data();
  {
    const OpRange range(Pass::optimizer, kNoLayer, Op::grad_norm);
    block_squares(sums, mine + stride - 1, gradients, blocks_.data(), blocks_.size(), stats, stream_);
  }
  {
    const OpRange range(Pass::communication, kNoLayer, Op::norm_gather);
    communicator_->enqueue({CollectiveKind::all_gather, Element::fp64, ranks * stride, -1}, gathered_.data(), stream_);
  }
  const OpRange range(Pass::optimizer, kNoLayer, Op::grad_norm);
  finish_rank_norm(stats,
                   {.sums = plan_.divides_the_update() ? gathered_.data() : own_sums_.data(),
                    .order = order_.data(),
                    .count = order_.size(),
                    .losses = gathered_.data() + stride - 1,
                    .loss_stride = stride,
                    .ranks = ranks},
                   scalars, stream_);
}

// ---- update and weights -------------------------------------------------------------------------------------------------

// Where weights are gathered behind it, last bucket first: the embedding's is the largest, so its gather hides behind the update of the
// others; and the forward pass reads it first, then the layers in their order.
template <class Parameters, class Moments>
void GradientExchange::update(Rounding rounding, const Parameters& parameters, const Moments& moments, const BlockGradients& gradients,
                              const StepStats* stats, const StepScalars* scalars) {
  const auto update_blocks = [&](int64_t first, int64_t count) {
    if (count == 0) return;
    const OpRange range(Pass::optimizer, kNoLayer, Op::adamw);
    adamw_blocks(rounding, behind(parameters, first * kBlock), behind(moments, first * kBlock), gradients, blocks_.data() + first, count,
                 scalars, &stats->clip_scale, stream_);
  };
  if (!plan_.divides_the_update()) return update_blocks(0, blocks_.size());
  const auto& buckets = plan_.buckets.buckets();
  const auto first_block = [&](const Bucket& bucket) { return bucket.begin / plan_.buckets.ranks() / kBlock; };
  if (plan_.gathers_ahead()) {
    // Nothing at the head of the next step hides the gather of what it begins with. The update of the other layers does.
    const int64_t others = first_block(buckets[static_cast<size_t>(read_first())]);
    update_blocks(others, blocks_.size() - others);
    fork();
    for (auto b = static_cast<int>(buckets.size()) - 1; b >= read_first(); --b)
      gather_weights(parameters.weights, buckets[static_cast<size_t>(b)], b, beside_.get());
    update_blocks(0, others);
    return join();
  }
  for (auto b = static_cast<int>(buckets.size()) - 1; b >= 0; --b) {
    const Bucket& bucket = buckets[static_cast<size_t>(b)];
    update_blocks(first_block(bucket), plan_.buckets.slice_elements(bucket) / kBlock);
    fork();
    gather_weights(parameters.weights, bucket, b, beside_.get());
  }
  join();
}

template <class S>
void GradientExchange::gather_ahead(S* weights) {
  fork();
  weights_missing_ = read_first();
  for (int b = weights_missing_ - 1; b >= 0; --b) {
    gather_weights(weights, plan_.buckets.buckets()[static_cast<size_t>(b)], b, beside_.get());
    weights_there_[static_cast<size_t>(b)]->record(beside_.get());
  }
}

int GradientExchange::bucket_of(int layer) const {
  const auto& buckets = plan_.buckets.buckets();
  const auto holds = [&](const Bucket& b) { return b.ready_after <= layer; };
  return static_cast<int>(std::find_if(buckets.begin(), buckets.end(), holds) - buckets.begin());
}

void GradientExchange::need(int layer) {
  const int bucket = bucket_of(layer);
  if (weights_missing_ <= bucket) return;
  weights_there_[static_cast<size_t>(bucket)]->wait(stream_);
  weights_missing_ = bucket;  // those behind it were gathered before it
}

template <class S>
void GradientExchange::gather_all(S* weights) {
  for (size_t b = 0; b < plan_.buckets.buckets().size(); ++b)
    gather_weights(weights, plan_.buckets.buckets()[b], static_cast<int>(b), stream_);
}

template <class S>
void GradientExchange::gather_weights(S* arena, const Bucket& bucket, int index, cudaStream_t stream) {
  const OpRange range(Pass::communication, bucket.ready_after, Op::gather_weights);
  communicator_->enqueue({CollectiveKind::all_gather, kElement<S>, bucket.elements, index}, arena + bucket.begin, stream);
}

template <class Parameters>
void GradientExchange::round_weights(Rounding rounding, const Parameters& parameters, const StepScalars* scalars) {
  {
    const OpRange range(Pass::other, kNoLayer, Op::copy);
    round_blocks(rounding, parameters, blocks_.data(), blocks_.size(), scalars, stream_);
  }
  if (plan_.divides_the_update()) gather_all(parameters.weights);
}

template <class S>
void GradientExchange::warm_up(S* weights, const BlockGradients& gradients, StepStats* stats, const StepScalars* scalars) {
  begin(gradients, nullptr);
  ready(kAfterHead);
  for (const Bucket& bucket : plan_.buckets.buckets()) ready(bucket.ready_after);
  if (gathers_rows()) (void)gather_rows([](void*, cudaStream_t) {});
  end();
  norm(gradients, stats, scalars);
  if (!plan_.divides_the_update()) return;
  communicator_->share(weights, plan_.buckets.elements() * static_cast<int64_t>(sizeof(S)));
  fork();
  for (size_t b = 0; b < plan_.buckets.buckets().size(); ++b)
    gather_weights(weights, plan_.buckets.buckets()[b], static_cast<int>(b), beside_.get());
  join();
}

// ---- states -------------------------------------------------------------------------------------------------------------

void GradientExchange::read(std::span<float> values, const float* state, Held held) {
  if (held == Held::whole) {
    plan_.buckets.pieces(0, plan_.buckets.elements(), [&](int64_t file, int64_t arena, int64_t count) {
      copy(values.data() + file, state + arena, count * 4, cudaMemcpyDeviceToHost, stream_);
    });
    STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    return;
  }
  read(values, held, [&](float* to, const Stretch& s) { copy(to, state + s.held, s.count * 4, cudaMemcpyDeviceToDevice, stream_); });
}

void GradientExchange::write(std::span<const float> values, float* state, Held held) {
  own_stretches(held, [&](int64_t file, const Stretch& s) {
    copy(state + s.held, values.data() + file, s.count * 4, cudaMemcpyHostToDevice, stream_);
  });
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void GradientExchange::own_stretches(Held held, const std::function<void(int64_t file, const Stretch&)>& use) const {
  const auto& plan = plan_.buckets;
  const auto of = [&](int64_t begin, int64_t elements, int64_t first) {
    plan.pieces(begin, elements, [&](int64_t file, int64_t arena, int64_t count) { use(file, {first + (arena - begin), arena, count}); });
  };
  if (held != Held::own_slices) return of(0, plan.elements(), 0);
  for (const Bucket& bucket : plan.buckets())
    of(plan.slice_begin(bucket, plan_.rank), plan.slice_elements(bucket), bucket.begin / plan.ranks());
}

void GradientExchange::write(std::span<const float> values, Held held, const std::function<void(const float* from, const Stretch&)>& take) {
  own_stretches(held, [&](int64_t file, const Stretch& whole) {
    for (int64_t at = 0; at < whole.count; at += plan_.gather_elements()) {
      const int64_t count = std::min(plan_.gather_elements(), whole.count - at);
      copy(gather_.data(), values.data() + file + at, count * 4, cudaMemcpyHostToDevice, stream_);
      take(gather_.data(), {whole.held + at, whole.arena + at, count});
    }
  });
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

// A rank brings its tensors piece by piece; what lies between them in its part of the buffer nobody reads.
void GradientExchange::read(std::span<float> values, Held held, const std::function<void(float* to, const Stretch&)>& bring) {
  const auto& plan = plan_.buckets;
  const auto bring_some = [&](float* to, int64_t begin, int64_t elements, int64_t first) {
    plan.pieces(begin, elements, [&](int64_t, int64_t arena, int64_t count) {
      bring(to + (arena - begin), {first + (arena - begin), arena, count});
    });
  };
  if (held == Held::whole) {
    for (int64_t at = 0; at < plan.elements(); at += plan_.gather_elements()) {
      const int64_t some = std::min(plan_.gather_elements(), plan.elements() - at);
      bring_some(gather_.data(), at, some, at);
      plan.pieces(at, some, [&](int64_t file, int64_t arena, int64_t count) {
        copy(values.data() + file, gather_.data() + (arena - at), count * 4, cudaMemcpyDeviceToHost, stream_);
      });
    }
    STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    return;
  }
  const int ranks = plan.ranks();
  for (const Bucket& bucket : plan.buckets()) {
    const int64_t slice = plan.slice_elements(bucket);
    const int64_t mine = plan.slice_begin(bucket, plan_.rank), first = held == Held::own_slices ? bucket.begin / ranks : mine;
    for (int64_t at = 0; at < slice; at += plan_.gather_elements()) {
      const int64_t count = std::min(plan_.gather_elements(), slice - at);
      bring_some(gather_.data() + plan_.rank * count, mine + at, count, first + at);
      communicator_->enqueue({CollectiveKind::all_gather, Element::fp32, ranks * count, -1}, gather_.data(), stream_);
      for (int r = 0; r < ranks; ++r) {
        const int64_t begin = plan.slice_begin(bucket, r) + at;
        plan.pieces(begin, count, [&](int64_t file, int64_t arena, int64_t n) {
          copy(values.data() + file, gather_.data() + r * count + (arena - begin), n * 4, cudaMemcpyDeviceToHost, stream_);
        });
      }
    }
  }
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void GradientExchange::read(std::span<bf16> values, const bf16* weights) {
  plan_.buckets.pieces(0, plan_.buckets.elements(), [&](int64_t file, int64_t arena, int64_t count) {
    copy(values.data() + file, weights + arena, count * 2, cudaMemcpyDeviceToHost, stream_);
  });
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

#define STEPSCOPE_UPDATE(Parameters, Moments)                                                                                  \
  template void GradientExchange::update(Rounding, const Parameters&, const Moments&, const BlockGradients&, const StepStats*, \
                                         const StepScalars*);
STEPSCOPE_UPDATE(Fp32Weights, WholeMoments)
STEPSCOPE_UPDATE(Fp32Masters, WholeMoments)
STEPSCOPE_UPDATE(Fp32Masters, SplitMoments)
STEPSCOPE_UPDATE(SplitMasters, WholeMoments)
STEPSCOPE_UPDATE(SplitMasters, SplitMoments)
STEPSCOPE_UPDATE(Fp32Masters, ShortMoments)
STEPSCOPE_UPDATE(SplitMasters, ShortMoments)
#undef STEPSCOPE_UPDATE
template void GradientExchange::round_weights(Rounding, const Fp32Masters&, const StepScalars*);
template void GradientExchange::round_weights(Rounding, const SplitMasters&, const StepScalars*);
template void GradientExchange::gather_ahead(float*);
template void GradientExchange::gather_ahead(bf16*);
template void GradientExchange::gather_all(float*);
template void GradientExchange::gather_all(bf16*);
template void GradientExchange::warm_up(float*, const BlockGradients&, StepStats*, const StepScalars*);
template void GradientExchange::warm_up(bf16*, const BlockGradients&, StepStats*, const StepScalars*);

}  // namespace gpt2::ops
