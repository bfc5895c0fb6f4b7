#include "experiments/kernels/kernel_bench.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/errors.h"
#include "base/statistics.h"
#include "experiments/gate/op_case.h"
#include "experiments/gate/op_compare.h"
#include "experiments/kernels/operand_turns.h"
#include "experiments/learn/ladder.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"

namespace experiments {
namespace {

using gate::OpCase;
using gate::OpTensor;
using gate::Role;

constexpr gate::Space kHere = gate::Space::device;

constexpr int kWarmupRounds = 5;

class Operands {
 public:
  // Outputs hold NaN: a variant that leaves one out, or reads it, is wrong and not merely lucky.
  explicit Operands(const OpCase& c) {
    for (const OpTensor& t : c.tensors) {
      buffers_.emplace_back(kHere, t.byte_count());
      if (t.role == Role::output)
        gate::set_bytes(buffers_.back().data(), kHere, std::byte{0xff}, t.byte_count());
      else
        gate::copy(buffers_.back(), t.content);
      pointers_.push_back(buffers_.back().data());
    }
  }
  std::span<void* const> pointers() const { return pointers_; }

 private:
  std::vector<gate::Memory> buffers_;
  std::vector<void*> pointers_;
};

learn::Machine machine_of(const KernelBenchOptions& options) {
  int kilohertz = 0;
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
  return {options.copy_bytes_per_s, options.fp32_flops_per_s, static_cast<double>(gpt2::cuda::device_info().sm_count), kilohertz * 1e3};
}

// The rungs of the op, as options say; throws stepscope::InputError where there are none.
std::vector<learn::Rung> rungs_of(const std::string& op, const KernelBenchOptions& options) {
  if (!options.ladder) return {};
  std::vector<learn::Rung> rungs = learn::ladder_of(op);
  if (rungs.empty() || options.trainer != "fp32" || options.matmul != "fp32")
    throw stepscope::InputError(
        fmt::format("--ladder: expected --trainer fp32 with fp32 products and one of {}", fmt::join(learn::ops_with_a_ladder(), ", ")));
  return rungs;
}

class Bench {
 public:
  Bench(const KernelBenchOptions& options, const gpt2::ModelConfig& model, std::vector<learn::Rung> rungs)
      : options_(options),
        model_(model),
        rungs_(std::move(rungs)),
        trainer_(gate::ops_of(options.trainer)),
        table_(trainer_.variants()),
        context_(trainer_.context(options.matmul, stream_.get())) {
    l2_bytes_ = gpt2::cuda::device_info().l2_bytes;
    if (!rungs_.empty()) machine_ = machine_of(options);
  }

  std::vector<KernelResult> run(const OpCase& c) {
    // The first is the baseline of the check; the default is what the trainer runs.
    const std::vector<std::string> names = gate::variants_of(table_, c);
    const std::string default_name = default_of(c, names.front());
    std::vector<KernelResult> results;
    std::vector<Launch> launches;
    std::map<std::string, gate::ErrorMetrics> baseline;
    for (const std::string& variant : names) {
      KernelResult r;
      r.op = c.op;
      r.variant = variant;
      r.shape = c.shape;
      r.is_default = variant == default_name;
      if (options_.progress) options_.progress(fmt::format("{} {} {}: against the oracle", r.op, variant, r.shape));
      launches.push_back([&](Pointers pointers, void* scratch) { c.launch(*context_, variant, pointers, scratch); });
      check(c, r, launches.back(), variant == names.front(), baseline);
      results.push_back(std::move(r));
    }
    const size_t variants = results.size();
    const learn::Sizes sizes = rungs_.empty() ? learn::Sizes() : learn::sizes_of(c, model_.vocab_size);
    for (const learn::Rung& rung : rungs_) {
      KernelResult r;
      r.op = c.op;
      r.variant = rung.name;
      r.shape = c.shape;
      r.is_rung = true;
      r.teaches_an_error = rung.teaches_an_error;
      r.idea = rung.idea;
      if (rung.predict) r.predicted_ns = learn::predicted_ns(rung.predict(sizes), machine_);
      launches.push_back([&](Pointers pointers, void*) {
        rung.launch(sizes, pointers, stream_.get());
        STEPSCOPE_CUDA_CHECK(cudaGetLastError());
      });
      check(c, r, launches.back(), false, baseline);
      results.push_back(std::move(r));
    }
    if (options_.progress) options_.progress(fmt::format("{} {}: timing", c.op, c.shape));
    time(c, results, launches);
    std::stable_sort(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(variants),
                     [slow_first = !rungs_.empty()](const KernelResult& a, const KernelResult& b) {
                       const double x = a.right ? a.median_ns : 1e300, y = b.right ? b.median_ns : 1e300;
                       return slow_first ? x > y : x < y;
                     });
    std::rotate(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(variants), results.end());
    return results;
  }

 private:
  using Pointers = std::span<void* const>;
  // One row's launch on the tensors of its case. Everything else that it needs is known before the clock runs.
  using Launch = std::function<void(Pointers, void* scratch)>;

  static int64_t scratch_bytes(const OpCase& c, const KernelResult& r) {
    return c.scratch_bytes && !r.is_rung ? c.scratch_bytes(r.variant) : 0;
  }

  std::string default_of(const OpCase& c, const std::string& otherwise) const {
    for (const gpt2::VariantInfo& info : table_)
      if (info.slot == (c.slot.empty() ? c.op : c.slot)) return info.names.front();
    return otherwise;
  }

  void check(const OpCase& c, KernelResult& r, const Launch& launch, bool is_baseline,
             std::map<std::string, gate::ErrorMetrics>& baseline) {
    const Operands operands(c);
    const double floor = gate::op_floor(options_.matmul, c.matmul, c.terms) * c.floor_factor;
    try {
      const gate::Memory scratch(kHere, scratch_bytes(c, r));
      STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
      launch(operands.pointers(), scratch.data());
      STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
    } catch (const stepscope::InputError& e) {
      r.wrong = e.what();
      r.refused = true;
      return;
    } catch (const stepscope::MachineError& e) {
      r.wrong = e.what();
      r.refused = true;
      return;
    }
    r.right = true;
    double worst = -1;
    for (size_t i = 0; i < c.tensors.size(); ++i) {
      const OpTensor& t = c.tensors[i];
      if (t.role == Role::input) continue;
      const auto metrics = gate::compare(kHere, {operands.pointers()[i], t.element, t.count()}, gate::view(t.want), t.rows, t.columns);
      const auto found = baseline.find(t.name);
      const gate::ErrorMetrics* base = is_baseline || found == baseline.end() ? nullptr : &found->second;
      const auto result = gate::from_metrics(
          r.op, t.name, metrics, t.rounding ? gate::op_limit(gate::rounding_limit(t.rounding), base) : gate::op_limit(floor, base));
      if (is_baseline) baseline[t.name] = metrics;
      // A NaN uses more of its budget than any number.
      const double used = result.error <= result.budget ? result.error / result.budget : 1e300;
      if (used > worst) {
        worst = used;
        r.error = result.error;
        r.budget = result.budget;
      }
      if (!result.passed) {
        r.right = false;
        r.wrong = fmt::format("{}: {} error {:.2e} over {:.2e}", t.name, result.unit, result.error, result.budget);
      }
    }
  }

  void time(const OpCase& c, std::vector<KernelResult>& results, const std::vector<Launch>& launches) {
    const double bytes = c.min_bytes();
    OperandTurns turns(static_cast<double>(l2_bytes_), bytes);
    std::vector<Operands> operands;
    for (size_t i = 0; i < turns.copies(); ++i) operands.emplace_back(c);
    int64_t most_scratch = 0;
    for (const KernelResult& r : results)
      if (r.right) most_scratch = std::max(most_scratch, scratch_bytes(c, r));
    const gate::Memory scratch(kHere, most_scratch);
    struct Pair {
      gpt2::cuda::Event begin, end;
    };
    std::vector<std::vector<Pair>> events(results.size());
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
    for (int round = 0; round < kWarmupRounds + options_.rounds; ++round)
      for (size_t i = 0; i < results.size(); ++i) {
        if (!results[i].right) continue;
        Pair p;
        p.begin.record(stream_.get());
        launches[i](operands[turns.next()].pointers(), scratch.data());
        p.end.record(stream_.get());
        if (round >= kWarmupRounds) events[i].push_back(std::move(p));
      }
    stream_.synchronize();
    for (size_t i = 0; i < results.size(); ++i) {
      if (events[i].empty()) continue;
      std::vector<double> ns;
      for (const Pair& p : events[i]) ns.push_back(gpt2::cuda::elapsed_ns(p.begin, p.end));
      KernelResult& r = results[i];
      r.median_ns = stepscope::median(ns);
      r.p05_ns = *stepscope::quantile(ns, 0.05);
      r.p95_ns = *stepscope::quantile(ns, 0.95);
      r.bytes_per_s = bytes / (r.median_ns * 1e-9);
      r.flops_per_s = c.flops / (r.median_ns * 1e-9);
    }
  }

  const KernelBenchOptions& options_;
  const gpt2::ModelConfig model_;
  const std::vector<learn::Rung> rungs_;
  learn::Machine machine_;
  gpt2::cuda::Stream stream_;
  const gate::OpTrainer& trainer_;
  const std::vector<gpt2::VariantInfo> table_;
  const std::unique_ptr<gate::OpContext> context_;
  int64_t l2_bytes_ = 0;
};

}  // namespace

std::vector<std::string> kernel_ops(const std::string& trainer) { return gate::op_names(gate::ops_of(trainer)); }

namespace {

std::vector<learn::Rung> checked_rungs(const std::string& op, const KernelBenchOptions& options) {
  const std::vector<std::string> known = kernel_ops(options.trainer);
  if (std::find(known.begin(), known.end(), op) == known.end())
    throw stepscope::InputError(
        fmt::format("kernels '{}': the {} trainer has no such op; expected one of {}", op, options.trainer, fmt::join(known, ", ")));
  if (!options.solution.empty()) learn::require_source(options.solution);
  return rungs_of(op, options);
}

}  // namespace

void check_kernel_options(const std::string& op, const KernelBenchOptions& options) { checked_rungs(op, options); }

std::vector<KernelResult> bench_kernels(const std::string& op, const gpt2::ModelConfig& model, int64_t batch_size, int64_t seq_len,
                                        uint64_t seed, const KernelBenchOptions& options) {
  std::vector<learn::Rung> rungs = checked_rungs(op, options);
  if (const auto why = gpt2::cuda::why_no_device()) throw stepscope::MachineError("kernels need a GPU: " + *why);
  if (!options.solution.empty()) rungs.push_back(learn::solution(op, options.solution));
  Bench bench(options, model, std::move(rungs));
  std::vector<KernelResult> out;
  gate::OpSizes sizes = gate::model_sizes(model, batch_size, seq_len);
  // Rungs that are wrong only where means are large beside deviations must meet such rows.
  if (options.ladder) sizes.norms.push_back({batch_size * seq_len, model.channels, gate::OpSizes::Norm::far_means});
  gate::for_each_case(gate::ops_of(options.trainer), sizes, {.space = kHere, .seed = seed, .only = op}, [&](const OpCase& c) {
    const auto rows = bench.run(c);
    out.insert(out.end(), rows.begin(), rows.end());
  });
  return out;
}

}  // namespace experiments
