// Two profile documents as a list of changes: what ran, the step, passes, ops, layers and kernels.
//
// Kernels are matched by their role, not only by name: in one op of one pass, kernels that are gone and kernels that are new have replaced each
// other, since a new variant of an op changes its kernels' names. Everything sums: the kernel rows, idle and rest are exactly the difference of
// the two device times.
//
// Trap: two single runs are no verdict. Processes differ from each other by more than steps do; `stepscope experiment run` is the test.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "profiler/diff/rank_change.h"
#include "profiler/diff/waterfall.h"
#include "profiler/document/profile.h"

namespace profiler {

// Something in which the two runs differ. `unlike`: they are not runs of the same thing, so that their times cannot be compared.
struct RunDifference {
  std::string what, a, b;  // "-": the document does not say
  bool unlike = false;
};

// The time that people mean: of steps without a collector where both documents have it, else of the device.
struct StepChange {
  std::string basis;  // "timed steps" | "device time" | "kernel time" (a document of Nsight Compute knows no idle time)
  double a_ns = 0, b_ns = 0;
  std::optional<double> low, high;  // of b/a, from the intervals of both medians
  double ratio() const { return b_ns / a_ns; }
  std::string quantity() const { return basis == "timed steps" ? "median step" : basis; }
  // Whether the interval excludes 1; absent without one.
  std::optional<bool> differs() const;
};

// Steps of one state of the device (cool, warm) in both documents: the pair to compare, since a cool step and a warm one differ by percents.
// Their time is a mean, because energy and clock are those of all of them; the headline's is a median.
struct StateChange {
  StateRow a, b;
  std::string quantity() const { return "mean of " + a.state + " steps"; }
  double ratio() const { return b.step_time_ns / a.step_time_ns; }
};

struct GroupChange {  // a pass, an op of a pass, a layer of a pass
  std::string pass, op;
  std::optional<int64_t> layer;
  std::optional<Side> a, b;  // absent: not there
  double delta_ns() const { return (b ? b->time_ns : 0) - (a ? a->time_ns : 0); }
};

struct KernelChange {
  std::string change;  // gone | new | changed | replaced
  std::string pass, op;
  std::vector<std::string> a_kernels, b_kernels;
  Side a, b;
  double delta_ns() const { return b.time_ns - a.time_ns; }
};

// What a document says of itself that bears on the difference: everything severe in its `missing`, what makes its rows others than those of
// an ordinary step, and code that no commit holds.
struct Doubt {
  std::string of;  // "A", "B", "A and B"
  std::string name, text;
  bool severe = false;
};

// What a gate compares: a quantity of both documents, B's over A's.
struct Judged {
  std::string quantity;
  double ratio = 1;
};

struct ProfileDiff {
  std::vector<RunDifference> runs;
  std::optional<StepChange> step;
  Text a_state, b_state;                         // of the device during the steps that `step` compares; absent: unknown, or no such steps
  std::vector<StateChange> states;               // warm first
  std::optional<RankChange> ranks;               // where one of them is of several ranks
  std::string without_rows;                      // why passes to rest are empty: no time on the device; "": they are there
  std::vector<GroupChange> passes, ops, layers;  // sorted by |delta|
  std::vector<KernelChange> kernels;             // sorted by |delta|
  Side a_device, b_device;                       // the whole of each: device time, or kernel time where one of them knows no idle time
  double a_idle_ns = 0, b_idle_ns = 0;
  double a_rest_ns = 0, b_rest_ns = 0;  // unattributed to any kernel row: conservation error of the documents
  bool idle_known = false;              // both documents know it
  std::vector<Doubt> doubts;            // severe first
  bool unlike() const;
  const Doubt* severe() const;  // the first; nullptr: none
  // The step; of two documents whose timed steps ran in different states of the device, the steps of a state that both have. Throws
  // stepscope::InputError where they have none, or no time in common.
  Judged judged() const;
};

// Throws stepscope::InputError when one of them holds no time at all.
ProfileDiff diff_profiles(const ProfileDocument& a, const ProfileDocument& b);

enum class DiffBy { pass, op, kernel, layer };
struct DiffText {
  std::string a_name, b_name;  // as the user calls them
  DiffBy by = DiffBy::kernel;
  size_t top = 12;
  size_t width = 80;
  bool color = false;
};
std::string diff_table(const ProfileDiff& diff, const DiffText& options);
std::string diff_markdown(const ProfileDiff& diff, const DiffText& options);
nlohmann::ordered_json diff_json(const ProfileDiff& diff, const DiffText& options);  // "stepscope.diff/1"

}  // namespace profiler
