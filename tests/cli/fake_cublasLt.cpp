// Stands for libcublasLt of CUDA 12.9.
#include <cstddef>

extern "C" size_t cublasLtGetVersion() { return 120901; }
