// A trainer's op variants as one table: a row says all there is to know about a variant, and the trainer, `train --list-variants`, the
// gate, the kernel bench and the tests read it. The rows of a slot stand together; the default is the first that can run.
//
// A variant runs under its name or is refused with a sentence: nothing falls back. A default that cannot run gives way to the next row
// of its slot, and a notice says so; a variant that was asked for by name is refused.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "gpt2/trainer.h"

namespace gpt2 {

// One enumerator of one member of a trainer's `Choice`.
template <class Choice>
struct VariantValue {
  int value = 0;
  int enumerators = 0;  // of its enum
  int (*get)(const Choice&) = nullptr;
  void (*set)(Choice&, int) = nullptr;
};

namespace detail {

// GCC and Clang spell a value that has no enumerator as a cast: "(Enum)5".
template <auto Value>
consteval bool is_enumerator() {
  constexpr std::string_view text = __PRETTY_FUNCTION__;
  return text.substr(text.find("Value = ") + 8).front() != '(';
}
template <class Enum, int kCount = 0>
consteval int enumerator_count() {
  if constexpr (is_enumerator<static_cast<Enum>(kCount)>())
    return enumerator_count<Enum, kCount + 1>();
  else
    return kCount;
}

template <class Member>
struct MemberOf;
template <class Choice, class Enum>
struct MemberOf<Enum Choice::*> {
  using choice = Choice;
  using type = Enum;
};
// One pair of functions per member, so that their addresses tell members apart.
template <auto Member>
int get(const typename MemberOf<decltype(Member)>::choice& c) {
  return static_cast<int>(c.*Member);
}
template <auto Member>
void set(typename MemberOf<decltype(Member)>::choice& c, int value) {
  c.*Member = static_cast<typename MemberOf<decltype(Member)>::type>(value);
}

}  // namespace detail

// variant_value<&VariantChoice::classifier, Classifier::one_read>(): an enumerator of another enum does not compile.
template <auto Member, typename detail::MemberOf<decltype(Member)>::type Value>
consteval auto variant_value() {
  using Choice = typename detail::MemberOf<decltype(Member)>::choice;
  using Enum = typename detail::MemberOf<decltype(Member)>::type;
  static_assert(sizeof(Enum) == sizeof(int), "covers_every_member counts members by their size");
  return VariantValue<Choice>{static_cast<int>(Value), detail::enumerator_count<Enum>(), detail::get<Member>, detail::set<Member>};
}

// `Run`: what decides whether a variant can run (model, B, T, device), the trainer's `options` among it. `Choice`: one enum member per slot.
template <class Choice, class Run>
struct VariantRow {
  std::string_view slot, name;
  VariantValue<Choice> is;
  std::string_view help;       // one line
  bool repeats = true;         // bit for bit, from run to run
  std::string_view refused{};  // when, in words; empty: runs at every shape
  // Why it cannot run there, as the end of a sentence that begins with its name. Slots before its own are settled when it is asked.
  std::optional<std::string> (*refuses)(const Run&, const Choice&) = nullptr;
  // Why it is not the default there although it would run: the next row is better. Asked for by name it runs.
  std::optional<std::string> (*yields)(const Run&, const Choice&) = nullptr;
  std::optional<std::string> (*lacks)() = nullptr;  // what this machine does not have for it
  std::string_view
      with{};  // "slot=name": the choice in another slot without which it would run nowhere, which checks of every variant make too
  std::array<VariantLaunches, 4> launches{};
  std::string_view unseen{};    // why no trace can tell it from its neighbours; exactly one of `launches` and this is given
  std::string_view formerly{};  // the name that it had
  bool needs_ranks = false;     // several ranks alone run it: a single process would answer for something else
};

// ---- checks of a table, for static_assert ---------------------------------------------------------------------------------

// The rows of a slot stand together and are the enumerators of its enum, each once; their order says which is the default.
template <class Choice, class Run, size_t kRows>
consteval bool rows_are_the_enumerators(const std::array<VariantRow<Choice, Run>, kRows>& rows) {
  for (size_t i = 0; i < kRows; ++i) {
    if (rows[i].is.value < 0 || rows[i].is.value >= rows[i].is.enumerators) return false;
    int of_slot = 0;
    for (size_t k = 0; k < kRows; ++k) {
      if (rows[k].slot != rows[i].slot) continue;
      ++of_slot;
      if (rows[k].is.get != rows[i].is.get) return false;
      if (k != i && rows[k].is.value == rows[i].is.value) return false;
      if (k + 1 < i && rows[k + 1].slot != rows[i].slot) return false;  // other rows in between
    }
    if (of_slot != rows[i].is.enumerators) return false;
  }
  return true;
}

template <class Choice, class Run, size_t kRows>
consteval bool covers_every_member(const std::array<VariantRow<Choice, Run>, kRows>& rows) {
  size_t slots = 0;
  for (size_t i = 0; i < kRows; ++i)
    if (i == 0 || rows[i - 1].slot != rows[i].slot) ++slots;
  return slots * sizeof(int) == sizeof(Choice);
}

// Every row says what it is and how a trace shows it, and says in words that it refuses something where it does.
template <class Choice, class Run, size_t kRows>
consteval bool rows_are_whole(const std::array<VariantRow<Choice, Run>, kRows>& rows) {
  for (const auto& row : rows)
    if (row.help.empty() || row.launches[0].says_something() == !row.unseen.empty() ||
        (row.refuses == nullptr && row.lacks == nullptr) != row.refused.empty())
      return false;
  return true;
}

// ---- reading a table ------------------------------------------------------------------------------------------------------

template <class Choice, class Run>
class VariantTable {
 public:
  using Row = VariantRow<Choice, Run>;
  struct Settled {
    Choice choice;
    std::map<std::string, std::string> variants;  // that run, where they are not the first row of their slot
    std::vector<std::string> notices;             // one for each default that cannot run here, and for each that was left out
  };

  VariantTable(std::string_view trainer, std::span<const Row> rows) : trainer_(trainer), rows_(rows) {}

  // The default on this machine first.
  std::vector<VariantInfo> slots() const {
    std::vector<VariantInfo> out;
    for (const Row& row : rows_) {
      if (out.empty() || out.back().slot != row.slot) out.push_back({std::string(row.slot), {}, {}});
      const Row& standard = first_that_runs(row.slot, false, nullptr, Choice{});
      VariantInfo& info = out.back();
      const auto at = static_cast<std::ptrdiff_t>(&row == &standard ? 0 : info.names.size());
      info.names.insert(info.names.begin() + at, std::string(row.name));
      info.choices.insert(info.choices.begin() + at, choice_of(row));
    }
    return out;
  }

  std::vector<VariantFacts> facts() const {
    std::vector<VariantFacts> out;
    for (const Row& row : rows_) {
      VariantFacts f{std::string(row.slot),   std::string(row.name),
                     std::string(row.help),   std::string(row.refused),
                     std::string(row.unseen), row.repeats,
                     row.needs_ranks,         &row == &first_that_runs(row.slot, false, nullptr, Choice{}),
                     choice_of(row),          {}};
      for (const VariantLaunches& l : row.launches)
        if (l.says_something()) f.launches.push_back(l);
      out.push_back(std::move(f));
    }
    return out;
  }

  // Throws stepscope::InputError naming the slot, what was given and what there is; stepscope::MachineError for a variant that this
  // machine lacks something for.
  const Row& find(std::string_view slot, std::string_view variant) const {
    std::vector<std::string_view> slots, names;
    for (const Row& row : rows_) {
      if (slots.empty() || slots.back() != row.slot) slots.push_back(row.slot);
      if (row.slot != slot) continue;
      names.push_back(row.name);
      if (!row.formerly.empty() && row.formerly == variant)
        throw stepscope::InputError(fmt::format("--variant {}={}: the {} trainer calls it {}={}", slot, variant, trainer_, slot, row.name));
      if (row.name != variant) continue;
      if (row.lacks != nullptr)
        if (const auto why = row.lacks()) throw stepscope::MachineError(fmt::format("--variant {}={}: {}", slot, variant, *why));
      return row;
    }
    if (names.empty())
      throw stepscope::InputError(fmt::format("--variant {}={}: the {} trainer has no op slot of that name; its slots are: {}", slot,
                                              variant, trainer_, fmt::join(slots, ", ")));
    throw stepscope::InputError(fmt::format("--variant {}={}: the {} trainer has no such variant; {} can be: {}", slot, variant, trainer_,
                                            slot, fmt::join(names, ", ")));
  }

  // Before a shape is known: the default of every slot, changed by the given slot -> name. With `deterministic`, defaults that do not
  // repeat bit for bit give way to ones that do, and naming such a variant is refused. Throws as `find` does.
  Choice choose(const std::map<std::string, std::string>& wanted, bool deterministic) const {
    Choice choice;
    for (const Row& row : rows_)
      if (is_first(row)) set(choice, first_that_runs(row.slot, deterministic, nullptr, choice));
    for (const auto& [slot, name] : wanted) {
      const Row& row = find(slot, name);
      if (deterministic && !row.repeats)
        throw stepscope::InputError(
            fmt::format("--variant {}={} does not repeat bit for bit from run to run: leave it out with --deterministic", slot, name));
      set(choice, row);
    }
    return choice;
  }

  // What runs at a shape. Throws stepscope::InputError for a variant that was asked for and cannot run there. Of a trainer that trains alone,
  // what several ranks alone run is left out: it would run without it under its name.
  Settled settle(const Run& run, const std::map<std::string, std::string>& asked, bool deterministic) const {
    std::map<std::string, std::string> wanted = asked;
    std::vector<std::string> left_out;
    if (run.options.communicator == nullptr)
      std::erase_if(wanted, [&](const auto& given) {
        if (!find(given.first, given.second).needs_ranks) return false;
        left_out.push_back(fmt::format("--variant {}={} is left out: one GPU exchanges nothing", given.first, given.second));
        return true;
      });
    Settled out{choose(wanted, deterministic), {}, std::move(left_out)};
    for (const Row& row : rows_) {
      if (!is_first(row)) continue;  // once per slot
      const auto given = wanted.find(std::string(row.slot));
      const Row* runs = nullptr;
      if (given != wanted.end()) {
        runs = &find(given->first, given->second);
        if (const auto why = refusal(*runs, &run, out.choice))
          throw stepscope::InputError(fmt::format("--variant {}={} cannot run at {}: {}", runs->slot, runs->name, run.describe(), *why));
      } else {
        runs = &first_that_runs(row.slot, deterministic, &run, out.choice);
        const Row& standard = first_that_repeats(row.slot, deterministic);
        if (runs != &standard)
          out.notices.push_back(fmt::format("{}={} runs, not the default {}: {}", runs->slot, runs->name, standard.name,
                                            *why_no_default(standard, &run, out.choice)));
      }
      set(out.choice, *runs);
      if (!is_first(*runs)) out.variants[std::string(runs->slot)] = runs->name;
    }
    return out;
  }

 private:
  // Of its slot.
  bool is_first(const Row& row) const { return &row == rows_.data() || (&row)[-1].slot != row.slot; }
  static void set(Choice& choice, const Row& row) { row.is.set(choice, row.is.value); }
  static std::optional<std::string> refusal(const Row& row, const Run* run, const Choice& choice) {
    if (row.lacks != nullptr)
      if (auto why = row.lacks()) return why;
    if (run != nullptr && row.refuses != nullptr) return row.refuses(*run, choice);
    return std::nullopt;
  }
  static std::optional<std::string> why_no_default(const Row& row, const Run* run, const Choice& choice) {
    if (run != nullptr && row.yields != nullptr)
      if (auto why = row.yields(*run, choice)) return why;
    return refusal(row, run, choice);
  }
  const Row& first_that_repeats(std::string_view slot, bool deterministic) const {
    for (const Row& row : rows_)
      if (row.slot == slot && (row.repeats || !deterministic)) return row;
    throw std::logic_error(fmt::format("no variant of {} repeats", slot));
  }
  const Row& first_that_runs(std::string_view slot, bool deterministic, const Run* run, const Choice& choice) const {
    std::string reasons;
    for (const Row& row : rows_) {
      if (row.slot != slot || (deterministic && !row.repeats)) continue;
      const auto why = why_no_default(row, run, choice);
      if (!why) return row;
      reasons += fmt::format("; {}: {}", row.name, *why);
    }
    throw stepscope::InputError(
        fmt::format("no variant of {} can run at {}{}", slot, run != nullptr ? run->describe() : "any shape", reasons));
  }
  static std::map<std::string, std::string> choice_of(const Row& row) {
    std::map<std::string, std::string> choice{{std::string(row.slot), std::string(row.name)}};
    if (const size_t equals = row.with.find('='); equals != std::string_view::npos)
      choice[std::string(row.with.substr(0, equals))] = row.with.substr(equals + 1);
    return choice;
  }

  std::string_view trainer_;
  std::span<const Row> rows_;
};

}  // namespace gpt2
