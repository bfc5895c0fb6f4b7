// Ranks as threads of the test: what each did, or why not.
#pragma once
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace gpt2::testing {

// Runs `work(rank)` in a thread per rank; [rank]: "" or what it threw.
inline std::vector<std::string> in_ranks(int ranks, const std::function<void(int)>& work) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        work(r);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

}  // namespace gpt2::testing
