// The instances of the JSON library that JsonWithoutLiterals.h names, once for the whole build.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("Og")  // in two thirds of the time of -O1
#endif
#define STEPSCOPE_JSON_HERE
#include "cmake/JsonWithoutLiterals.h"
