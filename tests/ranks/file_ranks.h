// Ranks of a test that talk through files of one folder: slow, and nothing to set up.
#pragma once
#include <chrono>
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

}  // namespace ranks_test
