# Communication through NCCL is compiled in where nccl.h is found (from the system, or from the PyPI wheel nvidia-nccl-cu13). Nothing is
# linked: libnccl.so.2 is opened at run time. Sets STEPSCOPE_NCCL_SOURCES, the files that answer for NCCL in this build.
set(STEPSCOPE_NCCL_INCLUDE "" CACHE PATH "Folder that holds nccl.h")
file(GLOB python_packages LIST_DIRECTORIES true
  /usr/lib/python3*/*-packages /usr/local/lib/python3*/*-packages /opt/*/lib/python3*/site-packages
  /opt/*/.venv/lib/python3*/site-packages $ENV{HOME}/.local/lib/python3*/site-packages)
set(nccl_hints ${STEPSCOPE_NCCL_INCLUDE} ${PROJECT_SOURCE_DIR}/.deps/nccl/include ${CUDAToolkit_INCLUDE_DIRS})
foreach(packages IN LISTS python_packages)
  list(APPEND nccl_hints ${packages}/nvidia/nccl/include)
endforeach()
find_path(STEPSCOPE_NCCL_FOUND_INCLUDE nccl.h HINTS ${nccl_hints})
if(STEPSCOPE_NCCL AND STEPSCOPE_NCCL_FOUND_INCLUDE)
  message(STATUS "NCCL: ${STEPSCOPE_NCCL_FOUND_INCLUDE}")
  set(STEPSCOPE_NCCL_SOURCES distributed/nccl_library.cpp distributed/nccl_communicator.cpp)
  set_source_files_properties(distributed/nccl_library.cpp distributed/nccl_communicator.cpp PROPERTIES
    COMPILE_OPTIONS "-isystem;${STEPSCOPE_NCCL_FOUND_INCLUDE}")
else()
  message(STATUS "NCCL: not built in (no nccl.h)")
  set(STEPSCOPE_NCCL_SOURCES distributed/nccl_without_header.cpp)
endif()
