# CUPTI as an imported target. It lies in the toolkit's own include/lib on pip-style installs and under extras/CUPTI in
# NVIDIA's installers; both are looked at, the toolkit that compiles the device code first.
find_path(CUPTI_INCLUDE_DIR cupti_range_profiler.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include /usr/local/cuda/extras/CUPTI/include)
find_library(CUPTI_LIBRARY cupti
  HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/lib64 /usr/local/cuda/extras/CUPTI/lib64)
if(CUPTI_INCLUDE_DIR AND CUPTI_LIBRARY)
  add_library(stepscope::cupti UNKNOWN IMPORTED)
  set_target_properties(stepscope::cupti PROPERTIES IMPORTED_LOCATION ${CUPTI_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES "${CUPTI_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}")
else()
  message(FATAL_ERROR "CUPTI not found (cupti_range_profiler.h, libcupti): install the CUPTI package of this CUDA toolkit, "
    "or configure with -DSTEPSCOPE_CUDA=OFF")
endif()
