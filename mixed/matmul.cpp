// cuBLASLt plans, one per shape, layout, alignment and epilogue; the search for their algorithms; and the products of a linear layer.
#include "mixed/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/counter_error.h"
#include "base/errors.h"
#include "gpt2/cuda/cublaslt.h"
#include "gpt2/ops/column_sums.cuh"
#include "gpt2/ops/elementwise.cuh"
#include "mixed/product_choice.h"
#include "mixed/product_joules.h"
#include "mixed/product_tiles.h"

namespace mixed {
namespace {

using namespace gpt2::cuda::lt;

cudaDataType type_of(Storage storage) { return storage == Storage::as_bf16 ? CUDA_R_16BF : CUDA_R_32F; }

const void* addend_of(const Gemm& g) { return g.addend != nullptr ? g.addend : g.c; }

std::string_view name(Epilogue e) {
  switch (e) {
    case Epilogue::none:
      return "none";
    case Epilogue::bias:
      return "bias";
    case Epilogue::gelu_aux_bias:
      return "gelu_aux_bias";
    case Epilogue::dgelu:
      return "dgelu";
    case Epilogue::bias_gradient:
      return "bias_gradient";
  }
  return "";
}

// Everything that decides which algorithms there are and which is fastest: key of plans and of the cache.
std::string problem_of(const Gemm& g) {
  return fmt::format("{}{} {}x{}x{} ld {} {} {} batch {} {} {} {} c {} beta {} epilogue {} align {} {} {} {}", g.transpose_a ? 'T' : 'N',
                     g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, g.lda, g.ldb, g.ldc, g.batch, g.stride_a, g.stride_b, g.stride_c,
                     g.c_storage == Storage::as_bf16 ? "bf16" : "fp32", g.beta != 0.0f ? 1 : 0, name(g.epilogue), alignment_bytes(g.a),
                     alignment_bytes(g.b), alignment_bytes(g.c), alignment_bytes(addend_of(g)));
}

std::string no_kernel(const Gemm& g) { return fmt::format("cuBLASLt has no kernel for the bf16 product {}", problem_of(g)); }

// What the library asks of the operands of an epilogue, and does not look at when it offers kernels.
std::optional<std::string> broken_rule(const Gemm& g) {
  const auto misplaced = [&](const char* tensor) {
    return fmt::format("cuBLASLt's epilogue {} needs its {} at a multiple of 16 bytes: {}", name(g.epilogue), tensor, problem_of(g));
  };
  const auto uneven = [&] {
    return fmt::format("cuBLASLt's epilogue {} needs rows of a multiple of 8 values: {}", name(g.epilogue), problem_of(g));
  };
  switch (g.epilogue) {
    case Epilogue::none:
      return std::nullopt;
    case Epilogue::bias:
      if (alignment_bytes(g.bias) < 16) return misplaced("bias");
      return std::nullopt;
    case Epilogue::gelu_aux_bias:
      if (alignment_bytes(g.bias) < 16) return misplaced("bias");
      if (g.n % 8 != 0) return uneven();
      return std::nullopt;
    case Epilogue::dgelu:
      if (g.n % 8 != 0) return uneven();
      return std::nullopt;
    case Epilogue::bias_gradient:
      if (alignment_bytes(g.bias_gradient) < 16) return misplaced("bias gradient");
      return std::nullopt;
  }
  return std::nullopt;
}

void point_epilogue(const Description& d, const Gemm& g) {
  switch (g.epilogue) {
    case Epilogue::none:
      break;
    case Epilogue::bias:
      set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
      break;
    case Epilogue::gelu_aux_bias:
      set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
      set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g.aux);
      break;
    case Epilogue::dgelu:
      set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g.aux);
      break;
    case Epilogue::bias_gradient:
      set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias_gradient);
      break;
  }
}

void describe_epilogue(const Description& d, const Gemm& g) {
  const auto epilogue = [&](cublasLtEpilogue_t e) { set(d, CUBLASLT_MATMUL_DESC_EPILOGUE, e); };
  switch (g.epilogue) {
    case Epilogue::none:
      return;
    // Weights are bf16 also where the result is fp32, so the type of the bias is said.
    case Epilogue::bias:
      epilogue(CUBLASLT_EPILOGUE_BIAS);
      set(d, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
      break;
    case Epilogue::gelu_aux_bias:
      epilogue(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
      set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.n);
      break;
    case Epilogue::dgelu:
      epilogue(CUBLASLT_EPILOGUE_DGELU);
      set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.n);
      break;
    // Our a is the library's second operand.
    case Epilogue::bias_gradient:
      epilogue(CUBLASLT_EPILOGUE_BGRADB);
      set(d, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
      break;
  }
  point_epilogue(d, g);
}

constexpr int kMostOffers = 32;
constexpr int64_t kFewestMultiplyAdds = 500'000'000;  // of a product with named tiles: below, a launch's latency is most of its time
constexpr int32_t kHopperFamily = 66;                 // of kernels: cuBLASLt of CUDA 13.0 offers no other for such products on sm_90

int64_t multiprocessors_with_tiles() {
  int device = 0, major = 0, multiprocessors = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  return why_no_tiles(major) ? 0 : multiprocessors;
}

std::optional<int32_t> family_of(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t family = 0;
  size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_ID, &family, sizeof(family), &written) != CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  return family;
}

bool searches(MatmulAlgorithm choice) {
  switch (choice) {
    case MatmulAlgorithm::fitting_tiles:
    case MatmulAlgorithm::search:
    case MatmulAlgorithm::fewest_joules:
    case MatmulAlgorithm::fastest:
      return true;
    case MatmulAlgorithm::heuristic:
      break;
  }
  return false;
}

bool may_name_tiles(MatmulAlgorithm choice) {
  switch (choice) {
    case MatmulAlgorithm::fitting_tiles:
    case MatmulAlgorithm::fewest_joules:
      return true;
    case MatmulAlgorithm::search:
    case MatmulAlgorithm::fastest:
    case MatmulAlgorithm::heuristic:
      break;
  }
  return false;
}

class Timer {
 public:
  template <class Launch>
  double microseconds(int launches, cudaStream_t stream, const Launch& launch) {
    begin_.record(stream);
    for (int i = 0; i < launches; ++i) launch();
    end_.record(stream);
    end_.wait();
    return gpt2::cuda::elapsed_ns(begin_, end_) * 1e-3 / launches;
  }

 private:
  gpt2::cuda::Event begin_, end_;
};

}  // namespace

struct MatmulEngine::Plan {
  Description description;
  Layout a, b, c;
  std::vector<cublasLtMatmulAlgo_t> candidates;  // in the library's order; for a search also those that it has and does not offer
  cublasLtMatmulAlgo_t algorithm{};
  bool found = false;
  bool searched = false;
};

// Out of line, both: the map's elements are complete only here.
MatmulEngine::MatmulEngine(MatmulAlgorithm choice, void* workspace, std::filesystem::path cache_file)
    : choice_(choice),
      workspace_(workspace),
      cache_(searches(choice) ? std::move(cache_file) : std::filesystem::path{}, choice),
      multiprocessors_(may_name_tiles(choice) ? multiprocessors_with_tiles() : 0) {}
MatmulEngine::~MatmulEngine() = default;

void MatmulEngine::note(const AlgorithmCache::Found& found) {
  if (found.why_by_time.empty()) return;
  if (by_time_++ == 0) why_by_time_ = found.why_by_time;
}

std::optional<std::string> MatmulEngine::why_by_time() const {
  if (by_time_ == 0) return std::nullopt;
  return fmt::format("matmul_algorithm took the fastest algorithm for {} product{} of {} or more, not the one with the fewest joules: {}",
                     by_time_, by_time_ == 1 ? "" : "s", weighs_from(choice_), why_by_time_);
}

void MatmulEngine::take_candidate(size_t number) {
  taken_ = number;
  most_candidates_ = {};
}

void MatmulEngine::end_rehearsal() {
  rehearsing_ = false;
  cache_.save();
}

MatmulEngine::Plan& MatmulEngine::plan(const Gemm& g) {
  if (g.m < 1 || g.n < 1 || g.k < 1 || g.batch < 1 || g.batch > 2147483647)
    throw stepscope::InputError(fmt::format("a matrix product of {} x {} x {}, {} times, cannot be computed", g.m, g.n, g.k, g.batch));
  const std::string problem = problem_of(g);
  const auto known = plans_.find(problem);
  if (known != plans_.end()) return *known->second;

  auto fresh = std::make_unique<Plan>();
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulDescCreate(&fresh->description.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  // The library's first operand is our b, its second our a; a row-major matrix stored untransposed needs no transposition there.
  const cublasOperation_t op_first = g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_second = g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(fresh->description, CUBLASLT_MATMUL_DESC_TRANSA, op_first);
  set(fresh->description, CUBLASLT_MATMUL_DESC_TRANSB, op_second);
  describe_epilogue(fresh->description, g);
  create(fresh->b, CUDA_R_16BF, g.transpose_b ? g.k : g.n, g.transpose_b ? g.n : g.k, g.ldb, g.batch, g.stride_b);
  create(fresh->a, CUDA_R_16BF, g.transpose_a ? g.m : g.k, g.transpose_a ? g.k : g.m, g.lda, g.batch, g.stride_a);
  create(fresh->c, type_of(g.c_storage), g.n, g.m, g.ldc, g.batch, g.stride_c);

  Preference preference;
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&preference.handle));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kMatmulWorkspaceBytes));
  // Parts of a split sum may be stored only in fp32: with a bf16 output, OUTPUT_TYPE would round each of them.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(g.c_storage == Storage::fp32 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE
                                                         : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_bytes(g.b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_bytes(g.a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_bytes(addend_of(g)));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_bytes(g.c));

  const int wanted = searches(choice_) ? kMostOffers : 1;
  std::array<cublasLtMatmulHeuristicResult_t, kMostOffers> results{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), fresh->description.handle, fresh->b.handle, fresh->a.handle, fresh->c.handle,
                                     fresh->c.handle, preference.handle, wanted, results.data(), &count);
  // An epilogue or a layout that the library does not have is an answer, not an error.
  if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) STEPSCOPE_CUDA_CHECK(status);
  if (status == CUBLAS_STATUS_SUCCESS)
    for (int i = 0; i < count; ++i)
      if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS) fresh->candidates.push_back(results[static_cast<size_t>(i)].algo);
  fresh->found = !fresh->candidates.empty();
  if (fresh->found) fresh->algorithm = fresh->candidates.front();
  if (taken_) {
    most_candidates_.offered = std::max(most_candidates_.offered, fresh->candidates.size());
    add_fitting_tiles(*fresh, g);
    most_candidates_.all = std::max(most_candidates_.all, fresh->candidates.size());
    if (fresh->found) fresh->algorithm = fresh->candidates[*taken_ % fresh->candidates.size()];
  } else if (const auto cached = cache_.find(problem)) {
    if (runs(*fresh, cached->algorithm)) {
      fresh->algorithm = cached->algorithm;
      fresh->found = true;
      fresh->searched = cached->why_by_time.empty() || why_no_energy_counter();
      if (fresh->searched) note(*cached);
    }
  }
  return *plans_.emplace(problem, std::move(fresh)).first->second;
}

bool MatmulEngine::names_tiles(const Plan& p, const Gemm& g) const {
  return !p.candidates.empty() && multiprocessors_ > 0 && g.batch == 1 && g.m * g.n * g.k >= kFewestMultiplyAdds;
}

std::optional<std::string> MatmulEngine::why_no_named_tiles(const Gemm& g) {
  if (broken_rule(g)) return std::nullopt;
  const Plan& p = plan(g);
  if (!names_tiles(p, g)) return std::nullopt;
  const std::optional<int32_t> family = family_of(p.candidates.front());
  if (family == kHopperFamily) return std::nullopt;
  return fmt::format("it names tiles of cuBLASLt's kernels of family {}, and this cuBLASLt offers {}", kHopperFamily,
                     family ? fmt::format("family {}", *family) : "kernels of no family");
}

// The first offer says which family of kernels runs here. The capabilities of that family name no tiles (CUDA 13.0), so tile, parts and
// their sum, option and cluster are set on a copy of the offer, and the library is asked whether it has that one.
void MatmulEngine::add_fitting_tiles(Plan& p, const Gemm& g) const {
  if (!names_tiles(p, g)) return;
  const cublasLtMatmulAlgo_t first = p.candidates.front();
  if (family_of(first) != kHopperFamily) return;
  int32_t most_options = 0;
  size_t written = 0;
  if (cublasLtMatmulAlgoCapGetAttribute(&first, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &most_options, sizeof(most_options), &written) !=
      CUBLAS_STATUS_SUCCESS)
    return;
  const auto set_field = [](cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t field, auto value) {
    return cublasLtMatmulAlgoConfigSetAttribute(&algorithm, field, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  };
  for (const ProductTile& tile : tiles_that_fit(g.n, g.m, g.k, multiprocessors_)) {
    const uint32_t reduction = tile.parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    for (int32_t option = 0; option <= most_options; ++option)
      for (const cublasLtClusterShape_t cluster :
           {CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1}) {
        cublasLtMatmulAlgo_t algorithm = first;
        if (!set_field(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, static_cast<uint32_t>(tile.id)) ||
            !set_field(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, static_cast<int32_t>(tile.parts)) ||
            !set_field(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, reduction) ||
            !set_field(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, static_cast<uint32_t>(option)) ||
            !set_field(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<uint16_t>(cluster)))
          continue;
        if (runs(p, algorithm)) p.candidates.push_back(algorithm);
      }
  }
}

// Whether the library computes the plan's product by this algorithm, in our workspace.
bool MatmulEngine::runs(const Plan& p, const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t check{};
  return cublasLtMatmulAlgoCheck(handle_.get(), p.description.handle, p.b.handle, p.a.handle, p.c.handle, p.c.handle, &algorithm, &check) ==
             CUBLAS_STATUS_SUCCESS &&
         check.workspaceSize <= static_cast<size_t>(kMatmulWorkspaceBytes);
}

std::optional<std::string> MatmulEngine::why_not(const Gemm& g) {
  if (auto why = broken_rule(g)) return why;
  if (!plan(g).found) return no_kernel(g);
  return std::nullopt;
}

void MatmulEngine::launch(Plan& p, const Gemm& g, const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) const {
  const cublasStatus_t status =
      cublasLtMatmul(handle_.get(), p.description.handle, &g.alpha, g.b, p.b.handle, g.a, p.a.handle, &g.beta, addend_of(g), p.c.handle,
                     g.c, p.c.handle, &algorithm, workspace_, static_cast<size_t>(kMatmulWorkspaceBytes), stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED && g.epilogue != Epilogue::none)
    throw stepscope::InputError(fmt::format("cuBLASLt offered a kernel for the bf16 product {} and refuses to launch it", problem_of(g)));
  STEPSCOPE_CUDA_CHECK(status);
}

// Rounds over all candidates, so that clock and temperature drift hit all alike; the best of the rounds' times counts. Candidates that are
// 15% behind the best leave after the first round, those 5% behind after the second: a first round is two launches. Then joules, where the
// rule asks for them.
void MatmulEngine::search(Plan& p, const Gemm& g, const std::string& problem, cudaStream_t stream) {
  struct Entry {
    cublasLtMatmulAlgo_t algorithm;
    double best_us = 1e30;
    int launches = 1;
  };
  std::vector<Entry> entries;
  Timer timer;
  add_fitting_tiles(p, g);
  for (const cublasLtMatmulAlgo_t& algorithm : p.candidates) {
    // Some offers fail at launch on shapes they were offered for; they are out of the race.
    const cublasStatus_t status =
        cublasLtMatmul(handle_.get(), p.description.handle, &g.alpha, g.b, p.b.handle, g.a, p.a.handle, &g.beta, addend_of(g), p.c.handle,
                       g.c, p.c.handle, &algorithm, workspace_, static_cast<size_t>(kMatmulWorkspaceBytes), stream);
    if (status == CUBLAS_STATUS_SUCCESS) entries.push_back({algorithm});
  }
  if (entries.empty()) return;
  double best = 1e30;
  for (int round = 0; round < 4; ++round) {
    for (Entry& e : entries) {
      if (round > 0 && e.best_us > (round == 1 ? 1.15 : 1.05) * best) continue;
      const auto once = [&] { launch(p, g, e.algorithm, stream); };
      if (round == 0) {
        e.best_us = timer.microseconds(2, stream, once);
        e.launches = std::clamp(static_cast<int>(1500.0 / e.best_us), 2, 40);
      } else {
        e.best_us = std::min(e.best_us, timer.microseconds(e.launches, stream, once));
      }
      best = std::min(best, e.best_us);
    }
  }
  std::vector<double> times_us;
  for (const Entry& e : entries) times_us.push_back(e.best_us);
  AlgorithmCache::Found found;
  std::vector<std::vector<double>> joules;
  const std::vector<size_t> order = algorithms_to_weigh(choice_, times_us);
  if (!order.empty() && counter_failure_.empty()) {
    try {
      joules = weigh_algorithms(order, times_us, stream, [&](size_t i) { launch(p, g, entries[i].algorithm, stream); });
    } catch (const energy::CounterError& e) {
      // By name it is refused; search says by which rule it chose.
      if (choice_ == MatmulAlgorithm::fewest_joules)
        throw stepscope::MachineError(fmt::format("--variant matmul_algorithm=fewest_joules: {}", e.what()));
      counter_failure_ = e.what();
    }
  }
  if (!order.empty()) found.why_by_time = counter_failure_;
  const auto choice = choose_algorithm(times_us, joules);
  if (!choice) return;
  p.algorithm = found.algorithm = entries[choice->algorithm].algorithm;
  found.time_us = times_us[choice->algorithm];
  if (choice->by_joules) found.joules = joules[choice->algorithm].front();
  note(found);
  cache_.remember(problem, found);
}

void MatmulEngine::run(const Gemm& g, cudaStream_t stream) {
  if (const auto why = broken_rule(g)) throw stepscope::InputError(*why);
  Plan& p = plan(g);
  if (!p.found) throw stepscope::InputError(no_kernel(g));
  point_epilogue(p.description, g);
  if (rehearsing_ && searches(choice_) && !taken_ && !p.searched) {
    p.searched = true;
    search(p, g, problem_of(g), stream);
  }
  launch(p, g, p.algorithm, stream);
}

// ---- linear layers ----------------------------------------------------------------------------------------------------

namespace {

// out (rows,OUT) = inp (rows,IN) * weight (OUT,IN)^T
Gemm forward_gemm(void* out, const bf16* inp, const bf16* weight, int64_t rows, int64_t in, int64_t out_channels) {
  Gemm gemm{.transpose_b = true, .m = rows, .n = out_channels, .k = in};
  gemm.a = inp, gemm.lda = in;
  gemm.b = weight, gemm.ldb = in;
  gemm.c = out, gemm.ldc = out_channels;
  return gemm;
}

// dinp (rows,IN) = dout (rows,OUT) * weight (OUT,IN)
Gemm backward_input_gemm(bf16* dinp, const bf16* dout, const bf16* weight, int64_t rows, int64_t in, int64_t out_channels) {
  Gemm gemm{.m = rows, .n = in, .k = out_channels};
  gemm.a = dout, gemm.lda = out_channels;
  gemm.b = weight, gemm.ldb = in;
  gemm.c = dinp, gemm.ldc = in;
  return gemm;
}

}  // namespace

Gemm linear_forward_product(LinearForward variant, bf16* out, const bf16* inp, const bf16* weight, const bf16* bias, int64_t rows,
                            int64_t in, int64_t out_channels) {
  Gemm gemm = forward_gemm(out, inp, weight, rows, in, out_channels);
  if (bias == nullptr) return gemm;
  switch (variant) {
    case LinearForward::bias_epilogue:
      gemm.epilogue = Epilogue::bias;
      gemm.bias = bias;
      break;
    case LinearForward::bias_kernel:
      break;
  }
  return gemm;
}

void linear_forward(LinearForward variant, MatmulEngine& engine, bf16* out, const bf16* inp, const bf16* weight, const bf16* bias,
                    int64_t rows, int64_t in, int64_t out_channels, cudaStream_t stream) {
  engine.run(linear_forward_product(variant, out, inp, weight, bias, rows, in, out_channels), stream);
  switch (variant) {
    case LinearForward::bias_epilogue:
      break;
    case LinearForward::bias_kernel:  // the product rounded, then the sum rounded
      if (bias != nullptr) gpt2::ops::add_bias(out, bias, rows, out_channels, stream);
      break;
  }
}

Gemm linear_gelu_product(bf16* after, bf16* before, const bf16* inp, const bf16* weight, const bf16* bias, int64_t rows, int64_t in,
                         int64_t out_channels) {
  Gemm gemm = forward_gemm(after, inp, weight, rows, in, out_channels);
  gemm.epilogue = Epilogue::gelu_aux_bias;
  gemm.bias = bias;
  gemm.aux = before;
  return gemm;
}

void linear_gelu_forward(MatmulEngine& engine, bf16* after, bf16* before, const bf16* inp, const bf16* weight, const bf16* bias,
                         int64_t rows, int64_t in, int64_t out_channels, cudaStream_t stream) {
  engine.run(linear_gelu_product(after, before, inp, weight, bias, rows, in, out_channels), stream);
}

template <class R>
Gemm linear_residual_product(R* out, const R* addend, const bf16* inp, const bf16* weight, const bf16* bias, int64_t rows, int64_t in,
                             int64_t out_channels) {
  Gemm gemm = forward_gemm(out, inp, weight, rows, in, out_channels);
  gemm.c_storage = sizeof(R) == 2 ? Storage::as_bf16 : Storage::fp32;
  gemm.beta = 1.0f;
  gemm.addend = addend;
  gemm.epilogue = Epilogue::bias;
  gemm.bias = bias;
  return gemm;
}

template <class R>
void linear_residual_forward(MatmulEngine& engine, R* out, const R* addend, const bf16* inp, const bf16* weight, const bf16* bias,
                             int64_t rows, int64_t in, int64_t out_channels, cudaStream_t stream) {
  engine.run(linear_residual_product(out, addend, inp, weight, bias, rows, in, out_channels), stream);
}

#define STEPSCOPE_INSTANTIATE(R)                                                                                                          \
  template Gemm linear_residual_product<R>(R*, const R*, const bf16*, const bf16*, const bf16*, int64_t, int64_t, int64_t);               \
  template void linear_residual_forward<R>(MatmulEngine&, R*, const R*, const bf16*, const bf16*, const bf16*, int64_t, int64_t, int64_t, \
                                           cudaStream_t);
STEPSCOPE_INSTANTIATE(bf16)
STEPSCOPE_INSTANTIATE(float)
#undef STEPSCOPE_INSTANTIATE

void linear_backward_input(MatmulEngine& engine, bf16* dinp, const bf16* dout, const bf16* weight, int64_t rows, int64_t in,
                           int64_t out_channels, cudaStream_t stream) {
  engine.run(backward_input_gemm(dinp, dout, weight, rows, in, out_channels), stream);
}

Gemm linear_gelu_backward_product(bf16* dbefore, const bf16* dout, const bf16* weight, const bf16* before, int64_t rows, int64_t in,
                                  int64_t out_channels) {
  Gemm gemm = backward_input_gemm(dbefore, dout, weight, rows, in, out_channels);
  gemm.epilogue = Epilogue::dgelu;
  gemm.aux = const_cast<bf16*>(before);  // read only by this epilogue
  return gemm;
}

void linear_gelu_backward_input(MatmulEngine& engine, bf16* dbefore, const bf16* dout, const bf16* weight, const bf16* before, int64_t rows,
                                int64_t in, int64_t out_channels, cudaStream_t stream) {
  engine.run(linear_gelu_backward_product(dbefore, dout, weight, before, rows, in, out_channels), stream);
}

template <class D>
Gemm linear_weight_product(BiasGradient variant, D* dweight, float* product_bias, const bf16* dout, const bf16* inp, int64_t rows,
                           int64_t in, int64_t out_channels, bool accumulate) {
  Gemm gemm{.transpose_a = true, .m = out_channels, .n = in, .k = rows};
  gemm.a = dout, gemm.lda = out_channels;
  gemm.b = inp, gemm.ldb = in;
  gemm.c = dweight, gemm.ldc = in;
  gemm.c_storage = sizeof(D) == 2 ? Storage::as_bf16 : Storage::fp32;
  gemm.beta = accumulate ? 1.0f : 0.0f;
  if (product_bias == nullptr) return gemm;
  switch (variant) {
    case BiasGradient::matmul_epilogue:
      gemm.epilogue = Epilogue::bias_gradient;
      gemm.bias_gradient = product_bias;
      break;
    case BiasGradient::softmax_identities:
    case BiasGradient::attention_fold:
    case BiasGradient::layernorm_fold:
    case BiasGradient::column_sums:
      break;
  }
  return gemm;
}

template <class D>
void linear_backward_weight(BiasGradient variant, MatmulEngine& engine, D* dweight, float* dbias, const bf16* dout, const bf16* inp,
                            int64_t rows, int64_t in, int64_t out_channels, bool accumulate, float* scratch, cudaStream_t stream) {
  float* product_bias = dbias != nullptr && accumulate ? scratch : dbias;  // the epilogue overwrites
  engine.run(linear_weight_product(variant, dweight, product_bias, dout, inp, rows, in, out_channels, accumulate), stream);
  if (dbias == nullptr) return;
  switch (variant) {
    case BiasGradient::matmul_epilogue:
      if (accumulate) gpt2::ops::add_floats(dbias, scratch, out_channels, stream);
      break;
    case BiasGradient::softmax_identities:
    case BiasGradient::attention_fold:
    case BiasGradient::layernorm_fold:
    case BiasGradient::column_sums:
      gpt2::ops::bias_gradient(dbias, dout, rows, out_channels, accumulate, scratch, stream);
      break;
  }
}

#define STEPSCOPE_INSTANTIATE(D)                                                                                                        \
  template Gemm linear_weight_product<D>(BiasGradient, D*, float*, const bf16*, const bf16*, int64_t, int64_t, int64_t, bool);          \
  template void linear_backward_weight<D>(BiasGradient, MatmulEngine&, D*, float*, const bf16*, const bf16*, int64_t, int64_t, int64_t, \
                                          bool, float*, cudaStream_t);
STEPSCOPE_INSTANTIATE(bf16)
STEPSCOPE_INSTANTIATE(float)
#undef STEPSCOPE_INSTANTIATE

int64_t linear_backward_weight_scratch_floats(int64_t rows, int64_t out_channels) {
  return std::max(out_channels, gpt2::ops::bias_gradient_scratch_floats<bf16>(rows, out_channels));
}

}  // namespace mixed
