#include "experiments/gate/library_offers.h"

#include <cublasLt.h>

#include <algorithm>
#include <optional>

// The names that the linker's --wrap gives to the function that was asked for and to the real one.
extern "C" {
cublasStatus_t __real_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                                     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int asked,
                                                     cublasLtMatmulHeuristicResult_t results[], int* found);
cublasStatus_t __wrap_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                                     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int asked,
                                                     cublasLtMatmulHeuristicResult_t results[], int* found);
}

namespace gate {
namespace {

struct Wanted {
  int number = 0, most = 0;
};
thread_local std::optional<Wanted> wanted;

}  // namespace

OneOffer::OneOffer(int number) { wanted = {.number = number}; }
OneOffer::~OneOffer() { wanted.reset(); }
int OneOffer::most() const { return wanted->most; }

}  // namespace gate

cublasStatus_t __wrap_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                                     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int asked,
                                                     cublasLtMatmulHeuristicResult_t results[], int* found) {
  const cublasStatus_t status = __real_cublasLtMatmulAlgoGetHeuristic(handle, description, a, b, c, d, preference, asked, results, found);
  if (!gate::wanted || status != CUBLAS_STATUS_SUCCESS || *found == 0) return status;
  gate::wanted->most = std::max(gate::wanted->most, *found);
  results[0] = results[gate::wanted->number % *found];
  *found = 1;
  return status;
}
