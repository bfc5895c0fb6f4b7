// `train --log FILE`: what a run says on its way, into its log (gpt2/run_log.h).
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gpt2/run_log.h"
#include "gpt2/train_loop.h"

namespace cli {

// Lines of the log and of `train --json`.
nlohmann::ordered_json validation_event(int64_t step, double loss);
nlohmann::ordered_json sample_event(int64_t step, const std::string& text);
nlohmann::ordered_json eval_event(int64_t step, const std::string& file, const gpt2::EvalOutcome& outcome);

// How many of so many steps the median that `train` and a log's report print leaves out (base/first_steps.h): none of up to four.
size_t steps_left_out(size_t steps);

class TrainingLog {
 public:
  // Writes beside what the callbacks of `options` do now; set them first. Trainer and options must outlive the run.
  TrainingLog(std::string path, const gpt2::Trainer& trainer, gpt2::LoopOptions& options);
  void step(const gpt2::StepLog& log);
  // `stopped`: why before the last step; "" = at the last step. A run that never started leaves the file alone.
  void end(const std::string& stopped);

 private:
  void start(const gpt2::Trainer& trainer, const gpt2::LoopOptions& options, int64_t done);
  void note(const std::string& text);

  std::string path_;
  std::unique_ptr<gpt2::RunLogWriter> writer_;  // none before the first step
  std::vector<std::string> early_notes_;
  int64_t done_ = 0;
};

}  // namespace cli
