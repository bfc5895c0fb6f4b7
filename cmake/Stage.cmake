# One target per stage of the flow. `stepscope_stage(NAME RANK r SOURCES … LINKS …)` makes a static library and
# refuses, at configure time, a link to a stage of the same or a higher rank: the include chains run left to right only.
# The ranks are the whole dependency rule of the project; docs/architecture.md shows them as a table.
set(STEPSCOPE_STAGES "" CACHE INTERNAL "")

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
  if(NOT STEPSCOPE_COMPILE_ONLY)
    # STEPSCOPE_UNITY is for host sources: device sources of one target give different things in unnamed namespaces one name.
    set(device_sources ${S_SOURCES})
    list(FILTER device_sources INCLUDE REGEX "\\.cu$")
    set_source_files_properties(${device_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(STEPSCOPE_PCH)
    stepscope_use_precompiled(${NAME} stepscope_pch)
  endif()
  target_link_libraries(${NAME} PUBLIC stepscope_flags ${S_LINKS} ${S_PUBLIC_LIBS} PRIVATE ${S_PRIVATE_LIBS})
endfunction()
