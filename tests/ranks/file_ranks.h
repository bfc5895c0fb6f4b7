// Ranks of a test that talk through files of one folder: slow, and nothing to set up.
#pragma once
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gpt2/distributed/communicator.h"

namespace ranks_test {

class FileChannel final : public gpt2::distributed::ControlChannel {
 public:
  FileChannel(gpt2::distributed::World world, std::filesystem::path folder) : world_(std::move(world)), folder_(std::move(folder)) {}

  const gpt2::distributed::World& world() const override { return world_; }

  std::vector<gpt2::distributed::Bytes> all_gather(const gpt2::distributed::Bytes& mine) override {
    const auto file = [&](int64_t call, int rank) { return folder_ / ("call-" + std::to_string(call) + "-" + std::to_string(rank)); };
    const auto partial = file(calls_, world_.rank).string() + ".partial";
    std::ofstream(partial, std::ios::binary).write(reinterpret_cast<const char*>(mine.data()), static_cast<std::streamsize>(mine.size()));
    std::filesystem::rename(partial, file(calls_, world_.rank));
    std::vector<gpt2::distributed::Bytes> all;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int rank = 0; rank < world_.size; ++rank) {
      while (!std::filesystem::exists(file(calls_, rank))) {
        if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("rank " + std::to_string(rank) + " did not come");
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      std::ifstream in(file(calls_, rank), std::ios::binary);
      all.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    if (calls_ >= 2) std::filesystem::remove(file(calls_ - 2, world_.rank));  // all have read it: they came to the call after it
    ++calls_;
    return all;
  }

 private:
  gpt2::distributed::World world_;
  std::filesystem::path folder_;
  int64_t calls_ = 0;
};

// Sums in the order of the ranks; bf16 is added in fp32.
class FileCommunicator final : public gpt2::distributed::Communicator {
 public:
  explicit FileCommunicator(FileChannel& channel) : channel_(channel) {}

  const gpt2::distributed::World& world() const override { return channel_.world(); }
  bool memory_is_host() const override { return true; }
  bool is_asynchronous() const override { return false; }
  std::string name() const override { return "files"; }
  std::optional<gpt2::distributed::Failure> failure() override { return std::nullopt; }
  void abort() noexcept override {}

  void enqueue(const gpt2::distributed::Collective& c, void* data, void*) override {
    using gpt2::distributed::CollectiveKind;
    auto* bytes = static_cast<unsigned char*>(data);
    const auto size = static_cast<size_t>(c.elements * gpt2::distributed::bytes_of(c.type));
    const size_t slice = size / static_cast<size_t>(world().size);
    const auto own = static_cast<size_t>(world().rank) * slice;
    if (c.kind == CollectiveKind::all_gather) {
      const auto all = channel_.all_gather({bytes + own, bytes + own + slice});
      for (size_t r = 0; r < all.size(); ++r) std::memcpy(bytes + r * slice, all[r].data(), slice);
      return;
    }
    const auto all = channel_.all_gather({bytes, bytes + size});
    switch (c.type) {
      case gpt2::distributed::Element::fp32:
        return sum<float>(all, c.elements, data);
      case gpt2::distributed::Element::fp64:
        return sum<double>(all, c.elements, data);
      case gpt2::distributed::Element::bf16:
        return sum_bf16(all, c.elements, data);
    }
  }

 private:
  template <class T>
  static void sum(const std::vector<gpt2::distributed::Bytes>& all, int64_t elements, void* out) {
    auto* result = static_cast<T*>(out);
    for (int64_t i = 0; i < elements; ++i) {
      T total = 0;
      for (size_t r = 0; r < all.size(); ++r) {
        T value;
        std::memcpy(&value, all[r].data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
        total = r == 0 ? value : total + value;
      }
      result[i] = total;
    }
  }
  static void sum_bf16(const std::vector<gpt2::distributed::Bytes>& all, int64_t elements, void* out) {
    auto* result = static_cast<uint16_t*>(out);
    for (int64_t i = 0; i < elements; ++i) {
      float total = 0;
      for (const auto& rank : all) {
        uint16_t half;
        std::memcpy(&half, rank.data() + 2 * i, 2);
        const uint32_t word = static_cast<uint32_t>(half) << 16;
        float value;
        std::memcpy(&value, &word, 4);
        total += value;
      }
      uint32_t word;
      std::memcpy(&word, &total, 4);
      result[i] = static_cast<uint16_t>((word + 0x7fffu + (word >> 16 & 1u)) >> 16);  // to nearest even; the tests have no NaN
    }
  }
  FileChannel& channel_;
};

}  // namespace ranks_test
