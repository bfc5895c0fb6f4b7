// Programmatic edges for own kernels of a captured step: such a kernel's blocks may be placed before the kernel in front of it has ended.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

namespace mixed {

// Whether a kernel of this (mangled) name waits by itself, with gpt2::cuda::wait_for_kernels_before, for what runs before it.
bool waits_by_itself(std::string_view kernel);

// Makes the edge programmatic between two kernels where the second waits by itself and depends on nothing else. Everything else keeps its
// edges: what a kernel waits for is then the end of the kernel in front of it, which in its turn had to wait for its own. It is the edge
// that stream capture makes of cudaLaunchAttributeProgrammaticStreamSerialization. Returns how many edges were changed; throws
// stepscope::MachineError for none.
int64_t make_edges_programmatic(cudaGraph_t graph);

}  // namespace mixed
