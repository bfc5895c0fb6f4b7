#include "tests/ranks/rank_job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>

#include "base/process.h"
#include "fp32/trainer.h"
#include "gpt2/cuda/check.h"
#include "gpt2/distributed/nccl.h"
#include "gpt2/distributed/peer_communicator.h"
#include "gpt2/distributed/rank_device.h"
#include "gpt2/distributed/staged_communicator.h"
#include "mixed/trainer.h"
#include "tests/ranks/file_ranks.h"
#include "tests/reference/reference_support.h"
#include "tests/temporary_folder.h"

namespace ranks_test {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankJob, trainer, carrier, ranks, batch_size, seq_len, micro_batches, steps, first_step, clip,
                                   skip_above_loss, bucket_mib, graph, forward_backward, variants, weight_rounding, long_slices)

// Every layer is a bucket of its own at 1 MiB, two of them where gradients lie in bf16; biases and norms fill no whole block.
gpt2::ModelConfig test_model() {
  return {.max_seq_len = 96, .vocab_size = 509, .padded_vocab = 512, .layers = 3, .heads = 3, .channels = 192};
}

namespace {

// States are gathered 2^20 elements of each rank at a time; half of this wte has a few thousand more.
gpt2::ModelConfig model_of(const RankJob& job) {
  if (!job.long_slices) return test_model();
  return {.max_seq_len = 96, .vocab_size = 33'001, .padded_vocab = 33'024, .layers = 1, .heads = 1, .channels = 64};
}

template <class Use>
void for_each_vector(RankState& s, const Use& use) {
  for (auto* v : {&s.gradients, &s.parameters, &s.adam_m, &s.adam_v, &s.weights, &s.losses, &s.norms}) use(*v);
}

void save(const std::filesystem::path& file, RankState s) {
  std::ofstream out(file, std::ios::binary);
  const auto put = [&](const void* data, size_t bytes) { out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes)); };
  put(&s.moment_bytes, 8);
  for_each_vector(s, [&](const std::vector<float>& v) {
    const uint64_t n = v.size();
    put(&n, 8);
    put(v.data(), n * 4);
  });
}

RankState load(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  RankState s;
  const auto get = [&](void* data, size_t bytes) { in.read(static_cast<char*>(data), static_cast<std::streamsize>(bytes)); };
  get(&s.moment_bytes, 8);
  for_each_vector(s, [&](std::vector<float>& v) {
    uint64_t n = 0;
    get(&n, 8);
    v.resize(n);
    get(v.data(), n * 4);
  });
  if (!in) throw std::runtime_error("no state in " + file.string());
  return s;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

gpt2::TrainerOptions options_of(const RankJob& job, gpt2::distributed::Communicator* communicator) {
  gpt2::TrainerOptions o;
  o.model = model_of(job);
  o.batch_size = job.batch_size;
  o.seq_len = job.seq_len;
  o.matmul = job.trainer == "mixed" ? "bf16" : "fp32";
  o.deterministic = true;
  o.micro_batches = job.micro_batches / job.ranks;
  o.variants = job.variants;
  o.weight_rounding = job.weight_rounding;
  o.communicator = communicator;
  o.bucket_mib = job.bucket_mib;
  return o;
}

// Moments of the middle of a run, so that an update is smooth in its gradient; the first step's is its sign.
struct BeginState {
  std::vector<float> parameters, adam_m, adam_v;
  explicit BeginState(const gpt2::ModelConfig& model)
      : parameters(reference_test::lively_parameters(model, 3)), adam_m(parameters.size()), adam_v(parameters.size()) {
    std::mt19937 bits(7);
    for (size_t i = 0; i < adam_m.size(); ++i) {
      adam_m[i] = 1e-3f * (static_cast<float>(bits() % 2001) / 1000.0f - 1.0f);
      adam_v[i] = 1e-4f * (0.5f + static_cast<float>(bits() % 1000) / 1000.0f);
    }
  }
};

void write_state(const RankJob& job, gpt2::Trainer& trainer) {
  static std::map<bool, BeginState> of_models;  // every job of a process begins with it
  const BeginState& begin = of_models.try_emplace(job.long_slices, model_of(job)).first->second;
  trainer.write(gpt2::State::parameters, begin.parameters);
  trainer.write(gpt2::State::adam_m, begin.adam_m);
  trainer.write(gpt2::State::adam_v, begin.adam_v);
}

void run_steps(const RankJob& job, int rank, int ranks, gpt2::Trainer& trainer, RankState& end) {
  const int64_t tokens = job.batch_size * job.seq_len;
  for (int64_t s = 0; s < job.steps; ++s) {
    std::vector<reference_test::Tokens> rows;
    for (int64_t g = rank; g < job.micro_batches; g += ranks)
      rows.push_back(
          reference_test::random_tokens(tokens, model_of(job).vocab_size, static_cast<uint32_t>(1000 + s * job.micro_batches + g)));
    std::vector<gpt2::Batch> batches;
    for (const auto& r : rows) batches.push_back(r.batch());
    if (job.forward_backward) {
      end.losses.push_back(static_cast<float>(trainer.forward_backward(batches.front())));
      continue;
    }
    gpt2::StepPlan plan;
    plan.step = job.first_step + s;
    plan.micro_batches = batches;
    plan.adamw = {.learning_rate = 1e-3f, .weight_decay = 0.1f, .clip = job.clip};
    plan.skip_above_loss = job.skip_above_loss;
    plan.graph_allowed = job.graph;
    trainer.enqueue_step(plan);
    const gpt2::StepOutcome outcome = trainer.finish_step();
    end.losses.push_back(static_cast<float>(outcome.loss));
    end.norms.push_back(static_cast<float>(outcome.grad_norm));
  }
}

RankState run_job(const RankJob& job, int rank, gpt2::distributed::Communicator* communicator) {
  const gpt2::TrainerOptions options = options_of(job, communicator);
  auto trainer = job.trainer == "mixed" ? mixed::make_mixed_trainer(options) : fp32::make_fp32_trainer(options);
  write_state(job, *trainer);
  RankState end;
  run_steps(job, rank, job.ranks, *trainer, end);
  const auto read = [&](gpt2::State which) {
    std::vector<float> values(static_cast<size_t>(gpt2::tensor_layout(model_of(job)).total));
    trainer->read(which, values);
    return values;
  };
  end.gradients = read(gpt2::State::gradients);
  end.parameters = read(gpt2::State::parameters);
  end.adam_m = read(gpt2::State::adam_m);
  end.adam_v = read(gpt2::State::adam_v);
  end.weights.resize(end.parameters.size());
  trainer->read_weights(end.weights);
  for (const gpt2::MemoryItem& item : trainer->memory())
    if (item.name == "optimizer state") end.moment_bytes = item.bytes;
  return end;
}

std::filesystem::path state_file(const std::filesystem::path& folder, size_t job, int rank) {
  return folder / ("state-" + std::to_string(job) + "-" + std::to_string(rank));
}

void run_jobs(const std::vector<RankJob>& jobs, int rank, const std::filesystem::path& folder) {
  const int ranks = jobs.front().ranks;
  gpt2::distributed::World world{rank, ranks, rank, ranks, 0, 1, "test", "flags"};
  FileChannel channel(world, folder);
  std::unique_ptr<gpt2::distributed::Communicator> communicator;
  if (jobs.front().carrier == "nccl") communicator = gpt2::distributed::make_nccl(world, channel);
  if (jobs.front().carrier.starts_with("peer"))
    communicator = gpt2::distributed::make_peer(world, channel, {.shares = jobs.front().carrier == "peer"});
  if (jobs.front().carrier == "files") communicator = gpt2::distributed::make_staged(channel, "files");
  for (size_t i = 0; i < jobs.size(); ++i)
    if (rank < jobs[i].ranks)
      save(state_file(folder, i, rank), run_job(jobs[i], rank, jobs[i].carrier == "none" ? nullptr : communicator.get()));
}

}  // namespace

int visible_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  (void)cudaGetLastError();
  return count;
}

std::vector<std::vector<RankState>> run_ranks(const std::vector<RankJob>& jobs) {
  const int ranks = jobs.front().ranks;
  const std::filesystem::path folder = fresh_test_folder();
  std::ofstream(folder / "jobs.json") << nlohmann::json(jobs).dump();
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string output = folder / ("output-" + std::to_string(rank));
    children.push_back(stepscope::start_process(
        {"sh", "-c", R"(exec "$0" "$@" > "$RANK_OUTPUT" 2>&1)", self, "--rank-worker", folder, std::to_string(rank)},
        {{"RANK_OUTPUT", output}}));
  }
  std::string failures;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    ::waitpid(children[static_cast<size_t>(rank)], &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
      failures += "rank " + std::to_string(rank) + ": " + text_of(folder / ("output-" + std::to_string(rank))) + "\n";
  }
  std::vector<std::vector<RankState>> all(failures.empty() ? jobs.size() : 0);
  for (size_t job = 0; job < all.size(); ++job)
    for (int rank = 0; rank < jobs[job].ranks; ++rank) all[job].push_back(load(state_file(folder, job, rank)));
  std::filesystem::remove_all(folder);
  if (!failures.empty()) throw std::runtime_error(failures);
  return all;
}

int rank_worker(const std::filesystem::path& folder, int rank) {
  try {
    std::ifstream in(folder / "jobs.json");
    run_jobs(nlohmann::json::parse(in).get<std::vector<RankJob>>(), rank, folder);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

}  // namespace ranks_test
