// Matrix products of bf16 operands with fp32 accumulation, in row-major terms through cuBLASLt, on our own workspace; bias, GELU and
// bias-gradient work goes into the product's epilogue where the library has it.
//
// Row-major C = A B is column-major C^T = B^T A^T: the library sees the operands swapped, and nothing is transposed in memory.
// Split-K schemes that add in arrival order, or that round the parts to bf16 before they are added, are excluded: the same algorithm
// gives the same bits, and every sum is fp32 to its end.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gpt2/cuda/device_buffer.h"
#include "mixed/kernels/common.cuh"
#include "mixed/variants.h"

namespace mixed {

enum class Storage { as_bf16, fp32 };

enum class Epilogue {
  none,
  bias,           // c = product + bias (n)
  gelu_aux_bias,  // aux = product + bias, rounded to bf16; c = gelu(product + bias)
  dgelu,          // c = product * gelu'(aux)
  bias_gradient,  // as none; bias_gradient (m) = row sums of op(a): column sums of a stored (k,m). Overwrites, whatever beta is
};

// c (m,n) = alpha * op(a) (m,k) * op(b) (k,n) + beta * addend, then the epilogue. Leading dimensions and batch strides in elements.
struct Gemm {
  bool transpose_a = false;  // a is stored (k,m)
  bool transpose_b = false;  // b is stored (n,k)
  int64_t m = 0, n = 0, k = 0;
  const bf16* a = nullptr;
  int64_t lda = 0;
  const bf16* b = nullptr;
  int64_t ldb = 0;
  void* c = nullptr;
  Storage c_storage = Storage::as_bf16;
  int64_t ldc = 0;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  float alpha = 1.0f;
  float beta = 0.0f;             // 0: addend is not read
  const void* addend = nullptr;  // same storage and shape as c; nullptr: c itself
  Epilogue epilogue = Epilogue::none;
  const bf16* bias = nullptr;
  bf16* aux = nullptr;  // (m,n), leading dimension n
  float* bias_gradient = nullptr;
};

inline constexpr int64_t kMatmulWorkspaceBytes = int64_t{64} << 20;

// Algorithms that a search found, kept between processes in one file per (device, cuBLASLt version). A damaged, foreign or unwritable
// file is the same as none; two processes that write at once leave one of the two files whole.
class AlgorithmCache {
 public:
  struct Found {
    cublasLtMatmulAlgo_t algorithm{};
    double time_us = 0;
    std::optional<double> joules{};  // a launch, where joules were compared
    std::string why_by_time{};       // where they were to be compared and could not be
  };
  // `file` empty: remembers within the process only. Finds and remembers what `rule` chose; a file holds the choices of every rule.
  AlgorithmCache(std::filesystem::path file, MatmulAlgorithm rule);
  std::optional<Found> find(const std::string& problem) const;
  void remember(const std::string& problem, const Found& found);
  // Writes what is new. Never throws: a cache that cannot be written costs the next run its search, nothing else.
  void save() noexcept;

 private:
  std::string key(const std::string& problem) const;

  std::filesystem::path file_;
  MatmulAlgorithm rule_;
  std::map<std::string, Found> known_;
  bool changed_ = false;
};
// Where the cache of this device and library lies: $STEPSCOPE_CACHE, $XDG_CACHE_HOME/stepscope or
// ~/.cache/stepscope, then matmul-DEVICE-cublaslt-VERSION.json. Empty without a home.
std::filesystem::path algorithm_cache_file();

class MatmulEngine {
 public:
  // The workspace is borrowed: kMatmulWorkspaceBytes, 256-byte aligned, used by one stream at a time.
  MatmulEngine(MatmulAlgorithm choice, void* workspace, std::filesystem::path cache_file = algorithm_cache_file());
  ~MatmulEngine();
  MatmulEngine(const MatmulEngine&) = delete;  // plans own library descriptors
  MatmulEngine& operator=(const MatmulEngine&) = delete;

  // While rehearsing, a product met for the first time is timed on its real operands with every algorithm that the library offers, with
  // fitting_tiles and fewest_joules also with some that it has and does not offer (product_tiles.h). Where the choice says so (product_choice.h) some are
  // repeated until their joules are counted. Outputs are written many times, so nothing in them may matter yet. Outside a rehearsal a new
  // product takes the cached algorithm or the library's first choice. Algorithms found are saved at the end.
  void begin_rehearsal() { rehearsing_ = true; }
  void end_rehearsal();

  // Plans a shape at its first use (host work), then only launches. Throws stepscope::InputError with the words of why_not(), also where
  // the library offers a kernel and then refuses to launch it.
  void run(const Gemm& gemm, cudaStream_t stream);
  // For checks of all that a search may take: a product that is planned from now on is computed by its candidate `number`, by number % n
  // where it has n, and never searched. What the library offers comes first.
  void take_candidate(size_t number);
  struct Candidates {
    size_t all = 0, offered = 0;
  };
  Candidates most_candidates() const { return most_candidates_; }  // of the products that were planned since then
  // Why fitting_tiles would be search for a product of this kind, on a device and library that have the tiles (why_no_tiles()): the library
  // offers kernels of a family whose tiles nobody has listed. Empty also where it has no kernel at all, which why_not() says.
  std::optional<std::string> why_no_named_tiles(const Gemm& gemm);
  // Why the library cannot compute this product with its epilogue; empty when it can. Of addresses only the alignment counts, so it can
  // be asked before anything is allocated.
  std::optional<std::string> why_not(const Gemm& gemm);
  // Where joules were to choose among algorithms and time did: of how many products, and why, as a sentence. A choice of time that the cache
  // remembers counts, until the energy counter can be read: then a rehearsal searches anew.
  std::optional<std::string> why_by_time() const;

 private:
  struct Plan;
  Plan& plan(const Gemm& gemm);
  void note(const AlgorithmCache::Found& found);
  bool names_tiles(const Plan& plan, const Gemm& gemm) const;
  void add_fitting_tiles(Plan& plan, const Gemm& gemm) const;
  bool runs(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm) const;
  void search(Plan& plan, const Gemm& gemm, const std::string& problem, cudaStream_t stream);
  void launch(Plan& plan, const Gemm& gemm, const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) const;

  MatmulAlgorithm choice_;
  void* workspace_;
  AlgorithmCache cache_;
  int64_t multiprocessors_;  // of the current device, where the rule has tiles to name; else 0
  bool rehearsing_ = false;
  std::optional<size_t> taken_;
  Candidates most_candidates_;
  int64_t by_time_ = 0;          // products whose joules were to be compared and were not
  std::string why_by_time_;      // the first of them
  std::string counter_failure_;  // not tried again in this process
  gpt2::cuda::CublasLtHandle handle_;
  std::map<std::string, std::unique_ptr<Plan>> plans_;
};

// ---- linear layers. The products come by themselves as well, so that the library can be asked for them before a step runs.

// out (rows,OUT) = inp (rows,IN) * weight (OUT,IN)^T + bias (OUT; nullptr = none)
Gemm linear_forward_product(LinearForward variant, bf16* out, const bf16* inp, const bf16* weight, const bf16* bias, int64_t rows,
                            int64_t in, int64_t out_channels);
void linear_forward(LinearForward variant, MatmulEngine& engine, bf16* out, const bf16* inp, const bf16* weight, const bf16* bias,
                    int64_t rows, int64_t in, int64_t out_channels, cudaStream_t stream);

// before (rows,OUT) = inp * weight^T + bias; after = gelu of the same sum before it is rounded.
Gemm linear_gelu_product(bf16* after, bf16* before, const bf16* inp, const bf16* weight, const bf16* bias, int64_t rows, int64_t in,
                         int64_t out_channels);
void linear_gelu_forward(MatmulEngine& engine, bf16* after, bf16* before, const bf16* inp, const bf16* weight, const bf16* bias,
                         int64_t rows, int64_t in, int64_t out_channels, cudaStream_t stream);
// out (rows,OUT) = addend (rows,OUT) + inp * weight^T + bias, rounded once. R: bf16 or float.
template <class R>
Gemm linear_residual_product(R* out, const R* addend, const bf16* inp, const bf16* weight, const bf16* bias, int64_t rows, int64_t in,
                             int64_t out_channels);
template <class R>
void linear_residual_forward(MatmulEngine& engine, R* out, const R* addend, const bf16* inp, const bf16* weight, const bf16* bias,
                             int64_t rows, int64_t in, int64_t out_channels, cudaStream_t stream);
// dbefore (rows,IN) = (dout * weight) * gelu'(before); dbefore may be anything but dout and before.
Gemm linear_gelu_backward_product(bf16* dbefore, const bf16* dout, const bf16* weight, const bf16* before, int64_t rows, int64_t in,
                                  int64_t out_channels);
void linear_gelu_backward_input(MatmulEngine& engine, bf16* dbefore, const bf16* dout, const bf16* weight, const bf16* before, int64_t rows,
                                int64_t in, int64_t out_channels, cudaStream_t stream);

// dinp (rows,IN) = dout (rows,OUT) * weight
void linear_backward_input(MatmulEngine& engine, bf16* dinp, const bf16* dout, const bf16* weight, int64_t rows, int64_t in,
                           int64_t out_channels, cudaStream_t stream);
// dweight (OUT,IN) = dout^T * inp, rounded once where D is bf16 and not where it is float, and dbias (OUT; nullptr = none) = column sums of
// dout in fp32; both added to when `accumulate`, which a step does not ask of a dweight in bf16: every addition would round again.
// matmul_epilogue: the sums come out of the product; else from kernels of their own. (Where softmax_identities, attention_fold and
// layernorm_fold make the sums elsewhere, their caller gives no dbias.) `scratch` holds linear_backward_weight_scratch_floats.
template <class D>
Gemm linear_weight_product(BiasGradient variant, D* dweight, float* product_bias, const bf16* dout, const bf16* inp, int64_t rows,
                           int64_t in, int64_t out_channels, bool accumulate);
template <class D>
void linear_backward_weight(BiasGradient variant, MatmulEngine& engine, D* dweight, float* dbias, const bf16* dout, const bf16* inp,
                            int64_t rows, int64_t in, int64_t out_channels, bool accumulate, float* scratch, cudaStream_t stream);
int64_t linear_backward_weight_scratch_floats(int64_t rows, int64_t out_channels);

}  // namespace mixed
