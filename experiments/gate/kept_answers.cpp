#include "experiments/gate/kept_answers.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <type_traits>

#include "base/atomic_file.h"
#include "base/mapped_file.h"

namespace gate {
namespace {

// One list of what an answer is, for reading and for writing. `part(span)` takes the bytes of a value, `list(vector)` a length and its values.
template <class Answer, class Part, class List>
void walk(Answer& e, const Part& part, const List& list) {
  part(e.loss);
  part(e.grad_norm);
  part(e.token_loss_noise);
  part(e.logits_noise);
  list(e.logits);
  list(e.gradients);
  list(e.gradients_noise);
}

// Size and time of the file that runs, which another build has not.
const std::array<int64_t, 2>& this_program() {
  static const std::array<int64_t, 2> all = [] {
    const std::filesystem::path program = "/proc/self/exe";
    return std::array{static_cast<int64_t>(std::filesystem::file_size(program)),
                      static_cast<int64_t>(std::filesystem::last_write_time(program).time_since_epoch().count())};
  }();
  return all;
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  // False, from then on too, where fewer bytes are left.
  bool take(void* to, size_t bytes) {
    if (!can_take(bytes)) return whole_ = false;
    std::memcpy(to, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return true;
  }
  bool can_take(size_t bytes) const { return whole_ && bytes <= rest_.size(); }
  bool ended_well() const { return whole_ && rest_.empty(); }
  void give_up() { whole_ = false; }

 private:
  std::span<const std::byte> rest_;
  bool whole_ = true;
};

}  // namespace

std::optional<Expected> read_answer(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  const gpt2::MappedFile mapped(file);
  Reader reader(mapped.bytes());
  std::array<int64_t, 2> by_program{};
  if (!reader.take(&by_program, sizeof by_program) || by_program != this_program()) return std::nullopt;
  Expected e;
  walk(
      e, [&](auto& value) { reader.take(&value, sizeof value); },
      [&]<class T>(std::vector<T>& values) {
        static_assert(std::is_trivially_copyable_v<T>);
        uint64_t count = 0;
        if (!reader.take(&count, sizeof count) || count > mapped.bytes().size() || !reader.can_take(count * sizeof(T)))
          return reader.give_up();
        values.resize(count);
        reader.take(values.data(), count * sizeof(T));
      });
  if (!reader.ended_well()) return std::nullopt;
  return e;
}

void write_answer(const std::filesystem::path& file, const Expected& answer) {
  gpt2::AtomicFile out(file);
  out.write(&this_program(), sizeof this_program());
  walk(
      answer, [&](const auto& value) { out.write(&value, sizeof value); },
      [&]<class T>(const std::vector<T>& values) {
        const uint64_t count = values.size();
        out.write(&count, sizeof count);
        out.write(values.data(), count * sizeof(T));
      });
  out.commit();
}

}  // namespace gate
