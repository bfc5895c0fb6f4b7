// Ranks of a test that talk through files of one folder: slow, and nothing to set up.
#pragma once
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
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
      // Read as one piece: tests are compiled without optimization, and an iterator over a stream took most of their time.
      gpt2::distributed::Bytes& bytes = all.emplace_back(std::filesystem::file_size(file(calls_, rank)));
      std::ifstream(file(calls_, rank), std::ios::binary)
          .read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
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
  static std::vector<T> elements_of(const gpt2::distributed::Bytes& bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <class T>
  static void sum(const std::vector<gpt2::distributed::Bytes>& all, int64_t elements, void* out) {
    auto* total = static_cast<T*>(out);
    std::memcpy(total, all.front().data(), all.front().size());
    for (size_t r = 1; r < all.size(); ++r) {
      const std::vector<T> added = elements_of<T>(all[r]);
      for (int64_t i = 0; i < elements; ++i) total[i] += added[static_cast<size_t>(i)];
    }
  }
  static void sum_bf16(const std::vector<gpt2::distributed::Bytes>& all, int64_t elements, void* out) {
    auto* result = static_cast<uint16_t*>(out);
    std::vector<std::vector<uint16_t>> ranks;
    for (const auto& rank : all) ranks.push_back(elements_of<uint16_t>(rank));
    for (int64_t i = 0; i < elements; ++i) {
      float total = 0;
      for (const std::vector<uint16_t>& halves : ranks) {
        const uint32_t word = static_cast<uint32_t>(halves[static_cast<size_t>(i)]) << 16;
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
