// The sums of ranks on GPUs of one host, without the ranks: on two GPUs only those of two can meet, and with one addition a sum that is rounded too
// often has the same bits.
#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"
#include "gpt2/distributed/peer_kernels.h"

namespace gpt2::distributed {
namespace {

template <class T>
struct Wide {
  using type = T;
};
template <>
struct Wide<__nv_bfloat16> {
  using type = float;
};

// What every rank brings, of numbers that bf16 rounds.
template <class T>
std::vector<std::vector<T>> brought(int ranks, int64_t elements) {
  std::mt19937 bits(5);
  std::vector<std::vector<T>> all(static_cast<size_t>(ranks));
  for (std::vector<T>& part : all)
    for (int64_t i = 0; i < elements; ++i) part.push_back(static_cast<T>((static_cast<float>(bits() % 20001) - 10000.0f) * 1e-3f));
  return all;
}

template <class T>
void expect_sums(Element type, int ranks, int64_t elements) {
  const auto parts = brought<T>(ranks, elements);
  std::vector<T> want;
  for (size_t i = 0; i < static_cast<size_t>(elements); ++i) {
    auto sum = static_cast<typename Wide<T>::type>(parts[0][i]);
    for (size_t r = 1; r < parts.size(); ++r) sum += static_cast<typename Wide<T>::type>(parts[r][i]);
    want.push_back(static_cast<T>(sum));
  }
  const cuda::Stream stream;
  const auto bytes = static_cast<size_t>(elements) * sizeof(T);
  for (int rank = 0; rank < ranks; ++rank) {
    cuda::DeviceBuffer<T> own(elements), others((ranks - 1) * elements);
    // On the stream: a copy from ordinary memory returns before it has arrived, and this stream does not wait for the default one.
    const auto bring = [&](T* to, int r) {
      STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(to, parts[static_cast<size_t>(r)].data(), bytes, cudaMemcpyHostToDevice, stream.get()));
    };
    bring(own.data(), rank);
    for (int r = 0, at = 0; r < ranks; ++r)
      if (r != rank) bring(others.data() + at++ * elements, r);
    add_parts(type, own.data(), others.data(), static_cast<int64_t>(bytes), elements, rank, ranks, stream.get());
    stream.synchronize();
    std::vector<T> got(want.size());
    STEPSCOPE_CUDA_CHECK(cudaMemcpy(got.data(), own.data(), bytes, cudaMemcpyDeviceToHost));
    EXPECT_EQ(std::memcmp(got.data(), want.data(), bytes), 0)
        << ranks << " ranks, rank " << rank << ", " << elements << " of " << sizeof(T) << " bytes";
  }
}

TEST(AddParts, AddInTheOrderOfTheRanksAndRoundOnce) {
  if (const auto why = cuda::why_no_device()) GTEST_SKIP() << *why;
  for (const int ranks : {2, 3, 5, kMostPeers})
    for (const int64_t elements : {4096, 1021}) {  // in packs of 16 bytes, and one by one
      expect_sums<float>(Element::fp32, ranks, elements);
      expect_sums<__nv_bfloat16>(Element::bf16, ranks, elements);
      expect_sums<double>(Element::fp64, ranks, elements);
    }
}

}  // namespace
}  // namespace gpt2::distributed
