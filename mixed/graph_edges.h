// Programmatic edges for own kernels of a captured step: such a kernel's blocks may be placed before the kernel in front of it has ended.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mixed {

// Why this machine's driver does not tell the names of a graph's kernels, by which those that wait are known: it is older than CUDA 12.3.
std::optional<std::string> why_no_kernel_names();

// Whether a kernel of this (mangled) name is one of gpt2/ops or mixed/kernels, where all kernels that wait are.
bool is_own_kernel(std::string_view kernel);

// Whether a kernel of this (mangled) name waits by itself, with gpt2::cuda::wait_for_kernels_before, for what runs before it.
bool waits_by_itself(std::string_view kernel);

// Makes the edge programmatic between two kernels where the second waits by itself and depends on nothing else. Everything else keeps its
// edges: what a kernel waits for is then the end of the kernel in front of it, which in its turn had to wait for its own. It is the edge
// that stream capture makes of cudaLaunchAttributeProgrammaticStreamSerialization. Returns how many edges were changed: none in a piece
// whose kernels do not wait, as the update of several ranks. Every piece of a step has own kernels: throws stepscope::MachineError for a
// graph in which none is known by its name, since the variant would run under a name that is not true.
int64_t make_edges_programmatic(cudaGraph_t graph);

}  // namespace mixed
