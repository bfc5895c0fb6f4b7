#include "gpt2/distributed/discover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/errors.h"

namespace gpt2::distributed {
namespace {
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}
Variables with(Variables a, const Variables& b) {
  for (const auto& [key, value] : b) a[key] = value;
  return a;
}
Variables without(Variables a, const std::string& name) {
  a.erase(name);
  return a;
}

const Variables kLauncher{{"STEPSCOPE_RANK", "1"},
                          {"STEPSCOPE_WORLD", "4"},
                          {"STEPSCOPE_LOCAL_RANK", "1"},
                          {"STEPSCOPE_RENDEZVOUS", "unix:@a"},
                          {"STEPSCOPE_TOKEN", "t"}};
const Variables kTorchrun{{"RANK", "5"},       {"WORLD_SIZE", "8"},    {"LOCAL_RANK", "1"},      {"LOCAL_WORLD_SIZE", "4"},
                          {"GROUP_RANK", "1"}, {"MASTER_ADDR", "n07"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "job9"}};
const Variables kMpirun{{"OMPI_COMM_WORLD_RANK", "2"},
                        {"OMPI_COMM_WORLD_SIZE", "3"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                        {"PMIX_NAMESPACE", "prterun-7"}};
const Variables kSlurm{{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"},  {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "1"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NODELIST", "n[07-08]"}};
const Variables kMpich{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}};

struct Found {
  const char* name;
  Variables variables;
  StartFlags flags;
  int rank, size, local_rank;
  const char *found_by, *meeting;  // "…*" : begins with
};
std::ostream& operator<<(std::ostream& out, const Found& f) { return out << f.name; }

class FoundTest : public ::testing::TestWithParam<Found> {};
TEST_P(FoundTest, is_this_world) {
  const Found& f = GetParam();
  const Start s = discover(f.flags, environment_of(f.variables));
  EXPECT_EQ(s.world.rank, f.rank);
  EXPECT_EQ(s.world.size, f.size);
  EXPECT_EQ(s.world.local_rank, f.local_rank);
  EXPECT_EQ(s.world.found_by, f.found_by);
  const std::string expected = f.meeting;
  if (expected.ends_with("*")) {
    EXPECT_TRUE(s.meeting.starts_with(expected.substr(0, expected.size() - 1))) << s.meeting;
  } else {
    EXPECT_EQ(s.meeting, expected);
  }
  EXPECT_EQ(s.token.empty(), f.size == 1);
}
INSTANTIATE_TEST_SUITE_P(
    Starters, FoundTest,
    ::testing::Values(Found{"nothing", {}, {}, 0, 1, 0, "alone", ""}, Found{"launcher", kLauncher, {}, 1, 4, 1, "stepscope", "unix:@a"},
                      // torchrun's own store has MASTER_PORT.
                      Found{"torchrun", kTorchrun, {}, 5, 8, 1, "torchrun", "tcp:n07:29501"},
                      Found{"torchrun_v6", with(kTorchrun, {{"MASTER_ADDR", "fe80::1"}}), {}, 5, 8, 1, "torchrun", "tcp:[fe80::1]:29501"},
                      Found{"torchrun_of_one",
                            with(kTorchrun, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}),
                            {},
                            0,
                            1,
                            0,
                            "torchrun",
                            ""},
                      Found{"torchrun_in_slurm", with(kSlurm, kTorchrun), {}, 5, 8, 1, "torchrun", "tcp:n07:29501"},
                      Found{"mpirun", kMpirun, {}, 2, 3, 2, "openmpi", "unix:@stepscope-*"},
                      Found{"mpirun_4",
                            with(without(kMpirun, "PMIX_NAMESPACE"), {{"OMPI_MCA_ess_base_jobid", "12"}}),
                            {},
                            2,
                            3,
                            2,
                            "openmpi",
                            "unix:@stepscope-*"},
                      Found{"mpirun_in_slurm", with(kSlurm, kMpirun), {}, 2, 3, 2, "openmpi", "unix:@stepscope-*"},
                      Found{"mpirun_of_two_hosts",
                            with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
                            {{}, {}, "tcp:n07:3000"},
                            2,
                            3,
                            0,
                            "openmpi",
                            "tcp:n07:3000"},
                      Found{"srun", kSlurm, {}, 3, 4, 1, "slurm", "tcp:n07:2*"},
                      Found{"srun_on_one_host", with(kSlurm, {{"SLURM_STEP_NODELIST", "n07"}}), {}, 3, 4, 1, "slurm", "unix:@stepscope-*"},
                      Found{"srun_of_one",
                            with(kSlurm,
                                 {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"}}),
                            {},
                            0,
                            1,
                            0,
                            "slurm",
                            ""},
                      // A batch script of one task, and a shell that salloc opened: nobody started ranks.
                      Found{"batch_of_one", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, {}, 0, 1, 0, "alone", ""},
                      Found{"salloc", {{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}}, {}, 0, 1, 0, "alone", ""},
                      Found{"mpich", kMpich, {{}, {}, "unix:@x"}, 0, 2, 0, "mpich", "unix:@x"},
                      // A step has a task for each host where mpiexec holds the ranks; of srun's own there are as many of both.
                      Found{"mpich_in_a_step_of_one",
                            with(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}}), kMpich),
                            {{}, {}, "unix:@x"},
                            0,
                            2,
                            0,
                            "mpich",
                            "unix:@x"},
                      Found{"mpich_in_a_step_of_hosts",
                            with(with(kSlurm, kMpich), {{"PMI_RANK", "9"}, {"PMI_SIZE", "16"}, {"MPI_LOCALRANKID", "1"}}),
                            {{}, {}, "tcp:n07:3000"},
                            9,
                            16,
                            1,
                            "mpich",
                            "tcp:n07:3000"},
                      Found{"mpich_in_a_batch_script",
                            with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}, kMpich),
                            {{}, {}, "unix:@x"},
                            0,
                            2,
                            0,
                            "mpich",
                            "unix:@x"},
                      Found{"srun_with_pmi2", with(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}), {}, 3, 4, 1, "slurm", "tcp:n07:2*"},
                      Found{"mpich_of_one", {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, {}, 0, 1, 0, "mpich", ""},
                      // Anybody may have a variable of that name.
                      Found{"rank_alone", {{"RANK", "3"}}, {}, 0, 1, 0, "alone", ""},
                      Found{"flags", kSlurm, {1, 2, "unix:@here"}, 1, 2, -1, "flags", "unix:@here"},
                      Found{"flags_of_one", {}, {0, 1, ""}, 0, 1, 0, "flags", ""},
                      Found{"other_address", kTorchrun, {{}, {}, "tcp:ib0:99"}, 5, 8, 1, "torchrun", "tcp:ib0:99"}),
    [](const auto& one) { return std::string(one.param.name); });

struct Refused {
  const char* name;
  Variables variables;
  StartFlags flags;
  const char* why;
};
std::ostream& operator<<(std::ostream& out, const Refused& r) { return out << r.name; }
class RefusedTest : public ::testing::TestWithParam<Refused> {};
TEST_P(RefusedTest, is_an_input_error_that_says_what_is_wrong) {
  try {
    discover(GetParam().flags, environment_of(GetParam().variables));
    FAIL() << "it was accepted";
  } catch (const stepscope::InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr(GetParam().why));
  }
}
INSTANTIATE_TEST_SUITE_P(
    Starters, RefusedTest,
    ::testing::Values(
        Refused{"launcher_without_address", without(kLauncher, "STEPSCOPE_RENDEZVOUS"), {}, "STEPSCOPE_RENDEZVOUS is not set"},
        Refused{"launcher_rank_beyond", with(kLauncher, {{"STEPSCOPE_RANK", "4"}}), {}, "STEPSCOPE_RANK is 4 and STEPSCOPE_WORLD is 4"},
        Refused{"torchrun_without_port", without(kTorchrun, "MASTER_PORT"), {}, "MASTER_PORT is not set"},
        Refused{"torchrun_bad_rank", with(kTorchrun, {{"RANK", "one"}}), {}, "RANK is 'one'"},
        Refused{"torchrun_negative", with(kTorchrun, {{"RANK", "-1"}}), {}, "RANK is '-1'"},
        Refused{"torchrun_local_beyond", with(kTorchrun, {{"LOCAL_RANK", "4"}}), {}, "LOCAL_RANK is 4 and LOCAL_WORLD_SIZE is 4"},
        Refused{"torchrun_last_port", with(kTorchrun, {{"MASTER_PORT", "65535"}}), {}, "MASTER_PORT is 65535"},
        Refused{"mpirun_without_size", without(kMpirun, "OMPI_COMM_WORLD_SIZE"), {}, "OMPI_COMM_WORLD_SIZE is not set"},
        Refused{"mpirun_without_job", without(kMpirun, "PMIX_NAMESPACE"), {}, "--rendezvous tcp:HOST:PORT"},
        Refused{"mpirun_two_hosts",
                with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
                {},
                "on several hosts"},
        Refused{"batch_script", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}}, {}, "start the program with srun"},
        Refused{"step_of_a_larger_job", with(kSlurm, {{"SLURM_NTASKS", "8"}}), {}, "this step has 4 tasks and the job 8"},
        Refused{"srun_without_nodes", without(kSlurm, "SLURM_STEP_NODELIST"), {}, "SLURM_STEP_NODELIST is not set"},
        Refused{"mpich_in_slurm_without_address",
                with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}}, kMpich),
                {},
                "--rendezvous"},
        Refused{"mpich_without_address", kMpich, {}, "--rendezvous"},
        Refused{"rank_without_world", {}, {1, {}, "unix:@a"}, "--rank: expected --world"},
        Refused{"world_without_rank", {}, {{}, 2, "unix:@a"}, "--world: expected --rank"},
        Refused{"rank_beyond", {}, {2, 2, "unix:@a"}, "--rank 2 --world 2"},
        Refused{"flags_without_address", {}, {0, 2, ""}, "--rendezvous ADDRESS"},
        Refused{"address_without_ranks", {}, {{}, {}, "unix:@a"}, "nobody started several ranks"}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(Discover, RanksOfOneJobShareAddressAndTokenAndThoseOfAnotherDoNot) {
  const auto start_of = [](const std::string& rank, const std::string& job) {
    return discover(
        {}, environment_of(with(kMpirun, {{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_LOCAL_RANK", rank}, {"PMIX_NAMESPACE", job}})));
  };
  EXPECT_EQ(start_of("0", "a").meeting, start_of("1", "a").meeting);
  EXPECT_EQ(start_of("0", "a").token, start_of("1", "a").token);
  EXPECT_NE(start_of("0", "a").meeting, start_of("0", "b").meeting);
  EXPECT_NE(start_of("0", "a").token, start_of("0", "b").token);
}

// They were told that one showed the token of another run.
TEST(Discover, RanksThatCallTheHostOtherwiseAreOfOneRunAndThoseOfAnotherPortAreNot) {
  const auto token = [](const std::string& address) { return discover({0, 2, address}, environment_of({})).token; };
  EXPECT_EQ(token("tcp:n07:3000"), token("tcp:n07.cluster:3000"));
  EXPECT_EQ(token("tcp:localhost:3000"), token("tcp:[::1]:3000"));
  EXPECT_NE(token("tcp:n07:3000"), token("tcp:n07:3001"));
  EXPECT_NE(token("unix:@a"), token("unix:@b"));
  EXPECT_NE(token("unix:/a:1"), token("unix:/b:1"));
}

// With --gpus our launcher would start as many ranks again in each of them.
TEST(Discover, RanksThatAreStartedAlreadyAreFoundWithoutAnAddress) {
  const auto ranks = [](const Variables& variables) {
    const auto world = started_already(environment_of(variables));
    return world ? world->size : 1;
  };
  EXPECT_EQ(ranks(kLauncher), 4);
  EXPECT_EQ(ranks(kTorchrun), 8);
  EXPECT_EQ(ranks(kMpich), 2);
  EXPECT_EQ(ranks(with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})), 3);
  EXPECT_EQ(ranks(without(kMpirun, "PMIX_NAMESPACE")), 3);
  EXPECT_EQ(ranks(without(kSlurm, "SLURM_STEP_NODELIST")), 4);
  EXPECT_EQ(ranks({}), 1);
  EXPECT_EQ(ranks({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}}), 1) << "a batch script";
  EXPECT_EQ(ranks(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})), 1) << "srun -n 1 in a larger job";
  EXPECT_THROW(ranks(with(kSlurm, {{"SLURM_NTASKS", "8"}})), stepscope::InputError) << "four of a job's eight tasks";
  EXPECT_THROW(ranks(without(kTorchrun, "LOCAL_WORLD_SIZE")), stepscope::InputError) << "nothing is guessed";
}

TEST(Discover, RecordsOuterStartersWithoutComparingThem) {
  const Start s = discover({}, environment_of(with(kSlurm, kTorchrun)));
  EXPECT_EQ(s.recorded.at("SLURM_PROCID"), "3");
  EXPECT_EQ(s.recorded.at("RANK"), "5");
}

TEST(Discover, FindsTheFirstHostOfSlurmsLists) {
  EXPECT_EQ(first_host("n07"), "n07");
  EXPECT_EQ(first_host("n07,n08"), "n07");
  EXPECT_EQ(first_host("n[07-09,12],login"), "n07");
  EXPECT_EQ(first_host("n[12,07]"), "n12");
  EXPECT_EQ(first_host("rack[1-2]n[3-4]"), "rack1n3");
  EXPECT_EQ(first_host("a[1]-ib"), "a1-ib");
  EXPECT_THROW(first_host("n[1-"), stepscope::InputError);
  EXPECT_THROW(first_host(""), stepscope::InputError);
}

}  // namespace
}  // namespace gpt2::distributed
