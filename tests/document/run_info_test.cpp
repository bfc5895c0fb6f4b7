// run.json as the trainers write it.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "profiler/document/run_info.h"

namespace {

using namespace profiler;

const std::string kRun =
    R"({"schema":"stepscope.run/1","command":"c","trainer":"mixed","device":"GPU","matmul":"fp32",
 "model":{"max_seq_len":1024,"vocab_size":50257,"padded_vocab":50304,"layers":12,"heads":12,"channels":768},
 "batch_size":4,"seq_len":1024,"accumulation":2,"variants":{"adamw":"fused"},"seed":1337,"data":["synthetic"],"shuffle":true,
 "parameters":124475904,"tokens_per_step":8192,"model_flops":1e12,
 "memory":[{"name":"activations","bytes":100},{"name":"activations","bytes":50}],
 "steps":[{"step":1,"loss":11.0,"grad_norm":2.0,"time_ns":5e6,"learning_rate":1e-4},{"step":2,"time_ns":6e6,"learning_rate":1e-4}],
 "validation":[],"work":[{"path":"forward/0/qkv","pass":"forward","layer":0,"op":"qkv","flops":1e9,"min_bytes":2e6}]})";

std::string error_after(const std::string& from, const std::string& to) {
  std::string text = kRun;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  try {
    run_info_from_json(text.replace(at, from.size(), to), "run.json");
    return "";
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
}

TEST(RunInfo, IsReadWithAbsentLossesAbsent) {
  const RunInfo run = run_info_from_json(kRun, "run.json");
  EXPECT_EQ(run.layers, 12);
  EXPECT_EQ(run.tokens_per_step, 8192);
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.steps[0].loss, 11.0);
  EXPECT_FALSE(run.steps[1].loss) << "not finite in the run: absent, never 0";
  EXPECT_DOUBLE_EQ(run.steps[1].time_ns, 6e6);
  ASSERT_EQ(run.work.size(), 1u);
  EXPECT_EQ(run.work[0].path, "forward/0/qkv");
  EXPECT_EQ(run.variants.at("adamw"), "fused");
  EXPECT_DOUBLE_EQ(run.memory_bytes.at("activations"), 150);
  EXPECT_EQ(run.precision(), "bf16") << "of the mixed trainer, whatever its matmul flag says";
}

TEST(RunInfo, ASeedHas64Bits) {
  const auto seed_of = [](const std::string& text) {
    std::string run = kRun;
    return run_info_from_json(run.replace(run.find("1337"), 4, text), "run.json").seed;
  };
  EXPECT_EQ(seed_of("18446744073709551615"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(seed_of("-1"), std::numeric_limits<uint64_t>::max()) << "as programs until 2026-11-23 wrote it";
}

TEST(RunInfo, AmountsBelowZeroAreRefused) {
  EXPECT_EQ(error_after("\"time_ns\":6e6", "\"time_ns\":-6e6"), "run.json: time_ns: found -6000000.0, expected 0 or more");
  EXPECT_EQ(error_after("\"flops\":1e9", "\"flops\":-1"), "run.json: flops: found -1, expected 0 or more");
  EXPECT_EQ(error_after("\"min_bytes\":2e6", "\"min_bytes\":-1"), "run.json: min_bytes: found -1, expected 0 or more");
  EXPECT_EQ(error_after("\"bytes\":50", "\"bytes\":-50"), "run.json: bytes: found -50, expected 0 or more");
}

TEST(RunInfo, OlderRunsDoNotSayWhatYoungerOnesDoAndUnknownFieldsAreLeftAlone) {
  const RunInfo old = run_info_from_json(kRun, "run.json");
  EXPECT_FALSE(old.recompute) << "absent, never a default";
  EXPECT_FALSE(old.deterministic);
  EXPECT_FALSE(old.learning_rate);
  EXPECT_EQ(old.shuffle, true);
  std::string text = kRun;
  text.replace(text.find("\"seed\""), 6, R"("recompute":"gelu","deterministic":true,"learning_rate":3e-4,"of_tomorrow":[1],"seed")");
  const RunInfo run = run_info_from_json(text, "run.json");
  EXPECT_EQ(run.recompute, "gelu");
  EXPECT_EQ(run.deterministic, true);
  EXPECT_EQ(run.learning_rate, 3e-4);
}

TEST(RunInfo, ErrorsNameFileAndField) {
  EXPECT_NE(error_after("stepscope.run/1", "stepscope.run/9").find("stepscope.run/9"), std::string::npos);
  EXPECT_NE(error_after("\"time_ns\":5e6", "\"time_ns\":null").find("run.json: time_ns"), std::string::npos);
  EXPECT_NE(error_after("\"layers\":12", "\"layers\":\"12\"").find("run.json: layers: expected an integer"), std::string::npos);
  EXPECT_NE(error_after("\"adamw\":\"fused\"", "\"adamw\":1").find("variants.adamw"), std::string::npos);
  EXPECT_NE(error_after("\"shuffle\":true", "\"shuffle\":1").find("run.json: shuffle: expected true or false"), std::string::npos);
  EXPECT_NE(error_after("\"layers\":12,", "").find("run.json: layers: expected an integer"), std::string::npos);
  EXPECT_EQ(error_after("\"layers\":12", "\"layers\":-12"), "run.json: layers: found -12, expected 0 or more");
  EXPECT_EQ(error_after("\"layers\":12", "\"layers\":18446744073709551615"), "run.json: layers: expected an integer below 2^63");  // not -1
  EXPECT_NE(error_after("{\"schema\"", "[{\"schema\"").find("not a run.json"), std::string::npos);
  EXPECT_THROW(load_run_info("/no such file"), stepscope::InputError);
}

}  // namespace
