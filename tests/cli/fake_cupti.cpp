// Stands for libcupti of CUDA 12.9.
#include <cstdint>

extern "C" int cuptiGetVersion(uint32_t* version) {
  *version = 28;
  return 0;
}
