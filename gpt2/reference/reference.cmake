# The arithmetic files are compiled for this machine's processor and at -O3; nothing here may use -ffast-math, which would let
# the compiler reorder the sums that the oracle's accuracy and repeatability rest on. -Wno-psabi: no vector crosses a function
# boundary that is not inlined.
set(reference_arithmetic
  ${CMAKE_CURRENT_LIST_DIR}/gemm.cpp ${CMAKE_CURRENT_LIST_DIR}/layers.cpp ${CMAKE_CURRENT_LIST_DIR}/attention.cpp)
stepscope_stage(gpt2_reference RANK 12
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/buffer.cpp ${reference_arithmetic}
          ${CMAKE_CURRENT_LIST_DIR}/reference_model.cpp ${CMAKE_CURRENT_LIST_DIR}/reference_trainer.cpp
  LINKS gpt2_model PRIVATE_LIBS fmt::fmt)
set(reference_flags -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast -Wno-psabi)
if(STEPSCOPE_NATIVE)
  list(APPEND reference_flags -march=native -mprefer-vector-width=512)
endif()
set_source_files_properties(${reference_arithmetic} PROPERTIES COMPILE_OPTIONS "${reference_flags}" SKIP_PRECOMPILE_HEADERS ON)
if(OpenMP_CXX_FOUND)
  target_link_libraries(gpt2_reference PRIVATE OpenMP::OpenMP_CXX)
endif()
