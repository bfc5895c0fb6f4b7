#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "gpt2/checksum.h"
#include "gpt2/counter_rng.h"
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
std::vector<float> small_parameters(uint64_t seed) {
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
  const auto p = small_parameters(static_cast<uint64_t>(step));
  store.save(small_config(), p, state_of(step, p.size()));
}
void expect_whole(const CheckpointStore::Loaded& l) {
  const auto p = small_parameters(static_cast<uint64_t>(l.state.step));
  const TrainingState expected = state_of(l.state.step, p.size());
  EXPECT_EQ(l.model.parameters, p);
  EXPECT_EQ(l.state.m, expected.m);
  EXPECT_EQ(l.state.v, expected.v);
  EXPECT_EQ(l.state.data, expected.data);
}

// Version 1 is version 2 without the two fields of the trainer's name: 14 fields, m, v, checksum.
TEST(TrainingState, FilesOfVersion1AreStillRead) {
  TemporaryFolder folder;
  TrainingState s = state_of(41, 10);
  s.trainer = "mixed";
  save_training_state(folder / "s", s);
  auto bytes = read_bytes(folder / "s");
  bytes.erase(bytes.begin() + 8 * 14, bytes.begin() + 8 * 16);
  const uint64_t version = 1;
  std::memcpy(bytes.data() + 8, &version, 8);
  const uint64_t sum = Checksum::of(std::span(bytes).first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
  const TrainingState r = parse_training_state(bytes, "old");
  EXPECT_EQ(r.step, 41);
  EXPECT_EQ(r.accumulation, 3);
  EXPECT_EQ(r.m, s.m);
  EXPECT_EQ(r.v, s.v);
  EXPECT_EQ(r.trainer, "");
  const uint64_t tomorrow = 3;
  std::memcpy(bytes.data() + 8, &tomorrow, 8);
  EXPECT_INPUT_ERROR(parse_training_state(bytes, "new"), "version 3");
}

TEST(TrainingState, EveryFieldComesBack) {
  TemporaryFolder folder;
  TrainingState s = state_of(41, 10);
  s.model_checksum = 99;
  s.trainer = "reference";
  save_training_state(folder / "s", s);
  const TrainingState r = load_training_state(folder / "s");
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
  EXPECT_THAT(damaged, ElementsAre(::testing::HasSubstr("step-00000005/model.bin: damaged"),
                                   ::testing::HasSubstr("step-00000004/state.bin: damaged"),
                                   ::testing::HasSubstr("step-00000003/state.bin")));
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

// The child saves step after step as fast as it can; the parent kills it at a random moment, 200 times.
// Whatever the moment, the newest checkpoint must load whole, and no step that the child had reported as
// saved may be lost.
TEST(CheckpointStore, KilledAtAnyMomentTheNewestLoads) {
  TemporaryFolder folder;
  std::mt19937 random(20261120);
  constexpr int kRounds = 200;
  int killed_while_saving = 0;
  int64_t last_step = 0;
  for (int round = 0; round < kRounds; ++round) {
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
    // Always past the first save of the first round, so that there is one to find.
    int64_t saved = last_step;
    if (round == 0) {
      ASSERT_EQ(::read(reports[0], &saved, sizeof(saved)), static_cast<ssize_t>(sizeof(saved)));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child died of something else";
    for (int64_t step; ::read(reports[0], &step, sizeof(step)) == static_cast<ssize_t>(sizeof(step));)
      saved = step;
    ::close(reports[0]);
    for (const std::string& name : names_in(folder.path())) {
      if (name.find(".saving-") != std::string::npos) ++killed_while_saving;
    }
    // Looked at as it was left: opening the store removes leftovers, which must not be needed to find the
    // newest.
    std::vector<std::string> damaged;
    const CheckpointStore store(folder.path(), 2);
    const std::vector<int64_t> steps = store.steps();
    const auto found = store.newest_that_loads(&damaged);
    ASSERT_TRUE(found) << "round " << round;
    ASSERT_THAT(damaged, ElementsAre()) << "round " << round;
    ASSERT_EQ(found->state.step, steps.back());
    ASSERT_GE(found->state.step, saved) << "a checkpoint reported as saved is gone";
    expect_whole(*found);
    last_step = found->state.step;
  }
  CheckpointStore store(folder.path(), 2);
  save_step(store, last_step + 1);
  EXPECT_EQ(names_in(folder.path()).size(), 2u)
      << "leftovers pile up: " << ::testing::PrintToString(names_in(folder.path()));
  EXPECT_GE(killed_while_saving, kRounds / 4)
      << "too few kills fell into a save for this test to mean anything";
}

}  // namespace
}  // namespace gpt2
