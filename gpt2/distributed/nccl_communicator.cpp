// NCCL as a Communicator, with blocking calls: a failed run ends, so nothing must be recoverable, and every launch stands inside the range
// of the thread that asked for it.
#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/errors.h"
#include "gpt2/cuda/check.h"
#include "gpt2/distributed/nccl.h"
#include "gpt2/distributed/nccl_library.h"
#include "gpt2/distributed/rank_device.h"

namespace gpt2::distributed {
namespace {

std::string describe(ncclResult_t status) {
  const NcclLibrary& l = nccl_library();
  const char* last = l.get_last_error(nullptr);
  return fmt::format("{}{}{}", l.get_error_string(status), last != nullptr && *last != 0 ? ": " : "", last != nullptr ? last : "");
}

void check(ncclResult_t status, std::string_view what) {
  if (status != ncclSuccess) throw stepscope::MachineError(fmt::format("NCCL: {} failed: {}", what, describe(status)));
}

ncclDataType_t type_of(Element e) {
  switch (e) {
    case Element::fp32:
      return ncclFloat32;
    case Element::bf16:
      return ncclBfloat16;
    case Element::fp64:
      return ncclFloat64;
  }
  return ncclFloat32;
}

class Nccl final : public Communicator {
 public:
  Nccl(const World& world, ControlChannel& channel, const NcclOptions& options) : world_(world), channel_(channel) {
    const NcclLibrary& l = nccl_library();
    if (l.missing) throw stepscope::MachineError(*l.missing);
    use_device_of(world);
    require_own_devices(channel);
    ncclUniqueId id{};
    if (world.rank == 0) check(l.get_unique_id(&id), "ncclGetUniqueId");
    const Bytes of_first = channel.all_gather(Bytes(id.internal, id.internal + sizeof(id.internal))).front();
    if (of_first.size() != sizeof(id.internal)) throw stepscope::MachineError("NCCL: rank 0 sent no identifier");
    std::memcpy(id.internal, of_first.data(), sizeof(id.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (options.most_ctas > 0) {
      config.minCTAs = 1;
      config.maxCTAs = options.most_ctas;
    }
    check(l.comm_init_rank_config(&comm_, world.size, id, world.rank, &config),
          fmt::format("connecting rank {} of {}", world.rank, world.size));
  }
  ~Nccl() override {
    if (aborting_.joinable()) aborting_.join();
    const std::scoped_lock lock(mutex_);
    if (comm_ != nullptr && !aborted_) (void)nccl_library().comm_destroy(comm_);
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  const World& world() const override { return world_; }
  bool memory_is_host() const override { return false; }
  bool is_asynchronous() const override { return true; }
  std::string name() const override { return "nccl " + nccl_version(); }

  void enqueue(const Collective& c, void* data, void* stream) override {
    if (aborted_) throw stepscope::MachineError("NCCL: the communication was aborted");
    const NcclLibrary& l = nccl_library();
    const ncclDataType_t type = type_of(c.type);
    const auto on = static_cast<cudaStream_t>(stream);
    const int64_t slice = c.elements / world_.size;
    unsigned char* own = static_cast<unsigned char*>(data) + world_.rank * slice * bytes_of(c.type);
    switch (c.kind) {
      case CollectiveKind::all_reduce:
        return check(l.all_reduce(data, data, static_cast<size_t>(c.elements), type, ncclSum, comm_, on), "ncclAllReduce");
      case CollectiveKind::reduce_scatter:
        return check(l.reduce_scatter(data, own, static_cast<size_t>(slice), type, ncclSum, comm_, on), "ncclReduceScatter");
      case CollectiveKind::all_gather:
        return check(l.all_gather(own, data, static_cast<size_t>(slice), type, comm_, on), "ncclAllGather");
    }
  }

  std::optional<Failure> failure() override {
    const std::scoped_lock lock(mutex_);
    if (aborted_) return Failure{-1, "the communication was aborted"};
    // Asked first: NCCL says nothing of a rank that stopped in a step, and of one that is gone it does not say which.
    if (auto told = channel_.failure()) return told;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_library().comm_get_async_error(comm_, &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclSuccess || state == ncclInProgress) return std::nullopt;
    return Failure{-1, fmt::format("NCCL on rank {}: {}", world_.rank, describe(state))};
  }

  // From any thread, also while another one is inside enqueue. ncclCommAbort ends the kernels that wait, and then itself waits until the graphs
  // with such kernels are destroyed. Their owner does that behind this call, so a thread of its own waits.
  void abort() noexcept override {
    {
      const std::scoped_lock lock(mutex_);  // failure may be reading the communicator
      if (aborted_.exchange(true)) return;
    }
    const auto end = [this] { (void)nccl_library().comm_abort(comm_); };
    try {
      aborting_ = std::thread(end);
    } catch (const std::system_error&) {
      end();
    }
  }

 private:
  World world_;
  ControlChannel& channel_;
  ncclComm_t comm_ = nullptr;
  std::mutex mutex_;  // abort must not pass failure, which reads the communicator
  std::atomic<bool> aborted_{false};
  std::thread aborting_;  // inside ncclCommAbort
};

int ctas_from_environment() {
  const char* text = std::getenv("STEPSCOPE_NCCL_CTAS");
  if (text == nullptr || *text == 0) return 0;
  const std::string_view view(text);
  int ctas = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), ctas);
  if (error != std::errc() || end != view.data() + view.size() || ctas < 1 || ctas > 64)
    throw stepscope::InputError(fmt::format("STEPSCOPE_NCCL_CTAS={}: expected 1 to 64", text));
  return ctas;
}

}  // namespace

std::unique_ptr<Communicator> make_nccl(const World& world, ControlChannel& channel, const NcclOptions& options) {
  return std::make_unique<Nccl>(world, channel, options);
}
std::unique_ptr<Communicator> make_nccl(const World& world, ControlChannel& channel) {
  return make_nccl(world, channel, {.most_ctas = ctas_from_environment()});
}

}  // namespace gpt2::distributed
