// An NCCL of the version in FAKE_NCCL_VERSION (2.28.9 unless set) that can do nothing.
#include <cstdlib>

extern "C" {
int ncclGetVersion(int* version) {
  const char* other = std::getenv("FAKE_NCCL_VERSION");
  *version = other ? std::atoi(other) : 22809;
  return 0;
}
int ncclGetUniqueId() { return 1; }
int ncclCommInitRankConfig() { return 1; }
int ncclCommDestroy() { return 1; }
int ncclCommAbort() { return 1; }
int ncclCommGetAsyncError() { return 1; }
int ncclAllReduce() { return 1; }
int ncclReduceScatter() { return 1; }
int ncclAllGather() { return 1; }
const char* ncclGetErrorString() { return ""; }
const char* ncclGetLastError() { return ""; }
}
