// Two processes with a GPU each, forked before anything touched CUDA, and the page of memory by which they speak.
#pragma once
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace copy_engine {

inline constexpr int kRanks = 2;

struct Page;

class Pair {
 public:
  Pair(Page& page, int rank) : page_(&page), rank_(rank) {}
  int rank() const { return rank_; }
  int other() const { return 1 - rank_; }
  // Waits for the other rank. Throws stepscope::MachineError when it has failed or does not come within 12 s.
  void meet();
  // What the other rank gives in the same call; at most 4096 bytes, trivially copyable.
  template <class T>
  T swap(const T& mine) {
    T theirs;
    swap_bytes(&mine, &theirs, sizeof(T));
    return theirs;
  }
  // A row of a table that the parent prints at the end; rank 0's count. At most 159 characters.
  void row(int table, const std::string& text);

 private:
  void swap_bytes(const void* mine, void* theirs, size_t bytes);
  Page* page_;
  int rank_;
};

// Rows of one table, in the order in which ways wrote them.
using Rows = std::vector<std::vector<std::string>>;

// Runs `work` in two processes of its own and kills both when one fails or after `seconds`; their errors go to stderr. Returns "" or why
// the pair did not come to its end, and appends its rows, also those of a pair that failed later.
std::string run_pair(int seconds, int tables, Rows& rows, const std::function<void(Pair&)>& work);

}  // namespace copy_engine
