#include "gpt2/training_state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/atomic_file.h"
#include "base/checksum.h"
#include "base/errors.h"
#include "base/made_folders.h"
#include "base/mapped_file.h"
#include "gpt2/tensor_table.h"

namespace gpt2 {
namespace fs = std::filesystem;
namespace {

constexpr std::array<char, 8> kMagic{'S', 'S', 'T', 'A', 'T', 'E', '\r', '\n'};
constexpr uint64_t kVersion = 3;
constexpr std::array<std::string_view, 22> kFieldNames{
    "magic",      "version",       "parameters",       "step",       "schedule total",  "seed",         "data epoch",
    "data shard", "data sequence", "data fingerprint", "batch size", "sequence length", "accumulation", "model checksum",
    "trainer",    "trainer",       "schedule",         "warm-up",    "learning rates",  "betas",        "eps and weight decay",
    "clip"};
// With the checksum at the end.
constexpr uint64_t fixed_bytes(size_t fields) { return 8 * fields + 8; }
constexpr size_t fields_of_version(uint64_t version) { return version == 1 ? 14 : version == 2 ? 16 : kFieldNames.size(); }

// The trainer's name is the bytes of the last two fields, what it leaves of them is zero.
constexpr size_t kTrainerField = 14, kLongestName = 16;
constexpr size_t kScheduleField = 16, kLongestSchedule = 8;

// nullopt: these bytes are no name.
std::optional<std::string> name_in(const uint64_t* fields, size_t length) {
  std::string name(length, '\0');
  std::memcpy(name.data(), fields, length);
  name.erase(name.find_last_not_of('\0') + 1);
  const bool good = std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
  return good ? std::optional(name) : std::nullopt;
}

uint64_t two_floats(float a, float b) { return uint64_t{std::bit_cast<uint32_t>(b)} << 32 | std::bit_cast<uint32_t>(a); }
void read_two(uint64_t field, float& a, float& b) {
  a = std::bit_cast<float>(static_cast<uint32_t>(field));
  b = std::bit_cast<float>(static_cast<uint32_t>(field >> 32));
}

// Removes a folder that no reader can take for a checkpoint any more. Errors are left to the next attempt. Where it is a symbolic
// link, as to a checkpoint that somebody keeps on another disk, only the link goes.
void remove_folder(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_symlink(fs::symlink_status(path, ignored))) {
    announce({"remove"});
    fs::remove(path, ignored);
    return;
  }
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    announce({"remove"});
    fs::remove_all(entry.path(), ignored);
  }
  if (!fs::exists(path, ignored)) return;
  announce({"remove"});
  fs::remove_all(path, ignored);
}

// A folder under a temporary name whose lock says that its writer lives; gone again unless renamed.
class FolderInWork {
 public:
  explicit FolderInWork(const fs::path& final_path) {
    static int serial = 0;
    for (int attempt = 0; attempt < 100; ++attempt) {
      path_ = final_path.parent_path() / fmt::format(".{}.saving-{}-{}", final_path.filename().string(), ::getpid(), serial++);
      announce({"mkdir"});
      if (::mkdir(path_.c_str(), 0777) != 0) {
        if (errno == EEXIST) continue;
        throw stepscope::InputError(fmt::format("{}: cannot make the folder: {}", path_.string(), std::strerror(errno)));
      }
      fd_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      // Another process's remove_leftovers() may have taken the folder between mkdir and the lock.
      struct stat st {};
      if (fd_ && lock_as_writer(fd_.get(), false) && ::stat(path_.c_str(), &st) == 0) return;
    }
    throw stepscope::InputError(fmt::format("{}: cannot make a folder to save in", final_path.string()));
  }
  ~FolderInWork() {
    if (!renamed_) remove_folder(path_);
  }
  FolderInWork(const FolderInWork&) = delete;
  FolderInWork& operator=(const FolderInWork&) = delete;
  const fs::path& path() const { return path_; }
  void rename_to(const fs::path& target) {
    sync_folder(path_);
    announce({"rename"});
    if (::rename(path_.c_str(), target.c_str()) != 0)
      throw stepscope::InputError(fmt::format("{}: cannot rename the finished checkpoint: {}", target.string(), std::strerror(errno)));
    renamed_ = true;
    sync_folder(target.parent_path());
  }

 private:
  fs::path path_;
  Descriptor fd_;
  bool renamed_ = false;
};

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with("step-") || name.size() < 13) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, ec] = std::from_chars(name.data() + 5, end, step);
  if (ec != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

}  // namespace

bool begins_as_training_state(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

TrainingState parse_training_state(std::span<const std::byte> bytes, const std::string& source) {
  ByteReader reader(bytes, source);
  if (reader.remaining() < fixed_bytes(fields_of_version(1)))
    reader.fail(
        fmt::format("truncated: {} bytes, a training state has at least {}", reader.remaining(), fixed_bytes(fields_of_version(1))));
  std::array<uint64_t, kFieldNames.size()> f{};
  for (size_t i = 0; i < 2; ++i) f[i] = reader.read<uint64_t>(kFieldNames[i]);
  if (std::memcmp(&f[0], kMagic.data(), kMagic.size()) != 0) reader.fail("not a training state: it does not begin with SSTATE");
  if (f[1] < 1 || f[1] > kVersion) reader.fail(fmt::format("training state version {}, expected 1 to {}", f[1], kVersion));
  const size_t fields = fields_of_version(f[1]);
  if (bytes.size() < fixed_bytes(fields))
    reader.fail(
        fmt::format("truncated: {} bytes, a training state of version {} has at least {}", bytes.size(), f[1], fixed_bytes(fields)));
  for (size_t i = 2; i < fields; ++i) f[i] = reader.read<uint64_t>(kFieldNames[i]);
  if (f[2] < 1 || f[2] > uint64_t{1} << 40) reader.fail(fmt::format("{} parameters, expected 1 to 2^40", f[2]));
  reader.expect_size(fixed_bytes(fields) + 8 * f[2], fmt::format("m and v of {} parameters", f[2]));
  uint64_t stored;
  std::memcpy(&stored, bytes.data() + bytes.size() - 8, 8);
  const uint64_t found = Checksum::of(bytes.first(bytes.size() - 8));
  if (found != stored) reader.fail(fmt::format("damaged: checksum {:016x}, the file says {:016x}", found, stored));
  for (size_t i : {3, 4, 10, 11, 12, 17}) {
    if (f[i] > uint64_t{1} << 62)
      reader.fail(fmt::format("{} is {}, expected no negative value", kFieldNames[i], static_cast<int64_t>(f[i])));
  }
  TrainingState s;
  s.step = static_cast<int64_t>(f[3]);
  s.schedule_total = static_cast<int64_t>(f[4]);
  s.seed = f[5];
  s.data = {f[6], f[7], f[8]};
  s.data_fingerprint = f[9];
  s.batch_size = static_cast<int64_t>(f[10]);
  s.seq_len = static_cast<int64_t>(f[11]);
  s.accumulation = static_cast<int64_t>(f[12]);
  s.model_checksum = f[13];
  if (f[1] >= 2) {
    const auto name = name_in(&f[kTrainerField], kLongestName);
    if (!name) reader.fail("the trainer's name is not one of lower-case letters and digits");
    s.trainer = *name;
  }
  if (f[1] >= 3) {
    const auto schedule = name_in(&f[kScheduleField], kLongestSchedule);
    if (!schedule) reader.fail("the schedule's name is not one of lower-case letters and digits");
    UpdateSettings& u = s.update.emplace();
    u.schedule = *schedule;
    u.warmup = static_cast<int64_t>(f[17]);
    read_two(f[18], u.learning_rate, u.final_fraction);
    read_two(f[19], u.beta1, u.beta2);
    read_two(f[20], u.eps, u.weight_decay);
    float nothing = 0;
    read_two(f[21], u.clip, nothing);
  }
  s.m.resize(f[2]);
  s.v.resize(f[2]);
  reader.read_into(std::span(s.m), "m");
  reader.read_into(std::span(s.v), "v");
  return s;
}

TrainingState load_training_state(const fs::path& path) {
  const MappedFile file(path);
  return parse_training_state(file.bytes(), file.path());
}

void require_model_of(const TrainingState& state, const MappedFile& model) {
  const uint64_t found = Checksum::of(model.bytes());
  if (found != state.model_checksum)
    throw stepscope::InputError(fmt::format("{}: damaged, or not of this training state: checksum {:016x}, state.bin says {:016x}",
                                            model.path(), found, state.model_checksum));
}

void save_training_state(const fs::path& path, const TrainingState& s) {
  if (s.m.size() != s.v.size() || s.m.empty())
    throw std::logic_error(fmt::format("{}: {} values of m, {} of v", path.string(), s.m.size(), s.v.size()));
  std::array<uint64_t, kFieldNames.size()> f{};
  std::memcpy(&f[0], kMagic.data(), kMagic.size());
  f[1] = kVersion;
  f[2] = s.m.size();
  f[3] = static_cast<uint64_t>(s.step);
  f[4] = static_cast<uint64_t>(s.schedule_total);
  f[5] = s.seed;
  f[6] = s.data.epoch;
  f[7] = s.data.shard;
  f[8] = s.data.sequence;
  f[9] = s.data_fingerprint;
  f[10] = static_cast<uint64_t>(s.batch_size);
  f[11] = static_cast<uint64_t>(s.seq_len);
  f[12] = static_cast<uint64_t>(s.accumulation);
  f[13] = s.model_checksum;
  if (s.trainer.size() > kLongestName)
    throw std::logic_error(fmt::format("{}: the trainer's name '{}' is longer than {}", path.string(), s.trainer, kLongestName));
  std::memcpy(&f[kTrainerField], s.trainer.data(), s.trainer.size());
  const UpdateSettings u = s.update.value_or(UpdateSettings{});
  if (u.schedule.size() > kLongestSchedule)
    throw std::logic_error(fmt::format("{}: the schedule's name '{}' is longer than {}", path.string(), u.schedule, kLongestSchedule));
  std::memcpy(&f[kScheduleField], u.schedule.data(), u.schedule.size());
  f[17] = static_cast<uint64_t>(u.warmup);
  f[18] = two_floats(u.learning_rate, u.final_fraction);
  f[19] = two_floats(u.beta1, u.beta2);
  f[20] = two_floats(u.eps, u.weight_decay);
  f[21] = two_floats(u.clip, 0);
  AtomicFile out(path);
  Checksum sum;
  for (const std::span<const std::byte> part : std::initializer_list<std::span<const std::byte>>{
           std::as_bytes(std::span(f)), std::as_bytes(std::span(s.m)), std::as_bytes(std::span(s.v))}) {
    out.write(part.data(), part.size());
    sum.update(part);
  }
  const uint64_t value = sum.value();
  out.write(&value, 8);
  out.commit();
}

CheckpointStore::CheckpointStore(fs::path folder, int64_t keep) : folder_(std::move(folder)), keep_(keep) {
  if (keep_ < 1) throw stepscope::InputError(fmt::format("checkpoints to keep: {}, expected at least 1", keep_));
  stepscope::check_folder_usable(folder_, "checkpoints");
  remove_leftovers();
}

namespace {
const std::set<std::string> kFiles{"model.bin", "state.bin"};  // of a checkpoint
}  // namespace

fs::path step_folder(const fs::path& folder, int64_t step) { return folder / fmt::format("step-{:08d}", step); }

fs::path CheckpointStore::path_of(int64_t step) const { return step_folder(folder_, step); }

std::vector<int64_t> CheckpointStore::steps() const { return saved_steps(folder_); }

std::vector<int64_t> saved_steps(const fs::path& folder) {
  std::vector<int64_t> found;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && entry.is_directory(ec)) found.push_back(*step);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void CheckpointStore::remove_leftovers() const {
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder_, ec)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".step-")) continue;
    if (name.ends_with(".retired")) remove_folder(entry.path());
    if (name.find(".saving-") == std::string::npos) continue;
    Descriptor fd(::open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd && lock_as_writer(fd.get(), true)) remove_folder(entry.path());
  }
}

// Renamed first: a checkpoint half removed must not look like one.
void CheckpointStore::retire(const fs::path& checkpoint) const {
  const fs::path retired = folder_ / fmt::format(".{}.retired", checkpoint.filename().string());
  remove_folder(retired);
  announce({"rename"});
  if (::rename(checkpoint.c_str(), retired.c_str()) != 0)
    throw stepscope::InputError(fmt::format("{}: cannot remove the old checkpoint: {}", checkpoint.string(), std::strerror(errno)));
  remove_folder(retired);
}

// Where the folder of this step goes. One that is not ours keeps its content under another name.
fs::path CheckpointStore::make_room(int64_t step) const {
  const fs::path target = path_of(step);
  if (!fs::exists(fs::symlink_status(target))) return {};
  if (!is_foreign(step)) {
    retire(target);
    return {};
  }
  fs::path aside;
  for (int n = 1; aside.empty() || fs::exists(fs::symlink_status(aside)); ++n)
    aside = folder_ / fmt::format("{}.kept-{}", target.filename().string(), n);
  announce({"rename"});
  if (::rename(target.c_str(), aside.c_str()) != 0)
    throw stepscope::InputError(
        fmt::format("{}: cannot rename what is no checkpoint of this run: {}", target.string(), std::strerror(errno)));
  return aside;
}

fs::path CheckpointStore::save(const ModelConfig& config, std::span<const float> parameters, TrainingState state) {
  remove_leftovers();
  const fs::path target = path_of(state.step);
  FolderInWork work(target);
  state.model_checksum = save_checkpoint(work.path() / "model.bin", config, parameters);
  save_training_state(work.path() / "state.bin", state);
  const fs::path aside = make_room(state.step);
  work.rename_to(target);

  std::vector<int64_t> others = steps();
  std::erase(others, state.step);
  damaged_.erase(state.step);
  renamed_.erase(state.step);
  std::erase_if(others, [&](int64_t step) { return is_foreign(step); });
  std::stable_partition(others.begin(), others.end(), [&](int64_t step) { return damaged_.contains(step); });
  const size_t keep_others = static_cast<size_t>(keep_ - 1);
  for (size_t i = 0; i + keep_others < others.size(); ++i) retire(path_of(others[i]));
  return aside;
}

bool CheckpointStore::is_foreign(int64_t step) const {
  std::set<std::string> names;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(path_of(step), ec)) names.insert(entry.path().filename().string());
  if (names.empty() || !std::includes(kFiles.begin(), kFiles.end(), names.begin(), names.end())) return true;
  if (renamed_.contains(step)) return true;
  if (!damaged_.contains(step)) return false;
  try {
    if (load_training_state(path_of(step) / "state.bin").step == step) return false;
  } catch (const stepscope::InputError&) {
    return false;
  }
  renamed_.insert(step);
  return true;
}

CheckpointStore::Loaded CheckpointStore::load(int64_t step) const { return load_checkpoint_of_step(folder_, step); }

CheckpointStore::Loaded load_checkpoint_of_step(const fs::path& all, int64_t step) {
  const fs::path folder = step_folder(all, step);
  const MappedFile model(folder / "model.bin");
  CheckpointStore::Loaded l{parse_checkpoint(model.bytes(), model.path()), load_training_state(folder / "state.bin"), folder};
  if (l.state.step != step) {
    throw stepscope::InputError(
        fmt::format("{}: the training state is of step {}, the folder's name says {}", folder.string(), l.state.step, step));
  }
  require_model_of(l.state, model);
  if (l.state.m.size() != l.model.parameters.size()) {
    throw stepscope::InputError(fmt::format("{}: optimizer state of {} parameters, the model has {}", folder.string(), l.state.m.size(),
                                            l.model.parameters.size()));
  }
  return l;
}

std::optional<CheckpointStore::Loaded> CheckpointStore::newest_that_loads(std::vector<std::string>* damaged) const {
  const std::vector<int64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    try {
      return load(*step);
    } catch (const stepscope::InputError& e) {
      damaged_.insert(*step);
      if (damaged != nullptr) damaged->push_back(e.what());
    }
  }
  return std::nullopt;
}

}  // namespace gpt2
