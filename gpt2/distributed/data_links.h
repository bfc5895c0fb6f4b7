// Gathers and collectives over the sockets between rank 0 and the others, for one thread per rank. Every call begins with a header, so
// that ranks which do not make the same calls are found out instead of adding wrong bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

struct LinkLost {
  int rank;  // whose connection ended
};
struct CallsDiffer {
  int rank;
  std::string what;
};

class DataLinks {
 public:
  // Borrowed descriptors. Rank 0: [rank], its own unused; other ranks: [0] alone.
  DataLinks(const World& world, std::vector<int> sockets) : world_(world), sockets_(std::move(sockets)) {}

  // Both throw LinkLost and CallsDiffer.
  std::vector<Bytes> all_gather(const Bytes& mine);
  void exchange(const Collective& collective, void* data);
  // From any thread: every call that waits, now or later, ends with LinkLost.
  void shut() noexcept;

 private:
  struct Header;
  Header header_of(const Collective* collective, uint64_t bytes);
  void send(int rank, const void* data, size_t bytes) const;
  void receive(int rank, void* data, size_t bytes) const;
  void expect_same(int rank, const Header& mine, Header& theirs) const;
  void reduce(const Collective& collective, unsigned char* data) const;
  void gather_slices(unsigned char* data, size_t slice) const;

  const World& world_;
  std::vector<int> sockets_;
  uint64_t calls_ = 0;
};

}  // namespace gpt2::distributed
