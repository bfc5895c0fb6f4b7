// The gate of a session: a child process per set of settings, each set once.
#pragma once
#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "experiments/verdict/make_document.h"

namespace experiments {

// The value behind `flag`; "" without it.
std::string value_of(const std::vector<std::string>& arguments, const std::string& flag);

class Gates {
 public:
  Gates(std::string program, double timeout_s, const std::atomic<bool>* stop, bool progress)
      : program_(std::move(program)), timeout_s_(timeout_s), stop_(stop), progress_(progress) {}

  // Of what an arm with these trainer arguments runs. Throws Interrupted, stepscope::MachineError when this machine cannot run it,
  // stepscope::InputError for what the trainer refuses.
  GateSummary check(const std::vector<std::string>& trainer_arguments);

 private:
  std::string program_;
  double timeout_s_;
  const std::atomic<bool>* stop_;
  bool progress_;
  std::map<std::string, GateSummary> known_;
};

}  // namespace experiments
