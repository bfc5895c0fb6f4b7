# STEPSCOPE_COMPILE_ONLY, for a machine that compiles device code and runs none of it (CI): nvcc's fastest code generation, and the device
# sources of a stage as one. Every kernel is still compiled to machine code for every architecture, with the same warnings. The kernels are
# slow, so the launcher asks for this only without a GPU, and the program refuses to run them.
#
#   stepscope_device_sources_together(STAGE [APART name…])   APART: names that several of its sources give to different things of their own
function(stepscope_device_sources_together STAGE)
  if(NOT STEPSCOPE_COMPILE_ONLY)
    return()
  endif()
  cmake_parse_arguments(T "" "" "APART" ${ARGN})
  get_target_property(sources ${STAGE} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  set(text "")
  foreach(source IN LISTS sources)
    get_filename_component(path ${source} ABSOLUTE)
    string(MAKE_C_IDENTIFIER ${source} place)
    foreach(name IN LISTS T_APART)
      string(APPEND text "#define ${name} ${name}_of_${place}\n")
    endforeach()
    string(APPEND text "#include \"${path}\"\n")
    foreach(name IN LISTS T_APART)
      string(APPEND text "#undef ${name}\n")
    endforeach()
  endforeach()
  set(together ${CMAKE_CURRENT_BINARY_DIR}/${STAGE}_together.cu)
  file(CONFIGURE OUTPUT ${together} CONTENT "${text}" @ONLY)
  set_source_files_properties(${sources} PROPERTIES HEADER_FILE_ONLY ON)
  target_sources(${STAGE} PRIVATE ${together})
endfunction()

if(STEPSCOPE_COMPILE_ONLY)
  add_compile_definitions(STEPSCOPE_COMPILE_ONLY)  # such a program finds no GPU: gpt2/cuda/device_info.cpp
  set(CMAKE_CUDA_FLAGS_RELEASE "-O1")  # of the host code in these sources; what a host test runs of it asks for more
  include(CheckCompilerFlag)
  check_compiler_flag(CUDA -Ofc=max STEPSCOPE_NVCC_COMPILES_FAST)
  if(STEPSCOPE_NVCC_COMPILES_FAST)
    add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Ofc=max>)
  endif()
endif()
