// `doctor` asks for the libraries of the CUDA that the program was built with, be it 12 or 13.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace {

std::string probe(const std::string& environment, int major) {
  FILE* p = popen((environment + " " LIBRARY_PROBE " " + std::to_string(major)).c_str(), "r");
  if (!p) return "cannot be started";
  std::string out;
  char part[256];
  while (std::fgets(part, sizeof part, p)) out += part;
  return pclose(p) == 0 ? out : "failed";
}

TEST(CudaLibraries, ABuildWithCuda12FindsThoseOfCuda12) {
  EXPECT_EQ(probe("LD_LIBRARY_PATH=" FAKE_CUDA_12, 12), "libcublasLt.so.12 120901\nlibcupti.so.12 28\n");
}

TEST(CudaLibraries, OneOfAnotherMajorVersionDoesNotCount) {
  EXPECT_EQ(probe("LD_LIBRARY_PATH=" FAKE_CUDA_12, 99), "libcublasLt.so.99 -1\nlibcupti.so.99 -1\n");
}

}  // namespace
