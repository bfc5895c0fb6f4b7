#include "gpt2/distributed/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>

#include <cstdlib>
#include <vector>

#include "gpt2/distributed/nccl.h"

namespace gpt2::distributed {
namespace {

constexpr int kOldest = 22600;  // older ones were not tried

std::string version_text(int version) { return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100); }

std::vector<std::string> matching(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> files;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return files;
}

// Where wheels of PyTorch put the library, which is on nobody's loader path.
std::vector<std::string> candidates() {
  const char* named = std::getenv("STEPSCOPE_NCCL_LIBRARY");
  if (named != nullptr && *named != 0) return {named};
  std::vector<std::string> files{"libnccl.so.2"};
  std::vector<std::string> roots;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* root = std::getenv(variable); root != nullptr && *root != 0)
      roots.push_back(std::string(root) + "/lib/python3*/site-packages");
  if (const char* home = std::getenv("HOME")) roots.push_back(std::string(home) + "/.local/lib/python3*/site-packages");
  for (const char* root : {"/usr/local/lib/python3*/*-packages", "/usr/lib/python3*/*-packages", "/opt/*/lib/python3*/site-packages",
                           "/opt/*/.venv/lib/python3*/site-packages"})
    roots.emplace_back(root);
  for (const std::string& root : roots)
    for (std::string& file : matching(root + "/nvidia/nccl/lib/libnccl.so.2")) files.push_back(std::move(file));
  return files;
}

template <class F>
void resolve(void* handle, const char* name, F& function, std::optional<std::string>& missing) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  if (function == nullptr && !missing)
    missing = fmt::format("NCCL: the library has no {}; at least {} is needed", name, version_text(kOldest));
}

NcclLibrary open_library() {
  // NCCL reads its variables once, at the first call: set later, this would be ignored.
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  NcclLibrary l;
  void* handle = nullptr;
  std::string why;
  for (const std::string& file : candidates()) {
    handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle != nullptr) break;
    if (why.empty())
      if (const char* text = dlerror()) why = text;
  }
  if (handle == nullptr) {
    l.missing = fmt::format(
        "NCCL cannot be opened ({}): install it (libnccl2, or the Python package nvidia-nccl-cu13), or name its file in "
        "STEPSCOPE_NCCL_LIBRARY",
        why);
    return l;
  }
  resolve(handle, "ncclGetVersion", l.get_version, l.missing);
  resolve(handle, "ncclGetUniqueId", l.get_unique_id, l.missing);
  resolve(handle, "ncclCommInitRankConfig", l.comm_init_rank_config, l.missing);
  resolve(handle, "ncclCommDestroy", l.comm_destroy, l.missing);
  resolve(handle, "ncclCommAbort", l.comm_abort, l.missing);
  resolve(handle, "ncclCommGetAsyncError", l.comm_get_async_error, l.missing);
  resolve(handle, "ncclAllReduce", l.all_reduce, l.missing);
  resolve(handle, "ncclReduceScatter", l.reduce_scatter, l.missing);
  resolve(handle, "ncclAllGather", l.all_gather, l.missing);
  resolve(handle, "ncclGetErrorString", l.get_error_string, l.missing);
  resolve(handle, "ncclGetLastError", l.get_last_error, l.missing);
  if (!l.missing && (l.get_version(&l.version) != ncclSuccess || l.version < kOldest))
    l.missing = fmt::format("NCCL {} is older than {}: install a newer one, or name its file in STEPSCOPE_NCCL_LIBRARY",
                            version_text(l.version), version_text(kOldest));
  return l;
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary the_one = open_library();
  return the_one;
}

std::optional<std::string> why_no_nccl() { return nccl_library().missing; }
std::string nccl_version() { return nccl_library().missing ? "" : version_text(nccl_library().version); }

}  // namespace gpt2::distributed
