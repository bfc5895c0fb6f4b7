// A matrix product for Hopper by TMA and wgmma whose fp32 sums go through a tail on their way to memory, as host code sees it.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <functional>
#include <optional>
#include <string>

namespace hopper {

inline constexpr int kTileM = 128;  // rows of a tile

// What becomes of the sums, see tails.cuh.
enum class Tail { plain, gelu, gelu_backward, exponential };

// out[m][n] = tail(sum over k of a b), bf16, 16-byte aligned. a is [m][k], or [k][m] if a_across; b is [n][k], or [k][n] if b_across. The
// length of every row in memory must be a multiple of 8.
struct Problem {
  int m = 0, n = 0, k = 0;
  const __nv_bfloat16 *a = nullptr, *b = nullptr;
  bool a_across = false, b_across = false;
  __nv_bfloat16* out = nullptr;
  const __nv_bfloat16* bias = nullptr;   // [n]; gelu
  __nv_bfloat16* slope = nullptr;        // [m][n]; gelu writes GELU'
  const __nv_bfloat16* given = nullptr;  // [m][n], GELU'; gelu_backward. May be `out`
  float* partial = nullptr;              // [ceil(m / 128)][n], sums of columns; gelu_backward
  const float* offset = nullptr;         // [m]; exponential
  float* row_sums = nullptr;             // [ceil(n / columns of a tile)][m]; exponential
  int* overflow = nullptr;               // one; exponential sets it to 1, never to 0
  int kept = 0;                          // columns; exponential
  const int* only_if = nullptr;          // on the device, where given: the product is made if it is not 0 then, and else nothing is written
};

// How a product is cut among the CTAs. It changes no result: every sum runs over k in one order.
struct Plan {
  int across_m = 1, across_n = 1;  // CTAs of a cluster: 1, 2 or 4 in all
  int stages = 5;                  // places of the ring
  int group = 8;                   // rows of cluster tiles that walk over the columns together, so that the L2 holds what they read
};
struct Cut {
  int columns = 192;  // of a tile: 128 or 192
  Plan plan;
};

// Why a device of this compute capability has no such product; empty where it has.
std::optional<std::string> why_not_device(int major, int minor);
// Why this product cannot be made so, on any device. Of addresses nothing counts.
std::optional<std::string> why_not_product(const Problem& p, Tail tail, const Cut& cut);
// Both, of the current device.
std::optional<std::string> why_not(const Problem& p, Tail tail, const Cut& cut);

// Sums of exponentials over a tile's width that pass this set Problem::overflow: e^40. bf16 and fp32 reach to e^88, but a factor that
// brings such a row back to the size of its softmax, and products with it, must stay in their range too.
inline constexpr float kLargestExponentials = 2.3538527e17f;

// The same of the current device.
std::optional<std::string> why_not_current_device();

// A product made ready for the current device, so that running it is one launch. Throws stepscope::MachineError with the words of
// why_not_device(), stepscope::InputError with those of why_not_product().
class Product {
 public:
  Product(const Problem& p, Tail tail, const Cut& cut);
  void run(cudaStream_t stream) const { launch_(stream); }

 private:
  std::function<void(cudaStream_t)> launch_;
};

}  // namespace hopper
