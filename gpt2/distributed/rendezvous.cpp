#include "gpt2/distributed/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <list>
#include <optional>
#include <thread>

#include "base/errors.h"
#include "base/sha256.h"
#include "base/text.h"
#include "gpt2/distributed/sockets.h"

namespace gpt2::distributed {
namespace {

using stepscope::InputError;
using stepscope::MachineError;
using stepscope::named_ranks;

constexpr std::array<char, 8> kGreetingMagic{'S', 'S', 'R', 'A', 'N', 'K', '\r', '\n'};
constexpr double kSilent_s = 10;  // a connection that says nothing for so long is no rank
enum Purpose : uint32_t { kControl, kData };

// What a rank says first on each of its two connections.
struct Hello {
  std::array<char, 8> magic = kGreetingMagic;
  uint32_t protocol = kProtocol;
  uint32_t purpose = kControl;
  std::array<char, 32> token{};  // a digest: the token itself never travels
  int32_t rank = 0, size = 0;
  int64_t pid = 0;
  std::array<char, 64> host{};
};
// What rank 0 says back: to the first connection at once, to the second when all have come or never will.
struct Answer {
  std::array<char, 8> magic = kGreetingMagic;
  uint32_t refused = 0;  // 1: bad input, 2: the machine
  uint32_t text_bytes = 0;
};

std::array<char, 32> digest(const std::string& token) {
  std::array<char, 32> d{};
  sha256_text(token).copy(d.data(), d.size());
  return d;
}
std::string name_of(const Hello& h) {
  const std::string host(h.host.data(), ::strnlen(h.host.data(), h.host.size()));
  return fmt::format("rank {} (pid {} on {})", h.rank, h.pid, host);
}

void answer(int fd, uint32_t refused, const std::string& text) {
  Answer a;
  a.refused = refused;
  a.text_bytes = static_cast<uint32_t>(text.size());
  if (send_all(fd, &a, sizeof a)) send_all(fd, text.data(), text.size());
}

// Rank 0 holds two connections of each rank, and most systems let a process open 1,024 files unless it asks for more.
void ask_for_files(int ranks) {
  constexpr rlim_t kBesideRanks = 256;  // of data, devices and libraries
  const rlim_t wanted = 2 * static_cast<rlim_t>(ranks) + kBesideRanks;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
  files.rlim_cur = std::min(wanted, files.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &files);  // where it is refused, accept() says so
}

// Rank 0's side.
class Gathering {
 public:
  Gathering(const World& world, Descriptor listener, const std::string& token, const MeetOptions& options)
      : world_(world), listener_(std::move(listener)), token_(digest(token)), options_(options), peers_(static_cast<size_t>(world.size)) {
    set_nonblocking(listener_.get(), true);
    ask_for_files(world.size);
  }

  std::vector<Peer> gather() {
    const double begin = seconds_now();
    double say_at = begin + options_.say_every_s;
    try {
      while (!missing().empty()) {
        const double now = seconds_now();
        if (now >= begin + options_.deadline_s)
          throw MachineError(fmt::format("{} did not come within {:g} s (have {} of {})", named_ranks(missing()), options_.deadline_s,
                                         here(), world_.size));
        if (now >= say_at && options_.say) {
          say_at = now + options_.say_every_s;
          options_.say(fmt::format("waiting for {} (have {} of {}{})", named_ranks(missing()), here(), world_.size,
                                   last_.empty() ? "" : "; last came " + last_));
        }
        wait(std::min({begin + options_.deadline_s, say_at, now + 1.0}) - now);
      }
    } catch (const std::exception& e) {
      const bool bad_input = dynamic_cast<const InputError*>(&e) != nullptr;
      for (Peer& p : peers_)
        if (p.data) answer(p.data.get(), bad_input ? 1 : 2, e.what());
      throw;
    }
    for (Peer& p : peers_)
      if (p.data) answer(p.data.get(), 0, "");
    return std::move(peers_);
  }

 private:
  struct Caller {
    Descriptor fd;
    double since = 0;
    size_t have = 0;
    Hello hello;
  };

  std::vector<int> missing() const {
    std::vector<int> out;
    for (int r = 1; r < world_.size; ++r)
      if (!peers_[static_cast<size_t>(r)].data) out.push_back(r);
    return out;
  }
  size_t here() const { return static_cast<size_t>(world_.size) - missing().size(); }
  void say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  void wait(double seconds) {
    std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
    for (const Caller& c : callers_) fds.push_back({c.fd.get(), POLLIN, 0});
    for (const Peer& p : peers_)
      if (p.control) fds.push_back({p.control.get(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), static_cast<int>(std::max(0.0, seconds) * 1e3) + 1);
    for (;;) {
      Descriptor fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) {
        // The ranks behind it would wait at the door, and be named as those that did not come.
        if (errno == EMFILE || errno == ENFILE)
          throw MachineError(
              fmt::format("rank 0 cannot take another connection (have {} of {}): {}; it opens two files for each rank "
                          "(`ulimit -n`)",
                          here(), world_.size, std::strerror(errno)));
        break;
      }
      callers_.push_back({std::move(fd), seconds_now(), 0, {}});
    }
    for (auto c = callers_.begin(); c != callers_.end();) {
      if (read(*c)) {
        c = callers_.erase(c);
      } else {
        ++c;
      }
    }
    for (size_t r = 1; r < peers_.size(); ++r) watch(static_cast<int>(r));
  }

  // A rank that has come says nothing until all have; what can be read is its end.
  void watch(int rank) const {
    const Peer& p = peers_[static_cast<size_t>(rank)];
    char byte;
    if (p.control && receive_some(p.control.get(), &byte, 1) < 0)
      throw MachineError(fmt::format("rank {} (pid {} on {}) ended while the others gathered", rank, p.pid, p.host));
  }

  // True: this connection needs no more attention.
  bool read(Caller& c) {
    const long n = receive_some(c.fd.get(), reinterpret_cast<char*>(&c.hello) + c.have, sizeof c.hello - c.have);
    if (n > 0) c.have += static_cast<size_t>(n);
    const size_t magic = std::min(c.have, kGreetingMagic.size());
    const bool garbage = std::memcmp(c.hello.magic.data(), kGreetingMagic.data(), magic) != 0;
    if (garbage || n < 0 || (c.have < sizeof c.hello && seconds_now() - c.since > kSilent_s)) {
      say("somebody connected who is no rank of a run; ignored");
      return true;
    }
    if (c.have < sizeof c.hello) return false;
    take(c);
    return true;
  }

  void take(Caller& c) {
    const Hello& h = c.hello;
    if (h.protocol != options_.protocol)
      return refuse(c, fmt::format("{} speaks protocol {}, rank 0 protocol {}: two versions of stepscope", name_of(h), h.protocol,
                                   options_.protocol));
    if (h.token != token_) return refuse(c, fmt::format("{} shows the token of another run", name_of(h)));
    // From here on it is one of ours, and what is wrong with it is wrong with the run.
    if (h.size != world_.size)
      fail(c, fmt::format("{} was told that there are {} ranks, rank 0 that there are {}", name_of(h), h.size, world_.size));
    if (h.rank < 1 || h.rank >= world_.size) fail(c, fmt::format("{}: expected a rank of 1 to {}", name_of(h), world_.size - 1));
    Peer& p = peers_[static_cast<size_t>(h.rank)];
    Descriptor& place = h.purpose == kControl ? p.control : p.data;
    if (place || (h.purpose != kControl && h.pid != p.pid))
      fail(c, fmt::format("two processes say that they are rank {}: pid {} on {} and {}", h.rank, p.pid, p.host, name_of(h)));
    p.pid = h.pid;
    p.host = std::string(h.host.data(), ::strnlen(h.host.data(), h.host.size()));
    place = std::move(c.fd);
    if (h.purpose == kControl) answer(place.get(), 0, "");
    last_ = fmt::format("rank {} from {}", h.rank, p.host);
  }

  void refuse(const Caller& c, const std::string& why) const {
    answer(c.fd.get(), 1, why);
    say("refused: " + why);
  }
  [[noreturn]] static void fail(const Caller& c, const std::string& why) {
    answer(c.fd.get(), 1, why);
    throw InputError(why);
  }

  const World& world_;
  Descriptor listener_;
  std::array<char, 32> token_;
  const MeetOptions& options_;
  std::vector<Peer> peers_;
  std::list<Caller> callers_;
  std::string last_;
};

// The file of a "unix:PATH" at which rank 0 listens. Removed when all ranks have come or the wait has failed; nobody else of this run removes it.
class SocketFile {
 public:
  explicit SocketFile(const std::string& address) : path_(address.starts_with("unix:") && address[5] != '@' ? address.substr(5) : "") {}
  ~SocketFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

 private:
  std::string path_;
};

// nullopt: rank 0 went away before it answered, so the caller may try again.
std::optional<Descriptor> call(const std::string& address, const Hello& hello, double until, NotReached& not_reached) {
  std::string& why = not_reached.why;
  Descriptor fd = connect_to(address, not_reached);
  if (!fd) return std::nullopt;
  Answer a;
  if (!send_all(fd.get(), &hello, sizeof hello)) return std::nullopt;
  if (!wait_readable(fd.get(), until)) {
    why = "it does not answer";
    return std::nullopt;
  }
  if (!receive_all(fd.get(), &a, sizeof a)) {
    why = "it closed the connection";
    return std::nullopt;
  }
  if (a.magic != kGreetingMagic || a.text_bytes > 1 << 16) {
    why = "whoever listens there is no rank of a run";
    return std::nullopt;
  }
  std::string text(a.text_bytes, '\0');
  receive_all(fd.get(), text.data(), text.size());
  if (a.refused == 1) throw InputError(text);
  if (a.refused != 0) throw MachineError(text);
  return fd;
}

std::vector<Peer> join(const World& world, const std::string& address, const std::string& token, const MeetOptions& options) {
  const double begin = seconds_now(), until = begin + options.deadline_s;
  Hello hello;
  hello.protocol = options.protocol;
  hello.token = digest(token);
  hello.rank = world.rank;
  hello.size = world.size;
  hello.pid = ::getpid();
  host_name().copy(hello.host.data(), hello.host.size() - 1);
  NotReached not_reached{.why = "nobody listens there"};
  std::vector<Peer> peers(1);
  const auto connect = [&](Purpose purpose, double until_s) {
    hello.purpose = purpose;
    for (;;) {
      if (auto fd = call(address, hello, until_s, not_reached)) return std::move(*fd);
      if (not_reached.unknown_host && seconds_now() >= begin + options.unknown_host_s)
        throw InputError(
            fmt::format("rank {}: the rendezvous address '{}' names a host that is not known: {}", world.rank, address, not_reached.why));
      if (purpose == kData)  // it has answered before, so nothing is to be waited for
        throw MachineError(
            fmt::format("rank {}: rank 0 was reached at {}, but did not gather all ranks: {}", world.rank, address, not_reached.why));
      if (seconds_now() >= until) {
        throw MachineError(fmt::format("rank {}: rank 0 was not reached at {} within {:g} s: {}", world.rank, address, options.deadline_s,
                                       not_reached.why));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  };
  peers[0].control = connect(kControl, until);
  // Rank 0 may have begun to wait later than this rank did; its own deadline ends the wait, and its text says for whom.
  peers[0].data = connect(kData, until + options.deadline_s + 5);
  return peers;
}

}  // namespace

std::vector<Peer> meet(const World& world, const std::string& address, const std::string& token, const MeetOptions& options) {
  if (world.size == 1) return std::vector<Peer>(1);
  if (world.rank != 0) return join(world, address, token, options);
  Descriptor listener;
  if (address.starts_with("fd:")) {
    int number = -1;
    std::from_chars(address.data() + 3, address.data() + address.size(), number);
    listener = Descriptor(number);
  } else {
    listener = listen_at(address);
  }
  const SocketFile made(address);
  return Gathering(world, std::move(listener), token, options).gather();
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace gpt2::distributed
