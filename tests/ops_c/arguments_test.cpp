// What the C interface refuses before it launches anything; no device is needed. Addresses that are never read are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "python/native/stepscope_ops.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Test;

template <class T>
T* address(uintptr_t at) {
  return reinterpret_cast<T*>(at);
}
void* const kAny = address<void>(0x10000);
float* const kFloats = address<float>(0x20000);
const int64_t* const kTargets = address<int64_t>(0x30000);
constexpr int kF32 = STEPSCOPE_OPS_F32, kBf16 = STEPSCOPE_OPS_BF16;

#define EXPECT_REFUSED(call, ...)                                \
  do {                                                           \
    EXPECT_EQ(call, STEPSCOPE_OPS_INPUT);                        \
    EXPECT_THAT(stepscope_ops_last_error(), AllOf(__VA_ARGS__)); \
  } while (false)

int layernorm_forward(const char* variant, int storage, int stream, void* kept, const void* inp, int64_t rows, int64_t C) {
  return stepscope_ops_layernorm_forward(variant, storage, stream, kAny, kFloats, kFloats, kept, inp, kAny, kAny, rows, C, nullptr);
}

TEST(OpsCInterface, HasTheVersionOfItsHeader) { EXPECT_EQ(stepscope_ops_abi(), STEPSCOPE_OPS_ABI); }

TEST(OpsCInterface, ListsTheVariantsThatStandAlone) {
  const auto json = nlohmann::json::parse(stepscope_ops_variants());
  EXPECT_EQ(json["fp32"]["adamw"], std::vector<std::string>{"all_tensors"});
  EXPECT_THAT(json["mixed"]["layernorm_forward"].get<std::vector<std::string>>(),
              ::testing::UnorderedElementsAre("warp_per_row", "block_per_row"));
  EXPECT_THAT(json["mixed"]["attention_backward"].get<std::vector<std::string>>(), ::testing::Contains("cudnn_deterministic"));
  for (const char* storage : {"fp32", "mixed"}) {
    SCOPED_TRACE(storage);
    const auto classifiers = json[storage]["classifier"].get<std::vector<std::string>>();
    EXPECT_THAT(classifiers, ::testing::UnorderedElementsAre("kept_sum", "one_read", "two_pass"));
    EXPECT_EQ(classifiers.front(), "kept_sum") << "the default comes first";
  }
  EXPECT_FALSE(json["fp32"].contains("zero_grad"));
}

// Where there is no PyTorch nobody imports that file, and a variant that is missing there cannot be given to PyTorch.
TEST(OpsCInterface, AndPythonHasANameForEach) {
  std::ifstream in(SOURCE_DIR "/python/stepscope/_variants.py");
  const std::string python{std::istreambuf_iterator<char>(in), {}};
  const auto json = nlohmann::json::parse(stepscope_ops_variants());
  std::map<std::string, std::set<std::string>> library;
  for (const char* storage : {"fp32", "mixed"})
    for (const auto& [slot, names] : json[storage].items())
      for (const auto& name : names) library[slot].insert(name.get<std::string>());
  for (const auto& [slot, names] : library) {
    std::smatch row;
    ASSERT_TRUE(std::regex_search(python, row, std::regex("\n    \"" + slot + R"re(": \[([^\]]*)\])re")))
        << slot << " stands in no line of ALONE";
    const std::string listed = row[1];
    static const std::regex word("\"([a-z0-9_]+)\"");
    std::set<std::string> in_python;
    for (std::sregex_iterator i(listed.begin(), listed.end(), word), end; i != end; ++i) in_python.insert((*i)[1]);
    EXPECT_EQ(in_python, names) << "ALONE of python/stepscope/_variants.py, " << slot;
  }
}

TEST(OpsCLayernorm, RefusesWhatNoKernelTakes) {
  EXPECT_REFUSED(layernorm_forward("warp_per_column", kF32, kF32, nullptr, kAny, 4, 8), HasSubstr("warp_per_column"),
                 HasSubstr("block_per_row"));
  EXPECT_REFUSED(layernorm_forward(nullptr, kF32, kF32, nullptr, kAny, 4, 8), HasSubstr("variant is a null pointer"));
  EXPECT_REFUSED(layernorm_forward("warp_per_row", 2, kF32, nullptr, kAny, 4, 8), HasSubstr("storage is 2"));
  EXPECT_REFUSED(layernorm_forward("warp_per_row", kF32, kBf16, nullptr, kAny, 4, 8), HasSubstr("no kernel"));
  EXPECT_REFUSED(layernorm_forward("warp_per_row", kBf16, kBf16, kAny, kAny, 4, 8), HasSubstr("kept must be NULL"));
  EXPECT_REFUSED(layernorm_forward("warp_per_row", kF32, kF32, nullptr, nullptr, 4, 8), HasSubstr("inp is a null pointer"));
  EXPECT_REFUSED(layernorm_forward("warp_per_row", kF32, kF32, nullptr, kAny, -1, 8), HasSubstr("rows is -1"));
  EXPECT_REFUSED(layernorm_forward("warp_per_row", kF32, kF32, nullptr, kAny, 4, 0), HasSubstr("C is 0"));
}

TEST(OpsCLayernorm, RefusesRowsThatAVariantDoesNotHoldInItsOwnWords) {
  EXPECT_REFUSED(layernorm_forward("warp_per_row", kBf16, kBf16, nullptr, kAny, 4, 4096), HasSubstr("4096"),
                 HasSubstr("use layernorm_forward=block_per_row"));
  std::array<char, 16> scratch{};
  EXPECT_REFUSED(stepscope_ops_layernorm_backward("fused_rows", kF32, kF32, kAny, kFloats, kFloats, kAny, kAny, kFloats, kFloats, kAny, 4,
                                                  64, scratch.data(), 1, nullptr),
                 HasSubstr("scratch has 1 bytes"), HasSubstr("_scratch"));
}

TEST(OpsC, EmptyTensorsLaunchNothing) {
  EXPECT_EQ(layernorm_forward("warp_per_row", kF32, kF32, nullptr, nullptr, 0, 8), STEPSCOPE_OPS_OK);
  EXPECT_EQ(stepscope_ops_gelu_forward(kF32, nullptr, nullptr, 0, nullptr), STEPSCOPE_OPS_OK);
  EXPECT_EQ(stepscope_ops_attention_forward("flash", kBf16, nullptr, nullptr, nullptr, 0, 4, 8, 2, nullptr, 0, nullptr), STEPSCOPE_OPS_OK);
  int64_t bytes = -1;
  EXPECT_EQ(stepscope_ops_attention_backward_scratch("flash", kBf16, 0, 4, 8, 2, &bytes), STEPSCOPE_OPS_OK);
  EXPECT_EQ(bytes, 0);
}

TEST(OpsCGelu, RefusesNullAndUnknownStorage) {
  EXPECT_REFUSED(stepscope_ops_gelu_forward(kF32, kAny, nullptr, 4, nullptr), HasSubstr("inp is a null pointer"));
  EXPECT_REFUSED(stepscope_ops_gelu_backward(-1, kAny, kAny, kAny, 4, nullptr), HasSubstr("storage is -1"));
}

TEST(OpsCAttention, RefusesHeadsThatDoNotFit) {
  const auto forward = [](const char* variant, int storage, int64_t C, int64_t NH) {
    return stepscope_ops_attention_forward(variant, storage, kAny, kFloats, kAny, 2, 4, C, NH, nullptr, 0, nullptr);
  };
  EXPECT_REFUSED(forward("flash", kBf16, 10, 3), HasSubstr("10 channels do not divide into 3 heads"));
  EXPECT_REFUSED(forward("flash", kF32, 512, 2), HasSubstr("heads of up to 128"), HasSubstr("unfused_causal_blocks"));
  EXPECT_REFUSED(forward("flash", kBf16, 512, 2), HasSubstr("heads of up to 128"), HasSubstr("use unfused"));
  EXPECT_REFUSED(forward("cudnn", kF32, 64, 2), HasSubstr("cudnn"));
  EXPECT_REFUSED(forward("unfused", kF32, 64, 2), HasSubstr("scratch has 0 bytes"));
}

TEST(OpsCCrossEntropy, RefusesPaddingAndScratchThatCannotBe) {
  const auto forward = [](const char* variant, int64_t V, int64_t Vp, void* scratch, int64_t bytes) {
    return stepscope_ops_cross_entropy_forward(variant, kBf16, kFloats, kAny, kTargets, 4, V, Vp, -100, scratch, bytes, nullptr);
  };
  EXPECT_REFUSED(forward("one_read", 50257, 50256, kAny, 1 << 20), HasSubstr("Vp is 50256, at least 50257"));
  EXPECT_REFUSED(forward("one_read", 50257, 50304, kAny, 8), HasSubstr("scratch has 8 bytes"));
  EXPECT_REFUSED(forward("three_pass", 50257, 50304, kAny, 1 << 20), HasSubstr("three_pass"));
  int64_t bytes = 0;
  EXPECT_EQ(stepscope_ops_cross_entropy_scratch(1000, &bytes), STEPSCOPE_OPS_OK);
  EXPECT_GE(bytes, 1000 * 8);
}

TEST(OpsCCrossEntropy, KeptSumRefusesRowsThatOverlap) {
  const auto forward = [](int64_t V, int64_t pitch, int64_t bytes) {
    return stepscope_ops_cross_entropy_kept_sum_forward(kBf16, kFloats, kFloats, kAny, kTargets, 4, V, pitch, -100, kAny, bytes, nullptr);
  };
  const auto backward = [](int64_t V, int64_t pitch, int64_t Vp, int64_t bytes) {
    return stepscope_ops_cross_entropy_kept_sum_backward(kBf16, kAny, kAny, kFloats, kTargets, kFloats, 4, V, pitch, Vp, -100, kAny, bytes,
                                                         nullptr);
  };
  for (const int64_t pitch : {int64_t{50256}, int64_t{0}, int64_t{-50264}}) {
    const std::string sentence = "pitch is " + std::to_string(pitch) + ", at least 50257";
    EXPECT_REFUSED(forward(50257, pitch, 1 << 20), HasSubstr("kept_sum_forward"), HasSubstr(sentence));
    EXPECT_REFUSED(backward(50257, pitch, 50264, 1 << 20), HasSubstr("kept_sum_backward"), HasSubstr(sentence));
  }
  // A pitch that does is passed on to the next check, wider than the gradient's rows as well.
  EXPECT_REFUSED(forward(50257, 50257, 8), HasSubstr("scratch has 8 bytes"));
  EXPECT_REFUSED(forward(50257, 50264, 8), HasSubstr("scratch has 8 bytes"));
  EXPECT_REFUSED(backward(50257, 50304, 50264, 8), HasSubstr("scratch has 8 bytes"));
  EXPECT_REFUSED(backward(50257, 50304, 50256, 1 << 20), HasSubstr("Vp is 50256, at least 50257"));
}

TEST(OpsCAdamW, RefusesPerTensorBadRangesAndMissingVectors) {
  const auto update = [](const char* variant, int storage, void* rounded, int64_t decayed, int64_t total) {
    return stepscope_ops_adamw(variant, storage, rounded, kFloats, kFloats, kFloats, kFloats, decayed, total, kAny, kFloats, nullptr);
  };
  EXPECT_REFUSED(update("per_tensor", kF32, nullptr, 8, 16), HasSubstr("16 tensors"), HasSubstr("all_tensors"));
  EXPECT_REFUSED(update("all_tensors", kF32, nullptr, 17, 16), HasSubstr("decayed is 17"));
  EXPECT_REFUSED(update("all_tensors", kF32, kAny, 8, 16), HasSubstr("rounded must be NULL"));
  EXPECT_REFUSED(update("all_tensors", kBf16, nullptr, 8, 16), HasSubstr("rounded is a null pointer"));
}

TEST(OpsCAdamW, SettingsAreRefusedBeforeTheyAreWritten) {
  std::vector<unsigned char> settings(static_cast<size_t>(stepscope_ops_adamw_settings_bytes()), 7);
  EXPECT_REFUSED(stepscope_ops_adamw_settings(settings.data(), 1e-3, 0.9, 0.999, 1e-8, 0.1, 0), HasSubstr("step is 0"));
  EXPECT_REFUSED(stepscope_ops_adamw_settings(settings.data(), 1e-3, 1.0, 0.999, 1e-8, 0.1, 1), HasSubstr("beta1 is 1.0"));
  EXPECT_THAT(settings, ::testing::Each(7));
  EXPECT_EQ(stepscope_ops_adamw_settings(settings.data(), 1e-3, 0.9, 0.999, 1e-8, 0.1, 1), STEPSCOPE_OPS_OK);
  EXPECT_THAT(settings, ::testing::Contains(::testing::Ne(7)));
}

}  // namespace
