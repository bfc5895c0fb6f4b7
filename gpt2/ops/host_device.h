// A function that both the host and a kernel may call: its tests need no GPU.
#pragma once

#ifdef __CUDACC__
#define STEPSCOPE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define STEPSCOPE_HOST_DEVICE inline
#endif
