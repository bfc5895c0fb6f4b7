#include "cli/training_log.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/first_steps.h"
#include "base/utc.h"
#include "gpt2/run_json.h"

namespace cli {

using nlohmann::ordered_json;

ordered_json validation_event(int64_t step, double loss) { return {{"event", "validation"}, {"step", step}, {"loss", loss}}; }
ordered_json sample_event(int64_t step, const std::string& text) { return {{"event", "sample"}, {"step", step}, {"text", text}}; }
ordered_json eval_event(int64_t step, const std::string& file, const gpt2::EvalOutcome& o) {
  const auto all = static_cast<double>(o.items.size());
  return {{"event", "eval"},
          {"step", step},
          {"file", file},
          {"examples", o.items.size()},
          {"correct", o.correct},
          {"accuracy", static_cast<double>(o.correct) / all},
          {"correct_by_sum", o.correct_by_sum},
          {"accuracy_by_sum", static_cast<double>(o.correct_by_sum) / all}};
}

size_t steps_left_out(size_t steps) { return steps > 4 ? stepscope::first_steps_left_out(steps) : 0; }

TrainingLog::TrainingLog(std::string path, const gpt2::Trainer& trainer, gpt2::LoopOptions& options) : path_(std::move(path)) {
  options.on_start = [this, &trainer, &options, before = options.on_start](int64_t done) {
    if (before) before(done);
    start(trainer, options, done);
  };
  options.on_note = [this, before = options.on_note](const std::string& text) {
    if (before) before(text);
    note(text);
  };
  options.on_validation = [this, before = options.on_validation](int64_t step, double loss) {
    if (before) before(step, loss);
    writer_->write(validation_event(step, loss));
  };
  options.on_sample = [this, before = options.on_sample](int64_t step, const std::string& text) {
    if (before) before(step, text);
    writer_->write(sample_event(step, text));
  };
  options.on_eval = [this, file = options.eval_set, before = options.on_eval](int64_t step, const gpt2::EvalOutcome& o) {
    if (before) before(step, o);
    writer_->write(eval_event(step, file, o));
  };
}

void TrainingLog::start(const gpt2::Trainer& trainer, const gpt2::LoopOptions& options, int64_t done) {
  const std::string settings = gpt2::run_settings_json(trainer, options);
  const std::string checkpoints = options.checkpoint_dir.empty() ? "" : std::filesystem::weakly_canonical(options.checkpoint_dir).string();
  writer_ = std::make_unique<gpt2::RunLogWriter>(path_, done, settings, checkpoints);
  done_ = done;
  ordered_json line{{"event", "run"}, {"schema", gpt2::kRunLogSchema}, {"time", stepscope::now_utc()}};
  if (!checkpoints.empty()) line["checkpoints"] = checkpoints;
  if (done > 0) line["resumed_after"] = done;
  line["settings"] = ordered_json::parse(settings);
  line["settings"]["steps"] = options.steps;
  writer_->write(line);
  for (const std::string& text : early_notes_) note(text);
  early_notes_.clear();
}

void TrainingLog::note(const std::string& text) {
  if (!writer_) return early_notes_.push_back(text);
  writer_->write({{"event", "note"}, {"step", done_}, {"text", text}});
}

void TrainingLog::step(const gpt2::StepLog& s) {
  ordered_json line{{"event", "step"},
                    {"step", s.outcome.step},
                    {"loss", s.outcome.loss},
                    {"grad_norm", s.outcome.grad_norm},
                    {"learning_rate", s.learning_rate},
                    {"time_ns", s.outcome.time_ns}};
  if (s.outcome.skipped) line["skipped"] = true;
  writer_->write(line);
  done_ = s.outcome.step;  // not before: the end of a log that took no more must stand behind the last step that it has
}

void TrainingLog::end(const std::string& stopped) {
  if (!writer_) return;
  ordered_json line{{"event", "end"}, {"step", done_}};
  if (!stopped.empty()) line["stopped"] = stopped;
  writer_->write(line);
}

}  // namespace cli
