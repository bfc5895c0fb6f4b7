// Times attention for Hopper beside the trainer's flash kernels and cuDNN, in turns.
//   hopper_attention_measure [B ...]     12 heads of 64, T = 1024; B is 4 and 64 unless given
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/prototypes/hopper_attention/oracle.h"
#include "experiments/prototypes/hopper_attention/rate.h"
#include "gpt2/cuda/check.h"
#include "gpt2/ops/column_sums.cuh"
#include "mixed/attention_cudnn.h"
#include "mixed/hopper/attention.h"
#include "mixed/kernels/attention.cuh"

namespace {

using gpt2::cuda::DeviceBuffer;
using mixed::bf16;
using oracle::AttentionShape;

struct Set {
  DeviceBuffer<bf16> qkv, dout, out, dqkv;
  DeviceBuffer<float> lse, sums, dbias;
};

struct Candidate {
  std::string name;
  std::function<void(Set&)> run;
  std::vector<double> us{};
};

void time(std::vector<Candidate>& candidates, std::vector<Set>& sets, int rounds, int launches) {
  gpt2::cuda::Event begin, end;
  for (Candidate& c : candidates)
    for (Set& s : sets) c.run(s);
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < candidates.size(); ++i) {
      Candidate& c = candidates[round % 2 == 0 ? i : candidates.size() - 1 - i];
      begin.record(nullptr);
      for (int n = 0; n < launches; ++n) c.run(sets[static_cast<size_t>(n) % sets.size()]);
      end.record(nullptr);
      end.wait();
      c.us.push_back(gpt2::cuda::elapsed_ns(begin, end) * 1e-3 / launches);
    }
  for (Candidate& c : candidates) {
    std::sort(c.us.begin(), c.us.end());
    fmt::print("  {:28} median {:8.1f} us, {:.1f} to {:.1f}\n", c.name, c.us[c.us.size() / 2], c.us.front(), c.us.back());
  }
  std::fflush(stdout);
}

// The bias gradient of the layer that made qkv: sums on the backward's way, and a kernel of their own behind it.
std::vector<Candidate> with_bias_gradient(const AttentionShape& s, void* scratch, float* slabs) {
  std::vector<Candidate> all;
  for (const bool sums : {false, true}) {
    const std::string name = sums ? ", sums" : "";
    all.push_back({"hopper dq" + name, [=](Set& x) {
                     hopper::attention_backward_queries(x.dqkv.data(), x.dout.data(), x.qkv.data(), x.out.data(), x.lse.data(), s, scratch,
                                                        nullptr, sums ? x.sums.data() : nullptr);
                   }});
    all.push_back({"hopper dk dv" + name, [=](Set& x) {
                     hopper::attention_backward_keys(x.dqkv.data(), x.dout.data(), x.qkv.data(), s, scratch, nullptr,
                                                     sums ? x.sums.data() : nullptr);
                   }});
  }
  all.push_back({"sum of the sums", [=](Set& x) { mixed::add_attention_sums(x.dbias.data(), x.sums.data(), s, false, nullptr); }});
  all.push_back({"column sums apart", [=](Set& x) {
                   gpt2::ops::bias_gradient(x.dbias.data(), static_cast<const bf16*>(x.dqkv.data()), s.B * s.T, 3 * s.C, false, slabs,
                                            nullptr);
                 }});
  all.push_back({"hopper, dbias by sums", [=](Set& x) {
                   hopper::attention_backward(x.dqkv.data(), x.dout.data(), x.qkv.data(), x.out.data(), x.lse.data(), s, scratch, nullptr,
                                              x.sums.data());
                   mixed::add_attention_sums(x.dbias.data(), x.sums.data(), s, false, nullptr);
                 }});
  all.push_back({"hopper, dbias apart", [=](Set& x) {
                   hopper::attention_backward(x.dqkv.data(), x.dout.data(), x.qkv.data(), x.out.data(), x.lse.data(), s, scratch, nullptr);
                   gpt2::ops::bias_gradient(x.dbias.data(), static_cast<const bf16*>(x.dqkv.data()), s.B * s.T, 3 * s.C, false, slabs,
                                            nullptr);
                 }});
  return all;
}

void measure(int64_t B) {
  const AttentionShape s{B, 1024, 768, 12};
  const mixed::CudnnAttentionShape cs{s.B, s.T, s.C, s.NH};
  const int64_t n = s.B * s.T * s.C, rows = s.B * s.NH * s.T;
  std::vector<Set> sets(B >= 32 ? 2 : 4);
  for (size_t i = 0; i < sets.size(); ++i) {
    Set& x = sets[i];
    x = Set{DeviceBuffer<bf16>(3 * n),   DeviceBuffer<bf16>(n),     DeviceBuffer<bf16>(n),
            DeviceBuffer<bf16>(3 * n),   DeviceBuffer<float>(rows), DeviceBuffer<float>(hopper::attention_sum_rows(s) * 3 * s.C),
            DeviceBuffer<float>(3 * s.C)};
    oracle::fill(x.qkv.data(), 3 * n, 1, static_cast<unsigned>(7 + i));
    oracle::fill(x.dout.data(), n, 1, static_cast<unsigned>(77 + i));
  }
  const bool cudnn = !mixed::why_no_cudnn().has_value();
  if (!cudnn) fmt::print("{}\n", *mixed::why_no_cudnn());
  int64_t bytes = std::max(hopper::attention_backward_scratch_bytes(s), mixed::flash_backward_scratch_bytes(s));
  if (cudnn)
    bytes = std::max({bytes, mixed::cudnn_forward_workspace_bytes(cs, mixed::CudnnPlan::heuristic),
                      mixed::cudnn_backward_workspace_bytes(cs, false, mixed::CudnnPlan::heuristic),
                      mixed::cudnn_forward_workspace_bytes(cs, mixed::CudnnPlan::measured)});
  DeviceBuffer<char> scratch(bytes);
  const int launches = B >= 32 ? 6 : 40, rounds = 6;

  fmt::print("B={} forward\n", B);
  std::vector<Candidate> forward;
  for (const int w : {2, 3})
    forward.push_back({fmt::format("hopper, {} warpgroups", w), [&s, w](Set& x) {
                         hopper::attention_forward(x.out.data(), x.lse.data(), x.qkv.data(), s, nullptr, {w, w});
                       }});
  forward.push_back({"flash", [&](Set& x) { mixed::flash_attention_forward(x.out.data(), x.lse.data(), x.qkv.data(), s, nullptr); }});
  if (cudnn)
    for (const auto plan : {mixed::CudnnPlan::heuristic, mixed::CudnnPlan::measured})
      forward.push_back({plan == mixed::CudnnPlan::measured ? "cudnn, measured plan" : "cudnn", [&, plan](Set& x) {
                           mixed::cudnn_attention_forward(x.out.data(), x.lse.data(), x.qkv.data(), cs, plan, scratch.data(), nullptr);
                         }});
  time(forward, sets, rounds, launches);

  fmt::print("B={} backward\n", B);
  std::vector<Candidate> backward;
  for (const int w : {2, 3})
    backward.push_back({fmt::format("hopper dq, {} warpgroups", w), [&, w](Set& x) {
                          hopper::attention_backward_queries(x.dqkv.data(), x.dout.data(), x.qkv.data(), x.out.data(), x.lse.data(), s,
                                                             scratch.data(), nullptr, nullptr, {w, w});
                        }});
  backward.push_back({"hopper dk dv", [&](Set& x) {
                        hopper::attention_backward_keys(x.dqkv.data(), x.dout.data(), x.qkv.data(), s, scratch.data(), nullptr);
                      }});
  for (const int w : {2, 3})
    backward.push_back({fmt::format("hopper, dq {} warpgroups", w), [&, w](Set& x) {
                          hopper::attention_backward(x.dqkv.data(), x.dout.data(), x.qkv.data(), x.out.data(), x.lse.data(), s,
                                                     scratch.data(), nullptr, nullptr, {w, w});
                        }});
  backward.push_back({"flash", [&](Set& x) {
                        mixed::flash_attention_backward(x.dqkv.data(), x.dout.data(), x.qkv.data(), x.out.data(), x.lse.data(), s,
                                                        scratch.data(), nullptr);
                      }});
  if (cudnn)
    backward.push_back({"cudnn", [&](Set& x) {
                          mixed::cudnn_attention_backward(x.dqkv.data(), x.dout.data(), x.qkv.data(), x.out.data(), x.lse.data(), cs, false,
                                                          mixed::CudnnPlan::heuristic, scratch.data(), nullptr);
                        }});
  time(backward, sets, rounds, launches);

  fmt::print("B={} backward with the bias gradient of qkv\n", B);
  const DeviceBuffer<float> slabs(gpt2::ops::bias_gradient_scratch_floats<bf16>(s.B * s.T, 3 * s.C));
  std::vector<Candidate> bias = with_bias_gradient(s, scratch.data(), slabs.data());
  time(bias, sets, rounds, launches);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<int64_t> sizes;
    for (int i = 1; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
    if (sizes.empty()) {
      sizes = {4, 64};
      for (const int w : {1, 2, 3, 4})
        fmt::print("wgmma 64 x 64 x 16, {} warpgroups: {:.1f} cycles, left operand in registers {:.1f}, and right across {:.1f}\n", w,
                   rate::cycles_of_product(rate::Left::shared, w), rate::cycles_of_product(rate::Left::registers, w),
                   rate::cycles_of_product(rate::Left::registers_across, w));
    }
    for (const int64_t B : sizes) measure(B);
  } catch (const std::exception& e) {
    fmt::print("FAILED: {}\n", e.what());
    return 2;
  }
  return 0;
}
