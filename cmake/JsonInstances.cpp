// The instances of the JSON library that JsonWithoutLiterals.h names, once for the whole build.
#define STEPSCOPE_JSON_HERE
#include "cmake/JsonWithoutLiterals.h"
