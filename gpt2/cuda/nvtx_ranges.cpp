// The only translation unit that calls NVTX. Texts are registered with the tool once, at their first use, and pushed by handle.
// The domain is never destroyed: a tool may still hold records that name it when the process ends.
#include "gpt2/cuda/nvtx_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

namespace gpt2::cuda {

struct NvtxRanges::Impl {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("stepscope");
  nvtxStringHandle_t step = nvtxDomainRegisterStringA(domain, "step");
  std::vector<nvtxStringHandle_t> leaves;  // by (layer + 1, pass, op); a null handle is one not yet used
  std::vector<bool> registered;            // without a tool every handle is null, so null does not mean "unused"

  nvtxStringHandle_t leaf(Pass pass, int layer, Op op) {
    const size_t index = (static_cast<size_t>(layer + 1) * kPassCount + static_cast<size_t>(pass)) * kOpCount + static_cast<size_t>(op);
    if (index >= leaves.size()) {
      const size_t whole_layers = (static_cast<size_t>(layer) + 2) * kPassCount * kOpCount;
      leaves.resize(whole_layers, nullptr);
      registered.resize(whole_layers, false);
    }
    if (!registered[index]) {
      leaves[index] = nvtxDomainRegisterStringA(domain, leaf_path(pass, layer, op).c_str());
      registered[index] = true;
    }
    return leaves[index];
  }

  void push(nvtxStringHandle_t text) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = text;
    nvtxDomainRangePushEx(domain, &attributes);
  }
};

NvtxRanges::NvtxRanges() : impl_(std::make_unique<Impl>()) {}
NvtxRanges::~NvtxRanges() = default;

void NvtxRanges::begin_step(int64_t) { impl_->push(impl_->step); }
void NvtxRanges::end_step(int64_t) { nvtxDomainRangePop(impl_->domain); }
void NvtxRanges::begin_op(Pass pass, int layer, Op op) { impl_->push(impl_->leaf(pass, layer, op)); }
void NvtxRanges::end_op(Pass, int, Op) { nvtxDomainRangePop(impl_->domain); }

}  // namespace gpt2::cuda
