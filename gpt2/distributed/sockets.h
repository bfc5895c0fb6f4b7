// Bytes over a socket, whole or not at all.
#pragma once
#include <cstddef>
#include <string>

#include "base/atomic_file.h"

namespace gpt2::distributed {

double seconds_now();  // CLOCK_MONOTONIC

// False: the other side is gone (or abort() shut the socket down). Both wait as long as it takes.
bool send_all(int fd, const void* data, size_t bytes);
bool receive_all(int fd, void* data, size_t bytes);
// Waits until `fd` can be read or the time is over; false then.
bool wait_readable(int fd, double until_s);
// Nonblocking read into `data`: bytes read, 0 = nothing there, -1 = the other side is gone.
long receive_some(int fd, void* data, size_t bytes);

void set_nonblocking(int fd, bool on);

// Why there is no connection, and whether it is that nobody knows a host of this name.
struct NotReached {
  std::string why;
  bool unknown_host = false;
};
// A connected socket, or none with the reason in `not_reached`. Throws stepscope::InputError for an address that is none.
Descriptor connect_to(const std::string& address, NotReached& not_reached);

}  // namespace gpt2::distributed
