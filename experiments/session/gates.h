// The gate of a session: a child process per set of settings, each set once.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "experiments/verdict/make_document.h"

namespace experiments {

// The value behind `flag`; "" without it.
std::string value_of(const std::vector<std::string>& arguments, const std::string& flag);

// A receipt (experiments/gate/receipt.h) says that every op of a trainer passed, as these sources stand. It answers for the ops here too if
// it was made on a device of this name with this driver. "receipts/mixed.json of 2026-11-22T09:16:55Z", or "" where none answers.
std::string receipt_of_ops(const std::filesystem::path& root, const std::string& trainer, const std::string& device,
                           const std::string& driver);

class Gates {
 public:
  // `receipt_of`, which may be empty: receipt_of_ops of a trainer. With a receipt, only whole models are checked here.
  // `kept`: seed and answers of the gates stay in a folder of this program below it, and are those that an earlier session left there;
  // empty: this session draws a seed, and its answers end with it. Throws stepscope::InputError for a folder that cannot be written.
  Gates(std::string program, double timeout_s, const std::atomic<bool>* stop, bool progress,
        std::function<std::string(const std::string& trainer)> receipt_of = {}, const std::filesystem::path& kept = {});

  // Of what an arm with these trainer arguments runs. Throws Interrupted, stepscope::MachineError when this machine cannot run it,
  // stepscope::InputError for what the trainer refuses.
  GateSummary check(const std::vector<std::string>& trainer_arguments);

 private:
  std::string program_;
  double timeout_s_;
  const std::atomic<bool>* stop_;
  bool progress_;
  std::function<std::string(const std::string& trainer)> receipt_of_;
  // One seed for all gates of a session, so that the oracle's answers serve every arm.
  uint64_t seed_ = std::random_device{}();
  std::optional<stepscope::TemporaryFolder> own_answers_;  // absent: they are kept
  std::filesystem::path answers_;
  std::map<std::string, GateSummary> known_;
};

}  // namespace experiments
