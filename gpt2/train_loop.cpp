#include "gpt2/train_loop.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/made_folders.h"
#include "base/output_file.h"
#include "base/run_fields.h"
#include "gpt2/data/token_source.h"
#include "gpt2/data/tokenizer.h"
#include "gpt2/distributed/agreement.h"
#include "gpt2/distributed/identity.h"
#include "gpt2/op_range.h"
#include "gpt2/outliers.h"
#include "gpt2/replicas.h"
#include "gpt2/run_json.h"
#include "gpt2/sampling.h"
#include "gpt2/step_batches.h"
#include "gpt2/training_state.h"

namespace gpt2 {
namespace {

using distributed::Phase;
using stepscope::InputError;

int64_t ranks_of(const LoopOptions& o) { return o.channel == nullptr ? 1 : o.channel->world().size; }
int rank_of(const LoopOptions& o) { return o.channel == nullptr ? 0 : o.channel->world().rank; }

void check_flags(const TrainerOptions& t, const LoopOptions& o) {
  auto at_least = [](std::string_view flag, int64_t value, int64_t least) {
    if (value < least) throw InputError(fmt::format("{} {}: expected at least {}", flag, value, least));
  };
  auto in_range = [](std::string_view flag, float value, float low, float high) {
    if (!(value >= low && value <= high)) throw InputError(fmt::format("{} {}: expected {} to {}", flag, value, low, high));
  };
  constexpr float kMax = std::numeric_limits<float>::max();
  check_config(t.model, "model");
  check_batch_shape(t.batch_size, t.seq_len);
  if (t.seq_len > t.model.max_seq_len) {
    throw InputError(fmt::format("--seq-len {}: expected at most {}, the model's longest sequence", t.seq_len, t.model.max_seq_len));
  }
  at_least("--accumulation", o.accumulation, 1);
  if (o.accumulation > std::numeric_limits<int32_t>::max() / (t.batch_size * t.seq_len) / ranks_of(o)) {
    throw InputError(fmt::format("--accumulation {}: expected at most {} tokens in a step of {} x {} tokens{}", o.accumulation,
                                 std::numeric_limits<int32_t>::max(), t.batch_size, t.seq_len,
                                 ranks_of(o) == 1 ? "" : fmt::format(" on each of {} ranks", ranks_of(o))));
  }
  at_least("--steps", o.steps, 1);
  at_least("--val-every", o.val_every, 0);
  at_least("--eval-every", o.eval_every, 0);
  at_least("--eval-limit", o.eval_limit, 0);
  if (o.eval_set.empty() && (o.eval_every > 0 || o.eval_limit > 0))
    throw InputError(fmt::format("{}: expected --eval FILE with it", o.eval_every > 0 ? "--eval-every" : "--eval-limit"));
  at_least("--sample-every", o.sample_every, 0);
  at_least("--sample-tokens", o.sample_tokens, 1);
  at_least("--checkpoint-every", o.checkpoint_every, 0);
  at_least("--keep-checkpoints", o.keep_checkpoints, 1);
  at_least("--lr-warmup", o.learning_rate.warmup, 0);
  if (o.val_every > 0) at_least("--val-batches", o.val_batches, 1);
  check_schedule(o.learning_rate.schedule);
  in_range("--lr", o.learning_rate.peak, 0, kMax);
  in_range("--lr-final-fraction", o.learning_rate.final_fraction, 0, 1);
  in_range("--beta1", o.adamw.beta1, 0, 1 - 1e-7f);
  in_range("--beta2", o.adamw.beta2, 0, 1 - 1e-7f);
  in_range("--eps", o.adamw.eps, 0, kMax);
  in_range("--weight-decay", o.adamw.weight_decay, 0, kMax);
  in_range("--clip", o.adamw.clip, -kMax, kMax);
  in_range("--skip-loss-outliers", static_cast<float>(o.skip_loss_outliers), 0, OutlierLimit::kLargest);
  in_range("--skip-grad-outliers", static_cast<float>(o.skip_grad_outliers), 0, OutlierLimit::kLargest);
  in_range("--sample-temperature", o.sample_temperature, 0, kMax);
  if (o.checkpoint_dir.empty() && (o.checkpoint_every > 0 || o.resume))
    throw InputError(fmt::format("{}: expected --checkpoints FOLDER with it", o.resume ? "--resume" : "--checkpoint-every"));
}

// Everything outside the trainer that a run works with; making it is the check that it can.
struct Surroundings {
  std::unique_ptr<TokenSource> data, validation;
  std::optional<CheckpointStore> checkpoints;
  std::optional<Tokenizer> tokenizer;
  std::vector<EvalExample> examples;  // of --eval
};

std::vector<EvalExample> open_eval_set(const TrainerOptions& t, const LoopOptions& o) {
  if (o.eval_set.empty()) return {};
  std::vector<EvalExample> examples = load_eval_set(o.eval_set, t.model.vocab_size);
  if (o.eval_limit > 0 && static_cast<size_t>(o.eval_limit) < examples.size()) examples.resize(static_cast<size_t>(o.eval_limit));
  check_rows_fit(examples, t.seq_len, fmt::format("--eval {} with --seq-len {}", o.eval_set, t.seq_len));
  return examples;
}

// Checkpoints put into a checkpoint would begin at step 1 in spite of --resume, and the run that owns it would take it for a stranger's.
void refuse_checkpoint_as_folder(const std::filesystem::path& folder) {
  std::error_code absent;
  const auto has = [&](const char* file) { return std::filesystem::is_regular_file(folder / file, absent); };
  if (has("model.bin") && has("state.bin"))
    throw InputError(fmt::format("--checkpoints {}: is one checkpoint, expected the folder that it lies in", folder.string()));
}

Surroundings open_surroundings(const TrainerOptions& t, const LoopOptions& o) {
  check_flags(t, o);
  Surroundings s;
  const SourceOptions source{t.batch_size, t.seq_len, t.model.vocab_size, o.seed, o.shuffle};
  s.data = open_token_source(o.data, source);
  if (o.val_every > 0) {
    SourceOptions held_out = source;
    held_out.shuffle = false;
    std::vector<std::string> files = o.val_data;
    if (files.empty()) {
      if (o.data != std::vector<std::string>{"synthetic"}) throw InputError("--val-every: expected --val-data FILE with it");
      files = o.data;
    }
    s.validation = open_token_source(files, held_out);
  }
  if (!o.tokenizer.empty()) {
    s.tokenizer = Tokenizer::load(o.tokenizer);
    if (s.tokenizer->vocab_size() != t.model.vocab_size) {
      throw InputError(
          fmt::format("{}: a tokenizer of {} tokens, expected the model's {}", o.tokenizer, s.tokenizer->vocab_size(), t.model.vocab_size));
    }
  }
  if (rank_of(o) == 0) s.examples = open_eval_set(t, o);  // one rank answers
  if (!o.checkpoint_dir.empty() && rank_of(o) == 0) refuse_checkpoint_as_folder(o.checkpoint_dir);
  if (!o.run_json.empty()) {
    if (!o.checkpoint_dir.empty()) stepscope::make_folders(o.checkpoint_dir);  // run.json may be named in it
    if (const std::string file = rank_file(o.run_json, rank_of(o)); !file.empty()) {
      refuse_to_replace("--run-json", file);
      stepscope::check_output(file, "--run-json");
    }
  }
  // The store cleans its folder up and writes into it, so one rank has it.
  if (!o.checkpoint_dir.empty() && rank_of(o) == 0) {
    s.checkpoints.emplace(o.checkpoint_dir, o.keep_checkpoints);
    const std::vector<int64_t> steps = s.checkpoints->steps();
    if (!o.resume && !steps.empty()) {
      throw InputError(
          fmt::format("--checkpoints {}: the folder holds checkpoints of another run (newest: step {}); "
                      "expected --resume, "
                      "or another folder",
                      o.checkpoint_dir, steps.back()));
    }
  }
  return s;
}

// The same batch every step is other data than all of them.
constexpr uint64_t kOverfit = 0x6f766572666974;
uint64_t fingerprint_of(const TokenSource& data, const LoopOptions& o) { return data.fingerprint() ^ (o.overfit ? kOverfit : 0); }

// The newest checkpoint that loads, once it is known to be of this run; nullopt where there is none yet. Damaged ones are
// passed over and named to `note`; a folder that holds nothing else, or the checkpoint of another run, is an error.
std::optional<CheckpointStore::Loaded> checkpoint_to_resume(const Surroundings& around, const TrainerOptions& t, std::string_view trainer,
                                                            const LoopOptions& o) {
  if (around.checkpoints->steps().empty()) return std::nullopt;
  std::vector<std::string> damaged;
  auto found = around.checkpoints->newest_that_loads(&damaged);
  if (!found) throw InputError(fmt::format("--resume: no checkpoint in {} loads: {}", o.checkpoint_dir, fmt::join(damaged, "; ")));
  if (o.on_note)
    for (const std::string& why : damaged) o.on_note("skipped a damaged checkpoint: " + why);
  const TrainingState& s = found->state;
  const std::string where = found->folder.string();
  const auto must_match = [&](std::string_view flag, int64_t saved, int64_t now) {
    if (saved != now)
      throw InputError(fmt::format("--resume: {} was saved with {} {}, expected the {} of this run", where, flag, saved, now));
  };
  if (found->model.config != t.model) {
    throw InputError(
        fmt::format("--resume: {} holds a model of {}, expected this run's {}", where, describe(found->model.config), describe(t.model)));
  }
  if (!s.trainer.empty() && s.trainer != trainer) {
    throw InputError(
        fmt::format("--resume: {} was saved by --trainer {}, expected this run's {}; --model {} starts a new run "
                    "from its weights",
                    where, s.trainer, trainer, (found->folder / "model.bin").string()));
  }
  must_match("--batch-size", s.batch_size, t.batch_size);
  must_match("--seq-len", s.seq_len, t.seq_len);
  must_match("ranks x --accumulation", s.accumulation, o.accumulation * ranks_of(o));
  if (s.data_fingerprint != fingerprint_of(*around.data, o)) {
    if ((s.data_fingerprint ^ kOverfit) == fingerprint_of(*around.data, o))
      throw InputError(
          fmt::format("--resume: {} was trained {} --overfit, expected the batches of this run", where, o.overfit ? "without" : "with"));
    throw InputError(fmt::format("--resume: {} was trained on other data, seed or order than {}", where, around.data->describe()));
  }
  return found;
}

UpdateSettings update_settings(const LoopOptions& o) {
  return {o.learning_rate.schedule, o.learning_rate.peak, o.learning_rate.final_fraction, o.adamw.beta1, o.adamw.beta2, o.adamw.eps,
          o.adamw.weight_decay,     o.adamw.clip,         o.learning_rate.warmup};
}

// "--lr is 0.001 now, it was 0.0003; --clip is 0 now, it was 1": what updates the steps otherwise from here on. "" where nothing does.
std::string changes_of_update(const TrainingState& saved, const LoopOptions& o) {
  if (!saved.update) return "";
  const UpdateSettings &was = *saved.update, now = update_settings(o);
  std::string text;
  const auto compare = [&](const char* flag, const auto& a, const auto& b) {
    if (a != b) text += fmt::format("{}{} is {} now, it was {}", text.empty() ? "" : "; ", flag, b, a);
  };
  compare("--lr-schedule", was.schedule, now.schedule);
  compare("--lr", was.learning_rate, now.learning_rate);
  compare("--lr-warmup", was.warmup, now.warmup);
  compare("--lr-final-fraction", was.final_fraction, now.final_fraction);
  compare("--weight-decay", was.weight_decay, now.weight_decay);
  compare("--clip", was.clip, now.clip);
  compare("--beta1", was.beta1, now.beta1);
  compare("--beta2", was.beta2, now.beta2);
  compare("--eps", was.eps, now.eps);
  return text;
}

std::string finished_text(const CheckpointStore::Loaded& checkpoint, const LoopOptions& o) {
  std::string text = fmt::format("this run is finished: {} is of step {}, --steps {} asks for no more", checkpoint.folder.string(),
                                 checkpoint.state.step, o.steps);
  std::error_code ignored;
  if (!o.run_json.empty())
    text += fmt::format("; {} {}", o.run_json, std::filesystem::exists(o.run_json, ignored) ? "stays as it is" : "is not written");
  if (!o.eval_set.empty())
    text += fmt::format("; no question of {} is asked: `stepscope eval {} {}` does that", o.eval_set,
                        (checkpoint.folder / "model.bin").string(), o.eval_set);
  return text;
}

// Held as long as the run: two that keep checkpoints in one folder would remove each other's, and resume from the other's.
Descriptor lock_checkpoints(const LoopOptions& o) {
  if (o.checkpoint_dir.empty() || rank_of(o) != 0) return Descriptor();
  stepscope::make_folders(o.checkpoint_dir);  // why it cannot be made is said when it is opened
  Descriptor folder(::open(o.checkpoint_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder && !lock_as_writer(folder.get(), false))
    throw InputError(fmt::format("--checkpoints {}: another run keeps its checkpoints there, expected another folder", o.checkpoint_dir));
  return folder;
}

class Run {
 public:
  Run(Trainer& trainer, const LoopOptions& options, const std::function<void(const StepLog&)>& on_step)
      : trainer_(trainer),
        o_(options),
        on_step_(on_step),
        checkpoints_lock_(lock_checkpoints(options)),
        around_(open_surroundings(trainer.options(), options)),
        batches_(trainer.options(), options.accumulation) {}

  RunResult loop() {
    if (o_.channel) compare_data();
    if (o_.resume && !(o_.channel == nullptr ? resume() : resume_together())) return std::move(result_);
    if (o_.channel) {  // a file of weights may have another content on another host
      std::vector<float> parameters(static_cast<size_t>(tensor_layout(trainer_.options().model).total));
      trainer_.read(State::parameters, parameters);
      compare_replicas(*o_.channel, parameters, done_ == 0 ? "before the first step" : "in the checkpoint that they resume from");
    }
    if (const std::string misfit = o_.learning_rate.misfit(o_.steps); !misfit.empty()) note(misfit);
    if (o_.on_start) o_.on_start(done_);
    if (o_.overfit) {
      around_.data->seek({});
      read_batches();
    }
    for (int64_t step = done_ + 1; step <= o_.steps; ++step) {
      constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
      const int64_t leave_after = o_.channel                   ? o_.channel->last_step(enqueued_).value_or(kNever)
                                  : o_.stop && o_.stop->load() ? step
                                                               : kNever;
      at(Phase::step, step);
      if (!o_.overfit) read_batches();
      AdamW adamw = o_.adamw;
      adamw.learning_rate = o_.learning_rate.at(step - 1);
      {
        StepRange range(step);
        const bool direct = step >= o_.direct_from && step - o_.direct_from < o_.direct_steps;
        trainer_.enqueue_step({step, batches_.all(), adamw, !direct, loss_limit_.limit(), grad_limit_.limit()});
      }
      ++enqueued_;
      if (enqueued_ - done_ == 2 || skips_outliers()) finish_oldest();
      const bool last = step == o_.steps, stopping = step >= leave_after && !last;
      auto due = [&](int64_t every) { return every > 0 && (step % every == 0 || last); };
      const bool save = !o_.checkpoint_dir.empty() && (stopping || last || due(o_.checkpoint_every));
      // Weights may be looked at only between steps: the pipeline runs empty here and nowhere else.
      const bool eval = !o_.eval_set.empty() && (last || due(o_.eval_every));  // of all ranks: to empty it is a thing that they do together
      if (save || stopping || last || eval || due(o_.val_every) || due(o_.sample_every)) drain();
      if (save) save_or_say_where_it_ended();
      if (stopping) return interrupted(step);
      if (due(o_.val_every)) validate(step);
      if (eval && rank_of(o_) == 0 && !answer_questions(step)) {
        if (!save && !o_.checkpoint_dir.empty()) save_or_say_where_it_ended();
        return interrupted(step);
      }
      if (due(o_.sample_every) && rank_of(o_) == 0) sample(step);
    }
    at(Phase::end, done_);
    write_run_json("");
    return std::move(result_);
  }

 private:
  void note(const std::string& text) const {
    if (o_.on_note) o_.on_note(text);
  }

  // Ranks that read other files, or other versions of them, train on rows that nobody asked for. Equal ones may have another name on another
  // host, so names are compared only where the tokens differ, for the message.
  void compare_data() const {
    const auto tokens = [](const TokenSource* s) { return s ? fmt::format("{:016x}", s->fingerprint()) : ""; };
    const std::string own = tokens(around_.data.get()) + " " + tokens(around_.validation.get());
    const std::vector<distributed::Bytes> all = o_.channel->all_gather({own.begin(), own.end()});
    if (std::all_of(all.begin(), all.end(), [&](const distributed::Bytes& one) { return one == all.front(); })) return;
    const auto of = [&](const TokenSource* s) { return s ? tokens(s) + " of " + s->describe() : ""; };
    distributed::Identity mine{{"the training data", of(around_.data.get())}, {"the validation data", of(around_.validation.get())}};
    distributed::compare_identities(*o_.channel, mine, "");
  }

  void at(Phase phase, int64_t step) const {
    if (o_.channel) o_.channel->now(phase, step);
  }

  void read_batches() { batches_.read(*around_.data, rank_of(o_), ranks_of(o_)); }

  RunResult interrupted(int64_t step) {
    at(Phase::end, done_);
    result_.interrupted = true;
    write_run_json(fmt::format("interrupted after step {}", step));  // before a note, which the log may not take
    note(
        fmt::format("interrupted after step {}{}", step, o_.checkpoint_dir.empty() ? "" : fmt::format("; {} holds it", o_.checkpoint_dir)));
    return std::move(result_);
  }

  bool skips_outliers() const { return o_.skip_loss_outliers > 0 || o_.skip_grad_outliers > 0; }

  void drain() {
    while (done_ < enqueued_) finish_oldest();
    trainer_.complete_weights();
  }

  // The oldest step that is queued: counted, and told to nobody yet.
  StepLog finish_one() {
    StepLog log;
    if (o_.channel) o_.channel->waits(true);
    log.outcome = trainer_.finish_step();
    if (o_.channel) o_.channel->waits(false);
    ++done_;
    if (log.outcome.step != done_)
      throw std::logic_error(fmt::format("trainer {} finished step {}, expected {}", trainer_.name(), log.outcome.step, done_));
    log.learning_rate = o_.learning_rate.at(done_ - 1);
    const double tokens = static_cast<double>(batches_.tokens()) * static_cast<double>(ranks_of(o_));
    if (log.outcome.time_ns > 0) log.tokens_per_s = tokens / (log.outcome.time_ns * 1e-9);
    result_.steps.push_back(log);
    return log;
  }

  static bool is_finite(const StepLog& log) { return std::isfinite(log.outcome.loss) && std::isfinite(log.outcome.grad_norm); }

  void finish_oldest() {
    const StepLog log = finish_one();
    if (!is_finite(log)) {
      // Asked of the folder, which all ranks see: they must say the same.
      const bool any_saved = !o_.checkpoint_dir.empty() && !saved_steps(o_.checkpoint_dir).empty();
      const std::string saved = any_saved ? fmt::format("; checkpoints in {} are of earlier steps", o_.checkpoint_dir) : "";
      const int rank = log.outcome.not_finite_rank;
      const std::string first = rank < 0 ? "" : fmt::format(", on rank {} first", rank);
      const auto words = [](double v) { return std::isnan(v) ? "nan" : fmt::format("{}", v); };  // its sign says nothing
      diverged(fmt::format("step {}: loss is {} and gradient norm {} at learning rate {:g}{}: training stopped{}", done_,
                           words(log.outcome.loss), words(log.outcome.grad_norm), log.learning_rate, first, saved),
               rank);
    }
    tell([&] { account_for(log); });
  }

  void account_for(const StepLog& log) {
    if (log.outcome.skipped)
      note(fmt::format("step {}: loss {:.4f} (limit {:.4f}), gradient norm {:.4f} (limit {:.4f}): an outlier, its update is left out",
                       done_, log.outcome.loss, loss_limit_.limit(), log.outcome.grad_norm, grad_limit_.limit()));
    loss_limit_.add(log.outcome.loss);
    grad_limit_.add(log.outcome.grad_norm);
    if (o_.channel) o_.channel->finished(done_, log.outcome.loss, log.outcome.grad_norm);
    if (on_step_) on_step_(log);
  }

  // Calls one of the caller's functions. One that throws (the disk under its log is full) ends the run, which saves what it has: the steps
  // since the last checkpoint must not be lost for a line of a log. Where there are several ranks the others are elsewhere, and a
  // checkpoint is the work of all.
  template <class Call>
  void tell(const Call& call) {
    try {
      call();
    } catch (const std::exception& e) {
      if (o_.channel == nullptr) save_behind(e.what());
      throw;
    }
  }

  void save_behind(const std::string& why) {
    try {
      bool finite = true;
      while (done_ < enqueued_) finite = is_finite(finish_one()) && finite;
      trainer_.complete_weights();
      if (finite && !o_.checkpoint_dir.empty()) save_checkpoint_now();
    } catch (const std::exception&) {  // `why` is the reason to be said
    }
    say_where_it_ended(why);
  }

  // The steps of a run that ends early stand in its run.json, where a full disk does not prevent it: the first reason is the one to be said.
  void write_run_json_if_possible(const std::string& stopped) const {
    try {
      write_run_json(stopped);
    } catch (const std::exception&) {
    }
  }
  void say_where_it_ended(const std::string& why) const { write_run_json_if_possible(fmt::format("ended after step {}: {}", done_, why)); }

  void save_or_say_where_it_ended() {
    try {
      save_checkpoint_now();
    } catch (const std::exception& e) {
      say_where_it_ended(e.what());
      throw;
    }
  }

  [[noreturn]] void diverged(const std::string& why, int rank = -1) {
    for (; done_ < enqueued_; ++done_) trainer_.finish_step();  // its numbers follow from the ones above
    write_run_json_if_possible(why);
    throw TrainingDiverged(why, rank);
  }

  // False: the run was finished before.
  bool resume() {
    const auto found = checkpoint_to_resume(around_, trainer_.options(), trainer_.name(), o_);
    if (!found) {
      note(fmt::format("--resume: no checkpoint in {} yet; the run starts at step 1", o_.checkpoint_dir));
      return true;
    }
    if (found->state.step >= o_.steps) {
      note(finished_text(*found, o_));
      return false;
    }
    go_on_from(*found);
    note(fmt::format("resumed after step {} from {}", found->state.step, found->folder.string()));
    return true;
  }

  void go_on_from(const CheckpointStore::Loaded& found) {
    const TrainingState& s = found.state;
    if (s.schedule_total != o_.learning_rate.total)
      note(fmt::format("the learning-rate schedule has {} steps now, it had {}", o_.learning_rate.total, s.schedule_total));
    if (const std::string changes = changes_of_update(s, o_); !changes.empty()) note(changes);
    around_.data->seek(s.data);
    trainer_.write(State::parameters, found.model.parameters);
    trainer_.write(State::adam_m, s.m);
    trainer_.write(State::adam_v, s.v);
    done_ = enqueued_ = s.step;
  }

  // Rank 0 chooses the checkpoint and verifies it; the others read the same one.
  bool resume_together() {
    using distributed::agree, distributed::from_rank_0;
    std::optional<CheckpointStore::Loaded> found;
    std::string what;  // step and checksum of its model; "" = none yet
    agree(o_.channel, [&] {
      if (rank_of(o_) != 0) return;
      found = checkpoint_to_resume(around_, trainer_.options(), trainer_.name(), o_);
      if (found) what = fmt::format("{} {:016x}", found->state.step, found->state.model_checksum);
    });
    what = from_rank_0(*o_.channel, what);
    if (what.empty()) {
      note(fmt::format("--resume: no checkpoint in {} yet; the run starts at step 1", o_.checkpoint_dir));
      return true;
    }
    const int64_t step = std::stoll(what);
    if (step >= o_.steps) {
      if (found) note(finished_text(*found, o_));
      return false;
    }
    agree(o_.channel, [&] {
      if (rank_of(o_) == 0) return;
      found = load_checkpoint_of_step(o_.checkpoint_dir, step);
      if (what != fmt::format("{} {:016x}", found->state.step, found->state.model_checksum))
        throw InputError(fmt::format("--resume: {} is another checkpoint than rank 0 sees there; expected one folder for all ranks",
                                     found->folder.string()));
    });
    go_on_from(*found);
    note(fmt::format("resumed after step {} from {}", found->state.step, found->folder.string()));
    return true;
  }

  void save_checkpoint_now() {
    at(Phase::checkpoint, done_);
    const TrainerOptions& t = trainer_.options();
    const size_t total = static_cast<size_t>(tensor_layout(t.model).total);
    TrainingState s;
    s.step = done_;
    s.schedule_total = o_.learning_rate.total;
    s.seed = o_.seed;
    s.data = around_.data->position();
    s.data_fingerprint = fingerprint_of(*around_.data, o_);
    s.batch_size = t.batch_size;
    s.seq_len = t.seq_len;
    s.accumulation = o_.accumulation * ranks_of(o_);
    s.trainer = std::string(trainer_.name());
    s.update = update_settings(o_);
    s.m.resize(total);
    s.v.resize(total);
    std::vector<float> parameters(total);
    trainer_.read(State::parameters, parameters);
    trainer_.read(State::adam_m, s.m);
    trainer_.read(State::adam_v, s.v);
    if (o_.channel) compare_replicas(*o_.channel, parameters, fmt::format("after step {}, so nothing was saved", done_));
    std::filesystem::path aside;
    distributed::agree(o_.channel, [&] {
      if (around_.checkpoints) aside = around_.checkpoints->save(t.model, parameters, std::move(s));
    });
    if (!aside.empty()) note(fmt::format("what stood in the place of this run's checkpoint of step {} is {} now", done_, aside.string()));
    at(Phase::step, done_);
  }

  // The same batches every time, and none twice within one validation.
  void validate(int64_t step) {
    // Training batches come from the front of the stream; without files, validation takes sequences that no
    // run reaches.
    constexpr uint64_t kHeldOut = uint64_t{1} << 40;
    TokenSource& source = *around_.validation;
    const auto epoch = source.batches_per_epoch();
    source.seek(epoch ? DataPosition{} : DataPosition{0, 0, kHeldOut});
    const int64_t count = epoch ? std::min(*epoch, o_.val_batches) : o_.val_batches;
    std::vector<int32_t> inputs(batches_.tokens_of_one()), targets(batches_.tokens_of_one());
    std::vector<double> losses;  // of this rank's batches: every size-th from the rank-th on
    at(Phase::evaluation, step);
    for (int64_t i = 0; i < count; ++i) {
      if (i % ranks_of(o_) != rank_of(o_)) {
        source.skip(1);
        continue;
      }
      source.next(inputs, targets);
      losses.push_back(trainer_.evaluate({inputs, targets}));
    }
    if (o_.channel) losses = losses_of_all_ranks(*o_.channel, losses, count);
    double sum = 0;
    for (const double loss : losses) sum += loss;
    const double loss = sum / static_cast<double>(count);
    if (!std::isfinite(loss)) diverged(fmt::format("step {}: validation loss is {}: training stopped", step, loss));
    result_.val_losses.push_back(loss);
    validated_.push_back(step);
    tell([&] {
      if (o_.on_validation && rank_of(o_) == 0) o_.on_validation(step, loss);
    });
    at(Phase::step, step);
  }

  // False: LoopOptions::stop said true meanwhile, and the accuracy is left out: who asks for the end may kill long before the last question.
  bool answer_questions(int64_t step) {
    at(Phase::evaluation, step);
    const auto all = static_cast<int64_t>(around_.examples.size());
    const auto progress = [&](int64_t done, int64_t correct) {
      if (o_.on_eval_progress) o_.on_eval_progress(done, correct, all);
    };
    const EvalOutcome outcome = evaluate_examples(trainer_, around_.examples, progress, o_.stop);
    if (outcome.left_off) return false;
    result_.accuracies.push_back(static_cast<double>(outcome.correct) / static_cast<double>(all));
    tell([&] {
      if (o_.on_eval) o_.on_eval(step, outcome);
    });
    return true;
  }

  void sample(int64_t step) {
    at(Phase::evaluation, step);
    const int32_t first = around_.tokenizer ? around_.tokenizer->end_of_text() : 0;
    CounterRng rng(combine(combine(o_.seed, 0x5a), static_cast<uint64_t>(step)));
    const auto tokens = generate(trainer_, {&first, 1}, o_.sample_tokens, {o_.sample_temperature, o_.sample_top_k, o_.stop}, rng);
    const auto fresh = std::span(tokens).subspan(1);
    const std::string text = around_.tokenizer ? around_.tokenizer->decode(fresh) : fmt::format("{}", fmt::join(fresh, " "));
    tell([&] {
      if (o_.on_sample) o_.on_sample(step, text);
    });
  }

  void write_run_json(const std::string& stopped) const {
    if (o_.run_json.empty()) return;
    const std::string file = rank_file(o_.run_json, rank_of(o_));
    if (!file.empty()) stepscope::write_output(file, run_json(trainer_, o_, result_, validated_, stopped));
  }

  Trainer& trainer_;
  const LoopOptions& o_;
  const std::function<void(const StepLog&)>& on_step_;
  Descriptor checkpoints_lock_;  // before `around_`, which looks into the folder
  Surroundings around_;
  StepBatches batches_;
  int64_t enqueued_ = 0, done_ = 0;  // steps, over the whole history of the model
  RunResult result_;
  std::vector<int64_t> validated_;
  OutlierLimit loss_limit_{o_.skip_loss_outliers}, grad_limit_{o_.skip_grad_outliers};  // of this process: a resumed run fills them anew
};

}  // namespace

void refuse_to_replace(const std::string& flag, const std::string& file) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(file, ec) || std::filesystem::file_size(file, ec) == 0) return;
  std::string head(200, '\0');
  std::ifstream(file, std::ios::binary).read(head.data(), static_cast<std::streamsize>(head.size()));
  const std::string_view of_any_version = stepscope::kRunSchema.substr(0, stepscope::kRunSchema.find('/') + 1);
  if (head.find(fmt::format("\"{}", of_any_version)) == std::string::npos)
    throw InputError(fmt::format("{} {}: is there already and is no run.json; expected a new name, or a run.json to replace", flag, file));
}

void check_run(const TrainerOptions& trainer, const LoopOptions& options) { open_surroundings(trainer, options); }

std::optional<std::string> finished_before(const TrainerOptions& trainer, std::string_view trainer_name, const LoopOptions& options) {
  if (!options.resume || rank_of(options) != 0) return std::nullopt;
  const Surroundings around = open_surroundings(trainer, options);
  const std::vector<int64_t> steps = around.checkpoints->steps();
  if (steps.empty() || steps.back() < options.steps) return std::nullopt;  // read by the run itself, once
  std::vector<std::string> notes;                                          // those of an unfinished run are said when it resumes
  LoopOptions quiet = options;
  quiet.on_note = [&](const std::string& text) { notes.push_back(text); };
  const auto found = checkpoint_to_resume(around, trainer, trainer_name, quiet);
  if (found->state.step < options.steps) return std::nullopt;
  if (options.on_note)
    for (const std::string& text : notes) options.on_note(text);
  return finished_text(*found, options);
}

RunResult train(Trainer& trainer, const LoopOptions& options, const std::function<void(const StepLog&)>& on_step) {
  return Run(trainer, options, on_step).loop();
}

}  // namespace gpt2
