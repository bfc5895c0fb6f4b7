#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/atomic_file.h"
#include "base/errors.h"

namespace gpt2 {

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path.string()) {
  auto refuse = [&](const char* reason) { throw stepscope::InputError(fmt::format("{}: cannot read: {}", path_, reason)); };
  // O_NONBLOCK: opening a pipe without a writer would otherwise hang here instead of being refused below.
  Descriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) refuse(std::strerror(errno));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) refuse(std::strerror(errno));
  if (S_ISDIR(st.st_mode)) refuse("it is a folder, expected a file");
  if (!S_ISREG(st.st_mode)) refuse("it is not a regular file");
  size_ = static_cast<size_t>(st.st_size);
  if (size_ == 0) return;
  void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (at == MAP_FAILED) refuse(std::strerror(errno));
  data_ = static_cast<const std::byte*>(at);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void ByteReader::fail(const std::string& what) const { throw stepscope::InputError(fmt::format("{}: {}", source_, what)); }

std::span<const std::byte> ByteReader::take(uint64_t count, std::string_view what) {
  if (count > remaining()) {
    fail(fmt::format("truncated: {} needs {} bytes at offset {}, but the file ends after {} bytes", what, count, at_, bytes_.size()));
  }
  const auto part = bytes_.subspan(at_, count);
  at_ += count;
  return part;
}

void ByteReader::expect_end() const {
  if (remaining() != 0) fail(fmt::format("oversized: {} bytes follow the end of the data at offset {}", remaining(), at_));
}

void ByteReader::expect_size(uint64_t expected, std::string_view why) const {
  if (bytes_.size() == expected) return;
  fail(fmt::format("{}: {} bytes, expected {} ({})", bytes_.size() < expected ? "truncated" : "oversized", bytes_.size(), expected, why));
}

namespace {

// " (tokens)" behind a magic number of llm.c's: two files in each other's place are told by what they are.
const char* kind_of(int32_t magic) {
  switch (magic) {
    case kLlmcCheckpoint:
      return " (checkpoint)";
    case kLlmcState:
      return " (reference state)";
    case kLlmcTokenizer:
      return " (tokenizer)";
    case kLlmcTokens:
      return " (tokens)";
    case kLlmcEvalSet:
      return " (evaluation set)";
    default:
      return "";
  }
}

}  // namespace

LlmcHeader read_llmc_header(ByteReader& reader, int32_t magic, std::string_view kind, std::string_view cure) {
  if (reader.remaining() < kLlmcHeaderBytes) {
    reader.fail(fmt::format("truncated: {} bytes, expected a {} header of {} bytes{}", reader.remaining(), kind, kLlmcHeaderBytes, cure));
  }
  const auto header = reader.read<LlmcHeader>("header");
  // All of these numbers are dates of 2024, also of files that nothing here reads.
  const bool another = header[0] / 10'000 == magic / 10'000;
  if (header[0] != magic)
    reader.fail(fmt::format("not a {}: magic number {}{}, expected {}{}", kind, header[0], kind_of(header[0]), magic, another ? "" : cure));
  return header;
}

}  // namespace gpt2
