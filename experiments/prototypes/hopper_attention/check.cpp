// Checks attention for Hopper against sums in double, beside the trainer's flash kernels, and that it repeats bit for bit; and the sums of
// dqkv's columns against dqkv.
//   hopper_attention_check [forward|backward]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "experiments/prototypes/hopper_attention/oracle.h"
#include "gpt2/cuda/check.h"
#include "mixed/hopper/attention.h"
#include "mixed/kernels/attention.cuh"

namespace {

using gpt2::cuda::DeviceBuffer;
using mixed::bf16;
using oracle::AttentionShape;

struct Case {
  int64_t B, T, NH;
  float queries;  // factor: 1 usual scores, 0 equal ones, 16 a few keys take all
};

template <class T>
void poison(const DeviceBuffer<T>& b) {
  STEPSCOPE_CUDA_CHECK(cudaMemset(b.data(), 0xff, static_cast<size_t>(b.bytes())));
}
template <class T>
uint64_t sum_of_bits(const DeviceBuffer<T>& b) {
  std::vector<unsigned char> v(static_cast<size_t>(b.bytes()));
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(v.data(), b.data(), v.size(), cudaMemcpyDeviceToHost));
  uint64_t hash = 1469598103934665603u;
  for (unsigned char c : v) hash = (hash ^ c) * 1099511628211u;
  return hash;
}

int wrong = 0;

void report(const char* what, const oracle::Difference& own, const oracle::Difference& flash, int64_t row) {
  const bool bad = own.where >= 0 || !(own.rms <= 1.5 * flash.rms + 1e-5);
  wrong += bad;
  fmt::print("  {:5} rms {:.2e} (flash {:.2e}) largest {:.2e} ({:.2e}){}\n", what, own.rms, flash.rms, own.largest, flash.largest,
             bad ? fmt::format("  WRONG, first at {} = row {} column {}", own.where, own.where / row, own.where % row) : "");
}

template <class T>
std::vector<T> on_host(const DeviceBuffer<T>& b) {
  std::vector<T> v(static_cast<size_t>(b.size()));
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(v.data(), b.data(), static_cast<size_t>(b.bytes()), cudaMemcpyDeviceToHost));
  return v;
}

// Row (batch, tile) against the tile's rows as they are stored. 63 additions in fp32 cost less than 2^-18 of what the sizes add up to.
void check_sums(const DeviceBuffer<float>& sums, const DeviceBuffer<bf16>& dqkv, const AttentionShape& s) {
  const std::vector<float> got = on_host(sums);
  const std::vector<bf16> values = on_host(dqkv);
  const int64_t width = 3 * s.C, tiles = (s.T + 63) / 64;
  int64_t bad = 0, first = -1;
  double worst = 0;
  for (int64_t i = 0; i < s.B * tiles * width; ++i) {
    const int64_t row = i / width, column = i % width, b = row / tiles, begin = row % tiles * 64;
    double sum = 0, sizes = 0;
    for (int64_t t = begin; t < std::min(begin + 64, s.T); ++t) {
      const double x = static_cast<double>(__bfloat162float(values[static_cast<size_t>((b * s.T + t) * width + column)]));
      sum += x, sizes += std::abs(x);
    }
    const double off = std::abs(static_cast<double>(got[static_cast<size_t>(i)]) - sum);
    if (sizes > 0) worst = std::max(worst, off / sizes);
    if (off <= 0x1p-18 * sizes) continue;  // NaN is not
    if (bad++ == 0) first = i;
  }
  wrong += bad > 0;
  fmt::print("  sums  largest {:.2e} of the sizes{}\n", worst,
             bad == 0 ? "" : fmt::format("  WRONG: {}, first in row {} column {}", bad, first / width, first % width));
}

void check(const Case& c, const std::string& only) {
  const AttentionShape s{c.B, c.T, c.NH * 64, c.NH};
  const int64_t n = s.B * s.T * s.C, rows = s.B * s.NH * s.T;
  DeviceBuffer<bf16> qkv(3 * n), dout(n), out(n), dqkv(3 * n), flash_out(n), flash_dqkv(3 * n);
  DeviceBuffer<float> lse(rows), flash_lse(rows), sums(hopper::attention_sum_rows(s) * 3 * s.C);
  DeviceBuffer<char> scratch(hopper::attention_backward_scratch_bytes(s)), flash_scratch(mixed::flash_backward_scratch_bytes(s));
  oracle::fill(qkv.data(), 3 * n, 1, 1, 3 * s.C, s.C, c.queries);
  oracle::fill(dout.data(), n, 1, 2);
  const oracle::Results right = oracle::attention(qkv.data(), dout.data(), s);
  mixed::flash_attention_forward(flash_out.data(), flash_lse.data(), qkv.data(), s, nullptr);
  mixed::flash_attention_backward(flash_dqkv.data(), dout.data(), qkv.data(), right.out_rounded.data(), right.lse.data(), s,
                                  flash_scratch.data(), nullptr);
  for (const int warpgroups : {2, 3}) {
    fmt::print("B={} T={} NH={} queries x {}, {} warpgroups\n", c.B, c.T, c.NH, c.queries, warpgroups);
    std::fflush(stdout);
    const hopper::AttentionCut cut{warpgroups, warpgroups};
    if (only != "backward") {
      uint64_t first = 0;
      for (int turn = 0; turn < 2; ++turn) {
        poison(out), poison(lse);
        hopper::attention_forward(out.data(), lse.data(), qkv.data(), s, nullptr, cut);
        STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
        const uint64_t now = sum_of_bits(out) ^ sum_of_bits(lse) * 3;
        if (turn == 1 && now != first) ++wrong, fmt::print("  WRONG: forward does not repeat\n");
        first = now;
      }
      report("out", oracle::difference(out.data(), right.out.data(), n, s.C, 0, s.C),
             oracle::difference(flash_out.data(), right.out.data(), n, s.C, 0, s.C), s.C);
      report("lse", oracle::difference(lse.data(), right.lse.data(), rows, s.T, 0, s.T),
             oracle::difference(flash_lse.data(), right.lse.data(), rows, s.T, 0, s.T), s.T);
    }
    if (only == "forward") continue;
    uint64_t first = 0;
    uint64_t first_sums = 0;
    for (int turn = 0; turn < 3; ++turn) {
      float* to = turn < 2 ? sums.data() : nullptr;  // without them the gradients are the same
      poison(dqkv), poison(scratch);
      if (to != nullptr) poison(sums);
      hopper::attention_backward_queries(dqkv.data(), dout.data(), qkv.data(), right.out_rounded.data(), right.lse.data(), s,
                                         scratch.data(), nullptr, to, cut);
      STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
      hopper::attention_backward_keys(dqkv.data(), dout.data(), qkv.data(), s, scratch.data(), nullptr, to);
      STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
      const uint64_t now = sum_of_bits(dqkv), now_sums = sum_of_bits(sums);
      if (turn > 0 && (now != first || now_sums != first_sums)) ++wrong, fmt::print("  WRONG: backward does not repeat\n");
      first = now, first_sums = now_sums;
    }
    check_sums(sums, dqkv, s);
    const char* names[] = {"dq", "dk", "dv"};
    for (int i = 0; i < 3; ++i)
      report(names[i], oracle::difference(dqkv.data(), right.dqkv.data(), 3 * n, 3 * s.C, i * s.C, (i + 1) * s.C),
             oracle::difference(flash_dqkv.data(), right.dqkv.data(), 3 * n, 3 * s.C, i * s.C, (i + 1) * s.C), 3 * s.C);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  try {
    for (const Case& c :
         {Case{1, 64, 1, 1}, Case{1, 128, 1, 1}, Case{1, 1, 2, 1}, Case{2, 63, 3, 1}, Case{1, 65, 2, 1}, Case{3, 192, 5, 1},
          Case{2, 320, 7, 0}, Case{1, 257, 3, 16}, Case{2, 1000, 3, 1}, Case{3, 1024, 12, 1}, Case{1, 1024, 5, 16}, Case{1, 2048, 1, 4}})
      check(c, only);
  } catch (const std::exception& e) {
    fmt::print("FAILED: {}\n", e.what());
    return 2;
  }
  fmt::print("{} wrong\n", wrong);
  return wrong != 0;
}
