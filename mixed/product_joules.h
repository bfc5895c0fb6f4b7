// Joules a launch of the algorithms of a product, on this GPU: each is repeated without a gap until the energy counter has counted a window.
#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mixed {

// Why joules of the current device cannot be counted; empty when they can.
std::optional<std::string> why_no_energy_counter();

// Measures the algorithms of `order` one behind the other, and the first again at the end: what its two windows differ by shows how much
// the GPU's warming, or another process, moved the others. About a second for each, and one more.
// times_us: microseconds a launch of every algorithm. `launch` queues one launch of an algorithm on `stream`, which must not be capturing and
// must not be the default stream. Returns joules[i]: of a launch of algorithm i, one value for each of its windows.
// Throws energy::CounterError where the counter cannot be read or does not serve, and whatever `launch` throws.
std::vector<std::vector<double>> weigh_algorithms(std::span<const size_t> order, std::span<const double> times_us, cudaStream_t stream,
                                                  const std::function<void(size_t)>& launch);

}  // namespace mixed
