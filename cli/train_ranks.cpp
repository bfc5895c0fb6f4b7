#include "cli/train_ranks.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "base/checksum.h"
#include "base/errors.h"
#include "base/mapped_file.h"
#include "base/nvml.h"
#include "build_info.inc"
#include "cli/cuda_libraries.h"
#include "cli/gpu.h"
#include "cli/say.h"
#include "cli/values.h"
#include "gpt2/distributed/agreement.h"
#include "gpt2/distributed/discover.h"
#include "gpt2/distributed/launcher.h"
#include "gpt2/distributed/rendezvous.h"
#include "gpt2/distributed/sockets.h"
#include "gpt2/distributed/staged_communicator.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "mixed/attention_cudnn.h"
#endif
#if defined(STEPSCOPE_WITH_CUDA) && __has_include("gpt2/distributed/nccl.h")
#define STEPSCOPE_GPU_RANKS
#include "gpt2/distributed/nccl.h"
#include "gpt2/distributed/peer_communicator.h"
#include "gpt2/distributed/rank_device.h"
#endif

namespace cli {
namespace {

namespace dist = gpt2::distributed;
using stepscope::InputError;
using stepscope::MachineError;

constexpr int64_t kMostRanks = 4096, kMostReferenceRanks = 256;

dist::StartFlags start_flags(const RankFlags& f) {
  dist::StartFlags s;
  if (f.rank >= 0) s.rank = f.rank;
  if (f.world > 0) s.world = f.world;
  s.rendezvous = f.rendezvous;
  return s;
}

// The command line without --gpus: a rank is told its place by the launcher.
std::vector<std::string> rank_command(const CommandLine& line) {
  std::vector<std::string> argv{line.program()};
  for (int i = 1; i < line.argc; ++i) {
    const std::string word = line.argv[i];
    if (word == "--gpus") {
      ++i;
    } else if (!word.starts_with("--gpus=")) {
      argv.push_back(word);
    }
  }
  return argv;
}

void refuse_nested(const RankFlags& f) {
  if (f.rank >= 0 || f.world > 0)
    throw InputError(fmt::format("--gpus {}: starts the ranks itself; expected no --rank and --world with it", f.gpus));
  refuse_one_of_several(fmt::format("--gpus {}", f.gpus), "and would start as many again; expected one or the other");
}

}  // namespace

std::string this_process_is(int64_t rank, int64_t ranks) { return fmt::format("this process is rank {} of {}", rank, ranks); }

void refuse_one_of_several(const std::string& flag, const std::string& why) {
  if (const auto world = dist::started_already(dist::process_environment()))
    throw InputError(fmt::format("{}: {} (started by {}), {}", flag, this_process_is(world->rank, world->size), world->found_by, why));
}

void refuse_to_start_ranks_again(int64_t gpus) {
  refuse_one_of_several(fmt::format("--gpus {}", gpus), "and would start as many again; expected one process");
}

std::vector<std::string> communicators() { return {"auto", "nccl", "peer", "staged"}; }

void add_exchange_flags(Command& c, ExchangeFlags& f) {
  f.arguments.push_back(c.add_option("--communicator", f.communicator,
                                     "how gradients travel: nccl between GPUs, peer by copies between GPUs of one host, staged through "
                                     "host memory, auto: peer for two ranks of one host that can, else nccl")
                            ->one_of(communicators())
                            ->capture_default_str());
  f.arguments.push_back(c.add_option("--bucket-mib", f.bucket_mib,
                                     "MiB of gradients, as they are stored, that ranks exchange at a time, at least, in whole layers "
                                     "(the last may be smaller); 0: 25, or all layers but the first at once "
                                     "where the links can sleep meanwhile (docs/several-gpus.md)")
                            ->check(whole(0, 1 << 20))
                            ->capture_default_str());
  f.arguments.push_back(
      c.add_option("--nccl-blocks", f.nccl_blocks,
                   "thread blocks of NCCL's kernels, each of which takes a multiprocessor; 0: STEPSCOPE_NCCL_CTAS, or what NCCL chooses")
          ->check(whole(0, 64))
          ->capture_default_str());
}

int64_t bucket_mib_of(const ExchangeFlags& f, const gpt2::TrainerOptions& options, const dist::StepSize& step) {
  return f.bucket_mib > 0 ? f.bucket_mib : dist::bucket_mib_for(options.model, step, options.communicator->name());
}

namespace {

std::string no_blocks(const ExchangeFlags& f, const char* how) {
  return fmt::format("--nccl-blocks {}: gradients travel {} here, and no kernel of NCCL runs", f.nccl_blocks, how);
}
constexpr const char* kByCopies = "by copies between GPUs";

}  // namespace

void check_exchange(const ExchangeFlags& f, const std::string& trainer) {
  const bool cpu = trainer == "reference";
  if (cpu && (f.communicator == "nccl" || f.communicator == "peer"))
    throw InputError(
        fmt::format("--communicator {}: the reference trainer's gradients are in host memory; expected staged", f.communicator));
  const bool staged = cpu || f.communicator == "staged";
  if (f.nccl_blocks > 0 && (staged || f.communicator == "peer"))
    throw InputError(no_blocks(f, staged ? "through host memory" : kByCopies) + "; leave it out");
}

std::vector<std::string> as_arguments(const ExchangeFlags& f) {
  return {"--communicator", f.communicator, "--bucket-mib", std::to_string(f.bucket_mib), "--nccl-blocks", std::to_string(f.nccl_blocks)};
}

void add_rank_flags(Command& c, RankFlags& f) {
  c.add_option("--gpus", f.gpus, "train on this many GPUs of this host, one process each (CPU reference: so many processes)")
      ->check(whole(1, kMostRanks));
  Argument* rank =
      c.add_option("--rank", f.rank, "this process's rank, where nothing else starts the ranks")->check(whole(0, kMostRanks - 1));
  Argument* world = c.add_option("--world", f.world, "number of ranks, with --rank")->check(whole(1, kMostRanks));
  Argument* rendezvous =
      c.add_option("--rendezvous", f.rendezvous, "where the ranks meet: tcp:HOST:PORT of rank 0's host, or unix:@NAME on one host");
  Argument* timeout = c.add_option("--rendezvous-timeout", f.rendezvous_timeout_s, "seconds to wait for all ranks")
                          ->check(real_above(0, 1e6))
                          ->capture_default_str();
  Argument* stall = c.add_option("--stall-timeout", f.stall_timeout_s,
                                 "give a rank up that leaves a step unfinished for so many seconds and 20 usual steps")
                        ->check(real_above(0, 1e6))
                        ->capture_default_str();
  Argument* silence =
      c.add_option("--silence-timeout", f.silence_timeout_s, "give a rank up whose process has not been heard for so many seconds")
          ->check(real_above(0, 1e6))
          ->capture_default_str();
  f.of_several = {rank, world, rendezvous, timeout, stall, silence};
  add_exchange_flags(c, f.exchange);
  f.of_several.insert(f.of_several.end(), f.exchange.arguments.begin(), f.exchange.arguments.end());
  c.add_option("--total-batch", f.total_batch, "tokens of a step over all ranks; sets --accumulation")->check(whole(1));
}

std::optional<int> launch_ranks(const RankFlags& f, const std::string& trainer, const CommandLine& line) {
  if (f.gpus == 0) return std::nullopt;
  refuse_nested(f);
  if (f.gpus == 1) return std::nullopt;
  check_exchange(f.exchange, trainer);
  if (trainer != "reference") {
    const GpuStatus gpu = gpu_status();
    if (!gpu.present) throw MachineError(fmt::format("--trainer {} needs a GPU: {}", trainer, gpu.why_not));
    if (gpu.count < f.gpus && f.exchange.communicator != "staged")
      throw MachineError(fmt::format("--gpus {}: {} GPU{} visible here; check `nvidia-smi` and CUDA_VISIBLE_DEVICES", f.gpus, gpu.count,
                                     gpu.count == 1 ? " is" : "s are"));
  } else if (f.gpus > kMostReferenceRanks) {
    throw InputError(fmt::format("--gpus {}: expected at most {} with the CPU reference, whose ranks are processes of this host", f.gpus,
                                 kMostReferenceRanks));
  }
  return dist::launch(rank_command(line), static_cast<int>(f.gpus));
}

std::unique_ptr<RankSession> RankSession::join(const RankFlags& f) {
  if (f.gpus == 1) return nullptr;  // flags of several ranks are allowed beside it: a script may count its GPUs
  const dist::Start start = dist::discover(start_flags(f), dist::process_environment());
  if (start.world.size == 1) {
    if (start.world.found_by == "alone") only_these(f.of_several, {}, "expected --gpus N with it; this process trains alone");
    return nullptr;
  }
  dist::MeetOptions options;
  options.deadline_s = f.rendezvous_timeout_s;
  options.say = say;
  std::vector<dist::Peer> peers = dist::meet(start.world, start.meeting, start.token, options);
  dist::ChannelOptions channel;
  channel.limits = {f.silence_timeout_s, f.stall_timeout_s};
  std::unique_ptr<RankSession> session(new RankSession);
  session->host_id_ = dist::boot_id();
  session->channel_ = dist::make_socket_channel(start.world, std::move(peers), channel);
  session->channel_->settle_places(session->host_id_);
  return session;
}

#ifdef STEPSCOPE_GPU_RANKS
// Copies between the GPUs, where two ranks of one host can have them: what was measured to be faster than NCCL's kernels is two ranks.
std::unique_ptr<dist::Communicator> peer_of_two(const dist::World& world, dist::ControlChannel& channel) {
  if (world.size != 2 || dist::why_no_peer(world)) return nullptr;
  try {
    return dist::make_peer(world, channel);
  } catch (const dist::RankFailure& failure) {  // the same on both ranks
    if (world.rank == 0) say(fmt::format("NCCL carries the gradients, not copies between the GPUs: {}", failure.what()));
    return nullptr;
  }
}
#endif

void RankSession::compare(const dist::Identity& identity) { dist::compare_identities(*channel_, identity, host_id_); }

dist::Communicator& RankSession::connect(const RankFlags& f, const std::string& trainer, CollectiveListener* on_cpu) {
  const bool cpu = trainer == "reference";
  // All ranks have these flags, and those that agree on a refusal say it once.
  dist::agree(channel_.get(), [&] { check_exchange(f.exchange, trainer); });
#ifdef STEPSCOPE_GPU_RANKS
  if (!cpu) dist::agree(channel_.get(), [&] { dist::use_device_of(world()); });
  std::unique_ptr<dist::Communicator> peer;
  if (!cpu && f.exchange.communicator == "peer") peer = dist::make_peer(world(), *channel_);
  if (!cpu && f.exchange.communicator == "auto") peer = peer_of_two(world(), *channel_);
  if (peer) {
    if (f.exchange.nccl_blocks > 0 && is_first()) say(no_blocks(f.exchange, kByCopies) + "; it has no effect");
    communicator_ = announced(std::move(peer), nvtx_collectives());
    return *communicator_;
  }
  if (!cpu && f.exchange.communicator != "staged") {
    dist::require_own_devices(*channel_);
    dist::compare_identities(*channel_, {{"NCCL", dist::nccl_version()}}, host_id_);
    communicator_ =
        announced(f.exchange.nccl_blocks > 0 ? dist::make_nccl(world(), *channel_, {.most_ctas = static_cast<int>(f.exchange.nccl_blocks)})
                                             : dist::make_nccl(world(), *channel_),
                  nvtx_collectives());
    return *communicator_;
  }
#else
  if (!cpu) throw MachineError("this build cannot exchange gradients between GPUs; --trainer reference trains on several ranks");
#endif
  communicator_ = dist::make_staged(*channel_);
  if (cpu && on_cpu != nullptr) communicator_ = announced(std::move(communicator_), *on_cpu);
  return *communicator_;
}

void RankSession::disconnect() {
  if (communicator_) communicator_->abort();
}

struct EndOfRank::State {
  std::mutex mutex;
  const char* what = "";
  double until_s = 0;
};

EndOfRank::EndOfRank(int rank, int exit_code) : state_(std::make_shared<State>()) {
  std::thread([state = state_, rank, exit_code] {
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::lock_guard lock(state->mutex);
      if (state->until_s == 0 || dist::seconds_now() < state->until_s) continue;
      const std::string text =
          fmt::format("stepscope: rank {} was done and hung while {}; its process ends without that\n", rank, state->what);
      (void)!::write(STDERR_FILENO, text.data(), text.size());
      ::_exit(exit_code);
    }
  }).detach();
}

void EndOfRank::doing(const char* what, double within_s) {
  const std::lock_guard lock(state_->mutex);
  state_->what = what;
  state_->until_s = within_s > 0 ? dist::seconds_now() + within_s : 0;
}

int64_t accumulation_for(int64_t total, int64_t batch_size, int64_t seq_len, int ranks) {
  const int64_t unit = batch_size * seq_len * ranks;
  if (total % unit == 0) return total / unit;
  const int64_t below = total / unit * unit;
  std::string expected = below > 0 ? std::to_string(below) : "";
  if (below <= std::numeric_limits<int64_t>::max() - unit) expected += (expected.empty() ? "" : " or ") + std::to_string(below + unit);
  throw InputError(fmt::format("--total-batch {}: not a whole number of micro-batches of {} x {} tokens on {} rank{}; expected {}", total,
                               batch_size, seq_len, ranks, ranks == 1 ? "" : "s", expected));
}

namespace {

// Which libraries compute: another version may choose another kernel, so that ranks have other speeds and, where NCCL differs, do not meet.
void add_libraries(dist::Identity& id, const std::string& trainer) {
  std::string why_not;
  const auto device = stepscope::nvml::Device::open(why_not);
  id.push_back({"the driver", device ? device->driver_version().value_or("") : ""});
#ifdef STEPSCOPE_WITH_CUDA
  if (trainer == "reference") return;
  const auto version = find_cublas_lt(STEPSCOPE_CUDA_MAJOR).version;
  id.push_back({"cuBLASLt", version ? std::to_string(*version) : ""});
  if (trainer == "mixed") id.push_back({"cuDNN", mixed::cudnn_version()});
#else
  (void)trainer;
#endif
}

}  // namespace

dist::Identity identity_of(const std::vector<std::string>& arguments, const std::string& trainer) {
  dist::Identity id{{"the version of stepscope", fmt::format("{} ({}, {})", kVersion, kGitRevision, kBuildType)},
                    {"the program", fmt::format("{:016x}", gpt2::Checksum::of(gpt2::MappedFile("/proc/self/exe").bytes()))}};
  // Flags that a rank was not given stand there with their defaults, so every flag is in every rank's list.
  for (size_t i = 1; i < arguments.size();) {
    const std::string flag = arguments[i++];
    std::string value;
    while (i < arguments.size() && !arguments[i].starts_with("--")) value += (value.empty() ? "" : " ") + arguments[i++];
    if (flag == "--data" || flag == "--val-data") continue;  // another path may lead to the same tokens; train_loop compares those
    if (value.empty()) value = "yes";
    const auto earlier = std::find_if(id.begin(), id.end(), [&](const dist::IdentityField& one) { return one.name == flag; });
    if (earlier != id.end()) {
      earlier->value += " " + value;  // --variant, as often as it was given
    } else {
      id.push_back({flag, value});
    }
  }
  const GpuStatus gpu = gpu_status();
  id.push_back({"the GPU's model", gpu.name});
  id.push_back({"the GPU's memory", std::to_string(gpu.memory_bytes)});
  add_libraries(id, trainer);
  for (const char* name : {"CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE",
                           "NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_GRAPH_MIXING_SUPPORT"}) {
    const char* value = std::getenv(name);
    id.push_back({name, value == nullptr ? "" : value});
  }
  return id;
}

}  // namespace cli
