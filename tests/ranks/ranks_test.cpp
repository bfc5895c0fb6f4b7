// N ranks do what one rank does with as many micro-batches, and every way of communicating does the same. Two ranks share one GPU through
// host memory everywhere; where two GPUs are visible, the same tests run over NCCL and by copies between the GPUs.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "gpt2/cuda/device_info.h"
#include "gpt2/distributed/nccl.h"
#include "gpt2/tensor_table.h"
#include "tests/ranks/rank_job.h"

namespace ranks_test {
namespace {

struct Run {
  std::string trainer, carrier;
};
void PrintTo(const Run& run, std::ostream* out) { *out << run.trainer << " " << run.carrier; }

constexpr std::array kEveryCommunication{"all_reduce", "all_reduce_overlapped", "zero1", "zero1_ahead"};
constexpr std::array kOverlapping{"all_reduce_overlapped", "zero1", "zero1_ahead"};

RankJob of_one_rank(RankJob job) {
  job.carrier = "none";
  job.ranks = 1;
  return job;
}

struct RanksAndOne {
  std::vector<std::vector<RankState>> ranks;  // [job][rank]
  std::vector<RankState> one;                 // [job]: as one rank without a communicator does it
};
// In the processes of the ranks: the first steps of a process, its CUDA context and its libraries, take longer than a job.
RanksAndOne run_ranks_and_one(std::vector<RankJob> jobs, const std::vector<RankJob>& of_one) {
  const size_t count = jobs.size();
  for (const RankJob& j : of_one) jobs.push_back(of_one_rank(j));
  RanksAndOne all{.ranks = run_ranks(jobs), .one = {}};
  for (size_t i = count; i < all.ranks.size(); ++i) all.one.push_back(std::move(all.ranks[i].front()));
  all.ranks.resize(count);
  return all;
}

class Ranks : public ::testing::TestWithParam<Run> {
 protected:
  void SetUp() override {
    const int devices = visible_devices();
    if (devices == 0) GTEST_SKIP() << "no CUDA device is visible";
    if (GetParam().carrier == "files") return;
    if (devices < 2) GTEST_SKIP() << "two ranks over " << GetParam().carrier << " take two GPUs, one is visible";
    if (GetParam().carrier != "nccl") return;
    if (const auto why = gpt2::distributed::why_no_nccl()) GTEST_SKIP() << *why;
  }
  RankJob job(const std::string& communication = "all_reduce_overlapped") const {
    RankJob j;
    j.trainer = GetParam().trainer;
    j.carrier = GetParam().carrier;
    j.variants = {{"communication", communication}};
    if (j.trainer == "mixed") {
      j.variants["embedding_exchange"] = "dense";  // the one that every communication has
      j.variants["moments"] = "fp32";              // split ones round differences of the last bit up to 2^-16 here and there
      j.variants["weight_gradients"] = "fp32";     // the ones that several micro-batches have
    }
    return j;
  }
  // The job as one rank without a communicator does it.
  static RankState alone(RankJob job) { return run_ranks({of_one_rank(std::move(job))}).front().front(); }
};

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double w = want[i], d = static_cast<double>(got[i]) - w;
    difference += d * d;
    size += w * w;
  }
  return std::sqrt(difference / size);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && !a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double share_of_different(const std::vector<float>& a, const std::vector<float>& b) {
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different += a[i] != b[i] ? 1 : 0;
  return static_cast<double>(different) / static_cast<double>(a.size());
}

void expect_same(const RankState& a, const RankState& b, const std::string& which) {
  EXPECT_TRUE(same_bits(a.gradients, b.gradients)) << which;
  EXPECT_TRUE(same_bits(a.parameters, b.parameters)) << which;
  EXPECT_TRUE(same_bits(a.adam_m, b.adam_m)) << which;
  EXPECT_TRUE(same_bits(a.adam_v, b.adam_v)) << which;
  EXPECT_TRUE(same_bits(a.weights, b.weights)) << which;
  EXPECT_TRUE(same_bits(a.losses, b.losses)) << which;
  EXPECT_TRUE(same_bits(a.norms, b.norms)) << which;
}

void expect_replicas(const std::vector<RankState>& ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) expect_same(ranks[0], ranks[r], "rank 0 and rank " + std::to_string(r));
}

std::vector<float> tensor_of(const std::vector<float>& all, const gpt2::TensorSpan& s) {
  return std::vector<float>(all.begin() + s.offset, all.begin() + s.offset + s.size);
}

// Tensor by tensor, so that a lost bias is not hidden by wte. The sums of two micro-batches differ in order alone: wte's gradient, to
// which the classifier and the embedding add, and the kernels that add into what is there.
void expect_close(const RankState& got, const RankState& want, double limit, const std::string& which) {
  const gpt2::TensorLayout layout = gpt2::tensor_layout(test_model());
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const gpt2::TensorSpan& s = layout[row.id];
    EXPECT_LE(relative_error(tensor_of(got.gradients, s), tensor_of(want.gradients, s)), limit) << which << ", gradient of " << row.name;
    EXPECT_LE(relative_error(tensor_of(got.adam_m, s), tensor_of(want.adam_m, s)), limit) << which << ", m of " << row.name;
    EXPECT_LE(relative_error(tensor_of(got.adam_v, s), tensor_of(want.adam_v, s)), limit) << which << ", v of " << row.name;
    EXPECT_LE(relative_error(tensor_of(got.parameters, s), tensor_of(want.parameters, s)), limit) << which << ", " << row.name;
  }
  for (size_t i = 0; i < want.losses.size(); ++i) EXPECT_NEAR(got.losses[i], want.losses[i], limit * want.losses[i]) << which;
  for (size_t i = 0; i < want.norms.size(); ++i) EXPECT_NEAR(got.norms[i], want.norms[i], limit * want.norms[i]) << which;
}

// One step: later ones multiply by weights that the first made different in their last bits.
constexpr double kOneStep = 2e-6;
constexpr double kThreeSteps = 2e-5;
// bf16 weights turn a difference of the last bit of a master into one of 2^-9, here and there.
double limit_of(const RankJob& job) { return job.steps == 1 ? kOneStep : job.trainer == "mixed" ? 1e-2 : kThreeSteps; }

std::string name_of(const RankJob& j) {
  std::string variants;
  for (const auto& [slot, variant] : j.variants) variants += slot + "=" + variant + ", ";
  return std::to_string(j.ranks) + " ranks, " + variants + std::to_string(j.micro_batches) + " micro-batches, step " +
         std::to_string(j.first_step) + ", clip " + std::to_string(j.clip) + ", buckets of " + std::to_string(j.bucket_mib) + " MiB" +
         (j.long_slices ? ", long slices" : "");
}

// Every job: ranks agree bit for bit, and one rank alone with all the micro-batches comes to the same.
void expect_as_alone(const std::vector<RankJob>& jobs) {
  const auto [all, one] = run_ranks_and_one(jobs, jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    expect_replicas(all[i]);
    expect_close(all[i][0], one[i], limit_of(jobs[i]), name_of(jobs[i]));
  }
}

TEST_P(Ranks, TwoRanksDoWhatOneDoesWithTwiceTheMicroBatches) {
  std::vector<RankJob> jobs;
  for (const char* communication : kEveryCommunication)
    for (const int64_t micro_batches : {2, 4, 6}) {
      jobs.push_back(job(communication));
      jobs.back().micro_batches = micro_batches;
      jobs.back().steps = 1;
    }
  expect_as_alone(jobs);
}

TEST_P(Ranks, StepsFollowEachOtherAsOnOneRank) {
  std::vector<RankJob> jobs;
  for (const char* communication : kOverlapping) {
    jobs.push_back(job(communication));
    jobs.back().micro_batches = 4;
    jobs.back().steps = 4;
  }
  expect_as_alone(jobs);
}

// Far below the norm, above it, and none; the first step and one whose bias corrections have ended.
TEST_P(Ranks, TheFirstStepsAndLateOnesAndWithoutClipping) {
  std::vector<RankJob> jobs;
  for (const int64_t first : {int64_t{1}, int64_t{100000}})
    for (const float clip : {0.0f, 1e-3f, 1e6f}) {
      jobs.push_back(job("zero1"));
      jobs.back().first_step = first;
      jobs.back().clip = clip;
      jobs.back().steps = 1;
    }
  expect_as_alone(jobs);
}

// The loss of all ranks decides: half of it lies below the limit, as the loss of one rank's rows alone would.
TEST_P(Ranks, AnUpdateThatIsLeftOutIsLeftOutOnEveryRank) {
  std::vector<RankJob> jobs;
  for (const char* communication : kEveryCommunication)
    for (const double limit : {0.75, 1.5}) {
      jobs.push_back(job(communication));
      jobs.back().steps = 1;
      jobs.back().skip_above_loss = limit;  // for now: of the loss
    }
  RankJob probe = jobs.front();
  probe.skip_above_loss = 1e300;
  const RankState start = alone(probe);
  for (RankJob& j : jobs) j.skip_above_loss *= static_cast<double>(start.losses.front());
  const auto [all, one] = run_ranks_and_one(jobs, jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const bool left_out = i % 2 == 0;
    expect_replicas(all[i]);
    EXPECT_TRUE(left_out != same_bits(one[i].parameters, start.parameters)) << name_of(jobs[i]);
    if (!left_out) continue;
    EXPECT_TRUE(same_bits(all[i][0].parameters, one[i].parameters)) << name_of(jobs[i]);
    EXPECT_TRUE(same_bits(all[i][0].adam_m, one[i].adam_m)) << name_of(jobs[i]);
    EXPECT_TRUE(same_bits(all[i][0].adam_v, one[i].adam_v)) << name_of(jobs[i]);
  }
}

TEST_P(Ranks, EveryWayOfCommunicatingGivesTheSameBits) {
  std::vector<RankJob> jobs;
  for (const char* communication : kEveryCommunication)
    for (const int64_t bucket_mib : {1, 4, 1000}) {
      jobs.push_back(job(communication));
      jobs.back().micro_batches = 4;
      jobs.back().bucket_mib = bucket_mib;
    }
  jobs.push_back(jobs.front());  // and the first of them once more
  if (GetParam().trainer == "mixed")
    for (const char* communication : kEveryCommunication) {
      jobs.push_back(job(communication));
      jobs.back().micro_batches = 4;
      jobs.back().variants["exchange_start"] = "together";
    }
  const auto all = run_ranks(jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    expect_replicas(all[i]);
    expect_same(all[i][0], all[0][0], name_of(jobs[i]));
  }
}

TEST_P(Ranks, AGraphGivesTheBitsOfSingleLaunches) {
  std::vector<RankJob> jobs;
  for (const char* communication : kEveryCommunication)
    for (const int64_t micro_batches : {2, 6})
      for (const bool graph : {true, false}) {
        jobs.push_back(job(communication));
        jobs.back().micro_batches = micro_batches;
        jobs.back().steps = 5;
        jobs.back().graph = graph;
      }
  const auto all = run_ranks(jobs);
  for (size_t i = 0; i < jobs.size(); i += 2) expect_same(all[i][0], all[i + 1][0], name_of(jobs[i]));
}

TEST_P(Ranks, StochasticRoundingDrawsByTheFilesIndex) {
  if (GetParam().trainer != "mixed") GTEST_SKIP() << "the fp32 trainer rounds no weights";
  std::vector<RankJob> jobs{job("all_reduce"), job("zero1"), job("zero1")};
  for (RankJob& j : jobs) j.weight_rounding = "stochastic";
  jobs[2].steps = 1;
  const auto [all, one] = run_ranks_and_one(jobs, {jobs[2]});
  expect_replicas(all[1]);
  expect_same(all[1][0], all[0][0], "zero1 and all_reduce");
  // One step after equal masters: with other random bits a third of the weights would differ.
  EXPECT_LT(share_of_different(all[2][0].weights, one[0].weights), 1e-3);
}

TEST_P(Ranks, GradientsInBf16AreRoundedAndNothingElse) {
  std::vector<RankJob> jobs;
  for (const char* communication : kEveryCommunication)
    for (const char* reduction : {"stored", "bf16"}) {
      jobs.push_back(job(communication));
      jobs.back().steps = 1;
      jobs.back().variants["gradient_reduction"] = reduction;
    }
  const auto all = run_ranks(jobs);
  for (size_t i = 0; i < jobs.size(); i += 2) {
    expect_replicas(all[i + 1]);
    const double error = relative_error(all[i + 1][0].gradients, all[i][0].gradients);
    EXPECT_GT(error, 1e-4) << name_of(jobs[i]);  // else nothing was rounded
    EXPECT_LT(error, 4e-3) << name_of(jobs[i]);  // 2^-9 / sqrt(3) of each part and of the sum
  }
}

TEST_P(Ranks, ForwardAndBackwardAloneAreMeansOverTheRanks) {
  std::vector<RankJob> jobs;
  for (const char* communication : kOverlapping)
    for (const bool without_update : {false, true}) {
      jobs.push_back(job(communication));
      jobs.back().steps = 1;
      jobs.back().forward_backward = without_update;
    }
  const auto all = run_ranks(jobs);
  for (size_t i = 0; i < jobs.size(); i += 2)
    for (const RankState& rank : all[i + 1]) {
      EXPECT_TRUE(same_bits(rank.gradients, all[i][0].gradients)) << name_of(jobs[i]);
      EXPECT_TRUE(same_bits(rank.losses, all[i][0].losses)) << name_of(jobs[i]);
    }
}

TEST_P(Ranks, Zero1HoldsHalfOfTheOptimizersState) {
  std::vector<RankJob> jobs{job("all_reduce"), job("zero1")};
  for (RankJob& j : jobs) j.steps = 1;
  const auto all = run_ranks(jobs);
  EXPECT_GT(all[1][0].moment_bytes, 0);
  EXPECT_EQ(2 * all[1][0].moment_bytes, all[0][0].moment_bytes);
}

// wte's gradient is then the classifier's part of all ranks and the embedding's of all their rows, in the order of one rank's batch.
TEST_P(Ranks, GatheredRowsGiveTheGradientOfTheDenseExchange) {
  if (GetParam().trainer != "mixed") GTEST_SKIP() << "the fp32 trainer has the dense exchange alone";
  std::vector<RankJob> jobs;
  for (const char* residual_gradient : {"split", "fp32", "bf16"})
    for (const char* communication : kOverlapping)
      for (const int64_t micro_batches : {2, 6}) {
        jobs.push_back(job(communication));
        jobs.back().variants["embedding_exchange"] = "gathered_rows";
        jobs.back().variants["residual_gradient"] = residual_gradient;
        jobs.back().micro_batches = micro_batches;
        jobs.back().steps = 1;
      }
  const size_t of_each = jobs.size() / 3;
  const auto [all, one] = run_ranks_and_one(jobs, jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    expect_replicas(all[i]);
    expect_close(all[i][0], one[i], kOneStep, name_of(jobs[i]));
    expect_same(all[i][0], all[i / of_each * of_each + i % 2][0], name_of(jobs[i]));  // however the ranks communicate
  }
}

// One rounding of each row, and nothing else.
TEST_P(Ranks, RowsInBf16ChangeTheEmbeddingsGradientsAlone) {
  if (GetParam().trainer != "mixed") GTEST_SKIP() << "the fp32 trainer has the dense exchange alone";
  const gpt2::TensorLayout layout = gpt2::tensor_layout(test_model());
  std::vector<RankJob> jobs;
  for (const char* residual_gradient : {"split", "fp32"})
    for (const char* communication : kOverlapping)
      for (const char* embedding : {"gathered_rows", "gathered_bf16_rows"}) {
        jobs.push_back(job(communication));
        jobs.back().variants["embedding_exchange"] = embedding;
        jobs.back().variants["residual_gradient"] = residual_gradient;
        jobs.back().steps = 1;
      }
  const size_t of_each = jobs.size() / 2;
  const auto all = run_ranks(jobs);
  for (size_t i = 0; i < jobs.size(); i += 2) {
    expect_replicas(all[i + 1]);
    expect_same(all[i + 1][0], all[i / of_each * of_each + 1][0], name_of(jobs[i + 1]));
    for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
      const double error =
          relative_error(tensor_of(all[i + 1][0].gradients, layout[row.id]), tensor_of(all[i][0].gradients, layout[row.id]));
      if (row.id == gpt2::Tensor::wte || row.id == gpt2::Tensor::wpe) {
        EXPECT_GT(error, 1e-5) << row.name << ", " << name_of(jobs[i + 1]);
        EXPECT_LT(error, 2e-3) << row.name << ", " << name_of(jobs[i + 1]);
      } else {
        EXPECT_EQ(error, 0) << row.name << ", " << name_of(jobs[i + 1]);
      }
      RecordProperty(std::string(row.name) + " " + jobs[i].variants.at("residual_gradient"), std::to_string(error));
    }
  }
}

// wte's gradient leaves behind the head whole, without a one-hot part that would come later.
TEST_P(Ranks, TheHeadWithoutLogitsDoesWhatItDoesOnOneRank) {
  if (GetParam().trainer != "mixed") GTEST_SKIP() << "the fp32 trainer has logits alone";
  if (const std::string capability = gpt2::cuda::device_info().compute_capability; capability != "9.0")
    GTEST_SKIP() << "its product needs compute capability 9.0, this GPU has " << capability;
  std::vector<RankJob> jobs;
  for (const char* embedding : {"dense", "gathered_rows"})
    for (const int64_t micro_batches : {2, 6}) {
      jobs.push_back(job("zero1"));
      jobs.back().variants["lm_head"] = "hopper";
      jobs.back().variants["embedding_exchange"] = embedding;
      jobs.back().micro_batches = micro_batches;
      jobs.back().steps = 1;
    }
  expect_as_alone(jobs);
}

// The second step reads what the first left in wte and in the buffers of rows.
TEST_P(Ranks, GatheredRowsFromStepToStepInGraphsAndWithout) {
  if (GetParam().trainer != "mixed") GTEST_SKIP() << "the fp32 trainer has the dense exchange alone";
  std::vector<RankJob> jobs;
  for (const char* communication : kOverlapping)
    for (const bool graph : {true, false}) {
      jobs.push_back(job(communication));
      jobs.back().variants["embedding_exchange"] = "gathered_rows";
      jobs.back().micro_batches = 4;
      jobs.back().steps = 5;
      jobs.back().graph = graph;
    }
  const auto [all, one] = run_ranks_and_one(jobs, {jobs[0]});
  for (size_t i = 0; i < jobs.size(); ++i) {
    expect_replicas(all[i]);
    expect_same(all[i][0], all[0][0], name_of(jobs[i]));
  }
  expect_close(all[0][0], one[0], limit_of(jobs[0]), name_of(jobs[0]));
}

// What a rank writes it reads again, with the other ranks' slices: masters to the bit in either form, moments rounded where they are split.
TEST_P(Ranks, StatesComeBackAsTheyWereWritten) {
  if (GetParam().trainer != "mixed") GTEST_SKIP() << "the fp32 trainer has one form of every state";
  for (const bool long_slices : {false, true}) {
    std::vector<RankJob> jobs;
    for (const char* communication : kEveryCommunication)
      for (const auto& [masters, moments] : {std::pair{"fp32", "fp32"}, {"split", "split"}, {"split", "16_bits"}}) {
        jobs.push_back(job(communication));
        jobs.back().variants["masters"] = masters;
        jobs.back().variants["moments"] = moments;
        jobs.back().steps = 0;
        jobs.back().long_slices = long_slices;
      }
    const auto [all, one] = run_ranks_and_one(jobs, {jobs[0]});
    const RankState& written = one[0];  // in fp32: exactly
    for (size_t i = 0; i < jobs.size(); ++i) {
      const double rounded = std::array{0.0, 0x1p-16, 0x1p-8}[i % 3];
      for (const RankState& rank : all[i]) {
        EXPECT_TRUE(same_bits(rank.parameters, written.parameters)) << name_of(jobs[i]);
        EXPECT_TRUE(same_bits(rank.weights, written.weights)) << name_of(jobs[i]);
        EXPECT_LE(relative_error(rank.adam_m, written.adam_m), rounded) << name_of(jobs[i]);
        EXPECT_LE(relative_error(rank.adam_v, written.adam_v), rounded) << name_of(jobs[i]);
        EXPECT_TRUE(same_bits(rank.adam_v, all[i][0].adam_v)) << name_of(jobs[i]);
      }
    }
  }
}

TEST_P(Ranks, SplitMastersAreThoseInFp32) {
  if (GetParam().trainer != "mixed") GTEST_SKIP() << "the fp32 trainer rounds no weights";
  std::vector<RankJob> jobs;
  for (const char* communication : kEveryCommunication)
    for (const char* rounding : {"nearest", "stochastic"})
      for (const char* masters : {"fp32", "split"}) {
        jobs.push_back(job(communication));
        jobs.back().weight_rounding = rounding;
        jobs.back().variants["masters"] = masters;
      }
  const auto all = run_ranks(jobs);
  for (size_t i = 0; i < jobs.size(); i += 2) {
    expect_replicas(all[i + 1]);
    expect_same(all[i + 1][0], all[i][0], name_of(jobs[i]));
  }
}

// Drawn by other places, half of the moments would have another neighbour.
TEST_P(Ranks, NarrowMomentsAreDrawnByTheFilesIndex) {
  if (GetParam().trainer != "mixed") GTEST_SKIP() << "the fp32 trainer has moments in fp32 alone";
  for (const char* form : {"split", "16_bits"}) {
    std::vector<RankJob> jobs;
    for (const char* communication : kEveryCommunication)
      for (const int64_t bucket_mib : {1, 1000}) {
        jobs.push_back(job(communication));
        jobs.back().variants["moments"] = form;
        jobs.back().bucket_mib = bucket_mib;
      }
    RankJob once = jobs.front();
    once.steps = 1;
    jobs.push_back(once);
    const auto [all, one] = run_ranks_and_one(jobs, {once});
    for (size_t i = 0; i + 1 < jobs.size(); ++i) {
      expect_replicas(all[i]);
      expect_same(all[i][0], all[0][0], name_of(jobs[i]));
    }
    EXPECT_LT(share_of_different(all.back()[0].adam_m, one[0].adam_m), 0.05) << form;
    EXPECT_LT(share_of_different(all.back()[0].adam_v, one[0].adam_v), 0.05) << form;
  }
}

// Each rank's part is rounded, and so is the sum; all other gradients stay what they are.
TEST_P(Ranks, GradientsOfTheMatricesTravelInBf16) {
  if (GetParam().trainer != "mixed") GTEST_SKIP() << "the fp32 trainer has gradients in fp32 alone";
  const gpt2::TensorLayout layout = gpt2::tensor_layout(test_model());
  std::vector<RankJob> jobs;
  for (const char* embedding : {"dense", "gathered_rows"})
    for (const char* communication : kOverlapping)
      for (const int64_t bucket_mib : {1, 1000})
        for (const char* storage : {"fp32", "bf16"}) {
          jobs.push_back(job(communication));
          jobs.back().variants["embedding_exchange"] = embedding;
          jobs.back().variants["weight_gradients"] = storage;
          jobs.back().bucket_mib = bucket_mib;
          jobs.back().steps = 1;
        }
  const auto all = run_ranks(jobs);
  for (size_t i = 0; i < jobs.size(); i += 2) {
    const RankState &wide = all[i][0], &narrow = all[i + 1][0];
    expect_replicas(all[i + 1]);
    for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
      const bool matrix = row.id == gpt2::Tensor::qkvw || row.id == gpt2::Tensor::attprojw || row.id == gpt2::Tensor::fcw ||
                          row.id == gpt2::Tensor::fcprojw;
      const double error = relative_error(tensor_of(narrow.gradients, layout[row.id]), tensor_of(wide.gradients, layout[row.id]));
      if (matrix) {
        EXPECT_GT(error, 1e-4) << row.name << ", " << name_of(jobs[i + 1]);
        EXPECT_LT(error, 4e-3) << row.name << ", " << name_of(jobs[i + 1]);
      } else {
        EXPECT_EQ(error, 0) << row.name << ", " << name_of(jobs[i + 1]);
      }
    }
    EXPECT_NEAR(narrow.norms[0], wide.norms[0], 1e-3 * wide.norms[0]) << name_of(jobs[i + 1]);
    // However ranks communicate, and in however many buckets.
    expect_same(narrow, all[i < jobs.size() / 2 ? 1 : jobs.size() / 2 + 1][0], name_of(jobs[i + 1]));
  }
}

// What two ranks run unless told otherwise: everything above at once, over several steps, in a graph and without.
TEST_P(Ranks, TheDefaultsRepeatAndFollowOneRank) {
  std::vector<RankJob> jobs;
  for (const bool graph : {true, false, true}) {
    jobs.push_back(job());
    jobs.back().variants.clear();
    jobs.back().steps = 5;
    jobs.back().graph = graph;
  }
  const auto [all, ones] = run_ranks_and_one(jobs, {jobs[0]});
  for (size_t i = 0; i < jobs.size(); ++i) {
    expect_replicas(all[i]);
    expect_same(all[i][0], all[0][0], name_of(jobs[i]));
  }
  const RankState& one = ones[0];
  for (size_t s = 0; s < one.losses.size(); ++s) EXPECT_NEAR(all[0][0].losses[s], one.losses[s], 1e-3 * one.losses[s]) << "step " << s;
  EXPECT_LT(relative_error(all[0][0].parameters, one.parameters), GetParam().trainer == "mixed" ? 2e-3 : kThreeSteps);
}

// Three and four ranks add in an order that one rank with micro-batches does not have.
TEST_P(Ranks, ThreeAndFourRanks) {
  if (GetParam().carrier != "files" && visible_devices() < 4) GTEST_SKIP() << "four ranks over " << GetParam().carrier << " take four GPUs";
  for (const int ranks : {3, 4}) {
    std::vector<RankJob> jobs;
    for (const char* communication : kOverlapping) {
      jobs.push_back(job(communication));
      jobs.back().ranks = ranks;
      jobs.back().micro_batches = 12;
      jobs.back().steps = 1;
    }
    expect_as_alone(jobs);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Ranks,
                         ::testing::Values(Run{"fp32", "files"}, Run{"mixed", "files"}, Run{"fp32", "nccl"}, Run{"mixed", "nccl"},
                                           Run{"fp32", "peer"}, Run{"mixed", "peer"}, Run{"mixed", "peer_window"}),
                         [](const auto& run) { return run.param.trainer + "_" + run.param.carrier; });

}  // namespace
}  // namespace ranks_test

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--rank-worker") return ranks_test::rank_worker(argv[2], std::atoi(argv[3]));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
