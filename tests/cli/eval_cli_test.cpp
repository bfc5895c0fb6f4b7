// `stepscope eval` as a user calls it, on a checkpoint whose losses follow by hand and on one of a real shape against the reference model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gpt2/checkpoint.h"
#include "gpt2/data/eval_set.h"
#include "gpt2/reference/reference_trainer.h"
#include "gpt2/tensor_table.h"
#include "tests/cli/in_a_folder.h"

namespace {

using gpt2::EvalExample;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t kWords = 7;

// All weights zero but these: the last layernorm gives (1, 0, …) at every position, and row w of wte begins with w. So the logit of word w
// is w, whatever stands before it.
void write_counting_model(const fs::path& file) {
  const gpt2::ModelConfig config{70, kWords, 8, 1, 2, 4};
  const gpt2::TensorLayout at = gpt2::tensor_layout(config);
  std::vector<float> p(static_cast<size_t>(at.total), 0.0f);
  for (int64_t w = 0; w < kWords; ++w) p[static_cast<size_t>(at[gpt2::Tensor::wte].offset + w * 4)] = static_cast<float>(w);
  p[static_cast<size_t>(at[gpt2::Tensor::lnfb].offset)] = 1.0f;
  gpt2::save_checkpoint(file, config, p);
}
double counting_loss(int token) {
  double sum = 0;
  for (int w = 0; w < kWords; ++w) sum += std::exp(w);
  return std::log(sum) - token;
}

class EvalCli : public InAFolder {
 protected:
  void SetUp() override { write_counting_model(folder_ / "model.bin"); }
  Outcome eval(const std::string& arguments) const {
    return stepscope("eval " + file("model.bin") + " " + file("set.bin") + " --trainer reference " + arguments);
  }
  std::vector<json> items(const std::string& name) const {
    std::vector<json> out;
    std::istringstream in(slurp(file(name)));
    for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
    return out;
  }
};

// The answers: 1, 0, 2, 0 by the mean; 0, 0, 2, 0 by the sum, where one token of 1 beats two of 3.
const std::vector<EvalExample> kCounting{
    {1, {0}, {{1}, {3, 3}}},
    {0, {5, 5}, {{6}, {5}, {4}, {3}}},
    {1, {1, 2, 3}, {{0, 0}, {1, 2}, {2, 2}}},
    {0, {4}, {{2, 6}, {1, 3}}},
};

TEST_F(EvalCli, right_answers_that_are_known) {
  gpt2::write_eval_set(folder_ / "set.bin", kCounting);
  const Outcome o = eval("--json --batch-size 3 --items " + file("items.jsonl"));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(o.err, "answers: " + file("items.jsonl") + "\n") << "no progress line where nobody watches";
  const json j = json::parse(o.out);
  EXPECT_EQ(j.at("examples"), 4);
  EXPECT_EQ(j.at("correct"), 3);
  EXPECT_EQ(j.at("accuracy"), 0.75);
  EXPECT_EQ(j.at("correct_by_sum"), 2);
  EXPECT_EQ(j.at("accuracy_by_sum"), 0.5);
  EXPECT_EQ(j.at("trainer"), "reference");
  EXPECT_EQ(j.at("batch_size"), 3);
  EXPECT_EQ(j.at("seq_len"), 64);
  EXPECT_NEAR(j.at("accuracy_interval_95").at(0), 0.3006418, 1e-6);
  const std::vector<json> lines = items("items.jsonl");
  ASSERT_EQ(lines.size(), 4u);
  const int64_t answers[] = {1, 0, 2, 0}, by_sum[] = {0, 0, 2, 0};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(lines[i].at("index"), i);
    EXPECT_EQ(lines[i].at("label"), kCounting[i].label);
    EXPECT_EQ(lines[i].at("answer"), answers[i]);
    EXPECT_EQ(lines[i].at("answer_by_sum"), by_sum[i]);
    EXPECT_EQ(lines[i].at("correct"), answers[i] == kCounting[i].label);
    for (size_t c = 0; c < kCounting[i].completions.size(); ++c) {
      double sum = 0;
      for (const uint16_t token : kCounting[i].completions[c]) sum += counting_loss(token);
      EXPECT_NEAR(lines[i].at("sum").at(c), sum, 1e-6);
      EXPECT_NEAR(lines[i].at("loss").at(c), sum / static_cast<double>(kCounting[i].completions[c].size()), 1e-6);
    }
  }
  EXPECT_THAT(eval("").out,
              AllOf(HasSubstr("4 examples, reference trainer on CPU"), HasSubstr("accuracy 0.7500 [0.3006, 0.9544]"),
                    HasSubstr("3 of 4 by the lowest mean loss"), HasSubstr("accuracy 0.5000"), HasSubstr("2 of 4 by the lowest sum")));
}

TEST_F(EvalCli, only_the_first_examples) {
  gpt2::write_eval_set(folder_ / "set.bin", kCounting);
  const json j = json::parse(eval("--json --limit 2").out);
  EXPECT_EQ(j.at("examples"), 2);
  EXPECT_EQ(j.at("examples_in_file"), 4);
  EXPECT_EQ(j.at("accuracy"), 1.0);
  EXPECT_THAT(eval("--limit 2").out, HasSubstr("first 2 of 4 examples"));
  EXPECT_EQ(json::parse(eval("--json --limit 99").out).at("examples"), 4);
}

TEST_F(EvalCli, check_of_data_reads_sets) {
  gpt2::write_eval_set(folder_ / "set.bin", kCounting);
  const Outcome o = stepscope("data --check " + file("set.bin"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("evaluation set, 4 examples, 11 completions, longest row 4 positions, largest id 6"));
  fs::resize_file(folder_ / "set.bin", 1060);
  const Outcome cut = stepscope("data --check " + file("set.bin"));
  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_THAT(cut.err, AllOf(HasSubstr("set.bin: truncated"), HasSubstr("offset 10")));
}

// A real shape: context reaches the answer. The losses of one row at a time, by a softmax of this test.
TEST_F(EvalCli, losses_are_those_of_the_reference_model) {
  const std::string checkpoint = TEST_DATA "/golden/tiny.bin";
  std::vector<EvalExample> set;
  for (uint16_t i = 0; i < 9; ++i) {
    EvalExample e;
    for (uint16_t k = 0; k <= 5 * i; ++k) e.context.push_back(static_cast<uint16_t>((37 * k + 11 * i) % 509));
    for (uint16_t c = 0; c < 4; ++c) {
      e.completions.emplace_back();
      for (uint16_t k = 0; k <= (c + i) % 3; ++k) e.completions.back().push_back(static_cast<uint16_t>((101 * c + 53 * k + 7 * i) % 509));
    }
    set.push_back(e);
  }
  gpt2::TrainerOptions options;
  options.model = gpt2::checkpoint_config(checkpoint);
  options.batch_size = 1;
  options.seq_len = 64;
  const auto model = gpt2::make_reference_trainer(options);
  model->write(gpt2::State::parameters, gpt2::load_checkpoint(checkpoint).parameters);
  std::vector<std::vector<double>> expected;
  for (EvalExample& e : set) {
    expected.emplace_back();
    for (const auto& completion : e.completions) {
      std::vector<uint16_t> row = e.context;
      row.insert(row.end(), completion.begin(), completion.end());
      std::vector<int32_t> inputs(64, 3);  // other padding than the program's
      std::copy(row.begin(), row.end(), inputs.begin());
      std::vector<float> logits(64 * 509);
      model->evaluate({inputs, inputs}, logits);
      double loss = 0;
      for (size_t t = e.context.size(); t < row.size(); ++t) {
        const float* at = logits.data() + (t - 1) * 509;
        double sum = 0;
        for (size_t w = 0; w < 509; ++w) sum += std::exp(static_cast<double>(at[w]));
        loss += std::log(sum) - static_cast<double>(at[row[t]]);
      }
      expected.back().push_back(loss / static_cast<double>(completion.size()));
    }
    e.label = std::min_element(expected.back().begin(), expected.back().end()) - expected.back().begin();
  }
  gpt2::write_eval_set(folder_ / "real.bin", set);
  for (const std::string batch : {"1", "5", "7", "64"}) {
    const Outcome o = stepscope("eval " + checkpoint + " " + file("real.bin") + " --trainer reference --json --batch-size " + batch +
                                " --items " + file("real.jsonl"));
    ASSERT_EQ(o.exit_code, 0) << o.err;
    EXPECT_EQ(json::parse(o.out).at("accuracy"), 1.0);
    const std::vector<json> lines = items("real.jsonl");
    ASSERT_EQ(lines.size(), set.size());
    for (size_t i = 0; i < set.size(); ++i)
      for (size_t c = 0; c < 4; ++c) EXPECT_NEAR(lines[i].at("loss").at(c), expected[i][c], 1e-5) << "batch " << batch << " example " << i;
  }
  for (EvalExample& e : set) e.label = (e.label + 1) % 4;
  gpt2::write_eval_set(folder_ / "rotated.bin", set);
  EXPECT_THAT(stepscope("eval " + checkpoint + " " + file("rotated.bin") + " --trainer reference").out,
              HasSubstr("0 of 9 by the lowest mean"));
}

TEST_F(EvalCli, what_cannot_be_evaluated_is_refused) {
  gpt2::write_eval_set(folder_ / "set.bin", kCounting);
  const std::string model = file("model.bin"), set = file("set.bin");
  const auto refused = [](const std::string& arguments, const auto& why) {
    const Outcome o = stepscope("eval " + arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, why);
  };
  refused("d12 " + set, HasSubstr("d12: the name of a model without weights, expected a checkpoint file"));
  refused(set + " " + model, HasSubstr("set.bin: not a checkpoint"));
  refused(model + " " + model,
          HasSubstr("model.bin: not a set of evaluation examples: magic number 20240326 (checkpoint), expected 20240522\n"));
  refused(file("none.bin") + " " + set, HasSubstr("none.bin"));
  refused(model + " " + file("none.bin"), HasSubstr("none.bin"));
  refused(model, HasSubstr("set is required"));
  refused(model + " " + set + " --items " + set, HasSubstr("this is the file that is evaluated"));
  refused(model + " " + set + " --items " + model, HasSubstr("this is the file that is evaluated"));
  refused(model + " " + set + " --items " + file("none/items.jsonl"), HasSubstr("--items"));
  refused(model + " " + set + " --trainer best", HasSubstr("unknown trainer 'best'"));
  EXPECT_EQ(stepscope("data --check " + set + " " + model).exit_code, 0) << "nothing was written over the inputs";

  std::vector<EvalExample> bad = kCounting;
  bad[2].completions[1][0] = 7;
  gpt2::write_eval_set(folder_ / "words.bin", bad);
  refused(model + " " + file("words.bin"), HasSubstr("words.bin: example 2 has token 7 in its completion 1, expected 0 to 6"));
  bad = kCounting;
  bad[1].context.assign(70, 1);  // and one token of completion: 70 positions, which the model has
  gpt2::write_eval_set(folder_ / "full.bin", bad);
  EXPECT_EQ(stepscope("eval " + model + " " + file("full.bin") + " --trainer reference").exit_code, 0);
  bad[1].context.push_back(1);
  gpt2::write_eval_set(folder_ / "long.bin", bad);
  refused(model + " " + file("long.bin"), AllOf(HasSubstr("long.bin"), HasSubstr("example 1 takes 71 positions, expected at most 70")));
}

TEST_F(EvalCli, gpu_trainers_say_that_they_need_one) {
  gpt2::write_eval_set(folder_ / "set.bin", kCounting);
  for (const std::string trainer : {"fp32", "mixed"}) {
    const Outcome o = stepscope("eval " + file("model.bin") + " " + file("set.bin") + " --trainer " + trainer);
    EXPECT_EQ(o.exit_code, 3);
    EXPECT_THAT(o.err, HasSubstr("--trainer " + trainer + " needs a GPU"));
  }
}

}  // namespace
