#include "gpt2/distributed/sockets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <memory>

#include "base/errors.h"
#include "gpt2/distributed/rendezvous.h"

namespace gpt2::distributed {
namespace {

using stepscope::InputError;

[[noreturn]] void refuse(const std::string& address) {
  throw InputError(fmt::format("rendezvous address '{}': expected unix:@NAME, unix:PATH or tcp:HOST:PORT", address));
}

struct LocalAddress {
  sockaddr_un address{};
  socklen_t size = 0;
};
LocalAddress local_address(const std::string& whole) {
  const std::string name = whole.substr(5);
  LocalAddress l;
  l.address.sun_family = AF_UNIX;
  if (name.size() < 2 && (name.empty() || name[0] == '@')) refuse(whole);
  if (name.size() >= sizeof l.address.sun_path)
    throw InputError(fmt::format("rendezvous address '{}': longer than the {} bytes that a local socket's name may have", whole,
                                 sizeof l.address.sun_path - 1));
  std::memcpy(l.address.sun_path, name.data(), name.size());
  if (name[0] == '@') l.address.sun_path[0] = '\0';
  l.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (name[0] == '@' ? 0 : 1));
  return l;
}

struct FreeInfo {
  void operator()(addrinfo* a) const { ::freeaddrinfo(a); }
};
using Infos = std::unique_ptr<addrinfo, FreeInfo>;

std::pair<std::string, std::string> host_and_port(const std::string& whole) {
  const std::string rest = whole.substr(4);
  const size_t colon = rest.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == rest.size()) refuse(whole);
  std::string host = rest.substr(0, colon);
  const std::string port = rest.substr(colon + 1);
  int number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535) refuse(whole);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, port};
}

// For listening the host does not matter: it may be a name that leads to this host by another interface.
Infos resolve(const std::string& whole, int family, bool to_listen, NotReached& not_reached) {
  const auto [host, port] = host_and_port(whole);
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int rc = ::getaddrinfo(to_listen ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (rc != 0) not_reached.why = ::gai_strerror(rc);
  not_reached.unknown_host = rc == EAI_NONAME;  // not EAI_AGAIN, by which a server of names has not answered yet
  return Infos(rc == 0 ? found : nullptr);
}

bool is_local(const std::string& address) { return address.starts_with("unix:"); }
bool is_tcp(const std::string& address) { return address.starts_with("tcp:"); }

void quick_delivery(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on local sockets, which need it not
  const unsigned lost_after_ms = 8000;
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_after_ms, sizeof lost_after_ms);
}

Descriptor listen_locally(const std::string& address) {
  const LocalAddress a = local_address(address);
  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw stepscope::MachineError(fmt::format("socket: {}", std::strerror(errno)));
  const auto* raw = reinterpret_cast<const sockaddr*>(&a.address);
  int rc = ::bind(fd.get(), raw, a.size);
  if (rc != 0 && errno == EADDRINUSE && a.address.sun_path[0] != '\0') {
    // The file of a run that is gone: nobody answers there. Nobody answers at a file of another kind either, and that is somebody's.
    if (struct stat there{}; ::lstat(a.address.sun_path, &there) == 0 && !S_ISSOCK(there.st_mode))
      throw InputError(
          fmt::format("rendezvous address '{}': a file of this name is there and is no socket; expected another name", address));
    Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), raw, a.size) != 0 && errno == ECONNREFUSED) {
      ::unlink(a.address.sun_path);
      rc = ::bind(fd.get(), raw, a.size);
    } else {
      errno = EADDRINUSE;
    }
  }
  if (rc != 0 || ::listen(fd.get(), 1024) != 0)
    throw InputError(fmt::format("rendezvous address '{}': rank 0 cannot listen there: {}", address, std::strerror(errno)));
  return fd;
}

}  // namespace

double seconds_now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

bool send_all(int fd, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(fd, from, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      pollfd p{fd, POLLOUT, 0};
      ::poll(&p, 1, -1);
      continue;
    }
    if (n <= 0) return false;
    from += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool receive_all(int fd, void* data, size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(fd, to, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      pollfd p{fd, POLLIN, 0};
      ::poll(&p, 1, -1);
      continue;
    }
    if (n <= 0) return false;
    to += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool wait_readable(int fd, double until_s) {
  for (;;) {
    const double left = until_s - seconds_now();
    if (left <= 0) return false;
    pollfd p{fd, POLLIN, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::min(left, 3600.0) * 1e3) + 1);
    if (n > 0) return true;
  }
}

long receive_some(int fd, void* data, size_t bytes) {
  for (;;) {
    const ssize_t n = ::recv(fd, data, bytes, MSG_DONTWAIT);
    if (n > 0) return n;
    if (n == 0) return -1;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
  }
}

void set_nonblocking(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

Descriptor connect_to(const std::string& address, NotReached& not_reached) {
  not_reached.unknown_host = false;
  if (is_local(address)) {
    const LocalAddress a = local_address(address);
    Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&a.address), a.size) == 0) return fd;
    not_reached.why = std::strerror(errno);
    return Descriptor();
  }
  if (!is_tcp(address)) refuse(address);
  const Infos infos = resolve(address, AF_UNSPEC, false, not_reached);
  for (const addrinfo* i = infos.get(); i != nullptr; i = i->ai_next) {
    Descriptor fd(::socket(i->ai_family, i->ai_socktype | SOCK_CLOEXEC, i->ai_protocol));
    if (!fd) {
      if (i == infos.get()) not_reached.why = std::strerror(errno);  // behind another it would hide why that one was not reached
      continue;
    }
    quick_delivery(fd.get());
    if (::connect(fd.get(), i->ai_addr, i->ai_addrlen) == 0) return fd;
    not_reached.why = std::strerror(errno);
  }
  return Descriptor();
}

Descriptor listen_at(const std::string& address) {
  if (is_local(address)) return listen_locally(address);
  if (!is_tcp(address)) refuse(address);
  NotReached not_reached{.why = "no such address"};
  // A socket of the first hears both protocols. A kernel without IPv6 has an address of it, and no socket.
  bool made = false;
  for (const int family : {AF_INET6, AF_INET}) {
    if (made) break;
    const Infos infos = resolve(address, family, true, not_reached);
    for (const addrinfo* i = infos.get(); i != nullptr; i = i->ai_next) {
      Descriptor fd(::socket(i->ai_family, i->ai_socktype | SOCK_CLOEXEC, i->ai_protocol));
      if (!fd) {
        not_reached.why = std::strerror(errno);
        continue;
      }
      made = true;
      const int on = 1, off = 0;
      ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      quick_delivery(fd.get());  // inherited by what accept() returns
      if (::bind(fd.get(), i->ai_addr, i->ai_addrlen) == 0 && ::listen(fd.get(), 1024) == 0) return fd;
      not_reached.why = std::strerror(errno);
    }
  }
  throw InputError(
      fmt::format("rendezvous address '{}': rank 0 cannot listen there: {}; another port may be free", address, not_reached.why));
}

}  // namespace gpt2::distributed
