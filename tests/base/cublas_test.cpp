// cuBLAS is found by the first call of one of its functions, and only then.
#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/read_file.h"

namespace {

TEST(CublasForward, FindsTheLibraryAtTheFirstCallAndNotBefore) {
  const auto loaded = [] { return stepscope::read_file("/proc/self/maps").find("libcublasLt.so") != std::string::npos; };
  EXPECT_FALSE(loaded()) << "a program that links cuBLAS spends 100 ms on it at every start";
  EXPECT_GE(cublasLtGetVersion(), 120800u);
  EXPECT_TRUE(loaded());
  EXPECT_THAT(cublasLtGetStatusName(CUBLAS_STATUS_INVALID_VALUE), ::testing::StrEq("CUBLAS_STATUS_INVALID_VALUE"));
}

}  // namespace
