# cuDNN attention is compiled in where the headers of cudnn-frontend (from its PyPI wheel) and of cuDNN are found. Nothing is linked:
# libcudnn is opened at run time. Sets STEPSCOPE_CUDNN_SOURCE, the source file that answers for cuDNN in this build.
set(STEPSCOPE_CUDNN_FRONTEND_DIR "" CACHE PATH "Folder that holds cudnn_frontend.h")
set(STEPSCOPE_CUDNN_DIR "" CACHE PATH "Folder that holds cudnn.h")
file(GLOB python_packages LIST_DIRECTORIES true
  /usr/lib/python3*/*-packages /usr/local/lib/python3*/*-packages /opt/*/lib/python3*/site-packages $ENV{HOME}/.local/lib/python3*/site-packages)
set(cudnn_hints ${STEPSCOPE_CUDNN_DIR} ${PROJECT_SOURCE_DIR}/.deps/cudnn/include ${CUDAToolkit_INCLUDE_DIRS})
foreach(packages IN LISTS python_packages)
  list(APPEND cudnn_hints ${packages}/nvidia/cudnn/include)
endforeach()
find_path(STEPSCOPE_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
  HINTS ${STEPSCOPE_CUDNN_FRONTEND_DIR} ${PROJECT_SOURCE_DIR}/.deps/cudnn_frontend/include ${python_packages} PATH_SUFFIXES include)
find_path(STEPSCOPE_CUDNN_INCLUDE cudnn.h HINTS ${cudnn_hints})

if(STEPSCOPE_CUDNN AND STEPSCOPE_CUDNN_FRONTEND_INCLUDE AND STEPSCOPE_CUDNN_INCLUDE)
  message(STATUS "cuDNN attention: ${STEPSCOPE_CUDNN_FRONTEND_INCLUDE}, ${STEPSCOPE_CUDNN_INCLUDE}")
  set(STEPSCOPE_CUDNN_SOURCE attention_cudnn.cpp)
  # 50,000 lines of templates that build a plan once per shape; a step's launches stand in the step graph. -O0 takes two thirds of the time
  # of -O1 to compile. Their warnings are not ours.
  set_source_files_properties(attention_cudnn.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "-O0;-w;-isystem;${STEPSCOPE_CUDNN_FRONTEND_INCLUDE};-isystem;${STEPSCOPE_CUDNN_INCLUDE}")
  if(STEPSCOPE_COMPILE_ONLY)
    # Parsed and instantiated, so that what does not compile is an error, but no code is made of it: nothing here could run it.
    set(STEPSCOPE_CUDNN_SOURCE attention_cudnn_absent.cpp)
    set(checked ${CMAKE_CURRENT_BINARY_DIR}/attention_cudnn.checked)
    set(folders ${PROJECT_SOURCE_DIR} -isystem ${STEPSCOPE_CUDNN_FRONTEND_INCLUDE} -isystem ${STEPSCOPE_CUDNN_INCLUDE})
    foreach(folder IN LISTS CUDAToolkit_INCLUDE_DIRS)
      list(APPEND folders -isystem ${folder})
    endforeach()
    add_custom_command(OUTPUT ${checked} DEPFILE ${checked}.d DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/attention_cudnn.cpp VERBATIM
      COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -w -MD -MF ${checked}.d -MT ${checked} -I ${folders}
              ${CMAKE_CURRENT_SOURCE_DIR}/attention_cudnn.cpp
      COMMAND ${CMAKE_COMMAND} -E touch ${checked})
    set(all ALL)
    if(NOT STEPSCOPE_GPU_TESTS)
      unset(all)  # a user's machine without a GPU: CI parses it
    endif()
    add_custom_target(mixed_attention_cudnn_checked ${all} DEPENDS ${checked})
  endif()
else()
  message(STATUS "cuDNN attention: not built (cudnn_frontend.h: ${STEPSCOPE_CUDNN_FRONTEND_INCLUDE}, cudnn.h: ${STEPSCOPE_CUDNN_INCLUDE})")
  set(STEPSCOPE_CUDNN_SOURCE attention_cudnn_absent.cpp)
endif()
