// One page that the launcher shares with the ranks it started: where each is and why it ends. It is memory without a name, so it outlives
// a rank that is killed and is gone with the last process.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/atomic_file.h"
#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

struct RankSlot {
  std::atomic<int64_t> step{0};
  std::atomic<int32_t> knows{0};  // 1: the fields below say why this rank ends
  int32_t blamed = -1;            // Failure::rank
  int32_t exit_code = 0;
  std::array<char, 492> text{};
};
static_assert(sizeof(RankSlot) == 512);

class RankPage {
 public:
  static constexpr const char* kVariable = "STEPSCOPE_RANK_PAGE";  // the descriptor's number
  // Made by the launcher, and by a rank from the variable; nullopt where no launcher of ours started it.
  static RankPage make(int ranks);
  static std::optional<RankPage> inherited(int ranks);
  ~RankPage();
  RankPage(RankPage&& other) noexcept;
  RankPage& operator=(RankPage&&) = delete;

  int fd() const { return fd_.get(); }
  RankSlot& slot(int rank) { return slots_[rank]; }
  void tell(int rank, const Failure& failure);
  std::optional<Failure> told(int rank) const;

 private:
  RankPage(Descriptor fd, int ranks);
  Descriptor fd_;
  int ranks_;
  RankSlot* slots_ = nullptr;
};

}  // namespace gpt2::distributed
