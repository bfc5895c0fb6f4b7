#include "profiler/diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <type_traits>

#include "base/errors.h"
#include "base/revision.h"
#include "base/run_fields.h"
#include "profiler/diff/rank_change.h"
#include "profiler/diff/sort_by_change.h"
#include "profiler/records/missing.h"
#include "profiler/report/names.h"

namespace profiler {
namespace {

// As a reader would type it; "-" where the document does not say.
std::string shown(const std::string& s) { return s; }
std::string shown(const Text& t) { return t.value_or("-"); }
std::string shown(const Count& c) { return c ? fmt::to_string(*c) : "-"; }
std::string shown(const Bits& b) { return b ? fmt::to_string(*b) : "-"; }
std::string shown(const Number& n) { return n ? fmt::format("{}", *n) : "-"; }
std::string shown(const Flag& f) { return f ? (*f ? "yes" : "no") : "-"; }
std::string shown(const std::vector<std::string>& list) { return list.empty() ? "-" : fmt::format("{}", fmt::join(list, " ")); }

// A GPU by its name; a CPU is named "CPU", and the trainer's own words have its threads. A document without these words, such as that of
// recordings joined without their run.json, is compared by what both know.
Text device(const ProfileDocument& d, const ProfileDocument& other) {
  const auto of_cpu = [](const ProfileDocument& one) { return one.collection.producer == "cpu"; };
  const bool words = of_cpu(d) && d.run.device && !(of_cpu(other) && !other.run.device);
  return words || !d.environment.gpu ? d.run.device : d.environment.gpu;
}

// Documents of before the field was there held one metric only.
std::string tensor_source(const ProfileDocument& d) {
  if (d.collection.tensor_metric) return *d.collection.tensor_metric;
  if (d.collection.tensor_instructions_metric) return *d.collection.tensor_instructions_metric;
  const bool any = std::any_of(d.kernels.begin(), d.kernels.end(), [](const KernelRow& k) { return k.tensor_active_pct.has_value(); });
  return any ? "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed" : "-";
}

struct Word {
  std::string text, raw;  // raw: as it is typed, in quotes
};

// As a shell splits them. The collector joins the words of a program without quoting them, so a quote that nothing closes is a letter.
std::vector<Word> words_of(const std::string& line) {
  std::vector<Word> words;
  bool in_word = false, quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ' ' && !quoted) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    Word& word = words.back();
    word.raw += line[i];
    if (line[i] == '\'' && (quoted || line.find('\'', i + 1) != std::string::npos))
      quoted = !quoted;
    else if (line[i] == '\\' && !quoted && i + 1 < line.size())
      word.raw += line[++i], word.text += line[i];
    else
      word.text += line[i];
  }
  return words;
}

// Of a command line, without these flags; "=" behind one says that a value follows.
std::string without_flags(const std::vector<Word>& words, const std::set<std::string>& flags) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string flag = words[i].text.substr(0, words[i].text.find('='));
    const bool with_value = flags.contains(flag + "=");
    if (with_value && flag == words[i].text) ++i;
    if (!with_value && !flags.contains(flag)) out += (out.empty() ? "" : " ") + words[i].raw;
  }
  return out;
}

// An export of Nsight Systems does not say what ran: its documents have the file's name there.
std::string program_of(const ProfileDocument& d) {
  if (d.run.trainer) return fmt::format("the trainer {}", *d.run.trainer);
  if (d.collection.producer == "nsys" || d.collection.program.empty()) return "-";
  // `profile` names a file of its own there, another one in each run.
  return without_flags(words_of(d.collection.program), {"--run-json="});
}

// The trainers are part of stepscope, and a report has the name of the program without its flags.
bool is_stepscope(const ProfileDocument& d) {
  const std::string path = d.collection.program.substr(0, d.collection.program.find(' '));
  return path.substr(path.rfind('/') + 1).starts_with("stepscope");
}

// How `profile` was told to take another program: its own flags, without those that only say what is shown and where it is written.
std::string flags_of_profile(const ProfileDocument& d) {
  const std::vector<Word> words = words_of(d.run.command);
  const auto is = [](const char* text) { return [text](const Word& w) { return w.text == text; }; };
  const auto begin = std::find_if(words.begin(), words.end(), is("profile")), end = std::find_if(begin, words.end(), is("--"));
  if (d.run.trainer || d.collection.producer != "cupti" || begin == words.end()) return "-";
  return without_flags({begin, end}, {"-o=", "--out=", "--by=", "--top=", "--csv=", "--csv-rows=", "--trace=", "--report=",
                                      "--keep-recording=", "--raw-trace=", "--json"});
}

// Of a trace without any, a document says nothing; what cannot see them says nothing either.
std::string graph_launches(const ProfileDocument& d) {
  if (d.collection.graph_launches) return fmt::to_string(*d.collection.graph_launches);
  return d.collection.producer == "ncu" || d.collection.producer == "nsys" ? "-" : "0";
}

std::string throttled(const ProfileDocument& d) {
  const EnvironmentSection& e = d.environment;
  return !e.samples && e.throttle_reasons.empty() ? "-" : fmt::format("{}", fmt::join(e.throttle_reasons, "+"));
}

// Those of all ranks, whose order says nothing: which of them is the median one may change from run to run.
std::string gpus_of(const ProfileDocument& d) {
  std::vector<std::string> uuids;
  for (const RankRow& r : d.ranks)
    if (r.uuid) uuids.push_back(*r.uuid);
  if (uuids.empty()) return shown(d.environment.uuid);
  std::sort(uuids.begin(), uuids.end());
  return fmt::format("{}", fmt::join(uuids, "+"));
}

// A trainer's run.json has the steps of rank 0; without one the recording has those of the rank that the document is of.
std::string rank_of_the_median_step(const ProfileDocument& d) {
  if (ranks_of(d) < 2 || !d.timing.step_time_ns.median) return "-";
  if (d.run.trainer) return "rank 0 by its run.json";
  return d.world.main_rank ? fmt::format("rank {} by the recording", *d.world.main_rank) : "-";
}

void compare_runs(const ProfileDocument& a, const ProfileDocument& b, std::vector<RunDifference>& out) {
  // What one of them does not say is no difference.
  const auto add = [&](const std::string& what, const std::string& x, const std::string& y, bool unlike) {
    if (x != y && x != "-" && y != "-") out.push_back({what, x, y, unlike});
  };
  add("device", shown(device(a, b)), shown(device(b, a)), true);
  // Two GPUs of one name differ by some percent.
  add("GPU", gpus_of(a), gpus_of(b), false);
  const auto add_words = [&](const std::string& prefix, const std::map<std::string, std::string>& x,
                             const std::map<std::string, std::string>& y, const char* absent) {
    std::map<std::string, std::pair<std::string, std::string>> both;
    for (const auto& [key, value] : x) both[key] = {value, absent};
    for (const auto& [key, value] : y) {
      auto& [left, right] = both[key];
      if (left.empty()) left = absent;
      right = value;
    }
    for (const auto& [key, sides] : both) add(prefix + key, sides.first, sides.second, false);
  };
  const bool trainers = a.run.trainer && b.run.trainer, only_one = a.run.trainer.has_value() != b.run.trainer.has_value();
  if (!trainers && !(only_one && is_stepscope(a) && is_stepscope(b))) add("program", program_of(a), program_of(b), false);
  add("command", flags_of_profile(a), flags_of_profile(b), false);
  add("ranks", fmt::to_string(ranks_of(a)), fmt::to_string(ranks_of(b)), false);
  add("median step of", rank_of_the_median_step(a), rank_of_the_median_step(b), false);
  for (const stepscope::RunField& f : stepscope::run_fields()) {
    if (f.compare == stepscope::Compare::not_at_all) continue;
    const std::string words(f.words);
    std::visit(
        [&](auto member) {
          using T = std::remove_cvref_t<decltype(a.run.*member)>;
          if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
            // Only what is not the default is written down, and by trainers alone.
            if (!only_one) add_words(words + " ", a.run.*member, b.run.*member, "default");
          } else {
            add(words, shown(a.run.*member), shown(b.run.*member), f.compare == stepscope::Compare::unlike);
          }
        },
        f.member);
  }
  add("collected by", a.collection.producer, b.collection.producer, false);
  add("tensor use from", tensor_source(a), tensor_source(b), false);
  add("times of", a.collection.time_basis, b.collection.time_basis, false);
  add("launches from a CUDA graph", graph_launches(a), graph_launches(b), false);
  if (a.collection.producer == b.collection.producer) add_words("version of ", a.environment.versions, b.environment.versions, "-");
  // Until 2026-11-29 documents of reports and of other programs had the revision of the stepscope that made the document.
  if (trainers) {
    add("code", shown(a.run.git_revision), shown(b.run.git_revision), false);
    add("build", shown(a.run.build_type), shown(b.run.build_type), false);
  }
  const Number x = a.environment.sm_clock_mhz_median, y = b.environment.sm_clock_mhz_median;
  if (x && y && std::fabs(*y / *x - 1) > 0.01) add("SM clock", fmt::format("{:.0f} MHz", *x), fmt::format("{:.0f} MHz", *y), false);
  add("timed steps on a device that was", shown(a.timing.state), shown(b.timing.state), false);
  add("throttled", throttled(a), throttled(b), false);
}

bool idle_known(const ProfileDocument& a, const ProfileDocument& b) { return a.totals.idle_ns && b.totals.idle_ns; }
// Of the one; without idle time where the other does not know its own (Nsight Compute).
double device_ns(const ProfileDocument& one, const ProfileDocument& other) {
  return *one.totals.time_ns - (idle_known(one, other) ? 0 : one.totals.idle_ns.value_or(0));
}

// Notices that a reader of a difference has to know of.
constexpr std::pair<std::string_view, std::string_view> kTold[] = {
    {"record_reduced",
     "cut down to the larger kernels: one that is gone or new may be among the small ones, and time of those is the rest."},
    {"traced_steps_vary", "the rows are those of one traced step, because traced steps differ; the step above is of others."},
};

// Until 2026-11-30 a document of several ranks held that notice of any of them, and its rows are those of one.
bool speaks_of_the_rows(const ProfileDocument& d, const MissingRow& m) {
  return m.name != "traced_steps_vary" || d.collection.time_basis == "one_traced_step";
}

// "9aed3b9-dirty": enough of a revision to name it.
std::string short_revision(const std::string& revision) {
  const size_t suffix = revision.find('-');
  return revision.substr(0, std::min<size_t>(suffix, 7)) + (suffix == std::string::npos ? "" : revision.substr(suffix));
}

std::vector<Doubt> doubts_of(const ProfileDocument& a, const ProfileDocument& b) {
  std::vector<Doubt> out;
  const Text& code = a.run.git_revision;
  if (a.run.trainer && b.run.trainer && code && code == b.run.git_revision && stepscope::has_uncommitted_changes(*code))
    out.push_back({"A and B", "uncommitted_changes",
                   fmt::format("code {0} -> {0}: uncommitted changes, which may differ.", short_revision(*code)), false});
  const auto add = [&](const char* of, const MissingRow& m, std::string text, bool severe) {
    for (Doubt& d : out)
      if (d.name == m.name && d.text == text && d.of != of) {
        d.of = "A and B";
        return;
      }
    out.push_back({of, m.name, std::move(text), severe});
  };
  for (const auto& [document, of] : {std::pair(&a, "A"), std::pair(&b, "B")})
    for (const MissingRow& m : document->missing) {
      const auto* told = std::find_if(std::begin(kTold), std::end(kTold), [&](const auto& t) { return t.first == m.name; });
      if (m.severity == name(Severity::severe))
        add(of, m, m.advice + (m.detail.empty() ? "" : fmt::format(" ({})", m.detail)), true);
      else if (told != std::end(kTold) && speaks_of_the_rows(*document, m))
        add(of, m, std::string(told->second), false);
    }
  std::stable_sort(out.begin(), out.end(), [](const Doubt& x, const Doubt& y) { return x.severe > y.severe; });
  return out;
}

std::optional<StepChange> step_change(const ProfileDocument& a, const ProfileDocument& b) {
  const StepTime &x = a.timing.step_time_ns, &y = b.timing.step_time_ns;
  if (x.median && y.median && *x.median > 0) {
    StepChange s{"timed steps", *x.median, *y.median, std::nullopt, std::nullopt};
    if (x.interval_low && x.interval_high && y.interval_low && y.interval_high && *x.interval_low > 0) {
      s.low = *y.interval_low / *x.interval_high;
      s.high = *y.interval_high / *x.interval_low;
    }
    return s;
  }
  if (a.totals.time_ns && b.totals.time_ns && *a.totals.time_ns > 0)
    return StepChange{idle_known(a, b) ? "device time" : "kernel time", device_ns(a, b), device_ns(b, a), std::nullopt, std::nullopt};
  return std::nullopt;
}

// The longest run of that state: a sustained one where there is one.
const StateRow* longest(const ProfileDocument& d, const char* state) {
  const StateRow* found = nullptr;
  for (const StateRow& s : d.timing.states)
    if (s.state == state && (!found || s.time_ns > found->time_ns)) found = &s;
  return found;
}

std::vector<StateChange> state_changes(const ProfileDocument& a, const ProfileDocument& b) {
  std::vector<StateChange> out;
  for (const char* state : {"warm", "cool"}) {
    const StateRow *x = longest(a, state), *y = longest(b, state);
    if (x && y && x->step_time_ns > 0) out.push_back({*x, *y});
  }
  return out;
}

template <class Row, class Key>
std::vector<GroupChange> group_changes(const std::vector<Row>& a, const std::vector<Row>& b, Key key_of) {
  std::vector<GroupChange> out;
  const auto add = [&](const Row& row, bool is_b) {
    const GroupChange key = key_of(row);
    auto at = std::find_if(out.begin(), out.end(),
                           [&](const GroupChange& g) { return g.pass == key.pass && g.op == key.op && g.layer == key.layer; });
    if (at == out.end()) at = out.insert(out.end(), key);
    (is_b ? at->b : at->a) = side_of(row);
  };
  for (const Row& r : a) add(r, false);
  for (const Row& r : b) add(r, true);
  sort_by_change(out);
  return out;
}

KernelChange kernel_change(const WaterfallRow& w) {
  KernelChange k{w.change, w.pass, w.op, {}, {}, w.a, w.b};
  if (w.change != "new") k.a_kernels = {w.kernel};
  if (w.change != "gone") k.b_kernels = {w.kernel};
  return k;
}

KernelChange replaced(KernelChange into, const KernelChange& from) {
  into.change = "replaced";
  into.a_kernels.insert(into.a_kernels.end(), from.a_kernels.begin(), from.a_kernels.end());
  into.b_kernels.insert(into.b_kernels.end(), from.b_kernels.begin(), from.b_kernels.end());
  add(into.a, from.a);
  add(into.b, from.b);
  return into;
}

// Gone and new kernels of one op belong together: first those that differ in template arguments only, then all that are left. Without an op
// nothing says that one does the other's work: PyTorch's element-wise kernels, an addition and a GELU, differ in their arguments only.
std::vector<KernelChange> match_roles(const Waterfall& w) {
  std::map<std::pair<std::string, std::string>, std::vector<KernelChange>> gone, fresh;
  std::vector<KernelChange> out;
  for (const WaterfallRow& row : w.kernels) {
    if (row.change == "changed" || row.pass == "unattributed")
      out.push_back(kernel_change(row));
    else
      (row.change == "gone" ? gone : fresh)[{row.pass, row.op}].push_back(kernel_change(row));
  }
  for (auto& [place, before] : gone) {
    auto& after = fresh[place];
    std::vector<KernelChange> left;
    std::vector<std::string> names;  // of `after`, each shortened once
    for (const KernelChange& n : after) names.push_back(short_kernel_name(n.b_kernels.front()));
    for (KernelChange& g : before) {
      const auto name = std::find(names.begin(), names.end(), short_kernel_name(g.a_kernels.front()));
      if (name == names.end()) {
        left.push_back(std::move(g));
        continue;
      }
      const auto twin = after.begin() + (name - names.begin());
      out.push_back(replaced(std::move(g), *twin));
      after.erase(twin);
      names.erase(name);
    }
    if (!left.empty() && !after.empty()) {
      KernelChange all = left.front();
      for (size_t i = 1; i < left.size(); ++i) all = replaced(std::move(all), left[i]);
      for (const KernelChange& n : after) all = replaced(std::move(all), n);
      out.push_back(std::move(all));
      left.clear();
      after.clear();
    }
    for (KernelChange& g : left) out.push_back(std::move(g));
  }
  for (auto& [place, after] : fresh)
    for (KernelChange& n : after) out.push_back(std::move(n));
  sort_by_change(out);
  return out;
}

}  // namespace

std::optional<bool> StepChange::differs() const {
  if (!low || !high) return std::nullopt;
  return *low > 1 || *high < 1;
}

const Doubt* ProfileDiff::severe() const { return doubts.empty() || !doubts.front().severe ? nullptr : &doubts.front(); }

Judged ProfileDiff::judged() const {
  if (!step) throw stepscope::InputError("the documents have no time in common");
  if (!a_state || !b_state || a_state == b_state) return {step->quantity(), step->ratio()};
  if (states.empty())
    throw stepscope::InputError(fmt::format(
        "A's timed steps ran on a {} device and B's on a {} one, and there is no state of which both have steps: take both with "
        "`profile --sustained`, which adds warm steps",
        *a_state, *b_state));
  return {states.front().quantity(), states.front().ratio()};
}

bool ProfileDiff::unlike() const {
  return std::any_of(runs.begin(), runs.end(), [](const RunDifference& r) { return r.unlike; });
}

ProfileDiff diff_profiles(const ProfileDocument& a, const ProfileDocument& b) {
  ProfileDiff d;
  compare_runs(a, b, d.runs);
  d.doubts = doubts_of(a, b);
  d.step = step_change(a, b);
  const auto waterfall = make_waterfall(a, b);
  if (!d.step && !waterfall) {
    const auto holds_none = [](const ProfileDocument& one) { return !one.totals.time_ns && !one.timing.step_time_ns.median; };
    if (holds_none(a)) throw stepscope::InputError("the first document holds no time of a step");
    if (holds_none(b)) throw stepscope::InputError("the second document holds no time of a step");
    throw stepscope::InputError("the documents hold no time of the same kind: expected timed steps or device time in both");
  }
  if (d.step && d.step->basis == "timed steps") d.a_state = a.timing.state, d.b_state = b.timing.state;
  d.states = state_changes(a, b);
  d.ranks = rank_change(a, b);
  if (!waterfall) {
    d.without_rows = a.totals.time_ns   ? "B holds no time on the device, so neither passes nor kernels are compared."
                     : b.totals.time_ns ? "A holds no time on the device, so neither passes nor kernels are compared."
                                        : "Neither document holds a time on the device: there are no passes and no kernels to compare.";
    return d;
  }
  d.passes = group_changes(a.passes, b.passes, [](const PassRow& r) { return GroupChange{r.name, "", {}, {}, {}}; });
  d.ops = group_changes(a.ops, b.ops, [](const OpRow& r) { return GroupChange{r.pass, r.op, {}, {}, {}}; });
  d.layers = group_changes(a.layers, b.layers, [](const LayerRow& r) { return GroupChange{r.pass, "", r.layer, {}, {}}; });
  d.kernels = match_roles(*waterfall);
  d.idle_known = idle_known(a, b);
  d.a_device = whole_of(a, device_ns(a, b));
  d.b_device = whole_of(b, device_ns(b, a));
  if (d.idle_known) {
    d.a_idle_ns = waterfall->a_idle_ns;
    d.b_idle_ns = waterfall->b_idle_ns;
  }
  d.a_rest_ns = waterfall->a_rest_ns;
  d.b_rest_ns = waterfall->b_rest_ns;
  return d;
}

}  // namespace profiler
