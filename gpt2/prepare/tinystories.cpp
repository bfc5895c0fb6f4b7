#include "gpt2/prepare/tinystories.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>

#include "base/errors.h"
#include "base/json_read.h"
#include "base/mapped_file.h"
#include "base/process.h"
#include "base/progress_line.h"
#include "gpt2/data/bpe.h"
#include "gpt2/data/pretokenizer.h"
#include "gpt2/data/shard_set.h"
#include "gpt2/data/tokenizer.h"

namespace gpt2 {
namespace fs = std::filesystem;
namespace {

using stepscope::InputError;

// The generator as Python seeds it, from a list of one number (Matsumoto & Nishimura 2002, init_by_array). std::mt19937 seeds
// otherwise, but takes a whole state as text.
std::mt19937 python_generator(uint32_t seed) {
  constexpr uint32_t kWords = 624;
  std::vector<uint32_t> s(kWords);
  s[0] = 19650218;
  for (uint32_t i = 1; i < kWords; ++i) s[i] = 1812433253u * (s[i - 1] ^ (s[i - 1] >> 30)) + i;
  uint32_t i = 1;
  const auto step = [&] {
    if (++i == kWords) {
      s[0] = s[kWords - 1];
      i = 1;
    }
  };
  for (uint32_t k = 0; k < kWords; ++k) {
    s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1664525u)) + seed;
    step();
  }
  for (uint32_t k = 0; k + 1 < kWords; ++k) {
    s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1566083941u)) - i;
    step();
  }
  s[0] = 0x80000000u;
  std::stringstream state;
  for (const uint32_t word : s) state << word << ' ';
  state << kWords;
  std::mt19937 generator;
  state >> generator;
  return generator;
}

bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Bytes of the white space that `text` begins with; 0: none. All of it takes one to three bytes.
size_t space_at(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const uint32_t a = byte(0), b = byte(1) & 63, c = byte(2) & 63;
  if (text.empty()) return 0;
  if (a < 0x80) return is_space(a) ? 1 : 0;
  if (a >> 5 == 6) return is_space((a & 31) << 6 | b) ? 2 : 0;
  if (a >> 4 == 14) return is_space((a & 15) << 12 | b << 6 | c) ? 3 : 0;
  return 0;
}

void unpack(const fs::path& archive, const fs::path& folder) {
  stepscope::ChildResult r;
  try {
    r = stepscope::run_child({"tar", "-xzf", archive.string(), "-C", folder.string()}, {}, true);
  } catch (const InputError& e) {
    throw stepscope::MachineError(fmt::format("{} (package tar)", e.what()));
  }
  if (!r.exited || r.exit_code != 0)
    throw InputError(fmt::format("{}: tar cannot unpack it, expected a whole tar.gz archive", archive.string()));
}

class Writer {
 public:
  Writer(Bpe& bpe, const fs::path& out) : bpe_(bpe), shards_({out.string(), 0, {}}) {}
  void add(const fs::path& file, uint32_t seed) {
    const MappedFile mapped(file);
    const auto stories = stepscope::read_json<nlohmann::json>(mapped.text());
    if (stories.is_discarded())
      throw InputError(fmt::format("{}: no list of stories: {}", file.string(), stepscope::why_no_object(mapped.text(), file.string())));
    if (!stories.is_array())
      throw InputError(fmt::format("{}: JSON of type {}, expected a list of stories", file.string(), stories.type_name()));
    const uint16_t end_of_text = bpe_.end_of_text();
    for (const uint32_t at : python_shuffle(seed, static_cast<uint32_t>(stories.size()))) {
      const auto& story = stories[at];
      if (!story.is_object() || !story.contains("story") || !story["story"].is_string())
        throw InputError(fmt::format("{}: entry {} has no text \"story\", expected one", file.string(), at));
      shards_.append({&end_of_text, 1});
      bpe_.encode(python_strip(story["story"].get_ref<const std::string&>()),
                  [&](std::span<const uint16_t> t, size_t) { shards_.append(t); });
    }
  }
  void finish() {
    for (const WrittenShard& s : shards_.finish()) fmt::print("{}: {} tokens\n", s.path.string(), s.tokens);
  }

 private:
  Bpe& bpe_;
  ShardSet shards_;
};

struct Unpacked {
  explicit Unpacked(const fs::path& folder) : path(folder / ".unpacked") {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Unpacked() {
    std::error_code ec;
    fs::remove_all(path, ec);
  }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;
  std::vector<fs::path> json_files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file() && entry.path().extension() == ".json") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }
  fs::path path;
};

}  // namespace

std::vector<uint32_t> python_shuffle(uint32_t seed, uint32_t count) {
  std::mt19937 generator = python_generator(seed);
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = count; i-- > 1;) {
    const uint32_t n = i + 1;
    int bits = 0;
    while (bits < 32 && n >> bits != 0) ++bits;
    uint32_t j;
    do j = static_cast<uint32_t>(generator() >> (32 - bits));
    while (j >= n);
    std::swap(order[i], order[j]);
  }
  return order;
}

std::string_view python_strip(std::string_view text) {
  while (const size_t n = space_at(text)) text.remove_prefix(n);
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) --last;
    if (space_at(text.substr(last)) != text.size() - last) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

void check_can_make_tinystories() { require_unicode_tables(); }

void make_tinystories(const fs::path& folder) {
  Bpe bpe = Bpe::load(folder / "vocab.bpe");
  bpe.check_ids(folder / "encoder.json");
  const Unpacked unpacked(folder);
  unpack(folder / "TinyStories_all_data.tar.gz", unpacked.path);
  const std::vector<fs::path> files = unpacked.json_files();
  if (files.size() < 2)
    throw InputError(fmt::format("{}: {} JSON files in the archive, expected at least 2", folder.string(), files.size()));
  stepscope::ProgressLine progress;
  constexpr uint32_t kSeed = 1337;
  Writer validation(bpe, folder / "TinyStories_val.bin");
  validation.add(files[0], kSeed);
  Writer train(bpe, folder / "TinyStories_train.bin");
  for (size_t i = 1; i < files.size(); ++i) {
    progress.show([&] { return fmt::format("tokenizing: {} of {} files", i, files.size()); });
    train.add(files[i], kSeed + static_cast<uint32_t>(i - 1));
  }
  progress.clear();
  validation.finish();
  train.finish();
  write_tokenizer(folder / "gpt2_tokenizer.bin", bpe);
  fmt::print("{}: for `train --tokenizer`\n", (folder / "gpt2_tokenizer.bin").string());
}

}  // namespace gpt2
