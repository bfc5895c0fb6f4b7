// `stepscope energy` where no joules can be counted, and its document shown again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "experiments/energy/document.h"
#include "tests/cli/run_stepscope.h"
#include "tests/energy/made_profile.h"

namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class EnergyCli : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string written(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
    return file(name);
  }
  fs::path folder_ = fresh_folder();
};

TEST_F(EnergyCli, WithoutAGpuThereIsTheReasonAndExitThree) {
  const Outcome o = stepscope("energy -o " + file("energy.json"));
  EXPECT_EQ(o.exit_code, 3) << o.err;
  EXPECT_THAT(o.err, HasSubstr("energy is counted by a GPU: "));
  EXPECT_EQ(o.out, "");
  EXPECT_FALSE(fs::exists(file("energy.json")));
}

void refused(const std::string& flags, const std::string& words) {
  const Outcome o = stepscope("energy " + flags);
  EXPECT_EQ(o.exit_code, 2) << flags;
  EXPECT_THAT(o.err, HasSubstr(words)) << flags;
}

// With or without a GPU: a name that no step has is the user's mistake.
TEST_F(EnergyCli, WrongNamesAreRefusedBeforeAGpuIsMissed) {
  refused("--only attention", "--only attention: expected PASS/OP, such as backward/attention; the passes are encoder, ");
  refused("--only backward/atention", "--only backward/atention: expected PASS/OP, such as backward/attention; the ops are embedding, ");
  refused("--only 'backward/attention launch 2'", "the ops are embedding, ");
  refused("--variant classifier", "--variant");
  refused("--trainer reference", "only a GPU's energy is counted");
  if (stepscope("train --trainer mixed --list-variants").out.find("classifier") == std::string::npos)
    GTEST_SKIP() << "built without the trainers of a GPU";
  refused("--variant classifier=one_pass", "the mixed trainer has no such variant; classifier can be: ");
  refused("--trainer fp32 --variant clasifier=one_read", "the fp32 trainer has no op slot of that name; its slots are: ");
}

TEST_F(EnergyCli, FlagsThatCannotBeMeantAreRefusedBeforeAGpuIsMissed) {
  refused("--skip-loss-outliers 3", "--skip-loss-outliers: every step that is measured has its update; leave it out");
  refused("--skip-grad-outliers 3", "--skip-grad-outliers: ");
  refused("--rounds 5 --most-rounds 2", "--most-rounds 2: --rounds measures every op 5 times; expected as many or more");
  if (stepscope("train --trainer mixed --list-variants").out.find("classifier") == std::string::npos)
    GTEST_SKIP() << "built without the trainers of a GPU";
  refused("--lr-schedule cosinus", "--lr-schedule cosinus: expected cosine, ");
  refused("--data " + file("absent.bin"), "absent.bin: no such file");
}

// The document took the place of the tokens, or of the weights.
TEST_F(EnergyCli, WhatARunReadsIsNoOutput) {
  const std::string tokens = written("tokens.bin", "tokens");
  for (const char* flags : {"--data", "--model"}) {
    for (const char* out : {" -o ", " --profile "}) {
      const Outcome o = stepscope(std::string("energy ") + flags + " " + tokens + out + tokens);
      EXPECT_EQ(o.exit_code, 2) << flags << out;
      EXPECT_THAT(o.err, HasSubstr(std::string(flags) + " and -")) << flags << out;
    }
  }
  EXPECT_EQ(slurp(tokens), "tokens");
}

TEST_F(EnergyCli, FromRefusesTheFlagsOfAMeasurement) {
  const std::string saved = written("energy.json", made_energy());
  for (const char* flag : {"--rounds 2", "--by-launch", "--trainer fp32", "--batch-size 8"}) {
    const Outcome o = stepscope("energy --from " + saved + " " + flag);
    EXPECT_EQ(o.exit_code, 2) << flag;
    EXPECT_THAT(o.err, HasSubstr(std::string(flag).substr(0, std::string(flag).find(' ')) + ": --from")) << flag;
  }
  EXPECT_EQ(stepscope("energy --quiet --from " + saved).exit_code, 0);
  EXPECT_EQ(stepscope("energy --steps 5").exit_code, 2);
}

TEST_F(EnergyCli, FromShowsADocumentAgainOnAnyMachine) {
  const std::string json = made_energy();
  const std::string saved = written("energy.json", json);
  const Outcome table = stepscope("energy --from " + saved);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(table.out, energy::table(energy::from_json(nlohmann::json::parse(json), "energy.json")));
  EXPECT_THAT(table.out, HasSubstr("forward/qkv"));
  EXPECT_EQ(stepscope("energy --json --from " + saved).out, json);
  const Outcome again = stepscope("energy --from " + saved + " -o " + file("again.json"));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(slurp(file("again.json")), json);
}

TEST_F(EnergyCli, AnotherFileIsRefused) {
  const auto refused = [&](const std::string& name) {
    const Outcome o = stepscope("energy --from " + name);
    EXPECT_EQ(o.exit_code, 2) << name;
    return o.err;
  };
  EXPECT_THAT(refused(file("absent.json")), HasSubstr("absent.json: cannot be read"));
  EXPECT_THAT(refused(written("no.json", "six joules")),
              HasSubstr("no.json: not an energy document: line 1, column 1: no JSON from here on"));
  EXPECT_THAT(refused(written("profile.json", R"({"schema": "stepscope.profile/1"})")), HasSubstr("expected 'stepscope.energy/1'"));
}

TEST_F(EnergyCli, ProfileGetsTheJoulesOfTheSameRunOnly) {
  const std::string energy_file = written("energy.json", made_energy());
  const std::string profile_file = written("profile.json", made_profile(4));
  const Outcome o = stepscope("energy --from " + energy_file + " --profile " + profile_file);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(joules_of_first_op(profile_file), 0.31);
  const std::string other = written("other.json", made_profile(64));
  const Outcome refused = stepscope("energy --from " + energy_file + " --profile " + other);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("batch size 4 here, 64 in the profile"));
  EXPECT_EQ(slurp(other), made_profile(64));  // untouched
  // Of a pipe, energy read the profile, wrote it back into the pipe and waited for ever for somebody to read it.
  const Outcome pipe = stepscope("energy --from " + energy_file + " --profile /dev/stdin");
  EXPECT_EQ(pipe.exit_code, 2);
  EXPECT_THAT(pipe.err, HasSubstr("--profile /dev/stdin: expected a file, which then holds the joules"));
}

// The error of -1 J went into the profile, and then no command read the profile any more.
TEST_F(EnergyCli, NumbersThatNoMeasurementHasLeaveTheProfileAsItWas) {
  auto json = nlohmann::ordered_json::parse(made_energy());
  json["ops"][0]["added"]["joules_error"] = -1;
  const std::string energy_file = written("energy.json", json.dump()), profile_file = written("profile.json", made_profile(4));
  const Outcome o = stepscope("energy --from " + energy_file + " --profile " + profile_file);
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_THAT(o.err, HasSubstr("energy.json: ops[0].added.joules_error: found -1, expected 0 or more"));
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(slurp(profile_file), made_profile(4));
}

}  // namespace
