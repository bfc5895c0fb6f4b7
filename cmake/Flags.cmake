# How everything is compiled. Host code is read, not waited for: -O1 halves the time to compile it, and what a run spends its time in
# (the arithmetic of the CPU reference and of the gate's oracle) asks for -O3 by its own source properties. No -ffast-math anywhere.
set(CMAKE_CXX_FLAGS_RELEASE "-O1")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3")

# -std for nvcc by hand: CMake 3.25 takes nvcc 13 to default to C++20 (it is C++17) and leaves the flag out.
# -fPIC and -fopenmp for all host code, because a precompiled header fits only code compiled with the same flags; nothing is linked by it.
add_library(stepscope_flags INTERFACE)
target_compile_features(stepscope_flags INTERFACE cxx_std_20)
target_include_directories(stepscope_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_options(stepscope_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fPIC -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
  # The compiler collects its garbage before the machine needs the memory: a tenth of the time of every file.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:--param=ggc-min-heapsize=1000000>
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -lineinfo --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra>)
if(OpenMP_CXX_FOUND)
  target_compile_options(stepscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${OpenMP_CXX_FLAGS}>)
else()
  target_compile_options(stepscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>)
endif()
if(STEPSCOPE_WERROR)
  target_compile_options(stepscope_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    # GCC 12 and 13 report these inside inlined libstdc++ code that is right (GCC bugs 105329, 105562, 111499): shown, not fatal.
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-error=array-bounds -Wno-error=stringop-overflow
      -Wno-error=restrict -Wno-error=maybe-uninitialized>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
if(STEPSCOPE_SANITIZE)
  target_compile_options(stepscope_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(stepscope_flags INTERFACE -fsanitize=address,undefined)
endif()
find_program(STEPSCOPE_MOLD mold)
find_program(STEPSCOPE_LLD ld.lld)
mark_as_advanced(STEPSCOPE_MOLD STEPSCOPE_LLD)
if(STEPSCOPE_MOLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>)
elseif(STEPSCOPE_LLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=lld>)
endif()

# ---- precompiled headers ---------------------------------------------------------------------------------------
# One for all host code and one for all tests. Every file still includes what it uses: STEPSCOPE_PCH=OFF (the preset `dev`) compiles
# without them. A source with flags of its own needs SKIP_PRECOMPILE_HEADERS.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/nothing.cpp CONTENT "// The precompiled headers belong to this.\n")
# fmt says by a definition whether it is shared, and a precompiled header is refused where a definition that it used is another.
get_target_property(fmt_definitions fmt::fmt INTERFACE_COMPILE_DEFINITIONS)
if(fmt_definitions)
  target_compile_definitions(stepscope_flags INTERFACE ${fmt_definitions})
endif()
function(stepscope_precompiled NAME)
  add_library(${NAME} OBJECT ${PROJECT_BINARY_DIR}/generated/nothing.cpp)
  target_link_libraries(${NAME} PRIVATE stepscope_flags fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(${NAME} PRIVATE ${ARGN})
endfunction()
set(STEPSCOPE_COMMON_HEADERS <algorithm> <array> <bit> <charconv> <chrono> <cmath> <cstdint> <cstdio> <cstdlib> <cstring> <deque> <filesystem>
  <fstream> <functional> <iterator> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <stdexcept> <string> <string_view>
  <thread> <unordered_map> <utility> <vector> <fmt/chrono.h> <fmt/format.h> <fmt/ranges.h>
  ${PROJECT_SOURCE_DIR}/cmake/JsonWithoutLiterals.h)
function(stepscope_use_precompiled TARGET FROM)
  if(STEPSCOPE_PCH)
    target_link_libraries(${TARGET} PRIVATE stepscope_json)
    target_precompile_headers(${TARGET} REUSE_FROM ${FROM})
    # ccache stores what was compiled with a precompiled header only when GCC tells which.
    target_compile_options(${TARGET} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>)
  endif()
endfunction()
if(STEPSCOPE_PCH)
  stepscope_precompiled(stepscope_pch ${STEPSCOPE_COMMON_HEADERS})
  add_library(stepscope_json STATIC cmake/JsonInstances.cpp)
  target_link_libraries(stepscope_json PRIVATE stepscope_flags nlohmann_json::nlohmann_json)
endif()
