// The FP32 trainer is gpt2::ops::GpuTrainer over fp32::Model as it is.
#include "fp32/trainer.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/errors.h"
#include "fp32/memory_plan.h"
#include "fp32/model.h"
#include "fp32/variant_rows.h"
#include "gpt2/cuda/device_info.h"
#include "gpt2/ops/gpu_trainer.h"
#include "gpt2/trainer_checks.h"

namespace fp32 {
namespace {

class Fp32Trainer final : public gpt2::ops::GpuTrainer<float> {
 public:
  Fp32Trainer(Parts parts, const VariantChoice& variants, const MemoryPlan& plan)
      : GpuTrainer(parts, [&](cudaStream_t stream) { return std::make_unique<Model>(parts.options, variants, plan, stream); }) {
    start_from_zero();
    synchronize();
  }
  std::string_view name() const override { return "fp32"; }

  using GpuTrainer::Parts;
};

}  // namespace

std::unique_ptr<gpt2::Trainer> make_fp32_trainer(const gpt2::TrainerOptions& options) {
  (void)choose_variants(options.variants);  // what can be refused without a device is
  const MatmulRate rate = matmul_rate_from_name(options.matmul);
  if (options.recompute != "none")
    throw stepscope::InputError(fmt::format("--recompute {}: the fp32 trainer keeps every activation", options.recompute));
  if (options.weight_rounding != "nearest")
    throw stepscope::InputError(fmt::format("--weight-rounding {}: the fp32 trainer rounds no weights", options.weight_rounding));
  gpt2::check_trainable_shape(options);
  const gpt2::cuda::DeviceInfo device = gpt2::cuda::device_info();
  MatmulEngine library(rate, nullptr);  // is asked, computes nothing
  const auto [variants, names, notices] = fp32::variants().settle(
      {options, device.shared_bytes_per_block, [&](const Gemm& product) { return library.why_not(product); }}, options.variants, false);
  const MemoryPlan plan = plan_memory(options, variants);
  const int64_t free_bytes = device.memory_free_bytes - gpt2::ops::kReservedBytes;
  gpt2::ops::require_memory(
      // By its own name: clang 16 and 17 cannot capture a structured binding with -fopenmp.
      plan, options, [&, &chosen = variants] { return largest_batch(options, chosen, free_bytes); }, free_bytes, device.name);
  gpt2::TrainerOptions settled = options;
  settled.variants = names;
  return std::make_unique<Fp32Trainer>(Fp32Trainer::Parts{settled, notices, plan.items, device.name}, variants, plan);
}

std::vector<gpt2::VariantInfo> fp32_variants() { return variant_table(); }
std::vector<gpt2::VariantFacts> fp32_variant_facts() { return variants().facts(); }

}  // namespace fp32
