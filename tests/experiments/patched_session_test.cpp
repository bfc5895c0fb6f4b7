// Arms that are built from other sources than this program: a patch, or the revision of `experiment since`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/sha256.h"
#include "experiments/session/session.h"
#include "experiments/verdict/stale.h"
#include "tests/experiments/session_fixture.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

// In a tree of its own whose step is one file; `build` stands in for the build of its arm.
class PatchedSession : public Session {
 protected:
  PatchedSession() {
    tree_of_one_file();
    fs::create_directories(other_ / "experiments/gate");
    fs::copy(folder_ / "fp32", other_ / "fp32", fs::copy_options::recursive);
    std::ofstream(folder_ / "idea.patch") << "some lines";
    program(gate_answer(true), arm());
  }
  void other_program(const std::string& step, const std::string& gate) {
    std::ofstream(other_ / "fp32/step.cpp") << step;
    std::ofstream(other_ / "program") << "#!/bin/sh\necho other \"$@\" >>" << (folder_ / "log").string() << "\ncase \"$1\" in\ngate) "
                                      << gate << ";;\narm) exec " BINARY_DIR "/bin/fake_arm good 0.9e6;;\nesac\n";
    chmod((other_ / "program").c_str(), 0755);
  }
  ordered_json run(const Experiment& e, const std::string& no_gpu = "") { return to_json(session_that_builds(no_gpu).run(e, {})); }
  ExperimentSession session_that_builds(const std::string& no_gpu = "") {
    SessionOptions o = options();
    o.built_here = true;
    o.gpu.why_not = no_gpu;
    o.build = [&](const BuildOptions& build, const Sources& sources) {
      builds_.push_back(fmt::format("{} + {}{}", build.root == folder_ ? "tree" : build.root.string(), sources.patch.filename().string(),
                                    sources.revision));
      build.check(other_);
      return BuiltProgram{other_, other_ / "program", sources.revision.empty() ? "" : "c0ffee", {}};
    };
    return ExperimentSession(std::move(o));
  }
  Experiment patched() const {
    Experiment e = experiment();
    e.change = {};
    e.patch = folder_ / "idea.patch";
    e.change_text = "patch idea.patch";
    return e;
  }
  fs::path other_ = folder_ / "build/arms/idea";
  std::vector<std::string> builds_;
};

TEST_F(PatchedSession, builds_arm_b_once_and_gates_and_times_that_program) {
  other_program("patched", gate_answer(true));
  Experiment e = patched();
  e.workloads.push_back(e.workloads.front());
  e.workloads.back().batch_size = 64;
  const ordered_json d = run(e);
  EXPECT_THAT(builds_, ::testing::ElementsAre("tree + idea.patch"));
  EXPECT_EQ(d["verdict"], "faster") << d["workloads"][0]["sentence"];
  EXPECT_EQ(count("gate"), 1);
  EXPECT_EQ(count("other gate"), 1);
  EXPECT_EQ(count("other arm"), 20);  // ten of each workload
  EXPECT_EQ(d["code"]["patch_sha256"], gpt2::sha256_text("some lines"));
  EXPECT_FALSE(d["code"].contains("a_revision"));
  EXPECT_NE(d["code"]["a_sources_sha256"], d["code"]["b_sources_sha256"]);
  EXPECT_NE(d["workloads"][0]["a"]["program_sha256"], d["workloads"][0]["b"]["program_sha256"]);
}

// The second had the first one's hash, and its step was not asked whether it differs.
TEST_F(PatchedSession, a_patch_of_two_trainers_is_built_once_and_each_has_the_hash_of_its_own_step) {
  other_program("patched", gate_answer(false));  // nothing is timed
  for (const fs::path& root : {folder_, other_}) {
    fs::create_directories(root / "mixed");
    std::ofstream(root / "mixed/CMakeLists.txt") << "stepscope_stage(mixed_trainer SOURCES step.cpp)\n";
    std::ofstream(root / "mixed/step.cpp") << "mixed, " << (root == other_ ? "patched" : "here");
  }
  program(gate_answer(true), arm());  // not older than its sources
  std::vector<Experiment> all{patched(), patched()};
  all[0].name = "of_fp32";
  all[1].name = "of_mixed";
  all[1].trainer = "mixed";
  const auto outcomes = session_that_builds().run(all, {});
  EXPECT_EQ(builds_.size(), 1u);
  ASSERT_EQ(outcomes.size(), 2u);
  for (const ExperimentSession::Outcome& o : outcomes) {
    if (o.failure) std::rethrow_exception(o.failure);
    EXPECT_EQ(o.document.code.b_sources_sha256, hash_trainer_sources(other_, o.document.experiment->trainer));
    EXPECT_NE(o.document.code.b_sources_sha256, "");
  }
  EXPECT_NE(outcomes[0].document.code.b_sources_sha256, outcomes[1].document.code.b_sources_sha256);
  // Where the patch leaves the second trainer's step alone there is nothing to measure of it.
  std::ofstream(folder_ / "mixed/step.cpp") << "mixed, patched";
  program(gate_answer(true), arm());
  const auto same = session_that_builds().run(all, {});
  ASSERT_EQ(same.size(), 2u);
  EXPECT_FALSE(same[0].failure);
  ASSERT_TRUE(same[1].failure);
  EXPECT_THROW(std::rethrow_exception(same[1].failure), SameStep);
}

TEST_F(PatchedSession, an_arm_that_does_not_pass_its_own_gate_is_not_timed) {
  other_program("patched", gate_answer(false));
  const ordered_json d = run(patched());
  EXPECT_EQ(d["verdict"], "invalid");
  EXPECT_EQ(count("other arm") + count("arm"), 0);
}

TEST_F(PatchedSession, a_gate_that_the_patch_changes_is_named) {
  other_program("patched", gate_answer(true));
  std::ofstream(other_ / "experiments/gate/budgets.cpp") << "x";
  EXPECT_THAT(run(patched())["workloads"][0]["b"]["gate"]["sentence"].get<std::string>(),
              HasSubstr("the gate differs between the arms: experiments/gate/budgets.cpp"));
}

TEST_F(PatchedSession, a_patch_beside_the_step_is_refused_before_anything_runs) {
  other_program("here", gate_answer(true));
  try {
    run(patched());
    FAIL();
  } catch (const SameStep& error) {
    EXPECT_THAT(error.what(), HasSubstr("patch idea.patch: nothing differs that a step of the fp32 trainer is compiled from"));
  }
  EXPECT_EQ(log(), "");
}

// On a machine without a GPU `since` compares the CPU reference, and said "same" of an edited kernel.
TEST_F(PatchedSession, the_same_step_names_the_trainers_whose_step_is_another) {
  other_program("here", gate_answer(true));
  for (const fs::path& tree : {folder_, other_}) {
    fs::create_directories(tree / "mixed");
    std::ofstream(tree / "mixed/CMakeLists.txt") << "stepscope_stage(mixed_trainer SOURCES step.cpp)\n";
    std::ofstream(tree / "mixed/step.cpp") << (tree == folder_ ? "edited" : "as it was");
  }
  try {
    run(patched());
    FAIL();
  } catch (const SameStep& error) {
    EXPECT_STREQ(
        error.what(),
        "patch idea.patch: nothing differs that a step of the fp32 trainer is compiled from; a step of --trainer mixed does differ");
  }
}

TEST_F(PatchedSession, an_arm_that_needs_a_gpu_is_not_compiled_without_one) {
  other_program("patched", gate_answer(true));
  try {
    run(patched(), "none is here");
    FAIL();
  } catch (const stepscope::MachineError& error) {
    EXPECT_STREQ(error.what(), "--trainer fp32 needs a GPU: none is here");
  }
  EXPECT_THAT(builds_, ::testing::IsEmpty());
}

TEST_F(PatchedSession, a_flag_that_the_other_program_refuses_is_that_arms_fault) {
  other_program("patched", "echo stepscope: no variant op=new >&2; exit 2");
  try {
    run(patched());
    FAIL();
  } catch (const stepscope::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("arm B (patch idea.patch): no variant op=new"));
  }
}

TEST_F(PatchedSession, since_a_revision_arm_a_is_the_other_program) {
  other_program("older", gate_answer(true));
  Experiment e = patched();
  e.patch.clear();
  e.file.clear();
  e.since = "HEAD~1";
  e.flags = {"--trainer", "fp32", "--model", "d12"};
  const ordered_json d = run(e);
  EXPECT_THAT(builds_, ::testing::ElementsAre("tree + HEAD~1"));
  EXPECT_EQ(d["verdict"], "slower") << d["workloads"][0]["sentence"];
  EXPECT_EQ(d["code"]["a_revision"], "c0ffee");
  EXPECT_FALSE(d["experiment"].contains("prediction"));
}

}  // namespace
}  // namespace experiments
