// A run's log ("stepscope.log/1"): one JSON object per line, each flushed as it happens, so that a notebook can read it while the run
// lasts. `event` says what a line is about:
//   run         schema, settings (base/run_fields.h), checkpoints (their folder), resumed_after where the run was resumed; the first line
//               of every log
//   step        step, loss, grad_norm, learning_rate, time_ns; skipped: true where the update was left out
//   validation  step, loss
//   eval        step, file, examples, correct, accuracy, correct_by_sum, accuracy_by_sum
//   sample      step, text
//   note        step (the last one that was finished), text
//   end         step; stopped: why before its last step. A log without this line is of a run that was interrupted or goes on.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/atomic_file.h"

namespace gpt2 {

inline constexpr std::string_view kRunLogSchema = "stepscope.log/1";

// Throws stepscope::InputError, naming --log, the file and the line: a folder that cannot be written, a file that is no log, a log that
// parse_run_log refuses, or the log of another run where nothing is resumed. A first line that was never finished is no damage.
void check_run_log(const std::filesystem::path& path, bool resume);

class RunLogWriter {
 public:
  // Keeps what an earlier run logged up to step `done` and drops the rest, which is about to happen again; a line that a crash cut off
  // goes too. `settings`: run_settings_json of the run that goes on; "" = not compared. `checkpoints`: the absolute path of its folder.
  // Throws stepscope::InputError as above, and where another process is writing the file, it holds the log of a run with another seed,
  // model, batch size or sequence length, or steps of a run with another folder would be dropped.
  RunLogWriter(const std::filesystem::path& path, int64_t done, const std::string& settings = "", const std::string& checkpoints = "");
  // One write to the file: a reader never sees half of a line that another follows.
  void write(const nlohmann::ordered_json& line);

 private:
  void take_back(size_t bytes) const;
  std::string path_;
  Descriptor file_;
};

struct LoggedStep {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, learning_rate = 0, time_ns = 0;
};
struct LoggedValue {
  int64_t step = 0;
  double value = 0;
};
struct RunLog {
  std::string path;
  std::string command, trainer, device, model;
  int64_t tokens_per_step = 0;  // of one rank
  int64_t ranks = 1;
  std::optional<double> peak_learning_rate;
  std::vector<int64_t> resumed_after;
  std::vector<LoggedStep> steps;         // in order, none twice
  std::vector<LoggedValue> validations;  // losses
  std::vector<LoggedValue> accuracies;   // by the lowest mean loss
  std::vector<std::string> notes;
  // First and last of the steps that the run had done where it was resumed and of which this log has no line, as where --log was not given.
  std::vector<std::pair<int64_t, int64_t>> not_logged;
  bool ended = false;
  std::string stopped;
};

bool is_run_log(std::string_view text);
// Trusts no byte: throws stepscope::InputError "SOURCE:LINE: …, expected …". A last line without its newline is still being written and is
// left out. Lines of other events are passed over. Refuses lines that contradict those before them: a step that is not the next one, what is
// said of another step than the one before it, or twice, a learning rate above the peak in the settings, a loss below 0 by more than rounding,
// an accuracy that is not that of its counts, an end that is not at the last step.
RunLog parse_run_log(std::string_view text, const std::string& source);

}  // namespace gpt2
