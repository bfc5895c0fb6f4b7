#include "gpt2/checkpoint.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "gpt2/config.h"
#include "gpt2/tensor_table.h"
#include "tests/gpt2/files.h"

namespace gpt2 {
namespace {
using testing::read_bytes;
using testing::small_config;
using testing::small_parameters;
using testing::TemporaryFolder;

const std::string kGolden = std::string(TEST_DATA) + "/golden/tiny.bin";
const std::string kGoldenState = std::string(TEST_DATA) + "/golden/tiny_debug_state.bin";

// Radford et al. 2019, table 2, whose four models have heads of 64 channels.
TEST(Config, TheModelsOfGpt2AreThoseOfItsPaper) {
  const std::tuple<const char*, int64_t, int64_t> models[] = {
      {"d12", 12, 124'439'808}, {"d24", 24, 354'823'168}, {"d36", 36, 774'030'080}, {"d48", 48, 1'557'611'200}};
  for (const auto& [name, layers, parameters] : models) {
    ModelConfig c = model_from_name(name);
    EXPECT_EQ(c.layers, layers);
    EXPECT_EQ(c.channels / c.heads, 64) << name;
    c.padded_vocab = c.vocab_size;
    EXPECT_EQ(tensor_layout(c).total, parameters) << name;
  }
}

// A checkpoint file with header fields changed: (index, value) pairs.
std::vector<std::byte> with_header(std::vector<std::byte> bytes, std::initializer_list<std::pair<size_t, int32_t>> fields) {
  for (auto [i, value] : fields) std::memcpy(bytes.data() + 4 * i, &value, 4);
  return bytes;
}

TEST(Checkpoint, GoldenFileWrittenElsewhereIsReadAndWrittenBackByteForByte) {
  const Checkpoint c = load_checkpoint(kGolden);
  EXPECT_EQ(c.config, (ModelConfig{64, 509, 512, 2, 4, 64}));
  EXPECT_EQ(static_cast<int64_t>(c.parameters.size()), tensor_layout(c.config).total);
  EXPECT_EQ(checkpoint_config(kGolden), c.config);
  TemporaryFolder folder;
  save_checkpoint(folder / "copy.bin", c.config, c.parameters);
  EXPECT_EQ(read_bytes(folder / "copy.bin"), read_bytes(kGolden));
}

TEST(Checkpoint, Bf16IsHalfTheSizeRoundsToNearestEvenAndKeepsItsBits) {
  TemporaryFolder folder;
  std::vector<float> p = small_parameters();
  const float ulp = 0x1.0p-7f;  // of bf16 in [1, 2)
  p[0] = 1.0f + ulp / 2;        // halfway, even is below
  p[1] = 1.0f + 1.5f * ulp;     // halfway, even is above
  p[2] = std::nextafter(1.0f + ulp / 2, 2.0f);
  p[3] = std::numeric_limits<float>::infinity();
  p[4] = std::bit_cast<float>(0x7fffffffu);  // a NaN whose rounding would carry into the sign
  p[5] = -0.0f;
  save_checkpoint(folder / "b.bin", small_config(), p, CheckpointPrecision::bf16);
  EXPECT_EQ(std::filesystem::file_size(folder / "b.bin"), 1024 + 2 * p.size());
  const Checkpoint c = load_checkpoint(folder / "b.bin");
  EXPECT_EQ(c.precision, CheckpointPrecision::bf16);
  EXPECT_EQ(c.parameters[0], 1.0f);
  EXPECT_EQ(c.parameters[1], 1.0f + 2 * ulp);
  EXPECT_EQ(c.parameters[2], 1.0f + ulp);
  EXPECT_EQ(c.parameters[3], p[3]);
  EXPECT_TRUE(std::isnan(c.parameters[4]));
  EXPECT_TRUE(std::signbit(c.parameters[5]));
  for (size_t i = 6; i < p.size(); ++i) EXPECT_LE(std::abs(c.parameters[i] - p[i]), std::abs(p[i]) * 0x1.0p-8f);
  save_checkpoint(folder / "again.bin", small_config(), c.parameters, CheckpointPrecision::bf16);
  EXPECT_EQ(read_bytes(folder / "again.bin"), read_bytes(folder / "b.bin"));
}

TEST(Checkpoint, BadHeadersAreRefusedWithWhatWasFoundAndExpected) {
  const auto good = read_bytes(kGolden);
  auto parse = [&](std::initializer_list<std::pair<size_t, int32_t>> fields) {
    return parse_checkpoint(with_header(good, fields), "f.bin");
  };
  EXPECT_INPUT_ERROR(parse({{0, 20240520}}), "f.bin", "20240520", "20240326");
  EXPECT_INPUT_ERROR(parse({{1, 4}}), "f.bin", "version 4", "3 (fp32) or 5 (bf16)");
  EXPECT_INPUT_ERROR(parse({{2, -1}}), "max_seq_len is -1");
  EXPECT_INPUT_ERROR(parse({{3, 0}}), "vocab_size is 0");
  EXPECT_INPUT_ERROR(parse({{4, std::numeric_limits<int32_t>::max()}}), "layers is 2147483647");
  EXPECT_INPUT_ERROR(parse({{5, 3}}), "3 heads do not divide 64 channels");
  EXPECT_INPUT_ERROR(parse({{6, std::numeric_limits<int32_t>::min()}}), "channels is -2147483648");
  EXPECT_INPUT_ERROR(parse({{7, 508}}), "508 is smaller than the vocabulary 509");
  // 2^18 x (2^24 + 1024) of the embeddings and 12 x 2^36 of one layer: 5.22e12, and the layer alone would be allowed.
  EXPECT_INPUT_ERROR(check_config({1024, 1 << 24, 1 << 24, 1, 1, 1 << 18}, "x"), "5.22e+12 parameters, expected at most 1.1e+12");
  // Shapes that pass on their own but whose tensors would need terabytes: the file's length refuses them
  // before any allocation.
  EXPECT_INPUT_ERROR(parse({{4, 1000}, {6, 8192}}), "truncated", "548864 bytes");
  EXPECT_INPUT_ERROR(parse({{1, 5}}), "oversized");
}

TEST(Checkpoint, OneByteTooFewOrTooManyIsRefused) {
  auto bytes = read_bytes(kGolden);
  bytes.push_back(std::byte{0});
  const std::span<const std::byte> all(bytes);
  EXPECT_INPUT_ERROR(parse_checkpoint(all, "f.bin"), "f.bin: oversized: 548865 bytes, expected 548864");
  EXPECT_INPUT_ERROR(parse_checkpoint(all.first(548863), "f.bin"), "f.bin: truncated: 548863 bytes, expected 548864");
}

TEST(ReferenceState, GoldenFileWrittenElsewhereIsReadAndWrittenBackByteForByte) {
  const ModelConfig config = checkpoint_config(kGolden);
  const ReferenceState s = load_reference_state(kGoldenState, config);
  EXPECT_EQ(s.batch_size, 4);
  EXPECT_EQ(s.seq_len, 64);
  EXPECT_NEAR(s.loss, 6.252181360025367, 1e-6);  // golden/tiny.json
  TemporaryFolder folder;
  save_reference_state(folder / "copy.bin", config, s);
  EXPECT_EQ(read_bytes(folder / "copy.bin"), read_bytes(kGoldenState));
}

TEST(ReferenceState, ItsShapeIsReadWithoutItsModel) {
  const auto bytes = read_bytes(kGoldenState);
  const std::span<const std::byte> all(bytes);
  const ReferenceStateShape shape = reference_state_shape(all, "s.bin");
  EXPECT_EQ(shape.batch_size, 4);
  EXPECT_EQ(shape.seq_len, 64);
  EXPECT_INPUT_ERROR(reference_state_shape(all.first(1024 + 8 * 4 * 64 - 1), "s.bin"), "s.bin: truncated: inputs and targets");
  EXPECT_INPUT_ERROR(reference_state_shape(all.first(20), "s.bin"), "s.bin: truncated");
}

TEST(ReferenceState, StatesOfAnotherModelAndBadTokensAreRefused) {
  const ModelConfig config = checkpoint_config(kGolden);
  const auto good = read_bytes(kGoldenState);
  ModelConfig other = config;
  other.layers = 3;
  EXPECT_INPUT_ERROR(parse_reference_state(good, other, "s.bin"), "s.bin: truncated", "3 layers");
  EXPECT_INPUT_ERROR(parse_reference_state(with_header(good, {{2, 0}}), config, "s.bin"), "batch size 0");
  EXPECT_INPUT_ERROR(parse_reference_state(with_header(good, {{3, 65}}), config, "s.bin"), "sequence length 65", "1 to 64");
  EXPECT_INPUT_ERROR(parse_reference_state(with_header(good, {{2, 2147483647}}), config, "s.bin"), "truncated");
  EXPECT_INPUT_ERROR(parse_reference_state(with_header(good, {{256, 509}}), config, "s.bin"), "input token 0 is 509", "0 to 508");
  EXPECT_INPUT_ERROR(parse_reference_state(with_header(good, {{256 + 4 * 64 + 7, -1}}), config, "s.bin"), "target token 7 is -1");
}

TEST(ReferenceState, AShapeWhoseSizeWrapsAround64BitsIsRefused) {
  // B*T*(V+2) floats = 2^64 bytes: as a 64-bit number nothing, so that the file seems to have just the right
  // length.
  const ModelConfig config{1024, (1 << 24) - 2, 1 << 24, 1, 1, 1};
  std::vector<std::byte> file(static_cast<size_t>(1024 + 4 + 4 * tensor_layout(config).total));
  file = with_header(std::move(file), {{0, 20240327}, {1, 2}, {2, 1 << 28}, {3, 1024}});
  EXPECT_INPUT_ERROR(parse_reference_state(file, config, "s.bin"), "s.bin: truncated");
}

}  // namespace
}  // namespace gpt2
