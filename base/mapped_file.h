// Files read without copying them, and a cursor that cannot run past their end. All binary formats here are
// little-endian, as this machine must be.
//
// Trap: a mapping does not hold a file's length. Whoever truncates a mapped file from outside gives its
// reader a SIGBUS; our own writers never do, since they replace files by rename.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace gpt2 {
static_assert(std::endian::native == std::endian::little, "the files are little-endian and are read in place");

class MappedFile {
 public:
  // Throws stepscope::InputError naming the path and the reason: missing, no permission, not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Reads values in order; throws stepscope::InputError "SOURCE: … truncated …" instead of running past the
// end. Never allocates by a length found in the file unless that many bytes are there.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string source) : bytes_(bytes), source_(std::move(source)) {}

  template <class T>
  T read(std::string_view what) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  // The next `count` bytes, in place (no alignment promised).
  std::span<const std::byte> take(uint64_t count, std::string_view what);
  template <class T>
  void read_into(std::span<T> out, std::string_view what) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto from = take(out.size_bytes(), what);
    if (!out.empty()) std::memcpy(out.data(), from.data(), from.size());
  }
  uint64_t remaining() const { return bytes_.size() - at_; }
  uint64_t position() const { return at_; }
  // Throws when bytes are left over.
  void expect_end() const;
  // Throws unless the whole file has exactly `expected` bytes; `why` says where the number comes from.
  void expect_size(uint64_t expected, std::string_view why) const;
  [[noreturn]] void fail(const std::string& what) const;
  const std::string& source() const { return source_; }

 private:
  std::span<const std::byte> bytes_;
  std::string source_;
  uint64_t at_ = 0;
};

// The 256 x int32 header that all of llm.c's files open with.
inline constexpr size_t kLlmcHeaderBytes = 1024;
using LlmcHeader = std::array<int32_t, 256>;
// [0], which says what the file is.
inline constexpr int32_t kLlmcCheckpoint = 20240326, kLlmcState = 20240327, kLlmcTokenizer = 20240328, kLlmcTokens = 20240520,
                         kLlmcEvalSet = 20240522;
// `kind` is the noun of the message: "checkpoint". Throws when the file is shorter, or [0] is not `magic`; `cure` ends the message where the
// file is none of llm.c's.
LlmcHeader read_llmc_header(ByteReader& reader, int32_t magic, std::string_view kind, std::string_view cure = "");

}  // namespace gpt2
