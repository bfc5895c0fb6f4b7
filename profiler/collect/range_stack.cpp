#include "profiler/collect/range_stack.h"

namespace profiler::collect {

int RangeStack::push(uint64_t domain, std::string_view name) {
  int level = 0;
  for (const Entry& e : entries_)
    if (e.domain == domain) ++level;
  if (!entries_.empty()) path_ += '/';
  const size_t begin = path_.size();
  path_ += name;
  entries_.push_back({domain, ++last_serial_, begin});
  return level;
}

std::optional<RangeStack::Popped> RangeStack::pop(uint64_t domain) {
  for (size_t i = entries_.size(); i-- > 0;) {
    if (entries_[i].domain != domain) continue;
    Popped popped{0, entries_[i].serial};
    for (size_t k = 0; k < i; ++k)
      if (entries_[k].domain == domain) ++popped.level;
    if (i + 1 == entries_.size()) {
      path_.resize(i == 0 ? 0 : entries_[i].begin - 1);
    } else {  // a range of another domain is still open inside: close the gap in the path
      const size_t cut = entries_[i + 1].begin - entries_[i].begin;
      path_.erase(entries_[i].begin, cut);
      for (size_t k = i + 1; k < entries_.size(); ++k) entries_[k].begin -= cut;
    }
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
    return popped;
  }
  return std::nullopt;
}

std::optional<std::string_view> component_below(std::string_view outer, std::string_view path) {
  if (path.size() <= outer.size() + 1 || !path.starts_with(outer) || path[outer.size()] != '/') return std::nullopt;
  path.remove_prefix(outer.size() + 1);
  return path.substr(0, path.find('/'));
}

}  // namespace profiler::collect
