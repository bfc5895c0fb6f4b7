// Red zones behind every piece of device memory that a trainer asks of the CUDA runtime, and poison in it. Programs that link this stage have
// their cudaMalloc and cudaFree redirected here (the linker's --wrap), in statically linked code; without watch_memory() both do what they
// always do.
#pragma once
#include <cstdint>

namespace gate {

// While on, memory that is asked for is full of NaN, as fp32 and as bf16, where fresh memory is often zero; and it gets 1 MiB of a pattern
// behind it. Memory that was there before stays as it is.
void watch_memory(bool on);

// Bytes of these patterns that were written over since the last call: of memory that was freed meanwhile and of what is still held. Waits for the
// device.
int64_t bytes_beyond_memory();

}  // namespace gate
