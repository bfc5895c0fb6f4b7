# Included from gpt2/CMakeLists.txt when STEPSCOPE_CUDA. NVTX 3 is header-only and dlopens a tool, hence CMAKE_DL_LIBS.
include(Nccl)
stepscope_stage(gpt2_cuda RANK 14
  SOURCES cuda/check.cpp cuda/device_info.cpp cuda/launch.cpp cuda/nvtx_ranges.cpp
          distributed/peer_communicator.cpp distributed/peer_kernels.cu distributed/rank_device.cpp distributed/device_staged.cpp ${STEPSCOPE_NCCL_SOURCES}
  LINKS gpt2_model base_cublas
  PUBLIC_LIBS CUDA::cudart
  PRIVATE_LIBS fmt::fmt ${CMAKE_DL_LIBS})
