#include "gpt2/distributed/rank_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace gpt2::distributed {

RankPage::RankPage(Descriptor fd, int ranks) : fd_(std::move(fd)), ranks_(ranks) {
  void* at = ::mmap(nullptr, sizeof(RankSlot) * static_cast<size_t>(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) throw stepscope::MachineError(fmt::format("shared page of {} ranks: {}", ranks, std::strerror(errno)));
  slots_ = static_cast<RankSlot*>(at);
}
RankPage::RankPage(RankPage&& other) noexcept
    : fd_(std::move(other.fd_)), ranks_(other.ranks_), slots_(std::exchange(other.slots_, nullptr)) {}
RankPage::~RankPage() {
  if (slots_ != nullptr) ::munmap(slots_, sizeof(RankSlot) * static_cast<size_t>(ranks_));
}

RankPage RankPage::make(int ranks) {
  Descriptor fd(::memfd_create("stepscope-ranks", MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(sizeof(RankSlot)) * ranks) != 0)
    throw stepscope::MachineError(fmt::format("shared page of {} ranks: {}", ranks, std::strerror(errno)));
  return RankPage(std::move(fd), ranks);  // zeros are valid slots
}

std::optional<RankPage> RankPage::inherited(int ranks) {
  const char* number = std::getenv(kVariable);
  if (number == nullptr) return std::nullopt;
  const int fd = std::atoi(number);
  struct stat st {};
  // The number may have been inherited by a program to which the descriptor was not.
  if (fd < 3 || ::fstat(fd, &st) != 0 || st.st_size != static_cast<off_t>(sizeof(RankSlot)) * ranks) return std::nullopt;
  return RankPage(Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 3)), ranks);
}

void RankPage::tell(int rank, const Failure& f) {
  RankSlot& s = slots_[rank];
  if (s.knows.load() != 0) return;
  s.blamed = f.rank;
  s.exit_code = f.exit_code;
  const size_t n = std::min(f.what.size(), s.text.size() - 1);
  std::memcpy(s.text.data(), f.what.data(), n);
  s.text[n] = '\0';
  s.knows.store(1, std::memory_order_release);
}

std::optional<Failure> RankPage::told(int rank) const {
  const RankSlot& s = slots_[rank];
  if (s.knows.load(std::memory_order_acquire) == 0) return std::nullopt;
  return Failure{s.blamed, std::string(s.text.data(), ::strnlen(s.text.data(), s.text.size())), s.exit_code};
}

}  // namespace gpt2::distributed
