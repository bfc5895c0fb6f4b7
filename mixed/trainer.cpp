// gpt2::ops::GpuTrainer over mixed::Model, and what bf16 and speed add: rounded weights beside their masters, and steps as CUDA graphs.
#include "mixed/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"
#include "gpt2/cuda/device_info.h"
#include "gpt2/op_range.h"
#include "gpt2/ops/gpu_trainer.h"
#include "gpt2/trainer_checks.h"
#include "mixed/attention_cudnn.h"
#include "mixed/fused_work.h"
#include "mixed/graph_edges.h"
#include "mixed/kernels/softmax_bias.cuh"
#include "mixed/memory_plan.h"
#include "mixed/model.h"
#include "mixed/product_joules.h"
#include "mixed/step_graph.h"
#include "mixed/variant_rows.h"

namespace mixed {
namespace {

class MixedTrainer final : public gpt2::ops::GpuTrainer<bf16> {
 public:
  using GpuTrainer::Parts;
  MixedTrainer(Parts parts, const VariantChoice& variants, const MemoryPlan& plan, int64_t free_bytes_before)
      : GpuTrainer(parts, [&](cudaStream_t stream) { return Model::make(parts.options, variants, plan, stream); }), variants_(variants) {
    {
      const gpt2::ListenerPause unheard;  // not a step: nobody's time is to be attributed to it
      mixed_model().rehearse();
      products_by_time_ = mixed_model().why_products_by_time();
    }
    start_from_zero();
    if (mixed_model().has_split_masters()) mixed_model().zero_split_masters();
    if (mixed_model().has_narrow_moments()) mixed_model().zero_narrow_moments();
    if (mixed_model().has_narrow_gradients()) mixed_model().zero_narrow_gradients();
    mixed_model().round_weights(false);
    synchronize();
    used_bytes_ = free_bytes_before - gpt2::cuda::device_info().memory_free_bytes;
  }
  // The graphs are destroyed before the base waits for the stream, and none of them may be running then.
  ~MixedTrainer() override { STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaStreamSynchronize(stream())); }

  std::string_view name() const override { return "mixed"; }
  std::vector<gpt2::OpWork> work(int64_t micro_batches) const override {
    return work_of_this_rank(fused_work(options(), variants_, micro_batches));
  }
  std::optional<int64_t> memory_used_bytes() const override { return used_bytes_; }
  std::vector<std::string> notices() const override {
    std::vector<std::string> all = GpuTrainer::notices();
    if (products_by_time_) all.push_back(*products_by_time_);
    return all;
  }
  double logits_rounded_after_loss() const override { return variants_.lm_head == LmHead::hopper ? 0x1p-8 : 0; }

  void read(gpt2::State which, std::span<float> values) override {
    if (is_fp32(which)) return GpuTrainer::read(which, values);
    interrupt();
    check_size(values.size());
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    if (which == gpt2::State::gradients) return mixed_model().read_gradients(values);
    if (which != gpt2::State::parameters) return mixed_model().read_narrow_moments(which, values);
    mixed_model().read_split_masters(values);
  }

  void write(gpt2::State which, std::span<const float> values) override {
    if (is_fp32(which)) return GpuTrainer::write(which, values);
    interrupt();
    check_size(values.size());
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    if (which == gpt2::State::gradients) return mixed_model().write_gradients(values);
    if (which != gpt2::State::parameters) return mixed_model().write_narrow_moments(which, values);
    mixed_model().write_split_masters(values);
    written_ = true;
  }

  void enqueue_step(const gpt2::StepPlan& plan) override {
    if (plan.micro_batches.size() > 1 && mixed_model().has_narrow_gradients())
      throw stepscope::InputError(fmt::format("a step of {} micro-batches: {}", plan.micro_batches.size(), why_no_accumulation_in_bf16));
    GpuTrainer::enqueue_step(plan);
  }

  void read_weights(std::span<float> values) override {
    interrupt();
    complete_weights();
    check_size(values.size());
    std::vector<bf16> rounded(values.size());
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    if (auto* ranks = model().exchange())
      ranks->read(rounded, mixed_model().weights());
    else
      STEPSCOPE_CUDA_CHECK(
          cudaMemcpyAsync(rounded.data(), mixed_model().weights(), rounded.size() * sizeof(bf16), cudaMemcpyDeviceToHost, stream()));
    synchronize();
    std::transform(rounded.begin(), rounded.end(), values.begin(), [](bf16 x) { return __bfloat162float(x); });
  }

 private:
  // One fp32 vector on the device, in one piece.
  bool is_fp32(gpt2::State which) {
    switch (which) {
      case gpt2::State::parameters:
        return !mixed_model().has_split_masters();
      case gpt2::State::gradients:
        return !mixed_model().has_narrow_gradients();
      case gpt2::State::adam_m:
      case gpt2::State::adam_v:
        break;
    }
    return !mixed_model().has_narrow_moments();
  }

  void parameters_written() override {
    mixed_model().round_weights(false);
    written_ = true;
  }

  // Masters that came from outside are rounded as the step before would have rounded them, which needs the scalars of this one.
  void uploaded() override {
    if (written_ && options().weight_rounding == "stochastic") mixed_model().round_weights(true);
    written_ = false;
  }

  void queue(Piece piece, bool graph_allowed, const std::function<void()>& work) override {
    switch (variants_.step_launch) {
      case StepLaunch::graph:
        if (graph_allowed && capturable())
          return graph_[static_cast<size_t>(piece)].launch(stream(), variants_.graph_edges, graph_flags(), work);
        break;
      case StepLaunch::stream:
        break;
    }
    work();
  }

  // Without the flag a graph's nodes run at the priority of the stream that it is launched into, and collectives queue behind products.
  unsigned graph_flags() { return model().exchange() == nullptr ? 0 : cudaGraphInstantiateFlagUseNodePriority; }

  Model& mixed_model() { return static_cast<Model&>(model()); }

  VariantChoice variants_;
  std::array<StepGraph, kPieces> graph_;
  int64_t used_bytes_ = 0;
  std::optional<std::string> products_by_time_;
  bool written_ = false;  // master weights came from outside since the last enqueue_step
};

}  // namespace

std::unique_ptr<gpt2::Trainer> make_mixed_trainer(const gpt2::TrainerOptions& options) {
  const VariantChoice wanted = choose_variants(options.variants, options.deterministic);  // what can be refused without a device is
  if (options.weight_rounding != "nearest" && options.weight_rounding != "stochastic")
    throw stepscope::InputError(fmt::format("--weight-rounding {}: expected nearest or stochastic", options.weight_rounding));
  if (options.matmul != "bf16")
    throw stepscope::InputError(fmt::format("--matmul {}: the mixed trainer multiplies in bf16", options.matmul));
  (void)recompute_from_name(options.recompute);
  if (options.variants.contains("weight_gradients") && wanted.weight_gradients == WeightGradients::as_bf16 && options.micro_batches > 1)
    throw stepscope::InputError(
        fmt::format("--variant weight_gradients=bf16 with --grad-accumulation {}: {}", options.micro_batches, why_no_accumulation_in_bf16));
  const gpt2::cuda::DeviceInfo device = gpt2::cuda::device_info();
  gpt2::check_trainable_shape(options);
  MatmulEngine library(wanted.matmul_algorithm, nullptr);  // is asked, computes nothing
  const Run run{
      options,
      device.shared_bytes_per_block,
      [&](const Gemm& product) { return library.why_not(product); },
      [&](bool deterministic) {
        return why_no_cudnn_plan({options.batch_size, options.seq_len, options.model.channels, options.model.heads}, deterministic);
      },
      device.compute_capability_major,
      why_no_kernel_names(),
      why_no_energy_counter,
      [&](const Gemm& product) { return library.why_no_named_tiles(product); },
      softmax_bias_waits(),
      device.compute_capability_minor};
  const VariantTable::Settled settled = variants().settle(run, options.variants, options.deterministic);
  const MemoryPlan plan = plan_memory(options, settled.choice);
  const int64_t free_bytes = device.memory_free_bytes - gpt2::ops::kReservedBytes;
  gpt2::ops::require_memory(
      plan, options, [&] { return largest_batch(options, settled.choice, free_bytes); }, free_bytes, device.name);
  gpt2::TrainerOptions chosen = options;
  chosen.variants = settled.variants;
  return std::make_unique<MixedTrainer>(MixedTrainer::Parts{chosen, settled.notices, plan.items, device.name}, settled.choice, plan,
                                        device.memory_free_bytes);
}

std::vector<gpt2::VariantInfo> mixed_variants() { return variant_table(); }
std::vector<gpt2::VariantFacts> mixed_variant_facts() { return variants().facts(); }

}  // namespace mixed
