// library_probe MAJOR: what `stepscope doctor` of a program built with that CUDA finds on the loader path.
#include <cstdio>
#include <cstdlib>

#include "cli/cuda_libraries.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int major = std::atoi(argv[1]);
  for (const cli::FoundLibrary& l : {cli::find_cublas_lt(major), cli::find_cupti(major)})
    std::printf("%s %lld\n", l.file.c_str(), static_cast<long long>(l.version.value_or(-1)));
}
