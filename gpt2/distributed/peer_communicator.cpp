#include "gpt2/distributed/peer_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/driver_function.h"
#include "gpt2/distributed/agreement.h"
#include "gpt2/distributed/peer_actions.h"
#include "gpt2/distributed/peer_kernels.h"
#include "gpt2/distributed/rank_device.h"

namespace gpt2::distributed {
namespace {

// A window begins with the flags of the ranks. It has at least 2 MiB: the handle of a smaller allocation opens the block that it lies in.
constexpr int64_t kHeadBytes = 4096;
constexpr int64_t kLeastSliceBytes = int64_t{4} << 20;
constexpr int64_t kFlagBytes = kFlagStride * static_cast<int64_t>(sizeof(uint32_t));
constexpr int64_t kClosedAt = kMostPeers * kFlagBytes;  // behind the flags: how often each rank has closed what this rank shared
static_assert(kHeadBytes >= 2 * kMostPeers * kFlagBytes);
constexpr int64_t kLeastShared = int64_t{2} << 20;
constexpr double kLongestUnshare_s = 1;

std::string pci_address() {
  int device = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  std::array<char, 32> text{};
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device));
  return text.data();
}

// A status that says no is no error of a call here, and must not stay behind for the next check.
bool succeeds(cudaError_t status) {
  if (status != cudaSuccess) (void)cudaGetLastError();
  return status == cudaSuccess;
}

void require_reach(int rank, const std::string& address) {
  int here = 0, there = 0, can = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&here));
  if (!succeeds(cudaDeviceGetByPCIBusId(&there, address.c_str())))
    throw stepscope::MachineError(fmt::format(
        "--communicator peer: the GPU of rank {} ({}) is not visible here; every rank has to see all GPUs (CUDA_VISIBLE_DEVICES), "
        "or use nccl",
        rank, address));
  if (!succeeds(cudaDeviceCanAccessPeer(&can, here, there)) || can == 0)
    throw stepscope::MachineError(
        fmt::format("--communicator peer: this GPU does not reach the memory of that of rank {} ({}); `nvidia-smi topo -p2p rw` shows "
                    "which do; use nccl",
                    rank, address));
}

// The memory behind a handle begins where the allocation does, which may be before `memory`.
struct Handle {
  cudaIpcMemHandle_t memory{};
  int64_t offset = 0;
};

Handle handle_of(void* memory) {
  using AddressRange =
      int(unsigned long long*, size_t*, unsigned long long);  // CUresult, CUdeviceptr; cuda.h would be needed for them alone
  const auto address_range = cuda::driver_function<AddressRange>("cuMemGetAddressRange");
  unsigned long long begin = 0;
  size_t bytes = 0;
  const auto address = reinterpret_cast<unsigned long long>(memory);
  if (address_range == nullptr || address_range(&begin, &bytes, address) != 0)
    throw stepscope::MachineError("--communicator peer: the driver does not say where an allocation begins (cuMemGetAddressRange)");
  Handle handle;
  STEPSCOPE_CUDA_CHECK(cudaIpcGetMemHandle(&handle.memory, memory));
  handle.offset = static_cast<int64_t>(address - begin);
  return handle;
}

// Memory of another rank. CUDA opens the whole allocation, which `begin` is the begin of.
struct Opened {
  unsigned char* begin = nullptr;
  int64_t offset = 0;  // of what was shared
};

Opened open_handle(int rank, const Bytes& bytes) {
  Handle handle;
  if (bytes.size() != sizeof(handle)) throw std::logic_error("a rank sent no handle of its memory");
  std::memcpy(&handle, bytes.data(), sizeof(handle));
  void* opened = nullptr;
  const cudaError_t status = cudaIpcOpenMemHandle(&opened, handle.memory, cudaIpcMemLazyEnablePeerAccess);
  if (!succeeds(status))
    throw stepscope::MachineError(
        fmt::format("--communicator peer: the memory of rank {} cannot be opened here ({}); use nccl", rank, cudaGetErrorString(status)));
  return {static_cast<unsigned char*>(opened), handle.offset};
}

// One number that the device reads and this process writes, from any thread and without a call of CUDA.
class HostWord {
 public:
  HostWord() {
    STEPSCOPE_CUDA_CHECK(cudaHostAlloc(&word_, sizeof(uint32_t), cudaHostAllocMapped));
    *word_ = 0;
    STEPSCOPE_CUDA_CHECK(cudaHostGetDevicePointer(&on_device_, word_, 0));
  }
  ~HostWord() { STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaFreeHost(word_)); }
  HostWord(const HostWord&) = delete;
  HostWord& operator=(const HostWord&) = delete;
  void set() noexcept { std::atomic_ref<uint32_t>(*word_).store(1); }
  const uint32_t* on_device() const { return static_cast<const uint32_t*>(on_device_); }

 private:
  uint32_t* word_ = nullptr;
  void* on_device_ = nullptr;
};

class Peer final : public Communicator {
 public:
  Peer(const World& world, ControlChannel& channel, const PeerOptions& options) : world_(world), channel_(channel), options_(options) {
    if (const auto why = why_no_peer(world)) throw stepscope::InputError(*why);
    use_device_of(world);
    require_own_devices(channel);
    const std::string address = pci_address();
    const std::vector<Bytes> all = channel.all_gather(Bytes(address.begin(), address.end()));
    agree(&channel, [&] {
      for (int r = 0; r < world.size; ++r)
        if (r != world.rank) require_reach(r, std::string(all[static_cast<size_t>(r)].begin(), all[static_cast<size_t>(r)].end()));
      aborted_word_ = std::make_unique<HostWord>();
      generation_ = cuda::DeviceBuffer<uint32_t>(1);
    });
    reserve(kLeastSliceBytes);
  }
  // The own window is not freed: what happens to a rank that still has it open is undefined. It goes with the process.
  ~Peer() override {
    close(shared_.opened);
    close(opened_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const World& world() const override { return world_; }
  bool memory_is_host() const override { return false; }
  bool is_asynchronous() const override { return true; }
  std::string name() const override { return "peer"; }
  int64_t receive_bytes(int64_t slice_bytes) const override {
    return kHeadBytes + window_bytes(world_.size, std::max(slice_bytes, kLeastSliceBytes));
  }

  void reserve(int64_t slice_bytes) override {
    if (receive_bytes(slice_bytes) <= window_size_) return;
    agree(&channel_, [&] {
      STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
      close(opened_);
    });
    // Now nobody has this rank's window open.
    Handle mine;
    agree(&channel_, [&] { mine = new_window(receive_bytes(slice_bytes)); });
    const std::vector<Bytes> all = of_all(mine);
    agree(&channel_, [&] { open_windows(all); });
  }

  void share(void* memory, int64_t bytes) override {
    if (!options_.shares || bytes < kLeastShared) return;
    unshare();
    Handle mine;
    agree(&channel_, [&] { mine = handle_of(memory); });
    const std::vector<Bytes> all = of_all(mine);
    agree(&channel_, [&] {
      for (const int r : others()) {
        const auto peer = static_cast<size_t>(r);
        shared_.opened[peer] = open_handle(r, all[peer]);
      }
      shared_.begin = static_cast<unsigned char*>(memory);
      shared_.bytes = bytes;
    });
  }

  // No message of the channel: a rank may be here because it failed, while the others are elsewhere.
  void unshare() noexcept override {
    if (shared_.begin == nullptr) return;
    close(shared_.opened);
    shared_ = {};
    ++closed_;
    for (const int r : others())
      (void)succeeds(cudaMemcpy(opened_[static_cast<size_t>(r)].begin + kClosedAt + world_.rank * kFlagBytes, &closed_, sizeof(closed_),
                                cudaMemcpyHostToDevice));
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kLongestUnshare_s);
    for (const int r : others()) {
      uint32_t theirs = 0;
      while (succeeds(cudaMemcpy(&theirs, window_ + kClosedAt + r * kFlagBytes, sizeof(theirs), cudaMemcpyDeviceToHost)) &&
             theirs < closed_ && !aborted_ && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  // Collectives of one rank never run at the same time, on whichever streams: streams and events order them, as NCCL wants it too.
  void enqueue(const Collective& c, void* data, void* stream) override {
    if (aborted_) throw stepscope::MachineError("the communication between the GPUs was aborted");
    const int64_t slice = slice_bytes_of(c, world_.size);
    if (receive_bytes(slice) > window_size_)
      throw std::logic_error(fmt::format("bucket {}: {} bytes of a slice were not reserved", c.bucket, slice));
    const auto on = static_cast<cudaStream_t>(stream);
    auto* array = static_cast<unsigned char*>(data);
    unsigned char* own = window_ + kHeadBytes;
    for (const PeerAction& a : peer_actions(c, world_.rank, world_.size, is_shared(array, c))) switch (a.kind) {
        case PeerAction::Kind::meet:
          meet(meeting_, on);
          break;
        case PeerAction::Kind::push:
          copy(opened_[static_cast<size_t>(a.peer)].begin + kHeadBytes + a.window, array + a.data, a.bytes, on);
          break;
        case PeerAction::Kind::sum:
          add_parts(c.type, array + a.data, own, part_stride(slice), a.bytes / bytes_of(c.type), world_.rank, world_.size, on);
          break;
        case PeerAction::Kind::place: {
          const Opened& theirs = shared_.opened[static_cast<size_t>(a.peer)];
          copy(theirs.begin + theirs.offset + (array - shared_.begin) + a.data, array + a.data, a.bytes, on);
          break;
        }
        case PeerAction::Kind::take:
          copy(array + a.data, own + a.window, a.bytes, on);
          break;
      }
  }

  std::optional<Failure> failure() override {
    if (aborted_) return Failure{-1, "the communication between the GPUs was aborted"};
    return channel_.failure();
  }

  // Meets that wait, and those behind them, come to their ends at once; what they ordered is worth nothing then.
  void abort() noexcept override {
    aborted_ = true;
    aborted_word_->set();
  }

 private:
  static void copy(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
  }

  std::vector<int> others() const {
    std::vector<int> ranks;
    for (int r = 0; r < world_.size; ++r)
      if (r != world_.rank) ranks.push_back(r);
    return ranks;
  }

  std::vector<Bytes> of_all(const Handle& mine) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&mine);
    return channel_.all_gather(Bytes(bytes, bytes + sizeof(mine)));
  }

  bool is_shared(const unsigned char* array, const Collective& c) const {
    return shared_.begin != nullptr && array >= shared_.begin && array + c.elements * bytes_of(c.type) <= shared_.begin + shared_.bytes;
  }

  Handle new_window(int64_t bytes) {
    if (window_ != nullptr) STEPSCOPE_CUDA_CHECK(cudaFree(std::exchange(window_, nullptr)));
    window_size_ = 0;
    void* memory = nullptr;
    STEPSCOPE_CUDA_CHECK(cudaMalloc(&memory, static_cast<size_t>(bytes)));
    window_ = static_cast<unsigned char*>(memory);
    STEPSCOPE_CUDA_CHECK(cudaMemset(window_, 0, static_cast<size_t>(kHeadBytes)));
    STEPSCOPE_CUDA_CHECK(cudaMemset(generation_.data(), 0, static_cast<size_t>(generation_.bytes())));
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());  // before another rank writes to a flag
    closed_ = 0;
    window_size_ = bytes;
    return handle_of(window_);
  }

  void open_windows(const std::vector<Bytes>& handles) {
    meeting_ = {};
    for (const int r : others()) {
      const auto peer = static_cast<size_t>(r);
      opened_[peer] = open_handle(r, handles[peer]);
      if (opened_[peer].offset != 0) throw std::logic_error("a window is no allocation of its own");
      meeting_.theirs[peer] = reinterpret_cast<uint32_t*>(opened_[peer].begin) + world_.rank * kFlagStride;
    }
    meeting_.flags = reinterpret_cast<uint32_t*>(window_);
    meeting_.generation = generation_.data();
    meeting_.aborted = aborted_word_->on_device();
    meeting_.rank = world_.rank;
    meeting_.ranks = world_.size;
  }

  static void close(std::array<Opened, kMostPeers>& all) noexcept {
    for (Opened& opened : all)
      if (opened.begin != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaIpcCloseMemHandle(std::exchange(opened.begin, nullptr)));
  }

  // What this rank shares, and what the others do.
  struct Shared {
    unsigned char* begin = nullptr;
    int64_t bytes = 0;
    std::array<Opened, kMostPeers> opened{};
  };

  World world_;
  ControlChannel& channel_;
  PeerOptions options_;
  std::atomic<bool> aborted_{false};
  std::unique_ptr<HostWord> aborted_word_;
  cuda::DeviceBuffer<uint32_t> generation_;
  unsigned char* window_ = nullptr;  // own: flags, then the parts of the others
  int64_t window_size_ = 0;
  std::array<Opened, kMostPeers> opened_{};  // [rank] its window, here
  Meeting meeting_;
  Shared shared_;
  uint32_t closed_ = 0;  // times that this rank closed what the others share, since the window was made
};

}  // namespace

std::optional<std::string> why_no_peer(const World& world) {
  if (world.nodes > 1)
    return fmt::format("--communicator peer: the ranks are on {} hosts, and copies reach the GPUs of one; expected nccl", world.nodes);
  if (world.size > kMostPeers) return fmt::format("--communicator peer: {} ranks; expected at most {}, or nccl", world.size, kMostPeers);
  return std::nullopt;
}

std::unique_ptr<Communicator> make_peer(const World& world, ControlChannel& channel, const PeerOptions& options) {
  return std::make_unique<Peer>(world, channel, options);
}

}  // namespace gpt2::distributed
