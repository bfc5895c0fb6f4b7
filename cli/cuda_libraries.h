// The CUDA libraries that the trainers and the collector load, asked for their versions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace cli {

struct FoundLibrary {
  std::string file;                // "libcublasLt.so.13"
  std::optional<int64_t> version;  // what it reports of itself; without one it cannot be loaded
};

// `cuda_major` is that of the toolkit this program was built with: a library of another major version has another name and cannot take
// its place.
FoundLibrary find_cublas_lt(int cuda_major);
FoundLibrary find_cupti(int cuda_major);

}  // namespace cli
