#include "gpt2/distributed/data_links.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "gpt2/distributed/sockets.h"
#include "gpt2/distributed/sums.h"

namespace gpt2::distributed {
namespace {
// Of one piece of an all-reduce: large enough that a round trip costs little, small enough to stay in the cache while it is added.
constexpr int64_t kPieceElements = 1 << 18;
constexpr uint32_t kLinkMagic = 0x53534441;
constexpr int32_t kGather = -1;
}  // namespace

struct DataLinks::Header {
  uint32_t magic = kLinkMagic;
  int32_t kind = kGather;  // or CollectiveKind
  int32_t type = 0, bucket = 0;
  int64_t elements = 0;
  uint64_t call = 0;   // how many calls came before
  uint64_t bytes = 0;  // that follow; of a gathering they may differ

  std::string text() const {
    if (kind == kGather) return fmt::format("call {}, a gathering", call);
    constexpr const char* kinds[] = {"an all-reduce", "a reduce-scatter", "an all-gather"};
    constexpr const char* types[] = {"fp32", "bf16", "fp64"};
    return fmt::format("call {}, {} of {} {} elements (bucket {})", call, kinds[static_cast<uint32_t>(kind) % 3], elements,
                       types[static_cast<uint32_t>(type) % 3], bucket);
  }
};

DataLinks::Header DataLinks::header_of(const Collective* c, uint64_t bytes) {
  Header h;
  h.call = calls_++;
  h.bytes = bytes;
  if (c == nullptr) return h;
  h.kind = static_cast<int32_t>(c->kind);
  h.type = static_cast<int32_t>(c->type);
  h.bucket = c->bucket;
  h.elements = c->elements;
  return h;
}

void DataLinks::send(int rank, const void* data, size_t bytes) const {
  if (!send_all(sockets_[static_cast<size_t>(rank)], data, bytes)) throw LinkLost{rank};
}
void DataLinks::receive(int rank, void* data, size_t bytes) const {
  if (!receive_all(sockets_[static_cast<size_t>(rank)], data, bytes)) throw LinkLost{rank};
}

void DataLinks::expect_same(int rank, const Header& mine, Header& theirs) const {
  receive(rank, &theirs, sizeof theirs);
  const bool same = theirs.magic == mine.magic && theirs.kind == mine.kind && theirs.type == mine.type && theirs.bucket == mine.bucket &&
                    theirs.elements == mine.elements && theirs.call == mine.call && (mine.kind == kGather || theirs.bytes == mine.bytes);
  if (same) return;
  throw CallsDiffer{rank, fmt::format("the ranks do not make the same exchanges: rank {} makes {}, rank {} makes {}", world_.rank,
                                      mine.text(), rank, theirs.magic == kLinkMagic ? theirs.text() : "none that can be read")};
}

std::vector<Bytes> DataLinks::all_gather(const Bytes& mine) {
  const Header own = header_of(nullptr, mine.size());
  std::vector<Bytes> all(static_cast<size_t>(world_.size));
  Header theirs;
  all[static_cast<size_t>(world_.rank)] = mine;
  if (world_.rank != 0) {
    send(0, &own, sizeof own);
    send(0, mine.data(), mine.size());
    expect_same(0, own, theirs);
    for (Bytes& part : all) {
      uint64_t bytes = 0;
      receive(0, &bytes, sizeof bytes);
      part.resize(bytes);
      receive(0, part.data(), bytes);
    }
    return all;
  }
  for (int r = 1; r < world_.size; ++r) {
    expect_same(r, own, theirs);
    all[static_cast<size_t>(r)].resize(theirs.bytes);
    receive(r, all[static_cast<size_t>(r)].data(), theirs.bytes);
  }
  Bytes message(reinterpret_cast<const unsigned char*>(&own), reinterpret_cast<const unsigned char*>(&own) + sizeof own);
  for (const Bytes& part : all) {
    const uint64_t bytes = part.size();
    message.insert(message.end(), reinterpret_cast<const unsigned char*>(&bytes),
                   reinterpret_cast<const unsigned char*>(&bytes) + sizeof bytes);
    message.insert(message.end(), part.begin(), part.end());
  }
  for (int r = 1; r < world_.size; ++r) send(r, message.data(), message.size());
  return all;
}

void DataLinks::exchange(const Collective& c, void* data) {
  check_collective(c, world_.size);
  const uint64_t bytes = static_cast<uint64_t>(c.elements * bytes_of(c.type));
  const Header own = header_of(&c, bytes);
  Header theirs;
  // Nobody sends values before the headers agree.
  if (world_.rank == 0) {
    for (int r = 1; r < world_.size; ++r) expect_same(r, own, theirs);
    for (int r = 1; r < world_.size; ++r) send(r, &own, sizeof own);
  } else {
    send(0, &own, sizeof own);
    expect_same(0, own, theirs);
  }
  unsigned char* values = static_cast<unsigned char*>(data);
  if (c.kind == CollectiveKind::all_gather) return gather_slices(values, bytes / static_cast<uint64_t>(world_.size));
  // A reduce-scatter leaves the whole sum on every rank, which its contract allows: the slices of others are undefined.
  reduce(c, values);
}

void DataLinks::reduce(const Collective& c, unsigned char* data) const {
  Bytes part;
  for (int64_t at = 0; at < c.elements; at += kPieceElements) {
    const int64_t n = std::min(kPieceElements, c.elements - at);
    unsigned char* piece = data + at * bytes_of(c.type);
    const size_t bytes = static_cast<size_t>(n * bytes_of(c.type));
    if (world_.rank != 0) {
      send(0, piece, bytes);
      receive(0, piece, bytes);
      continue;
    }
    RankSum sum(c.type, n);
    sum.add(piece);
    part.resize(bytes);
    for (int r = 1; r < world_.size; ++r) {
      receive(r, part.data(), bytes);
      sum.add(part.data());
    }
    sum.store(piece);
    for (int r = 1; r < world_.size; ++r) send(r, piece, bytes);
  }
}

void DataLinks::gather_slices(unsigned char* data, size_t slice) const {
  const size_t size = static_cast<size_t>(world_.size);
  if (world_.rank != 0) {
    send(0, data + slice * static_cast<size_t>(world_.rank), slice);
    receive(0, data, slice * size);
    return;
  }
  for (int r = 1; r < world_.size; ++r) receive(r, data + slice * static_cast<size_t>(r), slice);
  for (int r = 1; r < world_.size; ++r) send(r, data, slice * size);
}

void DataLinks::shut() noexcept {
  for (const int fd : sockets_)
    if (fd >= 0) ::shutdown(fd, SHUT_RDWR);
}

}  // namespace gpt2::distributed
