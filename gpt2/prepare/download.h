// Many files from a web server into a folder: in parallel, resumable, checked. curl does the transfers (package curl), one child process
// per file.
//
// A file appears under its name only once its size and SHA-256 are right; until then it is ".NAME.part" beside it, which a later run
// resumes. What is there already is checked and not fetched again. fetched.json in the folder records size, SHA-256, address and time
// of every file that was fetched, so that a file whose hash nobody published is at least held to its first download.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gpt2 {

struct RemoteFile {
  std::string name, url;
  std::optional<uint64_t> bytes;
  std::optional<std::string> sha256;
};

struct DownloadOptions {
  std::filesystem::path folder;
  int64_t jobs = 4;
  int64_t retries = 5;  // of one file, after server errors, cut transfers and wrong contents; they wait 1, 2, 4, … at most 30 s
  // Throws stepscope::InputError where a file is not of its form; the second line of defence where no hash is known.
  std::function<void(const std::filesystem::path& file, const std::string& name)> check_form;
};

struct Downloaded {
  int64_t fetched = 0, there_before = 0;
  std::vector<std::string> without_hash;  // names whose hash the caller does not know; recorded only
};

// Throws stepscope::MachineError when curl is missing, the disk is too small or a server cannot be reached, stepscope::InputError for a
// file with another size or hash, be it fetched (it is not kept) or there before (it is left alone), and where another process is
// fetching into the folder. Files that were complete before the error stay, as do parts; without either a folder that was
// made for them goes when the program ends.
Downloaded download_files(const std::vector<RemoteFile>& files, const DownloadOptions& options);
// The end of a message about files that could not be fetched: each address, and where its file is looked for.
std::string download_by_hand(std::span<const std::pair<std::string, std::filesystem::path>> files);

}  // namespace gpt2
