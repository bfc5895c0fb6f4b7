// What the two gate programs share: the failures of a report as run_bugs.sh reads them, "failed: CHECK | TENSOR | …" for each failing
// check. Exit 0: passed, 1: something failed, 3: no GPU. The seed is the first argument, or new each time; a second one, "first", ends the
// program at the first report with a failure.
#pragma once
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>

#include "base/atomic_file.h"
#include "experiments/gate/op_gate.h"
#include "experiments/gate/report.h"
#include "gpt2/cuda/device_info.h"

namespace gate_program {

inline bool stop_at_first = false;  // nothing more is asked once a report has failed

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
    if (!r.passed)
      fmt::print("failed: {} | {} | {} > {} {} | {}\n", r.name, r.tensor, r.error, r.budget, r.unit,
                 r.detail);
  if (report.results.empty()) fmt::print("failed: nothing was checked\n");
  std::fflush(stdout);
  return report.passed() ? 0 : 1;
}

// What hangs is refused.
inline void say_and_end(const std::string& what) {
  fmt::print("failed: {} | never ends\n", what);
  std::fflush(nullptr);
  std::_Exit(1);
}

// The op checks, the huge shapes last. Returns the number of reports that did not pass.
inline int64_t check_ops(gate::OpGateOptions ops) {
  ops.on_hang = say_and_end;
  ops.sizes = {"odd", "real"};
  const int64_t failed = print_failures(gate::check_ops(ops));
  if (failed > 0 && stop_at_first) return failed;
  const OneAtATime alone;
  ops.sizes = {"huge"};
  return failed + print_failures(gate::check_ops(ops));
}

// `failures_of(seed)` runs the gate and returns the number of reports that did not pass.
template <class Gate>
int run(int argc, char** argv, const Gate& failures_of) {
  if (const auto why = gpt2::cuda::why_no_device()) {
    fmt::print(stderr, "no GPU: {}\n", *why);
    return 3;
  }
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::random_device{}();
  stop_at_first = argc > 2 && std::string_view(argv[2]) == "first";
  fmt::print("seed {}\n", seed);
  int64_t failed = 0;
  try {
    failed = failures_of(seed);
  } catch (const std::exception& e) {  // after a kernel that faulted every further call throws
    fmt::print("failed: exception | {}\n", e.what());
    ++failed;
  }
  fmt::print("{}\n", failed == 0 ? "passed" : "not passed");
  return failed == 0 ? 0 : 1;
}

}  // namespace gate_program
