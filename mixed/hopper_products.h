// Products by our own kernel for Hopper (mixed/hopper): those of the MLP where the slots gelu_forward and gelu_backward say so, and the one
// of the head where lm_head does (mixed/kernels/lm_head.cuh). GELU's gradient
// is made where GELU is, and takes the place of GELU's input, which nothing else reads; the product that multiplies by it sums its columns on
// the way, which is mlp_up's bias gradient. Everything is in fp32 until it is stored.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "mixed/hopper/multiply.h"
#include "mixed/kernels/common.cuh"
#include "mixed/variants.h"

namespace mixed {

// Prepares a product at its first call with these addresses and this shape (host work that no capture may hold), later only launches it.
class HopperProducts {
 public:
  // Throws stepscope::InputError and stepscope::MachineError as hopper::Product does.
  void run(const hopper::Problem& problem, hopper::Tail tail, cudaStream_t stream);

 private:
  std::map<std::array<uintptr_t, 16>, hopper::Product> ready_;
};

inline constexpr int kHeadTile = 192;  // columns of a tile with Tail::exponential

// Why no product with a side of C or 4 C can be made for a model of C channels on a device of this capability; empty when all can.
std::optional<std::string> why_no_hopper_product(int compute_capability_major, int64_t channels, int compute_capability_minor = 0);

// after (rows,OUT) = gelu(inp (rows,IN) * weight (OUT,IN)^T + bias), slope = gelu' of the same sum.
void linear_gelu_slope_forward(HopperProducts& products, bf16* after, bf16* slope, const bf16* inp, const bf16* weight, const bf16* bias,
                               int64_t rows, int64_t in, int64_t out_channels, cudaStream_t stream);

// dbefore (rows,IN) = (dout (rows,OUT) * weight (OUT,IN)) * slope, which may be dbefore. `partial` receives the sums of dbefore's columns
// over 128 rows each, before rounding: gelu_partials(rows) rows of IN floats, for ops::reduce_partials.
void linear_gelu_slope_backward(HopperProducts& products, bf16* dbefore, float* partial, const bf16* dout, const bf16* weight,
                                const bf16* slope, int64_t rows, int64_t in, int64_t out_channels, cudaStream_t stream);
int64_t gelu_partials(int64_t rows);
// Whether mlp_up's bias gradient comes out of mlp_down's product.
bool sums_columns(Gelu backward);

}  // namespace mixed
