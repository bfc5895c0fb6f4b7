# What a run records about the binary that made it. Regenerated at every build, so that the revision is that of the
# sources compiled, not of the first configure.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/generated)
set(build_type ${CMAKE_BUILD_TYPE})
if(STEPSCOPE_COMPILE_ONLY)
  string(APPEND build_type ", device code compiled only")
endif()
add_custom_target(stepscope_build_info ALL
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUT=${PROJECT_BINARY_DIR}/generated/build_info.inc
          "-DBUILD_TYPE=${build_type}" -DVERSION=${PROJECT_VERSION} -P ${PROJECT_SOURCE_DIR}/cmake/WriteBuildInfo.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/build_info.inc
  COMMENT "")
