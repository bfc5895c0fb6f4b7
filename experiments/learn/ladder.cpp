#include "experiments/learn/ladder.h"

#include <algorithm>
#include <stdexcept>

#include "experiments/learn/call.h"

namespace learn {
namespace {

double d(int64_t n) { return static_cast<double>(n); }

// rows * C floats read or written so many times, whatever the caches keep.
Prediction row_passes(const Sizes& z, double passes) { return {.bytes = passes * d(z.rows) * d(z.C) * 4}; }

Prediction logit_passes(const Sizes& z, double passes) { return {.bytes = passes * d(z.rows) * d(z.Vp) * 4}; }

// `wavefronts` for each 32 multiply-adds of a product.
Prediction product(const Sizes& z, double wavefronts) {
  const double adds = d(z.rows) * d(z.in) * d(z.out);
  return {.bytes = 4 * (d(z.rows) * d(z.in) + d(z.in) * d(z.out) + d(z.rows) * d(z.out)),
          .wavefronts = wavefronts * adds / 32,
          .flops = 2 * adds};
}

// `wavefronts` for each query and key that it may see.
Prediction causal(const Sizes& z, double wavefronts) {
  const double pairs = d(z.B) * d(z.NH) * d(z.T) * d(z.T + 1) / 2;
  return {.bytes = 4 * d(z.B) * d(z.T) * d(z.C) * 4, .wavefronts = wavefronts * pairs, .flops = 4 * pairs * d(z.C) / d(z.NH)};
}

std::vector<Rung> all_rungs() {
  const auto head = [](const Sizes& z) { return d(z.C) / d(z.NH); };
  return {
      {"layernorm_forward", "thread_per_row", "a thread reads its row three times; neighbours read addresses that lie a row apart",
       // 32 lines for each of three reads and a write of 32 numbers.
       [](const Sizes& z) {
         Prediction p = row_passes(z, 4);
         p.wavefronts = 4 * d(z.rows) * d(z.C);
         return p;
       },
       launching(layernorm_thread_per_row)},
      {"layernorm_forward", "three_kernels", "mean, deviation and result each read the row from memory; all reads are coalesced",
       [](const Sizes& z) { return row_passes(z, 4); }, launching(layernorm_three_kernels)},
      {"layernorm_forward", "warp_two_passes", "a warp keeps to its row, so the second and third reads meet L1",
       [](const Sizes& z) { return row_passes(z, 2); }, launching(layernorm_warp_two_passes)},
      {"layernorm_forward", "moments", "one read gives both sums, by E[x^2] - E[x]^2: fast, and wrong where means are large",
       [](const Sizes& z) { return row_passes(z, 2); }, launching(layernorm_moments), true},
      {"layernorm_backward", "atomics", "every row adds to the same 2C sums in memory, one atomic addition for each number",
       // 2 rows * C additions, which L2 makes one after the other where they meet: no ceiling of ours names that.
       [](const Sizes& z) { return row_passes(z, 3); }, launching(layernorm_backward_atomics)},
      {"layernorm_backward", "block_atomics", "a block adds its rows in shared memory first, so only blocks meet in memory",
       [](const Sizes& z) { return row_passes(z, 3); }, launching(layernorm_backward_block_atomics)},
      {"linear_forward", "scattered", "a thread per result, neighbours in neighbouring rows: 32 lines for each read of the input",
       [](const Sizes& z) { return product(z, 33); }, launching(linear_scattered)},
      {"linear_forward", "coalesced", "neighbours in neighbouring columns: writes are coalesced, reads of the weight still are not",
       [](const Sizes& z) { return product(z, 33); }, launching(linear_coalesced)},
      {"linear_forward", "shared_tiles", "tiles of 32 x 32 in shared memory: each number read from memory once for 32 uses",
       [](const Sizes& z) { return product(z, 2); }, launching(linear_shared_tiles)},
      {"linear_forward", "register_tiles", "8 x 8 results in the registers of a thread: 16 numbers from shared memory for 64 uses",
       [](const Sizes& z) { return product(z, 0.25); }, launching(linear_register_tiles)},
      {"attention_forward", "thread_per_query", "a thread reads all its keys twice: for the largest score, then for the sum",
       [head](const Sizes& z) { return causal(z, head(z) * (33 + 33 + 3) / 32); }, launching(attention_thread_per_query)},
      {"attention_forward", "warp_per_query", "the online softmax: one pass over the keys, lanes hold channels",
       [head](const Sizes& z) { return causal(z, 5 + 2 * head(z) / 32); }, launching(attention_warp_per_query)},
      {"attention_forward", "key_tiles", "32 queries share 32 keys and values in shared memory, and one reduction serves 32 keys",
       [head](const Sizes& z) { return causal(z, (2 * head(z) + 10) / 32 + 1 + head(z) / 32); }, launching(attention_key_tiles)},
      {"classifier", "written_out", "softmax, loss and gradient kernel by kernel: four reads and two writes of the logits",
       [](const Sizes& z) { return logit_passes(z, 6); }, launching(classifier_written_out)},
      {"classifier", "online", "largest logit and sum in one read, the gradient in the second: two reads and a write",
       [](const Sizes& z) { return logit_passes(z, 3); }, launching(classifier_online)},
  };
}

}  // namespace

double predicted_ns(const Prediction& p, const Machine& m) {
  const double of_bytes = m.copy_bytes_per_s > 0 ? p.bytes / m.copy_bytes_per_s : 0;
  const double of_wavefronts = m.sm_count * m.clock_hz > 0 ? p.wavefronts / (m.sm_count * m.clock_hz) : 0;
  const double of_flops = m.fp32_flops_per_s > 0 ? p.flops / m.fp32_flops_per_s : 0;
  return 1e9 * std::max({of_bytes, of_wavefronts, of_flops});
}

std::vector<Rung> ladder_of(std::string_view op) {
  std::vector<Rung> rungs = all_rungs();
  std::erase_if(rungs, [op](const Rung& r) { return r.op != op; });
  return rungs;
}

std::vector<std::string> ops_with_a_ladder() {
  std::vector<std::string> ops;
  for (const Rung& r : all_rungs())
    if (std::find(ops.begin(), ops.end(), r.op) == ops.end()) ops.push_back(r.op);
  return ops;
}

Sizes sizes_of(const gate::OpCase& c, int64_t vocab_size) {
  const auto tensor = [&c](std::string_view name) -> const gate::OpTensor& {
    for (const gate::OpTensor& t : c.tensors)
      if (t.name == name) return t;
    throw std::logic_error("op case " + c.op + " has no tensor " + std::string(name));
  };
  Sizes z;
  if (c.op == "layernorm_forward" || c.op == "layernorm_backward") {
    z.rows = tensor("inp").rows;
    z.C = tensor("inp").columns;
  } else if (c.op == "linear_forward") {
    z.rows = tensor("inp").rows;
    z.in = tensor("inp").columns;
    z.out = tensor("weight").rows;
    z.bias = c.tensors.size() == 4;
  } else if (c.op == "attention_forward") {
    z.T = tensor("lse").columns;
    z.C = tensor("out").columns;
    z.B = tensor("out").rows / z.T;
    z.NH = tensor("lse").rows / z.B;
  } else if (c.op == "classifier") {
    z.rows = tensor("dlogits").rows;
    z.Vp = tensor("dlogits").columns;
    z.V = vocab_size;
  } else {
    throw std::logic_error("op " + c.op + " has no ladder");
  }
  return z;
}

}  // namespace learn
