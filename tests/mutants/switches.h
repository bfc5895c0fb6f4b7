// Switchable one-line changes of host code, which random_changes.py writes into a copy of the tree: on(7) is true where the environment says
// STEPSCOPE_CHANGE=7, and each switch that is passed leaves a mark in the file named by STEPSCOPE_CHANGES_REACHED, also in a process that is
// killed. Never included by the tree itself.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <type_traits>

namespace switches {

inline constexpr unsigned kMost = 1 << 17;
alignas(4096) inline unsigned char reached[kMost];  // becomes a mapping of the file
inline unsigned active = 0;                         // 0: none
inline bool begun = false;

// Before constructors of static objects, which may pass switches too.
__attribute__((constructor(101))) inline void begin() {
  if (begun) return;
  begun = true;
  if (const char* id = std::getenv("STEPSCOPE_CHANGE")) active = static_cast<unsigned>(std::atoi(id));
  const char* path = std::getenv("STEPSCOPE_CHANGES_REACHED");
  const int file = path ? ::open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  ::mmap(reached, kMost, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  ::close(file);
}

inline bool on(unsigned id) {
  reached[id] = 1;
  return id == active;
}

// The operators as functions, so that each operand is written once.
template <class A, class B>
bool lt(unsigned id, const A& a, const B& b) {
  return on(id) ? a <= b : a < b;
}
template <class A, class B>
bool le(unsigned id, const A& a, const B& b) {
  return on(id) ? a < b : a <= b;
}
template <class A, class B>
bool gt(unsigned id, const A& a, const B& b) {
  return on(id) ? a >= b : a > b;
}
template <class A, class B>
bool ge(unsigned id, const A& a, const B& b) {
  return on(id) ? a > b : a >= b;
}
template <class A, class B>
bool eq(unsigned id, const A& a, const B& b) {
  return on(id) ? a != b : a == b;
}
template <class A, class B>
bool ne(unsigned id, const A& a, const B& b) {
  return on(id) ? a == b : a != b;
}
template <class A, class B>
auto add(unsigned id, const A& a, const B& b) -> decltype(a + b) {
  return on(id) ? a - b : a + b;
}
template <class A, class B>
auto sub(unsigned id, const A& a, const B& b) -> decltype(a - b) {
  return on(id) ? a + b : a - b;
}
template <class A, class B>
auto mul(unsigned id, const A& a, const B& b) -> decltype(a * b) {
  return on(id) && b != B(0) ? a / b : a * b;
}
template <class A, class B>
auto div(unsigned id, const A& a, const B& b) -> decltype(a / b) {
  return on(id) ? a * b : a / b;
}
template <class T>
T literal(unsigned id, T v) {
  if (!on(id)) return v;
  if constexpr (std::is_same_v<T, bool>)
    return !v;
  else if constexpr (std::is_floating_point_v<T>)
    return v == 0 ? T(1) : v * T(1.5);
  else
    return static_cast<T>(v + 1);
}

}  // namespace switches
