# One target per stage of the flow. `stepscope_stage(NAME RANK r SOURCES … LINKS …)` makes a static library and
# refuses, at configure time, a link to a stage of the same or a higher rank: the include chains run left to right only.
# The ranks are the whole dependency rule of the project; docs/architecture.md shows them as a table.
set(STEPSCOPE_STAGES "" CACHE INTERNAL "")

# -std for nvcc by hand: CMake 3.25 takes nvcc 13 to default to C++20 (it is C++17) and leaves the flag out.
add_library(stepscope_flags INTERFACE)
target_compile_features(stepscope_flags INTERFACE cxx_std_20)
target_include_directories(stepscope_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_options(stepscope_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -lineinfo --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra>)
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

function(stepscope_stage NAME)
  cmake_parse_arguments(S "" "RANK" "SOURCES;LINKS;PRIVATE_LIBS;PUBLIC_LIBS" ${ARGN})
  set_property(GLOBAL PROPERTY STEPSCOPE_RANK_${NAME} ${S_RANK})
  foreach(dep IN LISTS S_LINKS)
    get_property(rank GLOBAL PROPERTY STEPSCOPE_RANK_${dep})
    if(rank STREQUAL "")
      message(FATAL_ERROR "stage ${NAME} links ${dep}, which is not a stage declared before it: "
        "the flow runs left to right (docs/architecture.md)")
    endif()
    if(NOT rank LESS S_RANK)
      message(FATAL_ERROR "stage ${NAME} (rank ${S_RANK}) may not link ${dep} (rank ${rank}): "
        "the flow runs left to right (docs/architecture.md)")
    endif()
  endforeach()
  add_library(${NAME} STATIC ${S_SOURCES})
  set_target_properties(${NAME} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${NAME} PUBLIC stepscope_flags ${S_LINKS} ${S_PUBLIC_LIBS} PRIVATE ${S_PRIVATE_LIBS})
endfunction()
