// How many ranks copies between GPUs reach. Apart from peer_kernels.h, so that a build without CUDA can refuse more.
#pragma once

namespace gpt2::distributed {

inline constexpr int kMostPeers = 16;  // GPUs of one host

}  // namespace gpt2::distributed
