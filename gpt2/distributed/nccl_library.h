// The functions of libnccl.so.2 that are used, opened at run time.
#pragma once
#include <nccl.h>

#include <optional>
#include <string>

namespace gpt2::distributed {

struct NcclLibrary {
  std::optional<std::string> missing;  // why it cannot be used; functions are null then
  int version = 0;                     // 22809

  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
};

// Opened once.
const NcclLibrary& nccl_library();

}  // namespace gpt2::distributed
