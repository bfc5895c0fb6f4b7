// The shared library is the archive ops_c as a whole; CMake wants a source of its own for it.
#include "python/native/stepscope_ops.h"

static_assert(STEPSCOPE_OPS_ABI == 2, "python/stepscope/_library.py compares this number");
