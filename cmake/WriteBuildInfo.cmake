execute_process(COMMAND git -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE rev OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(rev "unknown")
else()
  execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE dirty ERROR_QUIET)
  if(dirty)
    string(APPEND rev "-dirty")
  endif()
endif()
set(text "#pragma once
inline constexpr const char* kGitRevision = \"${rev}\";
inline constexpr const char* kBuildType = \"${BUILD_TYPE}\";
inline constexpr const char* kVersion = \"${VERSION}\";
inline constexpr const char* kSourceDir = \"${SOURCE}\";
")
set(old "")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
