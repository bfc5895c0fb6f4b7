// Runs, profiles and verdict documents made by hand; nothing runs.
#pragma once
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "experiments/verdict/make_document.h"
#include "profiler/diff/waterfall.h"

namespace experiments {

inline profiler::KernelRow kernel(const std::string& name, const std::string& op, int64_t launches, double time_ns) {
  profiler::KernelRow k;
  k.name = name;
  k.activity = "kernel";
  k.pass = "forward";
  k.op = op;
  k.launches = launches;
  k.time_ns = time_ns;
  return k;
}

inline profiler::ProfileDocument profile(std::vector<profiler::KernelRow> kernels, double total_ns, double idle_ns) {
  profiler::ProfileDocument d;
  d.kernels = std::move(kernels);
  d.totals.time_ns = total_ns;
  d.totals.idle_ns = idle_ns;
  return d;
}

// A: layernorm 12 x, old matmul, bias. B: layernorm faster, new fused matmul, no bias; 20 us less idle; 7 us
// rest.
inline profiler::Waterfall example() {
  const auto a =
      profile({kernel("layernorm", "layernorm", 12, 120e3), kernel("gemm_old", "mlp_up", 12, 900e3), kernel("bias", "mlp_up", 12, 80e3)},
              1200e3, 100e3);
  const auto b = profile({kernel("layernorm", "layernorm", 12, 110e3), kernel("gemm_fused", "mlp_up", 12, 850e3)}, 1047e3, 80e3);
  return make_waterfall(a, b).value();
}

// A run of 12 pairs at `pct` with little spread; A takes 10 ms.
inline WorkloadResult result(double pct, double predicted_ms) {
  WorkloadResult r;
  r.workload = {"d12", 4, 1024, "tf32", predicted_ms};
  r.a.gate = r.b.gate = {true, "40 checks passed (seed 7)", true, {}};
  for (int i = 0; i < 12; ++i) {
    PairRecord p;
    p.time = {std::log1p(pct / 100) + (i % 2 ? 1e-4 : -1e-4), 1e-4};
    for (const char arm : {'A', 'B'}) {
      Block b;
      b.arm = arm;
      b.step_ns = arm == 'A' ? 10e6 : 10e6 * (1 + pct / 100);
      b.environment = BlockEnvironment{1980, 600, 60, arm == 'A' ? uint64_t{4} : 0, 3};
      p.blocks.push_back(b);
    }
    r.log.pairs.push_back(p);
  }
  r.log.a_info = {{"memory_bytes", {{"parameters", 100}, {"activations", 50}}}};
  r.log.b_info = {{"memory_bytes", {{"parameters", 100}, {"activations", 20}}}};
  r.log.decision = decide(pair_values(r.log), {}, 1);
  r.waterfall = example();
  return r;
}

inline Experiment experiment() {
  return parse_experiment(
      "question: Q?\nhypothesis: H.\ntrainer: fp32\nchange: {variant: {zero_grad: memset}}\n"
      "predicted: {saving_ms: 0.2, arithmetic: half of it}\nworkloads: [{model: d12, batch_size: 4, seq_len: "
      "1024, matmul: tf32}]\n",
      "fp32-idea.yaml");
}

inline VerdictDocument document(const std::vector<WorkloadResult>& results, const std::string& name = "fp32-idea") {
  RunFacts f;
  f.at = "2026-11-21T03:00:00Z";
  f.device = "NVIDIA H200";
  f.ledger = {59, 0, 4.95};
  return verdict_document(name, experiment(), results, f);
}

}  // namespace experiments
