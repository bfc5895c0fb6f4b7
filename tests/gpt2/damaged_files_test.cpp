// Every binary reader against every truncation of a small valid file, every flipped header byte and trailing
// bytes: it must refuse or accept, never crash, hang or allocate by a number in the file. The fuzz targets in
// tests/fuzz go on from here.
#include <sys/resource.h>

#include <cstring>
#include <functional>

#include "base/mapped_file.h"
#include "gpt2/data/eval_set.h"
#include "gpt2/data/token_shards.h"
#include "gpt2/data/tokenizer.h"
#include "gpt2/training_state.h"
#include "tests/gpt2/files.h"

namespace gpt2 {
namespace {
using testing::read_bytes;
using testing::small_config;
using testing::small_parameters;
using testing::TemporaryFolder;

struct Format {
  std::string name;
  std::function<void(const std::filesystem::path&)> write;
  std::function<void(std::span<const std::byte>)> parse;
  size_t header_bytes;
  bool every_byte_counts;  // a checksum: any change anywhere is refused
};

std::ostream& operator<<(std::ostream& out, const Format& f) { return out << f.name; }

std::vector<Format> formats() {
  return {
      {"checkpoint", [](auto& path) { save_checkpoint(path, small_config(), small_parameters()); },
       [](auto bytes) { parse_checkpoint(bytes, "file"); }, 1024, false},
      {"checkpoint_bf16", [](auto& path) { save_checkpoint(path, small_config(), small_parameters(), CheckpointPrecision::bf16); },
       [](auto bytes) { parse_checkpoint(bytes, "file"); }, 1024, false},
      {"reference_state",
       [](auto& path) {
         ReferenceState s{2, 3, std::vector<int32_t>(6, 1), std::vector<int32_t>(6, 4), std::vector<float>(30), 0.5f, small_parameters()};
         save_reference_state(path, small_config(), s);
       },
       [](auto bytes) { parse_reference_state(bytes, small_config(), "file"); }, 1024, false},
      {"training_state",
       [](auto& path) {
         TrainingState s;
         s.step = 3;
         s.m = s.v = small_parameters();
         save_training_state(path, s);
       },
       [](auto bytes) { parse_training_state(bytes, "file"); }, 128, true},
      {"token_shard", [](auto& path) { write_token_shard(path, std::vector<uint16_t>(100, 7)); },
       [](auto bytes) { parse_token_shard(bytes, "file"); }, 1024, false},
      {"eval_set",
       [](auto& path) {
         write_eval_set(path, std::vector<EvalExample>{{1, {100, 101}, {{102}, {103, 104}}}, {0, {200}, {{201}, {202}, {203}}}});
       },
       [](auto bytes) { parse_eval_set(bytes, "file"); }, 1024, false},
      {"tokenizer",
       [](auto& path) {
         write_tokenizer(path, std::vector<std::string>{"a", "bc", "<|end|>"}, 2);
       },
       [](auto bytes) { Tokenizer::parse(bytes, "file"); }, 1024, false},
  };
}

class DamagedFile : public ::testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    TemporaryFolder folder;
    GetParam().write(folder / "file");
    good_ = read_bytes(folder / "file");
    ASSERT_GE(good_.size(), GetParam().header_bytes);
  }
  bool refuses(std::span<const std::byte> bytes) const {
    // A copy of the exact length on the heap, so that the sanitizers see a read past the end.
    const std::vector<std::byte> copy(bytes.begin(), bytes.end());
    try {
      GetParam().parse(copy);
      return false;
    } catch (const stepscope::InputError& e) {
      EXPECT_THAT(std::string(e.what()), ::testing::StartsWith("file: "));
      return true;
    }
  }
  std::vector<std::byte> good_;
};

TEST_P(DamagedFile, TheUndamagedFileIsAccepted) { EXPECT_FALSE(refuses(good_)); }

TEST_P(DamagedFile, EveryTruncationIsRefused) {
  for (size_t length = 0; length < good_.size(); ++length)
    ASSERT_TRUE(refuses(std::span(good_).first(length))) << "cut to " << length << " of " << good_.size() << " bytes";
}

TEST_P(DamagedFile, TrailingBytesAreRefused) {
  for (size_t extra : {1, 2, 4, 8, 4096}) {
    auto longer = good_;
    longer.resize(good_.size() + extra);
    EXPECT_TRUE(refuses(longer)) << extra << " bytes too many";
  }
}

TEST_P(DamagedFile, MagicAndVersionAdmitNoOtherByte) {
  const size_t guarded = GetParam().name == "training_state" ? 16 : 8;
  for (size_t at = 0; at < guarded; ++at) {
    for (int flip = 1; flip < 256; ++flip) {
      auto bad = good_;
      bad[at] ^= static_cast<std::byte>(flip);
      ASSERT_TRUE(refuses(bad)) << "byte " << at << " xor " << flip;
    }
  }
}

TEST_P(DamagedFile, FlippedHeaderBytesNeverCrashNorAllocateByThem) {
  // Any attempt to allocate by a damaged length would pass this limit at once.
  struct rlimit before {};
  ::getrlimit(RLIMIT_AS, &before);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)  // AddressSanitizer's shadow needs terabytes of address space
  struct rlimit tight {
    rlim_t{4} << 30, before.rlim_max
  };
  ::setrlimit(RLIMIT_AS, &tight);
#endif
  const size_t end = GetParam().every_byte_counts ? good_.size() : GetParam().header_bytes;
  for (size_t at = 0; at < end; ++at) {
    for (int flip : {0x01, 0x80, 0xff}) {
      auto bad = good_;
      bad[at] ^= static_cast<std::byte>(flip);
      const bool refused = refuses(bad);
      if (GetParam().every_byte_counts) {
        ASSERT_TRUE(refused) << "byte " << at << " xor " << flip;
      }
    }
  }
  ::setrlimit(RLIMIT_AS, &before);
}

INSTANTIATE_TEST_SUITE_P(AllReaders, DamagedFile, ::testing::ValuesIn(formats()), [](const auto& param) { return param.param.name; });

TEST(DamagedTrainingState, AHugeParameterCountIsRefusedByTheFilesLength) {
  TemporaryFolder folder;
  TrainingState s;
  s.m = s.v = small_parameters();
  save_training_state(folder / "s", s);
  auto bytes = read_bytes(folder / "s");
  for (uint64_t count : {uint64_t{0}, uint64_t{1} << 39, uint64_t{1} << 61, ~uint64_t{0}}) {
    std::memcpy(bytes.data() + 16, &count, 8);
    EXPECT_INPUT_ERROR(parse_training_state(bytes, "s"), "s: ");
  }
}

}  // namespace
}  // namespace gpt2
