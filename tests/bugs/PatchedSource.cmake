# Puts the one file that a patch changes, patched, below a folder of the build tree.
# Patches are applied at configure time with git, which takes no fuzz; GIT_CEILING_DIRECTORIES keeps it from finding the repository
# around the build folder, in which it would silently skip every file.
find_program(GIT git REQUIRED)
# stepscope_patched_source(PATCH): in the caller `number` (of the patch's name), `file` (its path in the tree) and `root`, below which the
# patched one lies.
function(stepscope_patched_source PATCH)
  get_filename_component(stem ${PATCH} NAME_WE)
  string(REGEX MATCH "^[0-9]+" number ${stem})
  file(STRINGS ${PATCH} touched REGEX "^\\+\\+\\+ b/")
  list(LENGTH touched files)
  if(NOT files EQUAL 1)
    message(FATAL_ERROR "${PATCH} must change exactly one file")
  endif()
  string(REGEX REPLACE "^\\+\\+\\+ b/" "" file "${touched}")
  set(root ${CMAKE_CURRENT_BINARY_DIR}/${number})
  get_filename_component(folder ${file} DIRECTORY)
  file(REMOVE_RECURSE ${root}/fresh)
  file(MAKE_DIRECTORY ${root}/fresh/${folder} ${root}/${folder})
  file(COPY ${PROJECT_SOURCE_DIR}/${file} DESTINATION ${root}/fresh/${folder})
  execute_process(COMMAND ${CMAKE_COMMAND} -E env GIT_CEILING_DIRECTORIES=${root} ${GIT} apply ${PATCH}
                  WORKING_DIRECTORY ${root}/fresh RESULT_VARIABLE failed ERROR_VARIABLE why)
  if(failed)
    message(FATAL_ERROR "${PATCH} does not apply: ${why}")
  endif()
  file(COPY_FILE ${root}/fresh/${file} ${root}/${file} ONLY_IF_DIFFERENT)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PATCH} ${PROJECT_SOURCE_DIR}/${file})
  set(number ${number} PARENT_SCOPE)
  set(file ${file} PARENT_SCOPE)
  set(root ${root} PARENT_SCOPE)
endfunction()
