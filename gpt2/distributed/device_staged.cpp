#include "gpt2/distributed/device_staged.h"

namespace gpt2::distributed {

DeviceStaged::DeviceStaged(Communicator& host) : host_(host) {}

void DeviceStaged::enqueue(const Collective& collective, void* data, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const int64_t bytes = collective.elements * bytes_of(collective.type);
  if (buffer_.size() < bytes) buffer_ = cuda::PinnedBuffer<unsigned char>(bytes);
  // What a rank brings and what it takes: all of the array or its slice.
  const int64_t slice = bytes / host_.world().size;
  const int64_t own = host_.world().rank * slice;
  const bool brings_slice = collective.kind == CollectiveKind::all_gather;
  const bool takes_slice = collective.kind == CollectiveKind::reduce_scatter;
  const auto copy = [&](bool only_slice, cudaMemcpyKind direction) {
    const int64_t from = only_slice ? own : 0;
    void* host = buffer_.data() + from;
    void* device = static_cast<unsigned char*>(data) + from;
    const auto count = static_cast<size_t>(only_slice ? slice : bytes);
    const bool down = direction == cudaMemcpyDeviceToHost;
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(down ? host : device, down ? device : host, count, direction, on));
    STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(on));
  };
  copy(brings_slice, cudaMemcpyDeviceToHost);
  host_.enqueue(collective, buffer_.data(), nullptr);
  copy(takes_slice, cudaMemcpyHostToDevice);
}

}  // namespace gpt2::distributed
