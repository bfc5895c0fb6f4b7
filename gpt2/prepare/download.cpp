#include "gpt2/prepare/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/json_read.h"
#include "base/made_folders.h"
#include "base/process.h"
#include "base/progress_line.h"
#include "base/read_file.h"
#include "base/sha256.h"
#include "base/stderr_text.h"
#include "base/temporary_folder.h"
#include "base/utc.h"

namespace gpt2 {
namespace fs = std::filesystem;
namespace {

using nlohmann::ordered_json;
using stepscope::InputError;
using stepscope::MachineError;

// May work at another try.
struct Transient : std::runtime_error {
  using std::runtime_error::runtime_error;
};

uint64_t size_of(const fs::path& path) {
  std::error_code ec;
  const auto size = fs::file_size(path, ec);
  return ec ? 0 : static_cast<uint64_t>(size);
}
int64_t changed_at(const fs::path& path) {
  std::error_code ec;
  const auto t = fs::last_write_time(path, ec);
  return ec ? 0 : static_cast<int64_t>(t.time_since_epoch().count());
}
std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// fetched.json. Not an authority against the manifest, only beside it.
class Record {
 public:
  explicit Record(const fs::path& folder) : path_(folder / "fetched.json") {
    const auto text = stepscope::read_file_if_there(path_);
    if (!text) return;
    json_ = stepscope::read_json<ordered_json>(*text);
    if (!json_.is_object())
      throw InputError(fmt::format("{}: {}; expected what an earlier fetch recorded; remove it", path_.string(),
                                   stepscope::why_no_object(*text, path_.string())));
  }
  std::optional<std::string> sha256_of(const std::string& name) const {
    const auto found = json_.find(name);
    if (found == json_.end() || !found->is_object() || !found->contains("sha256") || !found->at("sha256").is_string()) return std::nullopt;
    return found->at("sha256").get<std::string>();
  }
  // The hash of a file that did not change since it was recorded; hashing hundreds of files at every start would take minutes.
  std::optional<std::string> unchanged(const std::string& name, const fs::path& file) const {
    const auto known = sha256_of(name);
    if (!known) return std::nullopt;
    const auto& entry = json_.at(name);
    const bool same = entry.value("bytes", uint64_t{0}) == size_of(file) && entry.value("changed_at", int64_t{0}) == changed_at(file);
    return same ? known : std::nullopt;
  }
  void put(const RemoteFile& file, const fs::path& path, const std::string& sha256) {
    json_[file.name] = {
        {"bytes", size_of(path)}, {"sha256", sha256}, {"url", file.url}, {"time", stepscope::now_utc()}, {"changed_at", changed_at(path)}};
    write_file_atomically(path_, json_.dump(1) + "\n");
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
  ordered_json json_ = ordered_json::object();
};

class Fetcher {
 public:
  Fetcher(const std::vector<RemoteFile>& files, const DownloadOptions& o) : files_(files), o_(o), record_(o.folder) { lock_folder(); }
  // Where nothing came the lock goes, while it is held: a folder that was made for nothing can then go too (base/made_folders.h).
  ~Fetcher() {
    std::error_code ec;
    const auto came = [&](const RemoteFile& f) { return fs::exists(final_path(f), ec) || fs::exists(part_path(f), ec); };
    if (std::none_of(files_.begin(), files_.end(), came)) fs::remove(lock_path(), ec);
  }
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  Downloaded run() {
    for (const RemoteFile& f : files_) wanted_[f.name] = f.sha256 ? f.sha256 : record_.sha256_of(f.name);
    for (const RemoteFile& f : files_) {
      if (!f.sha256) result_.without_hash.push_back(f.name);
      if (is_there(f)) {
        ++result_.there_before;
      } else {
        missing_.push_back(&f);
      }
    }
    check_disk();
    if (!missing_.empty()) fetch_missing();
    if (error_) std::rethrow_exception(error_);
    return result_;
  }

 private:
  fs::path lock_path() const { return o_.folder / ".fetch.lock"; }
  void lock_folder() {
    struct stat held {};
    struct stat named {};
    do {
      lock_ = Descriptor(::open(lock_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
      if (lock_ && !lock_as_writer(lock_.get(), false))
        throw InputError(fmt::format("{}: another process is fetching into this folder, expected another --out", o_.folder.string()));
      // A fetch that ended in between may have removed what was opened.
    } while (lock_ && ::fstat(lock_.get(), &held) == 0 && (::stat(lock_path().c_str(), &named) != 0 || named.st_ino != held.st_ino));
  }

  fs::path final_path(const RemoteFile& f) const { return o_.folder / f.name; }
  fs::path part_path(const RemoteFile& f) const { return o_.folder / ("." + f.name + ".part"); }
  // The hash a file must have: the publisher's, else that of the first download.
  std::optional<std::string> wanted_hash(const RemoteFile& f) const { return wanted_.at(f.name); }

  bool is_there(const RemoteFile& f) {
    const fs::path path = final_path(f);
    std::error_code ec;
    if (!fs::exists(path, ec)) return false;
    const auto refuse = [&](const std::string& found) {
      throw InputError(fmt::format("{}: {}; it is not {}; remove it or choose another --out", path.string(), found, f.url));
    };
    if (f.bytes && size_of(path) != *f.bytes) refuse(fmt::format("{} bytes, expected {}", size_of(path), *f.bytes));
    if (const auto known = record_.unchanged(f.name, path); known && (!f.sha256 || *known == *f.sha256)) return true;
    const std::string found = sha256_file(path);
    if (const auto wanted = wanted_hash(f); wanted && found != *wanted) refuse(fmt::format("sha256 {}, expected {}", found, *wanted));
    if (!f.sha256 && o_.check_form) o_.check_form(path, f.name);
    record_.put(f, path, found);
    return true;
  }

  void check_disk() const {
    uint64_t needed = 0;
    for (const RemoteFile* f : missing_) needed += f->bytes.value_or(0) - std::min(f->bytes.value_or(0), size_of(part_path(*f)));
    struct statvfs disk {};
    if (statvfs(o_.folder.c_str(), &disk) != 0) return;
    const uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    if (needed > free)
      throw MachineError(fmt::format("{}: {:.1f} GB are still to be fetched, the disk has {:.1f} GB free", o_.folder.string(),
                                     static_cast<double>(needed) * 1e-9, static_cast<double>(free) * 1e-9));
  }

  void fetch_missing() {
    std::atomic<size_t> next{0};
    std::atomic<int64_t> working{std::min<int64_t>(o_.jobs, static_cast<int64_t>(missing_.size()))};
    std::vector<std::thread> workers;
    for (int64_t i = working; i > 0; --i) {
      workers.emplace_back([&] {
        for (size_t at = next++; at < missing_.size() && !failed_; at = next++) work_on(*missing_[at]);
        --working;
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
      });
    }
    watch(working);
    for (std::thread& w : workers) w.join();
  }

  void watch(const std::atomic<int64_t>& working) {
    stepscope::ProgressLine progress;
    uint64_t all = 0;
    for (const RemoteFile* f : missing_) all += f->bytes.value_or(0);
    const auto begin = std::chrono::steady_clock::now();
    const uint64_t before = bytes_on_disk();
    std::unique_lock lock(mutex_);
    const auto print_lines = [&] {
      if (!lines_.empty()) progress.clear();
      for (const std::string& line : lines_) stepscope::put_on_stderr(line + "\n");
      lines_.clear();
    };
    while (working > 0) {
      changed_.wait_for(lock, std::chrono::milliseconds(200));
      print_lines();
      progress.show([&] {
        const uint64_t have = bytes_on_disk();
        const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        const double rate = have > before && s > 0 ? static_cast<double>(have - before) / s : 0;
        const std::string left = rate > 0 && all > have ? fmt::format(", {:.0f} s left", static_cast<double>(all - have) / rate) : "";
        return fmt::format("fetching: {} of {} files, {:.0f} of {:.0f} MB, {:.1f} MB/s{}", finished_, missing_.size(),
                           static_cast<double>(have) * 1e-6, static_cast<double>(all) * 1e-6, rate * 1e-6, left);
      });
    }
    progress.clear();
    print_lines();
  }
  uint64_t bytes_on_disk() const {
    uint64_t sum = 0;
    for (const RemoteFile* f : missing_) sum += std::max(size_of(part_path(*f)), size_of(final_path(*f)));
    return sum;
  }

  // For a machine without a network: all that is still missing, not only the file that failed first.
  std::string by_hand() const {
    std::vector<std::pair<std::string, fs::path>> still;
    for (const RemoteFile* f : missing_)
      if (!fs::exists(final_path(*f))) still.emplace_back(f->url, final_path(*f));
    return download_by_hand(still);
  }

  void say(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
    changed_.notify_all();
  }

  void work_on(const RemoteFile& f) {
    try {
      fetch_with_retries(f);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }

  void fetch_with_retries(const RemoteFile& f) {
    std::string last;
    for (int64_t attempt = 0; attempt <= o_.retries; ++attempt) {
      if (attempt > 0) {
        const int64_t seconds = std::min<int64_t>(30, int64_t{1} << std::min<int64_t>(attempt - 1, 5));
        say(fmt::format("{}: {}; trying again in {} s", f.name, last, seconds));
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::seconds(seconds), [&] { return failed_.load(); });
      }
      if (failed_) return;
      try {
        return fetch(f);
      } catch (const Transient& e) {
        last = e.what();
      }
    }
    throw MachineError(fmt::format("{}: {}; given up after {}. What came so far is kept and will be resumed. {}", f.url, last,
                                   o_.retries == 0 ? "one try" : fmt::format("{} tries", o_.retries + 1), by_hand()));
  }

  void fetch(const RemoteFile& f) {
    const fs::path part = part_path(f);
    if (f.bytes && size_of(part) > *f.bytes) fs::remove(part);
    if (!f.bytes || size_of(part) < *f.bytes) transfer(f, part);
    const uint64_t got = size_of(part);
    if (f.bytes && got < *f.bytes) throw Transient(fmt::format("the transfer was cut: {} of {} bytes", got, *f.bytes));
    const std::string found = sha256_file(part);
    const auto wanted = wanted_hash(f);
    if ((f.bytes && got != *f.bytes) || (wanted && found != *wanted)) return wrong_content(f, part, got, found);
    if (!f.sha256 && o_.check_form) check_form(f, part);
    accept(f, part, found);
  }

  // A part may have begun as another version of the file: one more try from nothing, then it is the server's.
  void wrong_content(const RemoteFile& f, const fs::path& part, uint64_t got, const std::string& found) {
    fs::remove(part);
    {
      const std::lock_guard lock(mutex_);
      const bool again = started_over_.insert({f.name, true}).second;
      if (again) throw Transient(fmt::format("got {} bytes with sha256 {}, which is not the file; starting over", got, found));
    }
    throw InputError(fmt::format(
        "{}: got {} bytes with sha256 {}, expected {}{}; the file changed there, or another server answered. The download is not kept",
        f.url, got, found, f.bytes ? fmt::format("{} bytes", *f.bytes) : "",
        wanted_hash(f) ? fmt::format("{}sha256 {}", f.bytes ? " with " : "", *wanted_hash(f)) : ""));
  }

  void check_form(const RemoteFile& f, const fs::path& part) {
    try {
      o_.check_form(part, f.url);
    } catch (const InputError&) {
      fs::remove(part);
      throw;
    }
  }

  void accept(const RemoteFile& f, const fs::path& part, const std::string& hash) {
    const fs::path path = final_path(f);
    Descriptor file(::open(part.c_str(), O_RDONLY | O_CLOEXEC));
    if (file) ::fsync(file.get());
    fs::rename(part, path);
    sync_folder(o_.folder);
    const std::lock_guard lock(mutex_);
    record_.put(f, path, hash);
    ++result_.fetched;
    ++finished_;
    lines_.push_back(
        fmt::format("{}: {} bytes, sha256 {}{}", path.string(), size_of(path), hash, f.sha256 ? "" : " (recorded, no published one)"));
  }

  // One run of curl, which appends to the part. Throws Transient, or MachineError where no other try can help.
  void transfer(const RemoteFile& f, const fs::path& part) {
    const stepscope::TemporaryFolder temporary;
    const std::string code_file = temporary.file("code"), error_file = temporary.file("error");
    const auto redirect = [&] {
      for (const auto& [path, to] : {std::pair(&code_file, STDOUT_FILENO), std::pair(&error_file, STDERR_FILENO)}) {
        const int fd = ::open(path->c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd >= 0) ::dup2(fd, to);
      }
    };
    pid_t child = -1;
    try {
      child = stepscope::start_process({"curl", "-fsSL", "--connect-timeout", "20", "--speed-limit", "1000", "--speed-time", "60", "-C",
                                        "-", "-w", "%{http_code}", "-o", part.string(), f.url},
                                       {}, redirect);
    } catch (const InputError& e) {
      throw MachineError(fmt::format("{} (package curl). {}", e.what(), by_hand()));
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    judge(f, part, WIFEXITED(status) ? WEXITSTATUS(status) : -1, first_line(code_file), first_line(error_file));
  }

  [[noreturn]] void judge(const RemoteFile& f, const fs::path& part, int exit_code, const std::string& http,
                          const std::string& said) const {
    constexpr int kBadAddress = 3, kHttpError = 22, kNoRanges = 33, kWriteError = 23;
    const std::string why = fmt::format("curl exit {}{}{}", exit_code, http.empty() || http == "000" ? "" : ", HTTP " + http,
                                        said.empty() ? "" : " (" + said + ")");
    if (exit_code == kNoRanges || http == "416") {  // the part cannot be continued here
      fs::remove(part);
      throw Transient(why + "; starting over");
    }
    const bool servers_fault = http == "429" || http == "408" || http.starts_with('5');
    if ((exit_code == kHttpError && !servers_fault) || exit_code == kWriteError || exit_code == kBadAddress) {
      throw MachineError(fmt::format("{}: {}. {}", f.url, why, by_hand()));
    }
    throw Transient(why);
  }

  const std::vector<RemoteFile>& files_;
  const DownloadOptions& o_;
  Descriptor lock_;
  Record record_;
  std::map<std::string, std::optional<std::string>> wanted_;  // not the record itself, which workers write to
  std::vector<const RemoteFile*> missing_;
  Downloaded result_;

  std::mutex mutex_;  // of all below, and of record_ and result_ while workers run
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  std::map<std::string, bool> started_over_;
  size_t finished_ = 0;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
};

}  // namespace

std::string download_by_hand(std::span<const std::pair<std::string, std::filesystem::path>> files) {
  std::string text = "To download by hand, put each file where it is looked for and run this again:";
  for (const auto& [url, path] : files) text += fmt::format("\n  {}  to  {}", url, path.string());
  return text;
}

Downloaded download_files(const std::vector<RemoteFile>& files, const DownloadOptions& options) {
  stepscope::check_folder_usable(options.folder, "--out");
  return Fetcher(files, options).run();
}

}  // namespace gpt2
