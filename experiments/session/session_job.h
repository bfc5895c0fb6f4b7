// One workload of one experiment on its way through a session. Of the sources of ExperimentSession alone.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <string>
#include <vector>

#include "experiments/session/session.h"

namespace experiments {

struct ExperimentSession::Job {
  const Experiment* experiment = nullptr;
  WorkloadResult result;
  PairPlan plan;
  std::vector<std::string> a, b;              // trainer arguments
  bool measured = false;                      // or decided without a measurement
  bool goes_on = false;                       // result.log is of the rounds so far
  const WorkloadSection* left_off = nullptr;  // of a command before this one, whose rounds count
  bool same_sources = false;                  // of that command's arms and these
  std::string gated_by;                       // the command whose gate answers for these arms: its revision and its time; "": none does
  std::exception_ptr failure;

  // Jobs with the same text can share the baseline's processes.
  std::string baseline() const {
    return fmt::format("{}|{}|{}", fmt::join(plan.a.argv, " "), experiment->frozen_baseline() ? experiment->name : "",
                       left_off ? fmt::format("{}", left_off->sustained->settle_s) : "");
  }
  // Where this command did not come to it: what the command before left, or that nothing was measured.
  WorkloadResult as_it_was() const;
  bool several_gpus() const { return on_several_gpus(*experiment, result.workload); }
  bool invalid() const { return result.log.decision.verdict == Verdict::invalid; }
};

// Of a GPU; "" where there is none, or where it does not say.
std::string driver_of(const Gpu& gpu);
// Of the commands that `code` stands for, oldest first; empty where that is `now` alone.
std::vector<std::string> revisions_before(const CodeSection& code, const std::string& now);

}  // namespace experiments
