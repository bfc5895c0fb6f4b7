// What the two gate programs share: the failures of a report as run_bugs.sh reads them, "failed: CHECK | TENSOR | …" for each failing
// check. Exit 0: passed, 1: something failed, 2: an unknown word, 3: no GPU.
//   PROGRAM [SEED [first] [models-first] [op=NAME] [answers=FOLDER]]
// The seed is new each time unless it is given. The words make a score quicker and change none:
//   first            the program ends at the first report with a failure
//   models-first     the model is checked before the ops: for a bug that no single op shows
//   op=NAME          this op is checked before everything else, at all sizes; more than one may be
//   answers=FOLDER   the oracle's answers are taken from there where a program left them. For patches of code that the oracle does not run:
//                    a bug that trainer and oracle share must be in both.
#pragma once
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "experiments/gate/model_gate.h"
#include "experiments/gate/op_gate.h"
#include "experiments/gate/report.h"
#include "gpt2/cuda/device_info.h"

namespace gate_program {

using Ops = std::vector<std::string>;

struct Words {
  bool stop_at_first = false, models_first = false;
  Ops ops;
  std::filesystem::path answers;
};

// Programs run beside each other and the huge shapes fill half of the device, so one program at a time has them.
class OneAtATime {
 public:
  OneAtATime()
      : file_(::open((std::filesystem::temp_directory_path() / "stepscope-gate-huge.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_) (void)::flock(file_.get(), LOCK_EX);
  }

 private:
  gpt2::Descriptor file_;  // its end unlocks
};

inline int64_t print_failures(const gate::GateReport& report) {
  for (const gate::CheckResult& r : report.results)
    if (!r.passed) fmt::print("failed: {} | {} | {} > {} {} | {}\n", r.name, r.tensor, r.error, r.budget, r.unit, r.detail);
  if (report.results.empty()) fmt::print("failed: nothing was checked\n");
  std::fflush(stdout);
  return report.passed() ? 0 : 1;
}

// What hangs is refused, soon: a kernel that never ends takes its share of the device from the programs beside it.
inline gate::OnHang say_and_end() {
  return {[](const std::string& what) {
            fmt::print("failed: {} | never ends\n", what);
            std::fflush(nullptr);
            std::_Exit(1);
          },
          std::chrono::seconds(30)};
}

// The op checks of `only`, or of all ops, from the quickest sizes to those that fill half of the device. Returns the number of reports that
// did not pass.
inline int64_t check_ops(gate::OpGateOptions ops, const Words& words, const Ops& only) {
  ops.on_hang = say_and_end();
  ops.only = only;
  int64_t failed = 0;
  for (const std::string size : {"odd", "real", "huge"}) {
    if (failed > 0 && words.stop_at_first) break;
    ops.sizes = {size};
    std::optional<OneAtATime> alone;
    if (size == "huge") alone.emplace();
    const gate::GateReport report = gate::check_ops(ops);
    if (only.empty() || !report.results.empty()) failed += print_failures(report);  // not every op has a case at every size
  }
  return failed;
}

// The gate's check of many rows and of the memory behind them, without the others; one program at a time has the memory for it.
inline int64_t check_many_rows(const gate::TrainerFactory& make, gate::ModelGateOptions options) {
  const OneAtATime alone;
  options.with_small_cases = options.with_steps = options.with_loop = options.with_timed_steps = false;
  options.many_rows = true;
  for (const gate::ModelCheck& check : gate::model_checks())
    if (check.name != "many rows" && check.name != "red zone") options.without.insert(check.name);
  return print_failures(gate::check_model(make, options));
}

// `ops` checks all ops, or those that it is given. `models` has one call for each way to check the model; each returns the number of reports that did not pass, as `ops` does.
inline int64_t check_all(const Words& words, const std::function<int64_t(const Ops&)>& ops, std::vector<std::function<int64_t()>> models) {
  models.insert(words.models_first ? models.end() : models.begin(), [&] { return ops({}); });
  if (!words.ops.empty()) models.insert(models.begin(), [&] { return ops(words.ops); });
  int64_t failed = 0;
  for (const std::function<int64_t()>& check : models)
    if (failed == 0 || !words.stop_at_first) failed += check();
  return failed;
}

// `failures_of(seed, words)` runs the gate and returns the number of reports that did not pass.
template <class Gate>
int run(int argc, char** argv, const Gate& failures_of) {
  if (const auto why = gpt2::cuda::why_no_device()) {
    fmt::print(stderr, "no GPU: {}\n", *why);
    return 3;
  }
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::random_device{}();
  Words words;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "first") {
      words.stop_at_first = true;
    } else if (word == "models-first") {
      words.models_first = true;
    } else if (word.starts_with("op=")) {
      words.ops.emplace_back(word.substr(3));
    } else if (word.starts_with("answers=")) {
      words.answers = word.substr(8);
    } else {
      fmt::print(stderr, "'{}' is no word of a gate program: expected first, models-first, op=NAME or answers=FOLDER\n", word);
      return 2;
    }
  }
  fmt::print("seed {}\n", seed);
  int64_t failed = 0;
  try {
    failed = failures_of(seed, words);
  } catch (const std::exception& e) {  // after a kernel that faulted every further call throws
    fmt::print("failed: exception | {}\n", e.what());
    ++failed;
  }
  fmt::print("{}\n", failed == 0 ? "passed" : "not passed");
  return failed == 0 ? 0 : 1;
}

}  // namespace gate_program
