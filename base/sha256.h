// SHA-256 (FIPS 180-4), for manifests of frozen baselines and receipts of the gate: both say which bytes they
// are about. Own code, because the crypto headers are not on every machine that builds this. Not for secrets:
// nothing here is constant-time.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace gpt2 {

class Sha256 {
 public:
  void update(std::string_view bytes);
  // 64 lower-case hexadecimal digits. Ends the message: no update after it.
  std::string hex();

 private:
  void compress(const unsigned char* block);
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};
  size_t held_ = 0;     // bytes of block_ that wait for more
  uint64_t bytes_ = 0;  // of the whole message so far
};

std::string sha256_text(std::string_view text);
// Throws stepscope::InputError naming the file when it cannot be read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace gpt2
