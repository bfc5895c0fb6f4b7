// The open ranges of one thread over all NVTX domains, and their path "a/b/c" (outermost first), which is
// what a launch is attributed to. Domains share one stack because a launch lies in all of them; NVTX lets
// domains interleave, so a pop removes the innermost range of ITS domain, which need not be the innermost of
// the thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace profiler::collect {

class RangeStack {
 public:
  // Returns the 0-based level within the domain, as NVTX wants it.
  int push(uint64_t domain, std::string_view name);

  struct Popped {
    int level = 0;        // within the domain
    uint64_t serial = 0;  // of the range removed; see top_serial
  };
  // nullopt: the domain has no open range on this thread (a program that pops more than it pushes).
  std::optional<Popped> pop(uint64_t domain);

  const std::string& path() const { return path_; }
  size_t depth() const { return entries_.size(); }
  // Identifies the range pushed last, unique in the thread.
  uint64_t top_serial() const { return entries_.empty() ? 0 : entries_.back().serial; }

 private:
  struct Entry {
    uint64_t domain;
    uint64_t serial;
    size_t begin;  // of the name in path_
  };
  std::vector<Entry> entries_;
  std::string path_;
  uint64_t last_serial_ = 0;
};

// First component of `path` after the prefix `outer` and a '/'; nullopt when nothing follows it.
// component_below("run/step", "run/step/forward/3/qkv") is "forward".
std::optional<std::string_view> component_below(std::string_view outer, std::string_view path);

}  // namespace profiler::collect
