// What a frozen baseline is: a folder under baselines/ whose MANIFEST.json names every other file in it with
// its SHA-256.
//
// The manifest proves that the folder has not changed since the manifest was written, in both directions: a
// file that it does not name is as much a change as one whose bytes differ. It cannot prove that nobody
// rewrote the manifest too; that shows in review, because freezing refuses to replace a manifest and so a new
// one means that somebody deleted the old.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace experiments {

inline constexpr const char* kManifestFile = "MANIFEST.json";
inline constexpr const char* kManifestSchema = "stepscope.baseline/1";

struct ManifestFile {
  std::string path;  // relative to the folder, with '/'
  int64_t size_bytes = 0;
  std::string sha256;
};

struct Manifest {
  std::string name;             // of the folder
  std::string created;          // date, YYYY-MM-DD
  std::string source_revision;  // git revision of the tree that it was frozen in; "unknown" outside a repository
  std::string build_flags;      // BASELINE_BUILD_FLAGS of the folder's CMakeLists.txt
  std::string description;
  std::vector<ManifestFile> files;  // sorted by path
};

// Folders of `root`/baselines that have a manifest or could have one, sorted by name.
std::vector<std::string> baseline_names(const std::filesystem::path& root);

// `root`/baselines/`name`. Throws stepscope::InputError that lists the known names when there is no such
// folder, and for a name that is not one folder ("..", "a/b").
std::filesystem::path baseline_folder(const std::filesystem::path& root, const std::string& name);

// Throws stepscope::InputError naming the manifest file and the field when it is missing, not JSON, of an
// unknown schema, or lists a path outside its folder, a path twice or a hash that is none.
Manifest read_manifest(const std::filesystem::path& folder);

// What is wrong with the folder, one sentence each that begins with the file's path; empty when every byte is
// as it was frozen. A missing or unreadable manifest is such a sentence. Symbolic links are refused: what
// they point at can change unseen.
std::vector<std::string> verify_baseline(const std::filesystem::path& folder);

struct FreezeOptions {
  std::string created;
  std::string source_revision;
  std::string description;  // "" = the first paragraph of the folder's README.md
};
// Writes the manifest of a folder that has none, atomically, and returns it. Throws stepscope::InputError
// when there is one, when the folder has no CMakeLists.txt that sets BASELINE_BUILD_FLAGS, no description can
// be found or is no UTF-8, or a file is no regular file or has a name that is no UTF-8.
Manifest freeze_baseline(const std::filesystem::path& folder, const FreezeOptions& options);

nlohmann::ordered_json to_json(const Manifest& manifest);

}  // namespace experiments
