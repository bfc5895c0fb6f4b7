#include "profiler/report/names.h"

#include <gtest/gtest.h>

#include <iterator>
#include <string>

#include "profiler/report/utf8.h"

namespace {

using profiler::elide;
using profiler::short_kernel_name;

TEST(KernelNames, LoseReturnTypeNamespacesTemplateArgumentsAndParameters) {
  EXPECT_EQ(short_kernel_name("void fp32::(anonymous namespace)::layernorm_forward_kernel<(int)4>(float *, const float *, int)"),
            "layernorm_forward_kernel");
  EXPECT_EQ(short_kernel_name("fp32::adamw_kernel<(bool)1>(float *, float *)"), "adamw_kernel");
  EXPECT_EQ(short_kernel_name("axpy(float*, float)"), "axpy");
  EXPECT_EQ(short_kernel_name("void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, "
                              "float>(cublasSplitKParams<float>, const float *)"),
            "splitKreduce_kernel");
  EXPECT_EQ(short_kernel_name("void gemmSN_TN_kernel<float, 128, cublasGemvTensorStridedBatched<float "
                              "const>>(cublasGemmSmallNParams<T1, T2>)"),
            "gemmSN_TN_kernel");
}

TEST(KernelNames, AnArgumentMayHoldAComparisonOrACall) {
  EXPECT_EQ(short_kernel_name("void k<(1>2)>(int)"), "k");
  EXPECT_EQ(short_kernel_name("bool ns::operator>(int, ns::b)"), "operator>");
  EXPECT_EQ(short_kernel_name("void ns::k<(sizeof(int)>4), f(x)>(int (*)(int))"), "k");
}

TEST(KernelNames, WrappersGiveWhatTheyWrap) {
  EXPECT_EQ(short_kernel_name("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)"),
            "cutlass_80_simt_sgemm_256x128_8x4_nn_align1");
  EXPECT_EQ(short_kernel_name("void cutlass::device_kernel<foo::FlashKernel<int, bar>>(x)"), "FlashKernel");
  EXPECT_EQ(short_kernel_name("void ns::Kernel<>(x)"), "Kernel") << "it wraps nothing";
  EXPECT_EQ(short_kernel_name("void Kernel<ns::>(int)"), "ns::");
}

// A product of cuBLAS stood in the tables as "int".
TEST(KernelNames, ATypeOrANumberIsNothingThatAWrapperWraps) {
  EXPECT_EQ(short_kernel_name("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, float, false, 7, "
                              "cublasGemvParamsEx<int, float> >(cublasGemvParamsEx<int, float>)"),
            "kernel");
  for (const char* argument : {"128", "(int)128, float", "-1", "float", "unsigned int", "float const*", "const float *", "true", "(x)"})
    EXPECT_EQ(short_kernel_name("void mine::kernel<" + std::string(argument) + ">(float*)"), "kernel") << argument;
  EXPECT_EQ(short_kernel_name("void cutlass::Kernel2<int_gemm_128x64>(T1::Params)"), "int_gemm_128x64");
}

// Each level copied the rest: 20 s were not enough.
TEST(KernelNames, WrappersThousandsOfLevelsDeepAreLeftAtTheTenth) {
  std::string name = "x";
  for (int i = 0; i < 9; ++i) name = "Kernel<" + name + ">";
  EXPECT_EQ(short_kernel_name(name), "x");
  std::string deep;
  for (int i = 0; i < 50'000; ++i) deep += "Kernel<";
  EXPECT_EQ(short_kernel_name(deep + "x" + std::string(50'000, '>')), "Kernel");
}

TEST(KernelNames, PlainOnesAndCopiesStayAsTheyAre) {
  for (const char* name : {"ampere_sgemm_128x64_nn", "copy HtoD", "memset", "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT", "", "<<<", "(x)"})
    EXPECT_EQ(short_kernel_name(name), name);
}

TEST(Utf8, ACharacterIsReadWhereverItStandsAndNeverBehindTheText) {
  const auto at = [](std::string_view text, size_t i) {
    const profiler::Utf8Character c = profiler::utf8_character(text, i);
    return std::pair(c.bytes, c.columns);
  };
  using Size = std::pair<size_t, size_t>;
  for (const std::string before : {"", "a", "abcd"}) {
    EXPECT_EQ(at(before + "\xC3\xBC", before.size()), Size(2, 1)) << "u with two dots";
    EXPECT_EQ(at(before + "\xE3\x82\xAB", before.size()), Size(3, 2)) << "katakana ka";
    EXPECT_EQ(at(before + "\xCC\x88", before.size()), Size(2, 0)) << "the two dots alone";
    EXPECT_EQ(at(before + "\xF0\x9F\x98\x80", before.size()), Size(4, 2)) << "a face";
    EXPECT_EQ(at(before + "\xF0\x9F\x9A\x80", before.size()), Size(4, 2)) << "a rocket";
    for (const std::string cut : {"\xC3", "\xE3\x82", "\xF0\x9F\x98"}) EXPECT_EQ(at(before + cut, before.size()), Size(1, 1));
    EXPECT_EQ(at(before + "\xE3" + "ab", before.size()), Size(1, 1));
  }
}

TEST(KernelNames, ElidingKeepsBothEnds) {
  EXPECT_EQ(elide("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(elide("abcdefghijk", 10), "abcdef..jk");
  EXPECT_EQ(elide("größe", 5), "größe") << "five columns, more bytes";
  const char* all[] = {"", "a", "ab", "abc", "abcd", "ab..k", "abc..k", "abcd..k", "abcd..jk", "abcde..jk", "abcdef..jk", "abcdefghijk"};
  for (size_t w = 0; w < std::size(all); ++w) EXPECT_EQ(elide("abcdefghijk", w), all[w]) << w;
}

}  // namespace
