// NCCL, opened at run time as the trainers open it (gpt2/distributed/nccl_library.h); the file of STEPSCOPE_NCCL_LIBRARY, else of the
// loader path.
#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <cstdlib>
#include <string>

#include "base/errors.h"
#include "experiments/prototypes/copy_engine/kernels.h"
#include "experiments/prototypes/copy_engine/way.h"
#include "gpt2/cuda/check.h"

namespace copy_engine {
namespace {

void check(ncclResult_t status, const char* what) {
  if (status != ncclSuccess) throw stepscope::MachineError(fmt::format("{} failed: NCCL error {}", what, static_cast<int>(status)));
}

class Library {
 public:
  Library() {
    // NCCL reads its variables once, at the first call; multicast over NVLink stays off.
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    const char* named = std::getenv("STEPSCOPE_NCCL_LIBRARY");
    handle_ = dlopen(named != nullptr && *named != 0 ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_ == nullptr) throw stepscope::MachineError(fmt::format("NCCL cannot be opened: {}", dlerror()));
  }
  template <class F>
  F* get(const char* name) const {
    void* found = dlsym(handle_, name);
    if (found == nullptr) throw stepscope::MachineError(fmt::format("NCCL has no {}", name));
    return reinterpret_cast<F*>(found);
  }

 private:
  void* handle_ = nullptr;
};

#define COPY_ENGINE_CALL(library, name, ...) check((library).get<decltype(name)>(#name)(__VA_ARGS__), #name)

class Nccl : public Way {
 public:
  Nccl(Pair& pair, int ctas, bool no_ctas) : rank_(pair.rank()) {
    ncclUniqueId id{};
    if (rank_ == 0) COPY_ENGINE_CALL(library_, ncclGetUniqueId, &id);
    const ncclUniqueId theirs = pair.swap(id);
    if (rank_ != 0) id = theirs;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (ctas > 0) config.minCTAs = 1, config.maxCTAs = ctas;
    if (no_ctas) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    COPY_ENGINE_CALL(library_, ncclCommInitRankConfig, &comm_, kRanks, id, rank_, &config);
    int version = 0;
    COPY_ENGINE_CALL(library_, ncclGetVersion, &version);
    if (rank_ == 0) fmt::print(stderr, "NCCL {}\n", version);
  }
  // The processes end without destructors (pair.cpp), so nothing here is given back.

 protected:
  float* window() {
    constexpr size_t kBytes = kMostElements * sizeof(float);
    void* memory = nullptr;
    COPY_ENGINE_CALL(library_, ncclMemAlloc, &memory, kBytes);
    ncclWindow_t window = nullptr;
    COPY_ENGINE_CALL(library_, ncclCommWindowRegister, comm_, memory, kBytes, &window, NCCL_WIN_COLL_SYMMETRIC);
    if (window == nullptr) throw stepscope::MachineError("NCCL made no symmetric window (cuMem or direct access between GPUs is off)");
    return static_cast<float*>(memory);
  }

  Library library_;
  ncclComm_t comm_ = nullptr;
  int rank_;
};

class NcclKernels final : public Nccl {
 public:
  NcclKernels(Pair& pair, int ctas, bool windows) : Nccl(pair, ctas, false) {
    for (float** memory : {&gradients_, &weights_})
      if (windows)
        *memory = window();
      else
        STEPSCOPE_CUDA_CHECK(cudaMalloc(memory, kMostElements * sizeof(float)));
  }
  float* gradients() override { return gradients_; }
  float* weights() override { return weights_; }
  void exchange(int64_t elements, cudaStream_t stream) override {
    const int64_t half = elements / kRanks;
    COPY_ENGINE_CALL(library_, ncclReduceScatter, gradients(), gradients() + rank_ * half, static_cast<size_t>(half), ncclFloat32, ncclSum,
                     comm_, stream);
  }
  void sum(int64_t, cudaStream_t) override {}
  void gather(int64_t elements, cudaStream_t stream) override {
    const int64_t half = elements / kRanks;
    COPY_ENGINE_CALL(library_, ncclAllGather, weights() + rank_ * half, weights(), static_cast<size_t>(half), ncclFloat32, comm_, stream);
  }

 private:
  float *gradients_ = nullptr, *weights_ = nullptr;
};

class NcclCopies final : public Nccl {
 public:
  explicit NcclCopies(Pair& pair) : Nccl(pair, 0, true) {
    for (float** memory : {&gradients_, &weights_, &received_}) *memory = window();
  }
  float* gradients() override { return gradients_; }
  float* weights() override { return weights_; }
  // NCCL's all-to-all brings this rank's own part too, which nothing needs: a copy inside the GPU.
  void exchange(int64_t elements, cudaStream_t stream) override {
    COPY_ENGINE_CALL(library_, ncclAlltoAll, gradients_, received_, static_cast<size_t>(elements / kRanks), ncclFloat32, comm_, stream);
  }
  void sum(int64_t elements, cudaStream_t stream) override {
    const int64_t half = elements / kRanks;
    add(gradients_ + rank_ * half, received_ + (1 - rank_) * half, half, stream);
  }
  void gather(int64_t elements, cudaStream_t stream) override {
    const int64_t half = elements / kRanks;
    COPY_ENGINE_CALL(library_, ncclAllGather, weights_ + rank_ * half, weights_, static_cast<size_t>(half), ncclFloat32, comm_, stream);
  }

 private:
  float *gradients_ = nullptr, *weights_ = nullptr, *received_ = nullptr;
};

}  // namespace

std::unique_ptr<Way> make_nccl_kernels(Pair& pair, int ctas) { return std::make_unique<NcclKernels>(pair, ctas, false); }
std::unique_ptr<Way> make_nccl_windows(Pair& pair) { return std::make_unique<NcclKernels>(pair, 0, true); }
std::unique_ptr<Way> make_nccl_copies(Pair& pair) { return std::make_unique<NcclCopies>(pair); }

}  // namespace copy_engine
