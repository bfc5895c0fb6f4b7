#include "gpt2/data/shard_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/output_file.h"

namespace gpt2 {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kRest = std::numeric_limits<uint64_t>::max();

bool is_one_file(const std::string& out) { return out.ends_with(".bin"); }

// PREFIX_train_000012.bin
bool is_numbered_shard(const std::string& name, const std::string& prefix) {
  for (const std::string part : {"_train_", "_val_"}) {
    const std::string begin = prefix + part, end = ".bin";
    if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size()) continue;
    const auto number = name.substr(begin.size(), name.size() - begin.size() - end.size());
    if (number.find_first_not_of("0123456789") == std::string::npos) return true;
  }
  return false;
}

void refuse_older_shards(const fs::path& prefix) {
  const fs::path folder = prefix.has_parent_path() ? prefix.parent_path() : ".";
  size_t count = 0;
  std::string example;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!is_numbered_shard(name, prefix.filename().string())) continue;
    ++count;
    example = std::max(example, name);
  }
  if (count == 0) return;
  throw stepscope::InputError(
      fmt::format("--out {}: {} numbered shard{} of an earlier run there (the last is {}), and a pattern would read them "
                  "and the new ones as one set; remove them or choose another prefix",
                  prefix.string(), count, count == 1 ? " is" : "s are", example));
}

}  // namespace

ShardSet::ShardSet(ShardSetOptions options)
    : options_(std::move(options)),
      validation_(options_.validation_tokens > 0),
      part_left_(validation_ ? options_.validation_tokens : kRest) {
  const fs::path out = options_.out;
  std::error_code ignored;
  if (out.filename().empty() || fs::is_directory(out, ignored)) {
    throw stepscope::InputError(fmt::format("--out {}: a folder, expected FILE.bin or the prefix of file names, such as {}", options_.out,
                                            (out / "NAME").string()));
  }
  if (options_.shard_tokens && (*options_.shard_tokens < 1 || *options_.shard_tokens > ShardFile::kMost)) {
    throw stepscope::InputError(fmt::format("--shard-tokens {}: expected 1 to 2^31-1 (a shard counts in 32 bits)", *options_.shard_tokens));
  }
  if (is_one_file(options_.out) && (validation_ || options_.shard_tokens)) {
    throw stepscope::InputError(
        fmt::format("--out {}: one file, but more are to be written; expected a prefix without .bin, to which _train and "
                    "_val are appended",
                    options_.out));
  }
  stepscope::check_output(is_one_file(options_.out) ? out : fs::path(options_.out + "_train.bin"), "--out");
  if (is_one_file(options_.out)) return;
  refuse_older_shards(out);
  if (options_.shard_tokens)
    for (const char* whole : {"_train.bin", "_val.bin"})
      if (fs::exists(options_.out + whole, ignored))
        throw stepscope::InputError(
            fmt::format("--out {}: {} of an earlier run without --shard-tokens is there, and a pattern would read it and "
                        "the new ones as one set; remove it or choose another prefix",
                        options_.out, options_.out + whole));
  if (const std::string left = options_.out + "_val.bin"; !validation_ && fs::exists(left, ignored))
    throw stepscope::InputError(
        fmt::format("--out {}: {} of an earlier run would stand beside the new training shard, and this run writes none; "
                    "remove it, choose another prefix or keep tokens for validation",
                    options_.out, left));
}

fs::path ShardSet::next_path() {
  if (is_one_file(options_.out)) return options_.out;
  const char* part = validation_ ? "val" : "train";
  if (!options_.shard_tokens) return fmt::format("{}_{}.bin", options_.out, part);
  return fmt::format("{}_{}_{:06}.bin", options_.out, part, index_++);
}

void ShardSet::close_file() {
  if (!file_) return;
  written_.push_back({file_->path(), file_->count()});
  if (options_.shard_tokens) {
    file_->commit();
    file_.reset();
  } else {
    uncommitted_.push_back(std::move(file_));
  }
}

void ShardSet::append(std::span<const uint16_t> tokens) {
  total_ += tokens.size();
  while (!tokens.empty()) {
    if (part_left_ == 0) {
      close_file();
      validation_ = false;
      index_ = 0;
      part_left_ = kRest;
    }
    if (file_ && room_ == 0) close_file();
    if (!file_) {
      file_ = std::make_unique<ShardFile>(next_path());
      room_ = options_.shard_tokens.value_or(kRest);
    }
    const auto now = tokens.first(std::min({tokens.size(), static_cast<size_t>(room_), static_cast<size_t>(part_left_)}));
    file_->append(now);
    tokens = tokens.subspan(now.size());
    room_ -= now.size();
    part_left_ -= now.size();
  }
}

std::vector<WrittenShard> ShardSet::finish() {
  if (total_ == 0) throw stepscope::InputError("the text has no tokens, expected at least one document");
  if (total_ <= options_.validation_tokens) {
    throw stepscope::InputError(fmt::format("the text has {} tokens: with {} of them for validation none is left for training", total_,
                                            options_.validation_tokens));
  }
  close_file();
  for (const auto& file : uncommitted_) file->commit();
  uncommitted_.clear();
  return std::move(written_);
}

}  // namespace gpt2
