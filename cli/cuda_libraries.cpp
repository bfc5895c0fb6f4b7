#include "cli/cuda_libraries.h"

#include <dlfcn.h>

namespace cli {
namespace {

// Calls `ask` with the address of `symbol`.
template <class Ask>
FoundLibrary find(std::string file, const char* symbol, Ask ask) {
  FoundLibrary found{std::move(file), std::nullopt};
  if (void* handle = dlopen(found.file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (void* function = dlsym(handle, symbol)) found.version = ask(function);
    dlclose(handle);
  }
  return found;
}

}  // namespace

FoundLibrary find_cublas_lt(int cuda_major) {
  return find("libcublasLt.so." + std::to_string(cuda_major), "cublasLtGetVersion",
              [](void* f) -> std::optional<int64_t> { return static_cast<int64_t>(reinterpret_cast<size_t (*)()>(f)()); });
}

FoundLibrary find_cupti(int cuda_major) {
  return find("libcupti.so." + std::to_string(cuda_major), "cuptiGetVersion", [](void* f) -> std::optional<int64_t> {
    uint32_t version = 0;
    if (reinterpret_cast<int (*)(uint32_t*)>(f)(&version) != 0) return std::nullopt;
    return version;
  });
}

}  // namespace cli
