// cuBLAS and cuBLASLt, loaded when the first of their functions is called. A program that links them runs their static constructors at every
// start: 100 ms and 26,000 page faults (CUDA 13.0), also for `stepscope --help` and on a machine without a GPU.
//
// Each definition has the name and the parameters of the library's own function, which the headers check. A call finds the library's by its
// name; without the library it throws stepscope::MachineError.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <dlfcn.h>

#include <string>

#include "base/errors.h"

namespace {

void* open_library(const std::string& stem) {
  const std::string name = stem + ".so." + std::to_string(CUBLAS_VER_MAJOR);
  // The loader's path first, then the toolkit of the build. Never unloaded: it may have started threads.
  for (const std::string& file : {name, STEPSCOPE_CUDA_LIBRARIES "/" + name})
    if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return handle;
  throw stepscope::MachineError(name + " cannot be loaded: put the CUDA toolkit's lib64 on the loader path (LD_LIBRARY_PATH or ldconfig)");
}
void* cublas() {
  static void* const handle = open_library("libcublas");
  return handle;
}
void* cublasLt() {
  static void* const handle = open_library("libcublasLt");
  return handle;
}

void* find_function(void* library, const char* name) {
  if (void* function = dlsym(library, name)) return function;
  throw stepscope::MachineError(std::string(name) + " is missing in the cuBLAS that was loaded");
}

}  // namespace

#define FORWARD(library, result, name, parameters, arguments)                                                          \
  extern "C" result CUBLASWINAPI name parameters {                                                                     \
    static auto* const function = reinterpret_cast<result(CUBLASWINAPI*) parameters>(find_function(library(), #name)); \
    return function arguments;                                                                                         \
  }

FORWARD(cublasLt, cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle), (handle))
FORWARD(cublasLt, cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle), (handle))
FORWARD(cublasLt, size_t, cublasLtGetVersion, (), ())
FORWARD(cublasLt, const char*, cublasLtGetStatusName, (cublasStatus_t status), (status))
FORWARD(cublasLt, const char*, cublasLtGetStatusString, (cublasStatus_t status), (status))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatrixLayoutCreate,
        (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t columns, int64_t stride),
        (layout, type, rows, columns, stride))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatrixLayoutSetAttribute,
        (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value, size_t bytes),
        (layout, attribute, value, bytes))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulDescCreate,
        (cublasLtMatmulDesc_t * description, cublasComputeType_t compute, cudaDataType_t scale), (description, compute, scale))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t description), (description))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulDescSetAttribute,
        (cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const void* value, size_t bytes),
        (description, attribute, value, bytes))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference), (preference))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference), (preference))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
        (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void* value, size_t bytes),
        (preference, attribute, value, bytes))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int asked,
         cublasLtMatmulHeuristicResult_t results[], int* found),
        (handle, description, a, b, c, d, preference, asked, results, found))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulAlgoCheck,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
         cublasLtMatmulHeuristicResult_t* result),
        (handle, description, a, b, c, d, algorithm, result))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulAlgoCapGetAttribute,
        (const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoCapAttributes_t attribute, void* value, size_t bytes, size_t* written),
        (algorithm, attribute, value, bytes, written))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulAlgoConfigGetAttribute,
        (const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, void* value, size_t bytes, size_t* written),
        (algorithm, attribute, value, bytes, written))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmulAlgoConfigSetAttribute,
        (cublasLtMatmulAlgo_t * algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, const void* value, size_t bytes),
        (algorithm, attribute, value, bytes))
FORWARD(cublasLt, cublasStatus_t, cublasLtMatmul,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
         const void* b, cublasLtMatrixLayout_t b_layout, const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
         cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
         cudaStream_t stream),
        (handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm, workspace, workspace_bytes,
         stream))

FORWARD(cublas, const char*, cublasGetStatusString, (cublasStatus_t status), (status))
FORWARD(cublas, cublasStatus_t, cublasCreate_v2, (cublasHandle_t * handle), (handle))
FORWARD(cublas, cublasStatus_t, cublasDestroy_v2, (cublasHandle_t handle), (handle))
FORWARD(cublas, cublasStatus_t, cublasSetStream_v2, (cublasHandle_t handle, cudaStream_t stream), (handle, stream))
FORWARD(cublas, cublasStatus_t, cublasSetWorkspace_v2, (cublasHandle_t handle, void* workspace, size_t bytes), (handle, workspace, bytes))
FORWARD(cublas, cublasStatus_t, cublasGemmEx,
        (cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, const void* alpha, const void* a,
         cudaDataType a_type, int lda, const void* b, cudaDataType b_type, int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
         cublasComputeType_t compute, cublasGemmAlgo_t algorithm),
        (handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, compute, algorithm))
