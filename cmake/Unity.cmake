# STEPSCOPE_UNITY: the host sources of a target are compiled several at a time, so that what they include is read and instantiated once.
# Included by the folders whose targets take part: base, profiler, experiments, cli and tests (gpt2/CMakeLists.txt says it of two stages).
# The stages that compute a step take part only with STEPSCOPE_COMPILE_ONLY: a receipt is of objects compiled from one source each.
# Two sources of one target may not give different things in an unnamed namespace one name; SKIP_UNITY_BUILD_INCLUSION leaves a source out.
if(STEPSCOPE_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE ${STEPSCOPE_UNITY_BATCH})
  # GCC warns of a class with a member from an unnamed namespace anywhere but in the main file, which a unity source makes of none.
  add_compile_options($<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
endif()
