// Who a process is, what its files are called, and what a range says of a collective.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>

#include "base/collective_words.h"
#include "profiler/collect/rank.h"
#include "profiler/records/collect_plan.h"

namespace {

using namespace profiler;

std::optional<RankRecord> found(const std::map<std::string, std::string>& variables, const std::string& job = "") {
  return collect::rank_from(
      [&](const char* name) {
        const auto at = variables.find(name);
        return at == variables.end() ? "" : at->second;
      },
      job);
}

TEST(RankOfProcess, IsThatOfTheInnermostStarter) {
  EXPECT_FALSE(found({}));
  const std::map<std::string, std::string> slurm{{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_JOB_ID", "77"}};
  EXPECT_EQ(found(slurm)->rank, 3);
  EXPECT_EQ(found(slurm)->job, "77");
  // Two steps of one job of Slurm are two runs, whose ranks do not belong together.
  auto step = slurm;
  step["SLURM_STEP_ID"] = "2";
  EXPECT_EQ(found(step)->job, "77.2");
  // An Open MPI that does not know the first of its names has the second.
  EXPECT_EQ(found({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_MCA_ess_base_jobid", "9"}})->job, "9");
  // MPICH's mpiexec in a step of Slurm's, which has a task for each host; a step of srun's own has as many of both.
  auto mpich = slurm;
  mpich.insert({{"PMI_RANK", "9"}, {"PMI_SIZE", "16"}});
  EXPECT_EQ(found(mpich)->rank, 9);
  EXPECT_EQ(found(mpich)->size, 16);
  mpich["PMI_SIZE"] = "4";
  EXPECT_EQ(found(mpich)->rank, 3);
  auto inside = slurm;
  inside.insert({{"STEPSCOPE_RANK", "1"}, {"STEPSCOPE_WORLD", "2"}});
  EXPECT_EQ(found(inside)->rank, 1);
  EXPECT_EQ(found(inside)->size, 2);
  EXPECT_EQ(found(inside, "of the plan")->job, "of the plan");
  EXPECT_EQ(found({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "x"}})->job, "x");
}

TEST(RankOfProcess, IsNoneOfOneProcessAndOfWhatMakesNoSense) {
  EXPECT_FALSE(found({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(found({{"RANK", "2"}, {"WORLD_SIZE", "2"}}));
  EXPECT_FALSE(found({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}));
  EXPECT_FALSE(found({{"RANK", "1x"}, {"WORLD_SIZE", "2"}}));
  // The script of a batch job: a rank and a number of tasks, but no step of its own.
  EXPECT_FALSE(found({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
}

TEST(RankOfProcess, NamesItsHostItsClockAndItsProgram) {
  setenv("STEPSCOPE_RANK", "1", 1);
  setenv("STEPSCOPE_WORLD", "2", 1);
  const auto r = collect::rank_of_process("job");
  unsetenv("STEPSCOPE_RANK");
  unsetenv("STEPSCOPE_WORLD");
  ASSERT_TRUE(r);
  EXPECT_FALSE(r->host.empty());
  EXPECT_EQ(r->boot_id.size(), 36u);
  EXPECT_EQ(r->time_namespace.rfind("time:[", 0), 0u);
  // The note of the linker: length of the name, length of the id (GNU ld and mold write 20 bytes, lld 8), type 3, "GNU".
  std::ifstream in("/proc/self/exe", std::ios::binary);
  const std::string program{std::istreambuf_iterator<char>(in), {}};
  std::string expected;
  const std::string name_length("\x04\0\0\0", 4), type_and_name("\x03\0\0\0GNU\0", 8);
  for (size_t at = program.find(type_and_name); at != std::string::npos && expected.empty(); at = program.find(type_and_name, at + 1)) {
    if (at < 8 || program.compare(at - 8, 4, name_length) != 0) continue;  // these words in the program's own text
    const auto bytes = static_cast<unsigned char>(program[at - 4]);
    for (size_t i = 0; i < bytes; ++i) expected += fmt::format("{:02x}", static_cast<unsigned char>(program[at + 8 + i]));
  }
  EXPECT_EQ(r->build, expected);
}

TEST(FileOfRank, HasTheRankBeforeTheEnding) {
  EXPECT_EQ(file_of_rank("a/run.jsonl", 3), "a/run.rank3.jsonl");
  EXPECT_EQ(file_of_rank("a.b/run", 12), "a.b/run.rank12");
  EXPECT_EQ(file_of_rank("a/.hidden", 0), "a/.hidden.rank0");
  EXPECT_EQ(file_of_rank("run.raw.jsonl", 1), "run.raw.rank1.jsonl");
}

TEST(CollectPlan, KeepsTheJobOfARunOfSeveralRanks) {
  CollectPlan plan;
  plan.output = "x";
  EXPECT_EQ(to_json(plan).find("job"), std::string::npos);
  plan.job = "profile-1";
  EXPECT_EQ(collect_plan_from_json(to_json(plan)).job, "profile-1");
}

TEST(CollectiveWords, ReadBackAsTheyWereWritten) {
  const std::string text = stepscope::collective_range({"reduce_scatter", "bf16", 7'000'000, 3});
  EXPECT_EQ(text, "reduce_scatter bf16 7000000 bucket 3");
  const auto words = stepscope::parse_collective_range(text);
  ASSERT_TRUE(words);
  EXPECT_EQ(words->kind, "reduce_scatter");
  EXPECT_EQ(words->bytes(), 14'000'000);
  EXPECT_EQ(words->bucket, 3);
  // Tokens, rows and sums are of no bucket; the trainers say -1.
  const auto rows = stepscope::parse_collective_range(stepscope::collective_range({"all_gather", "bf16", 4096, -1}));
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->bytes(), 8192);
  EXPECT_EQ(rows->bucket, -1);
  for (const char* other : {"", "ncclAllReduce", "all_reduce fp32 x bucket 3", "all_reduce fp32 5 bucket -1", "all_reduce fp16 5 bucket 1",
                            "gather fp32 5 bucket 1", "all_reduce fp32 5 bucket 1 more", "all_reduce fp32 5 part 1"})
    EXPECT_FALSE(stepscope::parse_collective_range(other)) << other;
}

}  // namespace
