// Data sets of many files, each described by a manifest: gpt2/prepare/sets/NAME.json in the tree, built into the program, or a file of the user's.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt2/prepare/download.h"

namespace gpt2 {

// "stepscope.set/1": name, form, base (address that a file's name is put behind), about, and files with name and, as far as they are
// known, bytes, sha256 and a url of their own.
struct SetManifest {
  std::string name, form, about;  // form: "token_shards" or "tinystories"
  std::vector<RemoteFile> files;
};
// Trusts no byte: throws stepscope::InputError naming the source, the member, what was found and what was expected.
SetManifest parse_set_manifest(std::string_view json, const std::string& source);

struct FetchOptions {
  std::string folder;             // "": the set's name
  std::optional<int64_t> shards;  // training files, from the first on; absent: one
  std::string from;               // mirror: an address that holds the files under their names, or a manifest file
  int64_t jobs = 4, retries = 5;
};
// Whether this value of --from is a manifest file, which may be of a set that nobody here knows.
bool is_manifest(const std::string& from);
// Fetches, checks and prints what is there to train with. Throws what download_files does.
void fetch_remote_set(const std::string& name, const FetchOptions& options);

}  // namespace gpt2
