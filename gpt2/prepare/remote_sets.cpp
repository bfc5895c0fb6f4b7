#include "gpt2/prepare/remote_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "base/json_read.h"
#include "base/mapped_file.h"
#include "base/stderr_text.h"
#include "gpt2/data/token_shards.h"
#include "gpt2/prepare/set_manifests.h"
#include "gpt2/prepare/tinystories.h"

namespace gpt2 {
namespace {

using nlohmann::json;
using stepscope::InputError;

constexpr const char* kSchema = "stepscope.set/1";

bool is_address(const std::string& text) { return text.starts_with("https://") || text.starts_with("http://"); }
std::string below(const std::string& address, const std::string& name) {
  return address + (address.empty() || address.ends_with('/') ? "" : "/") + name;
}

class ManifestReader {
 public:
  ManifestReader(std::string_view text, std::string source) : source_(std::move(source)) {
    doc_ = stepscope::read_json<json>(text);
    if (!doc_.is_object() || doc_.value("schema", json()) != kSchema)
      fail("this is no manifest", fmt::format("a JSON object with \"schema\": \"{}\"", kSchema));
  }

  SetManifest read() {
    SetManifest m;
    m.name = text(doc_, "", "name");
    m.form = text(doc_, "", "form");
    if (m.form != "token_shards" && m.form != "tinystories") fail(fmt::format("form \"{}\"", m.form), "token_shards or tinystories");
    m.about = doc_.contains("about") ? text(doc_, "", "about") : "";
    const std::string base = doc_.contains("base") ? text(doc_, "", "base") : "";
    const auto files = doc_.find("files");
    if (files == doc_.end() || !files->is_array() || files->empty()) fail("no \"files\"", "a list of at least one file");
    std::set<std::string> names;
    for (size_t i = 0; i < files->size(); ++i) {
      m.files.push_back(file(files->at(i), fmt::format("files[{}].", i), base));
      if (!names.insert(m.files.back().name).second)
        fail(fmt::format("files[{}].name \"{}\" stands there twice", i, m.files.back().name), "names of their own");
    }
    return m;
  }

 private:
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(fmt::format("{}: {}, expected {}", source_, found, expected));
  }
  std::string text(const json& object, const std::string& where, const char* name) const {
    const auto v = object.find(name);
    if (v == object.end() || !v->is_string() || v->get_ref<const std::string&>().empty())
      fail(v == object.end() ? fmt::format("no \"{}{}\"", where, name)
                             : fmt::format("\"{}{}\" is {}", where, name, stepscope::shown_json(*v)),
           "a text");
    return v->get<std::string>();
  }
  RemoteFile file(const json& entry, const std::string& where, const std::string& base) const {
    if (!entry.is_object()) fail(fmt::format("{} is {}", where.substr(0, where.size() - 1), stepscope::shown_json(entry)), "an object");
    RemoteFile f;
    f.name = text(entry, where, "name");
    // A name becomes a path: it must not leave the folder, nor hide, nor look like a flag of curl.
    const bool plain = std::all_of(f.name.begin(), f.name.end(),
                                   [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-'; });
    if (!plain || f.name[0] == '.' || f.name[0] == '-' || f.name == "fetched.json")
      fail(fmt::format("\"{}name\" is \"{}\"", where, f.name), "a plain file name of letters, digits, '.', '_' and '-'");
    f.url = entry.contains("url") ? text(entry, where, "url") : below(base, f.name);
    check_address(f.url, fmt::format("{}url", where));
    if (const auto bytes = entry.find("bytes"); bytes != entry.end()) {
      if (!bytes->is_number_unsigned() || *bytes == 0 || bytes->get<uint64_t>() > (uint64_t{1} << 50))
        fail(fmt::format("\"{}bytes\" is {}", where, stepscope::shown_json(*bytes)), "a number of bytes");
      f.bytes = bytes->get<uint64_t>();
    }
    if (entry.contains("sha256")) {
      f.sha256 = text(entry, where, "sha256");
      if (f.sha256->size() != 64 || f.sha256->find_first_not_of("0123456789abcdef") != std::string::npos)
        fail(fmt::format("\"{}sha256\" is \"{}\"", where, *f.sha256), "64 lower-case hexadecimal digits");
    }
    return f;
  }
  void check_address(const std::string& url, const std::string& where) const {
    if (!is_address(url))
      fail(fmt::format("\"{}\" is \"{}\"", where, url), "an address that begins with https:// or http://, from \"base\" or \"url\"");
  }

  std::string source_;
  json doc_;
};

// The set as asked for: mirrored, and cut to so many training files.
SetManifest settled(const std::string& name, const FetchOptions& o) {
  if (is_manifest(o.from)) {
    const MappedFile file(o.from);
    SetManifest m = parse_set_manifest(file.text(), o.from);
    if (m.name != name) throw InputError(fmt::format("--from {}: the manifest of {}, expected one of {}", o.from, m.name, name));
    return m;
  }
  SetManifest m = parse_set_manifest(set_manifest(name), "sets/" + name + ".json");
  if (!o.from.empty())
    for (RemoteFile& f : m.files) f.url = below(o.from, f.name);
  return m;
}

bool for_training(const RemoteFile& f) { return f.name.find("_train_") != std::string::npos; }

void cut_to_shards(SetManifest& m, const std::optional<int64_t>& shards) {
  if (m.form != "token_shards") {
    if (shards) throw InputError(fmt::format("--shards {}: {} is fetched whole, expected no --shards", *shards, m.name));
    return;
  }
  const int64_t all = std::count_if(m.files.begin(), m.files.end(), for_training), wanted = shards.value_or(std::min<int64_t>(1, all));
  if (wanted > all) throw InputError(fmt::format("--shards {}: {} has {} files for training", wanted, m.name, all));
  int64_t seen = 0;
  std::erase_if(m.files, [&](const RemoteFile& f) { return for_training(f) && ++seen > wanted; });
  if (all > 0) stepscope::put_on_stderr(fmt::format("{}: {} of {} files for training (--shards N fetches more)\n", m.name, wanted, all));
}

// Also without a hash a shard can be told from a page of an error, and from half of itself.
void check_shard(const std::filesystem::path& path, const std::string& name) {
  const MappedFile file(path);
  parse_token_shard(file.bytes(), name);
}

}  // namespace

bool is_manifest(const std::string& from) { return !from.empty() && !is_address(from); }

SetManifest parse_set_manifest(std::string_view text, const std::string& source) { return ManifestReader(text, source).read(); }

void fetch_remote_set(const std::string& name, const FetchOptions& options) {
  SetManifest m = settled(name, options);
  cut_to_shards(m, options.shards);
  DownloadOptions download;
  download.folder = options.folder.empty() ? name : options.folder;
  download.jobs = options.jobs;
  download.retries = options.retries;
  if (m.form == "token_shards") download.check_form = check_shard;
  if (m.form == "tinystories") check_can_make_tinystories();
  const Downloaded d = download_files(m.files, download);
  if (!d.without_hash.empty()) {
    stepscope::put_on_stderr(
        fmt::format("{} of {} files have no published SHA-256 here: their form was checked, and {} records what came\n",
                    d.without_hash.size(), m.files.size(), (download.folder / "fetched.json").string()));
  }
  if (m.form == "tinystories") return make_tinystories(download.folder);
  for (const RemoteFile& f : m.files) {
    const MappedFile shard(download.folder / f.name);
    fmt::print("{}: {} tokens\n", shard.path(), parse_token_shard(shard.bytes(), shard.path()).size());
  }
}

}  // namespace gpt2
