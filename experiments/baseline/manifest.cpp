// Manifests of frozen baselines: list, read, verify, freeze.
#include "experiments/baseline/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/json_read.h"
#include "base/json_text.h"
#include "base/read_file.h"
#include "base/sha256.h"

namespace experiments {
namespace fs = std::filesystem;
namespace {

// Everything below `folder` but directories and the manifest itself, by its path relative to the folder.
// Links are listed, not followed.
std::map<std::string, fs::directory_entry> list_files(const fs::path& folder) {
  std::map<std::string, fs::directory_entry> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory() && !entry.is_symlink()) continue;
    const std::string path = entry.path().lexically_relative(folder).generic_string();
    if (path != kManifestFile) files.emplace(path, entry);
  }
  return files;
}

bool is_plain_file(const fs::directory_entry& entry) { return fs::is_regular_file(entry.symlink_status()); }

// "set(BASELINE_BUILD_FLAGS -O3 -lineinfo)" -> "-O3 -lineinfo": the manifest records the flags that the build
// really uses.
std::string build_flags_of(const fs::path& folder) {
  const fs::path path = folder / "CMakeLists.txt";
  const std::string text = stepscope::read_file(path);
  const std::string opening = "set(BASELINE_BUILD_FLAGS ";
  const size_t begin = text.find(opening);
  const size_t end = begin == std::string::npos ? begin : text.find(')', begin);
  if (end == std::string::npos) {
    throw stepscope::InputError(path.string() +
                                ": no line set(BASELINE_BUILD_FLAGS …), which a baseline compiles with and its manifest records");
  }
  return text.substr(begin + opening.size(), end - begin - opening.size());
}

// The first paragraph of the README that is no heading, on one line.
std::string description_of(const fs::path& folder) {
  const fs::path path = folder / "README.md";
  std::istringstream text(stepscope::read_file(path));
  std::string paragraph;
  for (std::string line; std::getline(text, line);) {
    if (line.empty() && !paragraph.empty()) break;
    if (line.empty() || line.front() == '#') continue;
    paragraph += (paragraph.empty() ? "" : " ") + line;
  }
  if (paragraph.empty()) throw stepscope::InputError(path.string() + ": no paragraph to describe the baseline with");
  return paragraph;
}

// File names and command lines are bytes, a manifest is UTF-8: a name that it held with other bytes would be no file of the folder.
void require_utf8(const std::string& text, const std::string& what) {
  if (stepscope::as_json_holds(text) != text) throw stepscope::InputError(what + " is no UTF-8, expected text that a manifest can hold");
}

bool is_sha256(const std::string& text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos; }

bool stays_inside(const std::string& path) {
  const fs::path p(path);
  if (path.empty() || p.is_absolute()) return false;
  return std::none_of(p.begin(), p.end(), [](const fs::path& part) { return part == ".." || part == "."; });
}

}  // namespace

std::vector<std::string> baseline_names(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "baselines", error)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

fs::path baseline_folder(const fs::path& root, const std::string& name) {
  const std::vector<std::string> names = baseline_names(root);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw stepscope::InputError(fmt::format("'{}' is not a baseline; {} holds: {}", name, (root / "baselines").string(),
                                            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  return root / "baselines" / name;
}

Manifest read_manifest(const fs::path& folder) {
  const std::string source = (folder / kManifestFile).string();
  const auto refuse = [&](const std::string& text) -> stepscope::InputError { return stepscope::InputError(source + ": " + text); };
  const std::string content = stepscope::read_file(folder / kManifestFile);
  const auto j = stepscope::read_json<nlohmann::json>(content);
  if (!j.is_object()) throw refuse(stepscope::why_no_object(content, source));
  const auto text = [&](const nlohmann::json& object, const char* field) {
    if (!object.is_object() || !object.contains(field) || !object[field].is_string())
      throw refuse(fmt::format("field \"{}\" is missing or no text", field));
    return object[field].get<std::string>();
  };
  if (const std::string schema = text(j, "schema"); schema != kManifestSchema) {
    throw refuse(fmt::format("schema \"{}\", expected \"{}\"", schema, kManifestSchema));
  }
  Manifest m;
  m.name = text(j, "name");
  m.created = text(j, "created");
  m.source_revision = text(j, "source_revision");
  m.build_flags = text(j, "build_flags");
  m.description = text(j, "description");
  if (!j.contains("files") || !j["files"].is_array() || j["files"].empty()) throw refuse("field \"files\" is missing, empty or no list");
  for (const auto& item : j["files"]) {
    ManifestFile file;
    file.path = text(item, "path");
    file.sha256 = text(item, "sha256");
    if (!item.contains("size_bytes") || !item["size_bytes"].is_number_unsigned()) throw refuse(file.path + " has no \"size_bytes\"");
    file.size_bytes = item["size_bytes"].get<int64_t>();
    if (!stays_inside(file.path)) throw refuse(fmt::format("the path \"{}\" leaves the folder", file.path));
    if (!is_sha256(file.sha256)) throw refuse(fmt::format("the hash of {} is not 64 hexadecimal digits", file.path));
    if (std::any_of(m.files.begin(), m.files.end(), [&](const ManifestFile& f) { return f.path == file.path; })) {
      throw refuse(fmt::format("{} is listed twice", file.path));
    }
    m.files.push_back(std::move(file));
  }
  return m;
}

std::vector<std::string> verify_baseline(const fs::path& folder) {
  std::vector<std::string> problems;
  if (!fs::exists(folder / kManifestFile)) return {fmt::format("{}: missing; the folder is not frozen", kManifestFile)};
  Manifest manifest;
  try {
    manifest = read_manifest(folder);
  } catch (const stepscope::InputError& e) {
    return {fmt::format("{}: {}", kManifestFile, e.what())};
  }
  const std::string name = fs::weakly_canonical(folder).filename().string();
  if (manifest.name != name) {
    problems.push_back(fmt::format("{}: it is the manifest of \"{}\", not of \"{}\"", kManifestFile, manifest.name, name));
  }
  std::map<std::string, fs::directory_entry> found = list_files(folder);
  for (const ManifestFile& file : manifest.files) {
    const auto at = found.find(file.path);
    if (at == found.end()) {
      problems.push_back(file.path + ": missing");
      continue;
    }
    if (!is_plain_file(at->second)) {
      problems.push_back(file.path + ": not a regular file (a link?)");
    } else if (gpt2::sha256_file(at->second.path()) != file.sha256) {
      const auto size = static_cast<int64_t>(at->second.file_size());
      problems.push_back(size == file.size_bytes ? fmt::format("{}: changed ({} bytes, as before)", file.path, size)
                                                 : fmt::format("{}: changed ({} bytes, frozen with {})", file.path, size, file.size_bytes));
    } else if (const auto size = static_cast<int64_t>(at->second.file_size()); size != file.size_bytes) {
      problems.push_back(fmt::format("{}: {} bytes, the manifest says {}", file.path, size, file.size_bytes));
    }
    found.erase(at);
  }
  for (const auto& [path, entry] : found) problems.push_back(path + ": extra; the manifest does not name it");
  return problems;
}

Manifest freeze_baseline(const fs::path& folder, const FreezeOptions& options) {
  if (fs::exists(folder / kManifestFile)) {
    throw stepscope::InputError(fmt::format("{}: the baseline is frozen already; a frozen baseline is never changed, make a new folder",
                                            (folder / kManifestFile).string()));
  }
  Manifest m;
  m.name = fs::weakly_canonical(folder).filename().string();
  m.created = options.created;
  m.source_revision = options.source_revision;
  m.build_flags = build_flags_of(folder);
  m.description = options.description.empty() ? description_of(folder) : options.description;
  require_utf8(m.name, folder.string() + ": its name");
  require_utf8(m.description, folder.string() + ": its description");
  for (const auto& [path, entry] : list_files(folder)) {
    require_utf8(path, entry.path().string() + ": its name");
    if (!is_plain_file(entry))
      throw stepscope::InputError(entry.path().string() + ": not a regular file; a baseline holds its files itself");
    m.files.push_back({path, static_cast<int64_t>(entry.file_size()), gpt2::sha256_file(entry.path())});
  }
  gpt2::write_file_atomically(folder / kManifestFile, to_json(m).dump(2) + "\n");
  return m;
}

nlohmann::ordered_json to_json(const Manifest& m) {
  nlohmann::ordered_json j;
  j["schema"] = kManifestSchema;
  j["name"] = m.name;
  j["created"] = m.created;
  j["source_revision"] = m.source_revision;
  j["build_flags"] = m.build_flags;
  j["description"] = m.description;
  j["files"] = nlohmann::ordered_json::array();
  for (const ManifestFile& f : m.files) j["files"].push_back({{"path", f.path}, {"size_bytes", f.size_bytes}, {"sha256", f.sha256}});
  return j;
}

}  // namespace experiments
