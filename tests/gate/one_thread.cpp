// The models here are so small that OpenMP threads mostly wait for each other, and on a busy machine for
// long.
#ifdef _OPENMP
#include <omp.h>

namespace {
[[maybe_unused]] const bool kOneThread = [] {
  omp_set_num_threads(1);
  return true;
}();
}  // namespace
#endif
