#include "gpt2/data/token_shards.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <limits>
#include <system_error>

#include "base/checksum.h"
#include "base/counter_rng.h"
#include "base/errors.h"
#include "base/output_file.h"
#include "gpt2/config.h"
#include "gpt2/data/synthetic_tokens.h"

namespace gpt2 {
namespace {
constexpr uint64_t kScanTokens = uint64_t{1} << 29;
}  // namespace

void check_batch_shape(int64_t batch_size, int64_t seq_len) {
  if (batch_size < 1) throw stepscope::InputError(fmt::format("--batch-size {}: expected at least 1", batch_size));
  if (seq_len < 1) throw stepscope::InputError(fmt::format("--seq-len {}: expected at least 1", seq_len));
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  if (batch_size > kLimit / seq_len) {
    throw stepscope::InputError(
        fmt::format("--batch-size {} x --seq-len {}: expected at most {} tokens in a batch", batch_size, seq_len, kLimit));
  }
}

std::unique_ptr<TokenSource> open_token_source(const std::vector<std::string>& data, const SourceOptions& options) {
  check_batch_shape(options.batch_size, options.seq_len);
  if (data.empty()) throw stepscope::InputError("--data: expected \"synthetic\" or token files");
  if (std::find(data.begin(), data.end(), "synthetic") == data.end()) return std::make_unique<ShardSource>(data, options);
  if (data.size() > 1) throw stepscope::InputError("--data: \"synthetic\" cannot be mixed with files");
  return std::make_unique<SyntheticSource>(options);
}

std::span<const uint16_t> parse_token_shard(std::span<const std::byte> file, const std::string& source) {
  ByteReader reader(file, source);
  const LlmcHeader h = read_llmc_header(reader, kLlmcTokens, "token shard", "; `stepscope data` makes one of a text");
  if (h[1] != 1) reader.fail(fmt::format("token shard version {}, expected 1", h[1]));
  if (h[2] < 1) reader.fail(fmt::format("the header counts {} tokens, expected at least 1", h[2]));
  const uint64_t count = static_cast<uint64_t>(h[2]);
  reader.expect_size(kLlmcHeaderBytes + 2 * count, fmt::format("header and {} tokens of 2 bytes", count));
  const auto raw = reader.take(2 * count, "tokens");
  // In place: mappings are page-aligned, and so is the header's end to 2 bytes.
  return {reinterpret_cast<const uint16_t*>(raw.data()), count};
}

ShardFile::ShardFile(const std::filesystem::path& path) : path_(path), file_(stepscope::output_place(path)) {
  const LlmcHeader later{};
  file_.write(later.data(), sizeof(later));
}

void ShardFile::append(std::span<const uint16_t> tokens) {
  if (tokens.size() > kMost - count_) {
    throw stepscope::InputError(
        fmt::format("{}: more than 2^31-1 tokens do not fit into one token shard; --shard-tokens makes several", path_.string()));
  }
  pending_.insert(pending_.end(), tokens.begin(), tokens.end());
  count_ += tokens.size();
  if (pending_.size() >= (size_t{1} << 19)) flush();
}

void ShardFile::flush() {
  file_.write(pending_.data(), pending_.size() * sizeof(uint16_t));
  pending_.clear();
}

void ShardFile::commit() {
  if (count_ == 0) throw stepscope::InputError(fmt::format("{}: a token shard of 0 tokens, expected 1 to 2^31-1", path_.string()));
  flush();
  LlmcHeader h{};
  h[0] = kLlmcTokens;
  h[1] = 1;
  h[2] = static_cast<int32_t>(count_);
  file_.overwrite(0, h.data(), sizeof(h));
  file_.commit();
}

void write_token_shard(const std::filesystem::path& path, std::span<const uint16_t> tokens) {
  ShardFile file(path);
  file.append(tokens);
  file.commit();
}

std::vector<std::string> expand_globs(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    // A file whose name has glob characters in it is still that file.
    std::error_code why;
    if (std::filesystem::exists(pattern, why)) {
      files.push_back(pattern);
      continue;
    }
    if (why == std::errc::permission_denied) throw stepscope::InputError(fmt::format("{}: {}", pattern, why.message()));
    glob_t found{};
    const int rc = ::glob(pattern.c_str(), 0, nullptr, &found);
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (rc != 0) throw stepscope::InputError(fmt::format("{}: no such file, and no file matches it as a pattern", pattern));
  }
  return files;
}

ShardSource::ShardSource(const std::vector<std::string>& patterns, const SourceOptions& options) : options_(options) {
  const uint64_t B = static_cast<uint64_t>(options.batch_size), T = static_cast<uint64_t>(options.seq_len);
  uint64_t scanned = 0;
  for (const std::string& path : expand_globs(patterns)) {
    MappedFile file(path);
    const auto tokens = parse_token_shard(file.bytes(), path);
    if (tokens.size() < B * T + 1) {
      throw stepscope::InputError(fmt::format("{}: {} tokens, expected at least {} (one batch of {} x {} and the token after it)", path,
                                              tokens.size(), B * T + 1, B, T));
    }
    shards_.push_back({std::move(file), tokens, (tokens.size() - 1) / T});
    const uint64_t scan = std::min<uint64_t>(tokens.size(), kScanTokens - scanned);
    check_ids(shards_.back(), 0, scan);
    scanned += scan;
  }
}

void ShardSource::check_ids(const Shard& shard, uint64_t first, uint64_t count) const {
  if (options_.vocab_size > std::numeric_limits<uint16_t>::max()) return;
  const auto part = shard.tokens.subspan(first, count);
  // The maximum first, as it vectorizes; the offender is looked for only when there is one.
  uint16_t most = 0;
  for (uint16_t id : part) most = std::max(most, id);
  if (most < options_.vocab_size) return;
  const auto bad = std::find_if(part.begin(), part.end(), [&](uint16_t id) { return id >= options_.vocab_size; });
  const uint64_t token = first + static_cast<uint64_t>(bad - part.begin());
  // The model of a machine without a GPU is too small for the first data that anybody fetches.
  const bool of_gpt2 = most < ModelConfig().vocab_size;
  throw stepscope::InputError(fmt::format("{}: token {} (byte offset {}) has id {}, expected 0 to {} (the model's vocabulary){}",
                                          shard.file.path(), token, kLlmcHeaderBytes + 2 * token, *bad, options_.vocab_size - 1,
                                          of_gpt2 ? "; GPT-2's tokens need a model with GPT-2's vocabulary, such as --model d12" : ""));
}

size_t ShardSource::shard_at(const DataPosition& p) const {
  if (!options_.shuffle) return p.shard;
  return TablelessPermutation(shards_.size(), combine(combine(options_.seed, 0x5ead), p.epoch))(p.shard);
}

// Goes on to the next shard where this one has no whole batch left.
size_t ShardSource::shard_of_next_batch() {
  const uint64_t B = static_cast<uint64_t>(options_.batch_size);
  size_t index = shard_at(position_);
  if (position_.sequence + B > shards_[index].windows) {
    position_.sequence = 0;
    if (++position_.shard == shards_.size()) {
      position_.shard = 0;
      ++position_.epoch;
    }
    index = shard_at(position_);
  }
  return index;
}

void ShardSource::skip(int64_t batches) {
  for (int64_t i = 0; i < batches; ++i) {
    shard_of_next_batch();
    position_.sequence += static_cast<uint64_t>(options_.batch_size);
  }
}

void ShardSource::next(std::span<int32_t> inputs, std::span<int32_t> targets) {
  const uint64_t B = static_cast<uint64_t>(options_.batch_size), T = static_cast<uint64_t>(options_.seq_len);
  if (inputs.size() != B * T || targets.size() != B * T) throw std::logic_error("a batch is B*T tokens");
  const size_t index = shard_of_next_batch();
  const Shard& shard = shards_[index];
  const TablelessPermutation order(shard.windows, combine(combine(options_.seed, position_.epoch), index));
  for (uint64_t b = 0; b < B; ++b) {
    const uint64_t window = options_.shuffle ? order(position_.sequence + b) : position_.sequence + b;
    check_ids(shard, window * T, T + 1);
    const auto from = shard.tokens.subspan(window * T, T + 1);
    std::copy_n(from.begin(), T, inputs.begin() + static_cast<ptrdiff_t>(b * T));
    std::copy_n(from.begin() + 1, T, targets.begin() + static_cast<ptrdiff_t>(b * T));
  }
  position_.sequence += B;
}

void ShardSource::seek(const DataPosition& p) {
  if (p.shard >= shards_.size() || p.sequence > shards_[shard_at(p)].windows) {
    throw stepscope::InputError(fmt::format("the saved data position (epoch {}, shard {}, sequence {}) does not exist in {}", p.epoch,
                                            p.shard, p.sequence, describe()));
  }
  position_ = p;
}

uint64_t ShardSource::fingerprint() const {
  uint64_t h = combine(options_.shuffle ? options_.seed : 0, static_cast<uint64_t>(options_.seq_len) * 2 + (options_.shuffle ? 1 : 0));
  for (const Shard& s : shards_) {
    // Length and the first tokens: enough to tell files apart, without reading them all.
    h = combine(h, s.tokens.size());
    h = combine(h, Checksum::of(std::as_bytes(s.tokens.first(std::min<size_t>(s.tokens.size(), 4096)))));
  }
  return h;
}

std::optional<int64_t> ShardSource::batches_per_epoch() const {
  int64_t n = 0;
  for (const Shard& s : shards_) n += static_cast<int64_t>(s.windows) / options_.batch_size;
  return n;
}

std::string ShardSource::describe() const {
  uint64_t total = 0;
  for (const Shard& s : shards_) total += s.tokens.size();
  return fmt::format("{} ({} file{}, {} tokens)", shards_.front().file.path(), shards_.size(), shards_.size() == 1 ? "" : "s", total);
}

}  // namespace gpt2
