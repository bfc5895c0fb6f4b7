#include "gpt2/prepare/fetch_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/made_folders.h"
#include "base/mapped_file.h"
#include "base/process.h"
#include "base/sha256.h"
#include "base/temporary_folder.h"
#include "gpt2/data/bpe.h"
#include "gpt2/data/pretokenizer.h"
#include "gpt2/data/tokenizer.h"
#include "gpt2/prepare/download.h"
#include "gpt2/prepare/tokenize_text.h"

namespace gpt2 {
namespace fs = std::filesystem;
namespace {

struct PinnedFile {
  const char* name;
  const char* url;
  const char* sha256;
};
struct MadeFile {
  const char* suffix;  // after the prefix
  const char* sha256;
};
struct DataSet {
  const char* name;
  PinnedFile text;
  const char* prefix;  // of the shards
  Documents documents;
  uint64_t validation_tokens;
  MadeFile made[2];  // the files that llm.c's script makes from it
};

constexpr PinnedFile kVocab{"vocab.bpe", "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe",
                            "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"};
constexpr PinnedFile kEncoder{"encoder.json", "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json",
                              "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"};

// dev/data/tinyshakespeare.py of llm.c.
constexpr DataSet kSets[] = {
    {"tinyshakespeare",
     {"tinyshakespeare.txt", "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
      "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
     "tiny_shakespeare",
     Documents::paragraph,
     32768,
     {{"_val.bin", "fe99db720dc7c83e694806d4e047a952909411da1daccde4ccc2e55f40882a62"},
      {"_train.bin", "8a70606be574040c26d225694f5f9759973b419852d22f7fe5c118e1b359dcc8"}}},
};

bool is_there(const fs::path& path, const PinnedFile& file) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return false;
  const std::string found = sha256_file(path);
  if (found == file.sha256) return true;
  throw stepscope::InputError(fmt::format("{}: not the expected {} (sha256 {}, expected {}); remove it or choose another --out",
                                          path.string(), file.url, found, file.sha256));
}

void download(const PinnedFile& file, const fs::path& folder, const std::string& by_hand) {
  const stepscope::TemporaryFolder temporary;
  const std::string path = temporary.file(file.name);
  stepscope::ChildResult result;
  try {
    result = stepscope::run_child({"curl", "-fsSL", "--retry", "2", "--connect-timeout", "20", "-o", path, file.url}, {}, true);
  } catch (const stepscope::InputError& e) {
    throw stepscope::MachineError(fmt::format("{} (package curl). {}", e.what(), by_hand));
  }
  if (!result.exited || result.exit_code != 0) {
    throw stepscope::MachineError(
        fmt::format("curl could not download {} ({}). {}", file.url,
                    result.exited ? fmt::format("exit {}", result.exit_code) : fmt::format("signal {}", result.signal), by_hand));
  }
  const MappedFile got(path);
  const std::string_view content = got.text();
  const std::string found = sha256_text(content);
  if (found != file.sha256) {
    throw stepscope::InputError(fmt::format(
        "{}: got {} bytes with sha256 {}, expected {}; the file changed there, or another server answered. The download is not kept",
        file.url, content.size(), found, file.sha256));
  }
  write_file_atomically(folder / file.name, content);
}

}  // namespace

std::vector<std::string> known_data_sets() {
  std::vector<std::string> names;
  for (const DataSet& set : kSets) names.emplace_back(set.name);
  return names;
}

void fetch_data_set(const std::string& name, const std::string& out) {
  const auto set = std::find_if(std::begin(kSets), std::end(kSets), [&](const DataSet& s) { return name == s.name; });
  if (set == std::end(kSets))
    throw stepscope::InputError(fmt::format("--fetch {}: no such data set, expected {}", name, fmt::join(known_data_sets(), " or ")));
  require_unicode_tables();
  const fs::path folder = out.empty() ? set->name : out;
  stepscope::check_folder_usable(folder, "--out");

  std::vector<PinnedFile> missing;
  for (const PinnedFile& file : {set->text, kVocab, kEncoder})
    if (!is_there(folder / file.name, file)) missing.push_back(file);
  std::vector<std::pair<std::string, fs::path>> addresses;
  for (const PinnedFile& file : missing) addresses.emplace_back(file.url, folder / file.name);
  const std::string by_hand = download_by_hand(addresses);
  for (const PinnedFile& file : missing) download(file, folder, by_hand);

  TokenizeOptions options;
  options.texts = {(folder / set->text.name).string()};
  options.vocab = (folder / kVocab.name).string();
  options.encoder = (folder / kEncoder.name).string();
  options.out = (folder / set->prefix).string();
  options.documents = set->documents;
  options.validation_tokens = set->validation_tokens;
  for (const WrittenShard& shard : tokenize_texts(options).shards) fmt::print("{}: {} tokens\n", shard.path.string(), shard.tokens);
  for (const MadeFile& made : set->made) {
    const std::string path = options.out + made.suffix;
    if (sha256_file(path) != made.sha256)
      throw std::logic_error(fmt::format("{}: not the file that llm.c makes (a defect of the tokenizer)", path));
  }

  const fs::path tokenizer = folder / "gpt2_tokenizer.bin";
  write_tokenizer(tokenizer, Bpe::load(options.vocab));
  fmt::print("{}: for `train --tokenizer`\n", tokenizer.string());
}

}  // namespace gpt2
