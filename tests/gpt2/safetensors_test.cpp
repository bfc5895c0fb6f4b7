// The container alone: what a hostile or damaged file may say, and the conversions to float.
#include "gpt2/data/safetensors.h"

#include <bit>
#include <cmath>

#include "tests/gpt2/safetensors_file.h"

namespace gpt2 {
namespace {
using testing::bytes_of;
using testing::file_of;
using testing::RawTensors;

void refused(const std::string& header, size_t data_bytes, const char* message) {
  SCOPED_TRACE(header);
  EXPECT_INPUT_ERROR(parse_safetensors(file_of(header, std::vector<std::byte>(data_bytes)), "w"), "w: ", message);
}

TEST(Safetensors, tensors_are_found_wherever_their_offsets_say) {
  const std::string header =
      R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},"none":{"shape":[0,4],"dtype":"F32","data_offsets":[8,8]},)"
      R"("a":{"data_offsets":[0,8],"dtype":"F32","shape":[2,1]},"one":{"dtype":"U8","shape":[],"data_offsets":[11,12]}}   )";
  std::vector<std::byte> data(12);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  const auto file = file_of(header, data);
  const Safetensors t = parse_safetensors(file, "w");
  ASSERT_EQ(t.size(), 4u);
  EXPECT_EQ(t.at("a").dtype, "F32");
  EXPECT_THAT(t.at("a").shape, ::testing::ElementsAre(2, 1));
  EXPECT_THAT(t.at("a").bytes, ::testing::ElementsAreArray(data.data(), 8));
  EXPECT_THAT(t.at("b").bytes, ::testing::ElementsAre(std::byte{8}, std::byte{9}, std::byte{10}));
  EXPECT_EQ(t.at("one").bytes.size(), 1u);
  EXPECT_TRUE(t.at("none").bytes.empty());
}

TEST(Safetensors, a_header_that_is_none_is_refused) {
  EXPECT_INPUT_ERROR(parse_safetensors(std::vector<std::byte>(7), "w"), "w: ", "truncated");
  std::vector<std::byte> huge(64, std::byte{0xff});
  EXPECT_INPUT_ERROR(parse_safetensors(huge, "w"), "at most 100000000", "not a safetensors file");
  auto cut = file_of("{}", {});
  cut[0] = std::byte{3};
  EXPECT_INPUT_ERROR(parse_safetensors(cut, "w"), "truncated");
  refused("{\"a\":", 0, "header is no JSON");
  refused("", 0, "header is no JSON");
  refused("{} {}", 0, "header is no JSON");
  refused("{\"a\" 1}", 0, "header is no JSON: column 6: no JSON from here on");
  refused("{\"a\":1e999}", 0, "header is no JSON: column 6: 1e999 is too large for a number");
  refused("{\"\xff\":1}", 0, "header is no JSON");
  refused("[]", 0, "expected a JSON object");
  refused("3", 0, "expected a JSON object");
  refused(std::string(1000000, '['), 0, "nested deeper");
  refused(R"({"a":{"shape":[[[1]]]}})", 0, "nested deeper");
}

TEST(Safetensors, a_name_or_field_that_stands_twice_is_refused) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  refused("{" + a + "," + a + "}", 1, "'a' stands there twice");
  refused(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1, "'dtype' stands there twice");
  // The same field in two tensors is none.
  EXPECT_EQ(parse_safetensors(file_of("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", std::vector<std::byte>(2)), "w")
                .size(),
            2u);
}

TEST(Safetensors, wrong_fields_are_refused) {
  refused(R"({"a":7})", 0, "tensor a: expected an object");
  refused(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "tensor a: has no dtype");
  refused(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "tensor a: has no shape");
  refused(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "tensor a: has no data_offsets");
  refused(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,1]}})", 1, "tensor a: dtype \"F31\"");
  refused(R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,1]}})", 1, "tensor a: dtype 4");
  refused(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, "tensor a: shape 1");
  refused(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "tensor a: shape [-1]");
  refused(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "tensor a: shape [1.0]");
  // 2^32 * 2^32 is 0 in 64 bits: the product that no file could hold must not wrap to one that this file does.
  refused(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "absurdly large");
  refused(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "absurdly large");
}

TEST(Safetensors, wrong_offsets_are_refused) {
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "expected [begin, end]");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1, "expected [begin, end]");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "end before they begin");
  refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "truncated: tensor a");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}})", 1, "truncated: tensor a");
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,3]}})", 3, "tensor a: 3 bytes, and F32 [1] has 4");
  refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
          "tensors a and b overlap");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", 3,
          "1 bytes between a and tensor b");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 3, "2 bytes behind the last tensor");
}

TEST(Safetensors, every_half_is_widened_exactly) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
    const float found = half_to_float(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(found), bits >= 0x8000) << bits;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(found), fraction != 0) << bits;
      ASSERT_EQ(std::isinf(found), fraction == 0) << bits;
      ASSERT_EQ(std::bit_cast<uint32_t>(found) & 0x7fffffu, static_cast<uint32_t>(fraction) << 13) << bits;
      continue;
    }
    const float size =
        exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24) : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    ASSERT_EQ(std::fabs(found), size) << bits;
  }
}

TEST(Safetensors, every_bf16_keeps_its_bits) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const auto bytes = bytes_of(all);
  std::vector<float> out(all.size());
  widen_tensor({"BF16", {65536}, bytes}, out, "w", "a");
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), static_cast<uint32_t>(i) << 16);
  EXPECT_INPUT_ERROR(widen_tensor({"U16", {65536}, bytes}, out, "w", "a"), "w: tensor a is U16, expected F32, BF16 or F16");
}

TEST(Safetensors, every_type_of_the_format_has_its_width) {
  const std::pair<const char*, uint64_t> types[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                                                    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                                                    {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8}};
  for (const auto& [type, width] : types) {
    const auto file = file_of(RawTensors{{"a", {type, {3}, std::vector<std::byte>(3 * width)}}});
    EXPECT_EQ(parse_safetensors(file, "w").at("a").bytes.size(), 3 * width) << type;
  }
}

}  // namespace
}  // namespace gpt2
