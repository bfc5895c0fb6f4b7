// Measures what several ranks cost: training steps of N ranks, and collectives by size. A tool for a machine with GPUs; no test.
//   rank_bench steps RANKS RUN [-- RUN …]      one line of JSON for each run, from rank 0
// RUN = TRAINER BATCH SECONDS [slot=variant …] [bucket_mib=N] [ctas=N] [peer[=window]] [alone]
//   peer: copies between the GPUs instead of NCCL; peer=window: weights too into windows
//   alone: every rank trains by itself, all at the same time: what the ranks together are measured against
//   rank_bench sweep RANKS CTAS…                                                      one line per kind, size and CTA limit (0: NCCL's)
// RANKS = 0: one process without a communicator.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/errors.h"
#include "base/process.h"
#include "fp32/trainer.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"
#include "gpt2/distributed/nccl.h"
#include "gpt2/distributed/peer_communicator.h"
#include "mixed/trainer.h"
#include "tests/ranks/file_ranks.h"
#include "tests/reference/reference_support.h"
#include "tests/temporary_folder.h"

namespace {

namespace distributed = gpt2::distributed;
using Words = std::vector<std::string>;

struct Place {
  int rank = 0, ranks = 1;
  bool alone = false;  // no communicator
  std::filesystem::path folder;
  distributed::World world() const { return {rank, ranks, rank, ranks, 0, 1, "bench", "flags"}; }
};

constexpr int kPeer = -1, kPeerByWindow = -2;

struct Run {
  gpt2::TrainerOptions options;
  double seconds = 0;
  int ctas = 0;  // 0: NCCL's; below 0: copies between the GPUs
  bool alone = false;
};

Run run_of(const Words& words) {
  Run run;
  gpt2::TrainerOptions& o = run.options;
  o.model = gpt2::model_from_name("d12");
  o.batch_size = std::stoll(words.at(1));
  run.seconds = std::stod(words.at(2));
  o.seq_len = 1024;
  o.matmul = words.at(0) == "mixed" ? "bf16" : "fp32";
  for (size_t i = 3; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string key = words[i].substr(0, equals), value = equals == std::string::npos ? "" : words[i].substr(equals + 1);
    if (key == "alone")
      run.alone = true;
    else if (key == "peer")
      run.ctas = value == "window" ? kPeerByWindow : kPeer;
    else if (key == "ctas")
      run.ctas = std::stoi(value);
    else if (key == "bucket_mib")
      o.bucket_mib = std::stoll(value);
    else
      o.variants[key] = value;
  }
  return run;
}

// ms of each step. Two are in flight, as in the training loop.
std::vector<double> time_steps(gpt2::Trainer& trainer, const gpt2::Batch& batch, int64_t first, int64_t count) {
  std::vector<double> ms;
  const std::vector<gpt2::Batch> batches{batch};
  for (int64_t s = 0; s < count + 2; ++s) {
    if (s >= 2) ms.push_back(trainer.finish_step().time_ns * 1e-6);
    if (s >= count) continue;
    gpt2::StepPlan plan;
    plan.step = first + s;
    plan.micro_batches = batches;
    trainer.enqueue_step(plan);
  }
  return ms;
}

template <class T>
std::vector<T> of_all(distributed::ControlChannel& channel, T mine) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&mine);
  std::vector<T> all;
  for (const distributed::Bytes& one : channel.all_gather({bytes, bytes + sizeof(T)})) {
    T value{};
    std::memcpy(&value, one.data(), sizeof(T));
    all.push_back(value);
  }
  return all;
}

void run_once(const Place& at, const Words& words, ranks_test::FileChannel& channel, distributed::Communicator* communicator) {
  Run run = run_of(words);
  gpt2::TrainerOptions& o = run.options;
  if (!run.alone) o.communicator = communicator;
  const int64_t free_before = gpt2::cuda::device_info().memory_free_bytes;
  const auto trainer = words.at(0) == "mixed" ? mixed::make_mixed_trainer(o) : fp32::make_fp32_trainer(o);
  trainer->write(gpt2::State::parameters, gpt2::init_parameters(o.model, 1));
  const auto tokens = reference_test::random_tokens(o.batch_size * o.seq_len, o.model.vocab_size, static_cast<uint32_t>(at.rank + 1));
  time_steps(*trainer, tokens.batch(), 1, 12);
  const std::vector<double> probe = time_steps(*trainer, tokens.batch(), 13, 10);
  const double each = std::accumulate(probe.begin(), probe.end(), 0.0) / 10;
  const int64_t count = of_all(channel, static_cast<int64_t>(run.seconds * 1e3 / each) + 1).front();
  std::vector<double> ms = time_steps(*trainer, tokens.batch(), 23, count);
  const double mean = std::accumulate(ms.begin(), ms.end(), 0.0) / static_cast<double>(ms.size());
  std::sort(ms.begin(), ms.end());
  int64_t planned = 0;
  for (const gpt2::MemoryItem& item : trainer->memory()) planned += item.bytes;
  const auto means = of_all(channel, mean);
  if (at.rank != 0) return;
  fmt::print("{}\n", nlohmann::ordered_json{{"ranks", o.communicator == nullptr ? 0 : at.ranks},
                                            {"run", fmt::format("{}", fmt::join(words, " "))},
                                            {"ms_median", ms[ms.size() / 2]},
                                            {"ms_mean", mean},
                                            {"ms_p95", ms[ms.size() * 95 / 100]},
                                            {"ms_mean_of_ranks", means},
                                            {"steps", count},
                                            {"planned_mib", planned >> 20},
                                            {"taken_mib", (free_before - gpt2::cuda::device_info().memory_free_bytes) >> 20},
                                            {"communicator", o.communicator ? communicator->name() : "none"}}
                         .dump());
  std::fflush(stdout);
}

int run_steps(const Place& at, const Words& words) {
  ranks_test::FileChannel channel(at.world(), at.folder);
  std::map<int, std::unique_ptr<distributed::Communicator>> communicators;  // by Run::ctas
  for (auto begin = words.begin(); begin < words.end();) {
    const auto end = std::find(begin, words.end(), "--");
    const Words run(begin, end);
    const int ctas = run_of(run).ctas;
    // Connecting also gives the rank its GPU.
    if (!at.alone && !communicators.contains(ctas))
      communicators[ctas] =
          ctas == kPeer ? distributed::make_peer(at.world(), channel) : distributed::make_nccl(at.world(), channel, {.most_ctas = ctas});
    try {
      run_once(at, run, channel, at.alone ? nullptr : communicators[ctas].get());
    } catch (const stepscope::InputError& e) {  // the same on all ranks
      fmt::print("{{\"refused\": \"{}\", \"run\": \"{}\"}}\n", e.what(), fmt::join(run, " "));
    }
    begin = end == words.end() ? end : end + 1;
  }
  return 0;
}

double microseconds(distributed::Communicator& c, const distributed::Collective& what, void* data, const gpt2::cuda::Stream& stream) {
  const int repeats = what.elements > int64_t{1} << 24 ? 10 : 30;
  gpt2::cuda::Event begin, end;
  std::vector<double> each;
  for (int round = 0; round < 4; ++round) {
    begin.record(stream.get());
    for (int i = 0; i < repeats; ++i) c.enqueue(what, data, stream.get());
    end.record(stream.get());
    end.wait();
    if (round > 0) each.push_back(gpt2::cuda::elapsed_ns(begin, end) * 1e-3 / repeats);
  }
  std::sort(each.begin(), each.end());
  return each[each.size() / 2];
}

int run_sweep(const Place& at, const Words& words) {
  ranks_test::FileChannel channel(at.world(), at.folder);
  for (const std::string& word : words) {
    auto communicator = distributed::make_nccl(at.world(), channel, {.most_ctas = std::stoi(word)});
    const gpt2::cuda::Stream stream;
    const gpt2::cuda::DeviceBuffer<float> data(int64_t{1} << 27);
    STEPSCOPE_CUDA_CHECK(cudaMemset(data.data(), 0, static_cast<size_t>(data.bytes())));
    for (const auto& [kind, name] : {std::pair{distributed::CollectiveKind::all_reduce, "all_reduce"},
                                     std::pair{distributed::CollectiveKind::reduce_scatter, "reduce_scatter"},
                                     std::pair{distributed::CollectiveKind::all_gather, "all_gather"}})
      for (int64_t bytes = 1 << 12; bytes <= int64_t{1} << 29; bytes *= 2) {
        const double us = microseconds(*communicator, {kind, distributed::Element::fp32, bytes / 4, 0}, data.data(), stream);
        const double n = at.ranks;
        const double factor = kind == distributed::CollectiveKind::all_reduce ? 2 * (n - 1) / n : (n - 1) / n;
        if (at.rank == 0)
          fmt::print("{} {} ctas {} us {:.2f} busbw_GBps {:.1f}\n", name, bytes, word, us, factor * static_cast<double>(bytes) / us * 1e-3);
      }
  }
  return 0;
}

int run_as_rank(int argc, char** argv) {
  Place at{std::stoi(argv[3]), std::stoi(argv[4]), std::string(argv[4]) == "0", argv[2]};
  at.ranks = std::max(at.ranks, 1);
  const Words words(argv + 6, argv + argc);
  return std::string(argv[5]) == "sweep" ? run_sweep(at, words) : run_steps(at, words);
}

int start_ranks(int argc, char** argv) {
  const std::filesystem::path folder = fresh_test_folder();
  const int ranks = std::max(std::stoi(argv[2]), 1);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    Words argv_of{std::filesystem::read_symlink("/proc/self/exe"), "--rank", folder, std::to_string(rank), argv[2], argv[1]};
    argv_of.insert(argv_of.end(), argv + 3, argv + argc);
    children.push_back(stepscope::start_process(argv_of, {}));
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) worst = 1;
  }
  std::filesystem::remove_all(folder);
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 5 && std::string(argv[1]) == "--rank") return run_as_rank(argc, argv);
    if (argc > 3 && (std::string(argv[1]) == "steps" || std::string(argv[1]) == "sweep")) return start_ranks(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "rank_bench: {}\n", e.what());
    return 1;
  }
  fmt::print(stderr, "rank_bench steps RANKS RUN [-- RUN …] | sweep RANKS CTAS…\n");
  return 2;
}
