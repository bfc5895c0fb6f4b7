#include "gpt2/distributed/peer_communicator.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstring>

#include "base/errors.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/distributed/agreement.h"
#include "gpt2/distributed/peer_actions.h"
#include "gpt2/distributed/peer_kernels.h"
#include "gpt2/distributed/rank_device.h"

namespace gpt2::distributed {
namespace {

// A window begins with the flags of the ranks. It has at least 2 MiB: the handle of a smaller allocation opens the block that it lies in.
constexpr int64_t kHeadBytes = 4096;
constexpr int64_t kLeastSliceBytes = int64_t{4} << 20;
static_assert(kHeadBytes >= kMostPeers * kFlagStride * static_cast<int64_t>(sizeof(uint32_t)));

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
  Peer(const World& world, ControlChannel& channel) : world_(world), channel_(channel) {
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
  ~Peer() override { close_windows(); }
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
      close_windows();
    });
    // Now nobody has this rank's window open.
    cudaIpcMemHandle_t mine{};
    agree(&channel_, [&] { mine = new_window(receive_bytes(slice_bytes)); });
    const auto* bytes = reinterpret_cast<const unsigned char*>(&mine);
    const std::vector<Bytes> all = channel_.all_gather(Bytes(bytes, bytes + sizeof(mine)));
    agree(&channel_, [&] { open_windows(all); });
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
    for (const PeerAction& a : peer_actions(c, world_.rank, world_.size)) switch (a.kind) {
        case PeerAction::Kind::meet:
          meet(meeting_, on);
          break;
        case PeerAction::Kind::push:
          copy(opened_[static_cast<size_t>(a.peer)] + kHeadBytes + a.window, array + a.data, a.bytes, on);
          break;
        case PeerAction::Kind::sum:
          add_parts(c.type, array + a.data, own, part_stride(slice), a.bytes / bytes_of(c.type), world_.rank, world_.size, on);
          break;
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

  cudaIpcMemHandle_t new_window(int64_t bytes) {
    if (window_ != nullptr) STEPSCOPE_CUDA_CHECK(cudaFree(std::exchange(window_, nullptr)));
    window_size_ = 0;
    void* memory = nullptr;
    STEPSCOPE_CUDA_CHECK(cudaMalloc(&memory, static_cast<size_t>(bytes)));
    window_ = static_cast<unsigned char*>(memory);
    STEPSCOPE_CUDA_CHECK(cudaMemset(window_, 0, static_cast<size_t>(kHeadBytes)));
    STEPSCOPE_CUDA_CHECK(cudaMemset(generation_.data(), 0, static_cast<size_t>(generation_.bytes())));
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());  // before another rank writes to a flag
    cudaIpcMemHandle_t handle{};
    STEPSCOPE_CUDA_CHECK(cudaIpcGetMemHandle(&handle, window_));
    window_size_ = bytes;
    return handle;
  }

  void open_windows(const std::vector<Bytes>& handles) {
    meeting_ = {};
    for (int r = 0; r < world_.size; ++r) {
      if (r == world_.rank) continue;
      cudaIpcMemHandle_t handle{};
      if (handles[static_cast<size_t>(r)].size() != sizeof(handle)) throw std::logic_error("a rank sent no handle of its window");
      std::memcpy(&handle, handles[static_cast<size_t>(r)].data(), sizeof(handle));
      void* opened = nullptr;
      const cudaError_t status = cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
      if (!succeeds(status))
        throw stepscope::MachineError(
            fmt::format("--communicator peer: the memory of rank {} cannot be opened here ({}); use nccl", r, cudaGetErrorString(status)));
      opened_[static_cast<size_t>(r)] = static_cast<unsigned char*>(opened);
      meeting_.theirs[static_cast<size_t>(r)] = reinterpret_cast<uint32_t*>(opened) + world_.rank * kFlagStride;
    }
    meeting_.flags = reinterpret_cast<uint32_t*>(window_);
    meeting_.generation = generation_.data();
    meeting_.aborted = aborted_word_->on_device();
    meeting_.rank = world_.rank;
    meeting_.ranks = world_.size;
  }

  void close_windows() noexcept {
    for (unsigned char*& opened : opened_)
      if (opened != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaIpcCloseMemHandle(std::exchange(opened, nullptr)));
  }

  World world_;
  ControlChannel& channel_;
  std::atomic<bool> aborted_{false};
  std::unique_ptr<HostWord> aborted_word_;
  cuda::DeviceBuffer<uint32_t> generation_;
  unsigned char* window_ = nullptr;  // own: flags, then the parts of the others
  int64_t window_size_ = 0;
  std::array<unsigned char*, kMostPeers> opened_{};  // [rank] its window, here
  Meeting meeting_;
};

}  // namespace

std::optional<std::string> why_no_peer(const World& world) {
  if (world.nodes > 1)
    return fmt::format("--communicator peer: the ranks are on {} hosts, and copies reach the GPUs of one; expected nccl", world.nodes);
  if (world.size > kMostPeers) return fmt::format("--communicator peer: {} ranks; expected at most {}, or nccl", world.size, kMostPeers);
  return std::nullopt;
}

std::unique_ptr<Communicator> make_peer(const World& world, ControlChannel& channel) { return std::make_unique<Peer>(world, channel); }

}  // namespace gpt2::distributed
