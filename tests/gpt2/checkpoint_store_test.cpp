#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "base/atomic_file.h"
#include "base/checksum.h"
#include "base/counter_rng.h"
#include "gpt2/training_state.h"
#include "tests/gpt2/files.h"

namespace gpt2 {
namespace {
using ::testing::ElementsAre;
using testing::names_in;
using testing::read_bytes;
using testing::small_config;
using testing::TemporaryFolder;
using testing::write_bytes;

// Not init_parameters(): its OpenMP threads do not survive the fork below.
std::vector<float> parameters_without_threads(uint64_t seed) {
  std::vector<float> p(static_cast<size_t>(tensor_layout(small_config()).total));
  for (size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(unit_interval(combine(seed, i)));
  return p;
}

TrainingState state_of(int64_t step, size_t parameters) {
  TrainingState s;
  s.step = step;
  s.schedule_total = 1000;
  s.seed = 7;
  s.data = {1, 2, static_cast<uint64_t>(step)};
  s.data_fingerprint = 0xfeedface;
  s.batch_size = 2;
  s.seq_len = 4;
  s.accumulation = 3;
  for (size_t i = 0; i < parameters; ++i) {
    s.m.push_back(static_cast<float>(unit_interval(combine(static_cast<uint64_t>(step), i))));
    s.v.push_back(static_cast<float>(unit_interval(combine(static_cast<uint64_t>(step) + 1000, i))));
  }
  return s;
}
void save_step(CheckpointStore& store, int64_t step) {
  const auto p = parameters_without_threads(static_cast<uint64_t>(step));
  store.save(small_config(), p, state_of(step, p.size()));
}
void expect_whole(const CheckpointStore::Loaded& l) {
  const auto p = parameters_without_threads(static_cast<uint64_t>(l.state.step));
  const TrainingState expected = state_of(l.state.step, p.size());
  EXPECT_EQ(l.model.parameters, p);
  EXPECT_EQ(l.state.m, expected.m);
  EXPECT_EQ(l.state.v, expected.v);
  EXPECT_EQ(l.state.data, expected.data);
}

TEST(TrainingState, MayBeOfOneParameter) {
  TemporaryFolder folder;
  save_training_state(folder / "one", state_of(41, 1));
  EXPECT_EQ(load_training_state(folder / "one").m.size(), 1u);
}

// Version 2 is version 3 without the six fields of the update: 16 fields, m, v, checksum; version 1 lacks the two of the trainer's name too.
TEST(TrainingState, FilesOfOlderVersionsAreStillRead) {
  TemporaryFolder folder;
  TrainingState s = state_of(41, 10);
  s.trainer = "mixed";
  s.update = UpdateSettings{.schedule = "cosine", .clip = 1};
  save_training_state(folder / "s", s);
  for (const auto& [version, fields] : {std::pair(uint64_t{1}, 14), std::pair(uint64_t{2}, 16)}) {
    auto bytes = read_bytes(folder / "s");
    bytes.erase(bytes.begin() + 8 * fields, bytes.begin() + 8 * 22);
    std::memcpy(bytes.data() + 8, &version, 8);
    const uint64_t sum = Checksum::of(std::span(bytes).first(bytes.size() - 8));
    std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
    const TrainingState r = parse_training_state(bytes, "old");
    EXPECT_EQ(r.step, 41);
    EXPECT_EQ(r.accumulation, 3);
    EXPECT_EQ(r.m, s.m);
    EXPECT_EQ(r.v, s.v);
    EXPECT_EQ(r.trainer, version == 1 ? "" : "mixed");
    EXPECT_FALSE(r.update);
    const uint64_t tomorrow = 4;
    std::memcpy(bytes.data() + 8, &tomorrow, 8);
    EXPECT_INPUT_ERROR(parse_training_state(bytes, "new"), "version 4");
  }
}

TEST(TrainingState, EveryFieldComesBack) {
  TemporaryFolder folder;
  TrainingState s = state_of(41, 10);
  s.model_checksum = 99;
  s.trainer = "reference";
  s.update = UpdateSettings{.schedule = "constant",
                            .learning_rate = 3e-4f,
                            .final_fraction = 0.25f,
                            .beta1 = 0.8f,
                            .beta2 = 0.95f,
                            .eps = 1e-7f,
                            .weight_decay = 0.1f,
                            .clip = 2,
                            .warmup = 70};
  save_training_state(folder / "s", s);
  const TrainingState r = load_training_state(folder / "s");
  EXPECT_EQ(r.update, s.update);
  EXPECT_EQ(r.step, 41);
  EXPECT_EQ(r.schedule_total, 1000);
  EXPECT_EQ(r.seed, 7u);
  EXPECT_EQ(r.data, s.data);
  EXPECT_EQ(r.data_fingerprint, s.data_fingerprint);
  EXPECT_EQ(r.batch_size, 2);
  EXPECT_EQ(r.seq_len, 4);
  EXPECT_EQ(r.accumulation, 3);
  EXPECT_EQ(r.trainer, "reference");
  EXPECT_EQ(r.model_checksum, 99u);
  EXPECT_EQ(r.m, s.m);
  EXPECT_EQ(r.v, s.v);
}

TEST(TrainingState, NegativeNumbersAreRefusedByName) {
  TemporaryFolder folder;
  const std::pair<int64_t TrainingState::*, const char*> fields[] = {{&TrainingState::step, "step"},
                                                                     {&TrainingState::schedule_total, "schedule total"},
                                                                     {&TrainingState::batch_size, "batch size"},
                                                                     {&TrainingState::seq_len, "sequence length"},
                                                                     {&TrainingState::accumulation, "accumulation"}};
  for (const auto& [member, name] : fields) {
    TrainingState s = state_of(41, 10);
    s.*member = -3;
    save_training_state(folder / "s", s);
    EXPECT_INPUT_ERROR(load_training_state(folder / "s"), name, " is -3, expected no negative value");
  }
}

TEST(CheckpointStore, KeepsTheNewestAndNothingElse) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  for (int64_t step : {10, 20, 30, 40}) save_step(store, step);
  EXPECT_THAT(store.steps(), ElementsAre(30, 40));
  EXPECT_EQ(names_in(folder.path()).size(), 2u);
  expect_whole(*store.newest_that_loads());
}

TEST(CheckpointStore, TheOneJustWrittenStaysBesideHigherNumbersOfAnAbandonedRun) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path(), 1);
  save_step(store, 50);
  save_step(store, 20);
  EXPECT_THAT(store.steps(), ElementsAre(20));
}

TEST(CheckpointStore, SavingAStepAgainReplacesIt) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  save_step(store, 10);
  write_bytes(store.path_of(10) / "model.bin", {});
  EXPECT_FALSE(store.newest_that_loads());
  save_step(store, 10);
  expect_whole(*store.newest_that_loads());
}

TEST(CheckpointStore, DamagedOnesArePassedOverAndNamed) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path(), 5);
  for (int64_t step : {1, 2, 3, 4, 5}) save_step(store, step);
  auto model = read_bytes(store.path_of(5) / "model.bin");
  model[2000] ^= std::byte{1};  // a valid llm.c checkpoint still, but not what was saved
  write_bytes(store.path_of(5) / "model.bin", model);
  auto state = read_bytes(store.path_of(4) / "state.bin");
  state[300] ^= std::byte{1};
  write_bytes(store.path_of(4) / "state.bin", state);
  std::filesystem::remove(store.path_of(3) / "state.bin");
  std::vector<std::string> damaged;
  const auto found = store.newest_that_loads(&damaged);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 2);
  expect_whole(*found);
  EXPECT_THAT(damaged,
              ElementsAre(::testing::HasSubstr("step-00000005/model.bin: damaged"),
                          ::testing::HasSubstr("step-00000004/state.bin: damaged"), ::testing::HasSubstr("step-00000003/state.bin")));
}

// A run that resumed from the one before a damaged one: of two that are kept, none may be the damaged one.
TEST(CheckpointStore, DamagedOnesThatWerePassedOverGoBeforeGoodOnes) {
  TemporaryFolder folder;
  {
    CheckpointStore store(folder.path(), 2);
    save_step(store, 4);
    save_step(store, 9);
  }
  std::filesystem::resize_file(folder.path() / "step-00000009" / "model.bin", 100);
  CheckpointStore store(folder.path(), 2);
  ASSERT_EQ(store.newest_that_loads()->state.step, 4);
  save_step(store, 6);
  EXPECT_THAT(store.steps(), ElementsAre(4, 6));
}

TEST(CheckpointStore, FilesOfOthersInTheFolderAreLeftAlone) {
  TemporaryFolder folder;
  write_bytes(folder / "model_00000010.bin", {});
  std::filesystem::create_directory(folder / "step-notes");
  std::filesystem::create_directory(folder / "step-1");
  CheckpointStore store(folder.path(), 1);
  for (int64_t step : {10, 20}) save_step(store, step);
  EXPECT_EQ(names_in(folder.path()).size(), 4u);
}

TEST(CheckpointStore, FoldersOfOthersThatAreNamedLikeACheckpointAreLeftAloneAndNotCounted) {
  TemporaryFolder folder;
  {
    CheckpointStore store(folder.path(), 2);
    for (int64_t step : {10, 20}) save_step(store, step);
  }
  std::filesystem::create_directory(folder / "step-99999999");
  write_bytes(folder / "step-99999999" / "notes.txt", {});
  std::filesystem::create_directory(folder / "step-00000005");                // empty, and older than all
  std::filesystem::copy(folder / "step-00000020", folder / "step-00000040");  // kept under another name
  std::filesystem::copy(folder / "step-00000020", folder / "step-00000001");
  write_bytes(folder / "step-00000001" / "why.txt", {});
  CheckpointStore store(folder.path(), 2);
  ASSERT_EQ(store.newest_that_loads()->state.step, 20);
  for (int64_t step : {30, 50}) save_step(store, step);
  EXPECT_THAT(store.steps(), ElementsAre(1, 5, 30, 40, 50, 99999999));
  EXPECT_TRUE(std::filesystem::exists(folder / "step-99999999" / "notes.txt"));
}

// Saving step 6 removed the user's notes with the folder that bore its name.
TEST(CheckpointStore, AFolderOfOthersThatIsInTheWayKeepsItsContentUnderAnotherName) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  for (const char* kept : {"step-00000006.kept-1", "step-00000006.kept-2"}) {
    std::filesystem::remove_all(folder / "step-00000006");
    std::filesystem::create_directory(folder / "step-00000006");
    write_bytes(folder / "step-00000006" / "notes.txt", {});
    const auto p = parameters_without_threads(6);
    EXPECT_EQ(store.save(small_config(), p, state_of(6, p.size())), folder / kept);
    EXPECT_THAT(names_in(folder / kept), ElementsAre("notes.txt"));
    expect_whole(store.load(6));
  }
  std::filesystem::copy(folder / "step-00000006", folder / "step-00000008");  // a checkpoint kept under another name
  write_bytes(folder / "step-00000009", {});                                  // a file
  ASSERT_EQ(store.newest_that_loads()->state.step, 6);
  for (const int64_t step : {8, 9, 10}) save_step(store, step);
  EXPECT_THAT(store.steps(), ElementsAre(9, 10)) << "8 is one of this run since it was saved";
  EXPECT_EQ(load_training_state(folder / "step-00000008.kept-1" / "state.bin").step, 6);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder / "step-00000009.kept-1"));
}

// One that was moved to a larger disk, say.
TEST(CheckpointStore, OfACheckpointBehindALinkOnlyTheLinkIsRemoved) {
  TemporaryFolder folder, elsewhere;
  CheckpointStore store(folder.path(), 1);
  for (const auto& [linked, next] : {std::pair(10, 20), std::pair(30, 30)}) {  // by --keep-checkpoints; by the same step
    save_step(store, linked);
    const std::filesystem::path there = elsewhere / std::to_string(linked);
    std::filesystem::copy(store.path_of(linked), there);
    std::filesystem::remove_all(store.path_of(linked));
    std::filesystem::create_directory_symlink(there, store.path_of(linked));
    save_step(store, next);
    EXPECT_THAT(names_in(folder.path()), ElementsAre(store.path_of(next).filename().string()));
    EXPECT_FALSE(std::filesystem::is_symlink(store.path_of(next)));
    EXPECT_EQ(load_training_state(there / "state.bin").step, linked);
  }
}

// ---- Killed while it saves: at every operation on a file, right before it and, of a write, in its middle.

// Counts operations down and ends the process at the last of them.
int operations_left = 0;
bool half_a_write = false;
void die_when_due(const FileOperation& o) {
  if (--operations_left > 0) return;
  if (half_a_write && o.data != nullptr && ::write(o.fd, o.data, o.bytes / 2) < 0) ::_exit(1);
  ::kill(::getpid(), SIGKILL);
}
std::vector<std::string>* heard = nullptr;
void note_operation(const FileOperation& o) { heard->emplace_back(o.name); }

std::vector<std::string> operations_of(const std::function<void()>& work) {
  std::vector<std::string> names;
  heard = &names;
  on_file_operation = note_operation;
  work();
  on_file_operation = nullptr;
  return names;
}

// Runs `work` in a child that is killed at its `at`th operation (from 1). False: it came to its end before.
bool killed_at(int at, bool half, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    operations_left = at;
    half_a_write = half;
    on_file_operation = die_when_due;
    work();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL) << "operation " << at;
    return true;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "operation " << at << ": the child died of something else";
  return false;
}

// What is in the folder as the dead left it; nothing is cleaned up before it is looked at. Returns the newest step.
int64_t expect_newest_loads(const CheckpointStore& reader) {
  std::vector<std::string> damaged;
  const auto found = reader.newest_that_loads(&damaged);
  EXPECT_THAT(damaged, ElementsAre());
  if (!found) {
    ADD_FAILURE() << "no checkpoint loads";
    return -1;
  }
  EXPECT_EQ(found->state.step, reader.steps().back());
  expect_whole(*found);
  return found->state.step;
}

class CheckpointStoreKilled : public ::testing::Test {
 protected:
  // A folder with checkpoints 1 and 2, of which two are kept.
  void SetUp() override {
    CheckpointStore store(before_.path(), 2);
    for (const int64_t step : {1, 2}) save_step(store, step);
  }
  // A copy of it and a store that reads it; the store is made first because making one cleans up.
  struct Copy {
    explicit Copy(const std::filesystem::path& from) : store(folder.path(), 2) {
      std::filesystem::copy(from, folder.path(), std::filesystem::copy_options::recursive);
    }
    TemporaryFolder folder;
    CheckpointStore store;
  };
  TemporaryFolder before_;
};

TEST_F(CheckpointStoreKilled, AtEveryOperationOfASaveTheNewestLoadsAndNothingSavedIsLost) {
  int kills = 0, kept_old = 0, kept_new = 0;
  for (const bool half : {false, true})
    for (int at = 1;; ++at) {
      SCOPED_TRACE(::testing::Message() << "operation " << at << (half ? ", in its middle" : ""));
      Copy copy(before_.path());
      if (!killed_at(at, half, [&] { save_step(copy.store, 3); })) break;
      ++kills;
      const int64_t newest = expect_newest_loads(copy.store);
      EXPECT_TRUE(newest == 2 || newest == 3) << newest;
      ++(newest == 2 ? kept_old : kept_new);
      // The next run finds its way and leaves nothing of the dead one behind.
      CheckpointStore next(copy.folder.path(), 2);
      save_step(next, 4);
      EXPECT_EQ(names_in(copy.folder.path()).size(), 2u) << ::testing::PrintToString(names_in(copy.folder.path()));
      if (HasFailure()) return;
    }
  Copy copy(before_.path());
  const auto operations = operations_of([&] { save_step(copy.store, 3); });
  EXPECT_EQ(kills, 2 * static_cast<int>(operations.size())) << "every operation was killed at";
  EXPECT_GT(kept_old, 0);
  EXPECT_GT(kept_new, 0);
}

// Step 2 is saved again, as after a resume from step 1 because 2 was damaged: 1 stays until the new 2 is whole.
TEST_F(CheckpointStoreKilled, AtEveryOperationOfASaveThatReplacesADamagedOneTheOlderOneStays) {
  write_bytes(before_ / "step-00000002/state.bin", {});
  for (int at = 1;; ++at) {
    SCOPED_TRACE(at);
    Copy copy(before_.path());
    if (!killed_at(at, false, [&] { save_step(copy.store, 2); })) {
      EXPECT_EQ(expect_newest_loads(copy.store), 2);
      EXPECT_GT(at, 20) << "a save has more operations than that";
      break;
    }
    const auto found = copy.store.newest_that_loads();
    ASSERT_TRUE(found);
    expect_whole(*found);
  }
}

// While a store is opened, too: it cleans up after others.
TEST_F(CheckpointStoreKilled, AtEveryOperationOfOpeningAFolderTheNewestLoads) {
  std::filesystem::create_directory(before_ / ".step-00000001.retired");
  write_bytes(before_ / ".step-00000001.retired/model.bin", {});
  std::filesystem::create_directory(before_ / ".step-00000003.saving-1-0");
  write_bytes(before_ / ".step-00000003.saving-1-0/model.bin", {});
  int at = 1;
  for (;; ++at) {
    SCOPED_TRACE(at);
    Copy copy(before_.path());
    const bool killed = killed_at(at, false, [&] { CheckpointStore(copy.folder.path(), 2); });
    EXPECT_EQ(expect_newest_loads(copy.store), 2);
    if (killed) continue;
    EXPECT_EQ(names_in(copy.folder.path()).size(), 2u) << "both leftovers are gone";
    break;
  }
  EXPECT_GT(at, 6) << "a probe file and four removals";
}

// SIGKILL cannot show a power cut, the order of operations can: nothing is renamed before it is on the disk, and the
// folder is synced after. Nothing old goes before the new one has its name.
TEST_F(CheckpointStoreKilled, WhatIsRenamedIsOnTheDiskAndWhatIsOldGoesLast) {
  CheckpointStore store(before_.path(), 2);
  const std::vector<std::string> file{"create", "write", "write", "fsync", "rename", "fsync folder"};
  const std::vector<std::string> state{"create", "write", "write", "write", "write", "fsync", "rename", "fsync folder"};
  std::vector<std::string> expected{"mkdir"};
  expected.insert(expected.end(), file.begin(), file.end());
  expected.insert(expected.end(), state.begin(), state.end());
  for (const char* last : {"fsync folder", "rename", "fsync folder", "rename", "remove", "remove", "remove"}) expected.emplace_back(last);
  EXPECT_EQ(operations_of([&] { save_step(store, 3); }), expected);
}

// The same at moments that nobody chose. It asks for no number of hits: where kills fall depends on the machine.
TEST(CheckpointStore, KilledAtAnyMomentTheNewestLoads) {
  TemporaryFolder folder;
  std::mt19937 random(20261120);
  CheckpointStore reader(folder.path(), 2);  // made before the first kill: making one cleans up
  save_step(reader, 1);
  int64_t last_step = 1;
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    int reports[2];
    ASSERT_EQ(::pipe(reports), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(reports[0]);
      CheckpointStore store(folder.path(), 2);
      for (int64_t step = last_step + 1;; ++step) {
        save_step(store, step);
        if (::write(reports[1], &step, sizeof(step)) != sizeof(step)) ::_exit(1);
      }
    }
    ASSERT_GT(child, 0);
    ::close(reports[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 10000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child died of something else";
    int64_t saved = last_step;
    for (int64_t step; ::read(reports[0], &step, sizeof(step)) == static_cast<ssize_t>(sizeof(step));) saved = step;
    ::close(reports[0]);
    const int64_t newest = expect_newest_loads(reader);
    ASSERT_GE(newest, saved) << "a checkpoint reported as saved is gone";
    last_step = newest;
  }
}

}  // namespace
}  // namespace gpt2
