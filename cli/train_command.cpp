// `stepscope train`: one trainer in the common training loop, one line per step.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/errors.h"
#include "base/json_text.h"
#include "base/named_files.h"
#include "base/progress_line.h"
#include "base/statistics.h"
#include "cli/catch_interrupt.h"
#include "cli/commands.h"
#include "cli/learning_rate_sweep.h"
#include "cli/range_recorder.h"
#include "cli/say.h"
#include "cli/silent_steps.h"
#include "cli/train_ranks.h"
#include "cli/trainer_flags.h"
#include "cli/training_log.h"
#include "cli/values.h"
#include "gpt2/distributed/agreement.h"
#include "gpt2/distributed/rank_page.h"
#include "gpt2/distributed/watch.h"
#include "gpt2/evaluation.h"
#include "gpt2/replicas.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "fp32/trainer.h"
#include "gpt2/cuda/nvtx_ranges.h"
#include "mixed/trainer.h"
#endif

namespace cli {
namespace {

struct TrainFlags {
  TrainerFlags trainer;
  RankFlags ranks;
  int64_t val_every = 0, val_batches = 8, sample_every = 0, sample_tokens = 64, checkpoint_every = 0, keep = 2;
  float sample_temperature = 1.0f;
  int64_t sample_top_k = 50;
  std::string tokenizer, checkpoint_dir, run_json, cpu_recording;
  std::string log, eval_set;
  int64_t eval_every = 0, eval_limit = 0;
  std::vector<std::string> sweep_rates;
  bool resume = false, quiet = false, json = false, list_variants = false, direct_in_silence = false, exchange_nothing = false;
  const Argument *val_data = nullptr, *learning_rate = nullptr, *accumulation = nullptr;
  std::vector<const Argument*> all;
};

// Of one trainer, or of both where it is "auto".
void print_variants(const TrainerFlags& flags) {
  const std::string& trainer = flags.trainer;
  if (trainer != "auto") check_abilities(flags);
  if (trainer == "reference")
    throw stepscope::InputError("--list-variants: the CPU reference has no variants, --trainer mixed and fp32 do");
#ifdef STEPSCOPE_WITH_CUDA
  const auto print = [](const char* name, const std::vector<gpt2::VariantFacts>& variants) {
    fmt::print("{}: * marks the default of a slot; if a shape forbids it, the next variant that can run takes its place\n", name);
    std::string_view slot;
    for (const gpt2::VariantFacts& v : variants) {
      if (v.slot != slot) fmt::print("  {}\n", v.slot);
      slot = v.slot;
      fmt::print("  {} {:<22} {}{}\n", v.is_default ? '*' : ' ', v.name, v.help, v.repeats ? "" : " (does not repeat bit for bit)");
      if (!v.refused.empty()) fmt::print("    {:<22} refused: {}\n", "", v.refused);
    }
  };
  if (trainer != "fp32") print("mixed", mixed::mixed_variant_facts());
  if (trainer != "mixed") print("fp32", fp32::fp32_variant_facts());
#else
  throw stepscope::MachineError(
      "--list-variants: only the GPU trainers have variants (their rows stand in mixed/variants.cpp and fp32/variants.cpp), and " +
      why_no_variants());
#endif
  fmt::print("reference: no variants\n");
}

void print_event(const nlohmann::ordered_json& event) { fmt::print("{}\n", stepscope::json_text(event, -1)); }

// The steps' reader is gone: ctrl-C ends `tee` too, and `head` has seen enough. The run must still save what it has, so it stops as ctrl-C
// stops it, and what it says from now on goes nowhere.
void reader_is_gone() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  struct stat out, err;
  const bool one_pipe =
      fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev && out.st_ino == err.st_ino;
  dup2(nowhere, STDOUT_FILENO);
  if (one_pipe) dup2(nowhere, STDERR_FILENO);
  close(nowhere);
  std::clearerr(stdout);
  if (CatchInterrupt::interrupted()) return;
  say("nobody reads the steps any more: the run stops");
  ::kill(::getpid(), SIGINT);  // not raise(): ranks block it in this thread, and another hears what comes to the process
}

// `print` writes to stdout. With SIGPIPE ignored, a pipe without a reader is an error of it, and so is a terminal that was closed.
template <class Print>
void to_reader(Print print) {
  const auto nobody_reads = [] { return errno == EPIPE || errno == EIO; };
  errno = 0;
  try {
    print();
    std::fflush(stdout);
    if (std::ferror(stdout) == 0) return;
  } catch (const std::system_error&) {  // of fmt
    if (!nobody_reads()) throw;
  }
  if (nobody_reads()) reader_is_gone();
}

// Accuracy during training: a progress line while it is computed, then one line of output. Notes are here, too: one that an evaluation is
// left off comes while the progress line stands.
void report_evaluation(gpt2::LoopOptions& options, bool json) {
  const auto progress = std::make_shared<stepscope::ProgressLine>();
  options.on_eval_progress = [progress](int64_t done, int64_t correct, int64_t all) {
    progress->show([&] { return gpt2::progress_text(done, correct, all); });
  };
  options.on_eval = [progress, json, file = options.eval_set](int64_t step, const gpt2::EvalOutcome& o) {
    progress->clear();
    to_reader([&] {
      if (json) return print_event(eval_event(step, file, o));
      const auto all = static_cast<int64_t>(o.items.size());
      const auto [low, high] = gpt2::wilson_interval(o.correct, all);
      fmt::print("eval after step {} | accuracy {:.4f} [{:.4f}, {:.4f}], {} of {}\n", step,
                 static_cast<double>(o.correct) / static_cast<double>(all), low, high, o.correct, all);
    });
  };
  options.on_note = [progress](const std::string& text) {
    progress->clear();
    say(text);
  };
}

void print_step(bool json, const gpt2::StepLog& s) {
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"step", s.outcome.step},
                                      {"loss", s.outcome.loss},
                                      {"grad_norm", s.outcome.grad_norm},
                                      {"time_ns", s.outcome.time_ns},
                                      {"learning_rate", s.learning_rate}}
                           .dump());
  } else {
    fmt::print("step {:5} | loss {:.6f} | norm {:.4f} | lr {:.2e} | {:.3f} ms | {:.0f} tokens/s\n", s.outcome.step, s.outcome.loss,
               s.outcome.grad_norm, s.learning_rate, s.outcome.time_ns * 1e-6, s.tokens_per_s);
  }
}

void print_start(const gpt2::Trainer& trainer, int ranks) {
  const gpt2::TrainerOptions& o = trainer.options();
  int64_t bytes = 0;
  for (const gpt2::MemoryItem& m : trainer.memory()) bytes += m.bytes;
  const auto used = trainer.memory_used_bytes();
  fmt::print(stderr, "{} trainer on {}{}{} {}; B={} T={}, {} matmul, {:.2f} GB planned{}\n", trainer.name(),
             ranks == 1 ? "" : fmt::format("{} ranks ({}), rank 0 on ", ranks, o.communicator->name()), trainer.device(),
             ranks == 1 ? ":" : ";", gpt2::describe(o.model), o.batch_size, o.seq_len, o.matmul, static_cast<double>(bytes) * 1e-9,
             used ? fmt::format(", {:.2f} GB taken", static_cast<double>(*used) * 1e-9) : "");
}

void print_summary(const std::vector<double>& ms, double tokens, double loss) {
  const size_t skip = steps_left_out(ms.size());
  const double m = stepscope::median(std::vector(ms.begin() + static_cast<std::ptrdiff_t>(skip), ms.end()));
  fmt::print("median {:.3f} ms/step, {:.0f} tokens/s, last loss {:.6f} ({}{})\n", m, tokens / m * 1e3, loss,
             ms.size() == 1 ? "1 step" : fmt::format("{} steps", ms.size()),
             skip == 0 ? "" : fmt::format(", first {} left out of the median", skip));
}

gpt2::LoopOptions all_loop_options(const TrainFlags& f, const TrainerFlags& settled, const CommandLine& line) {
  gpt2::LoopOptions options = loop_options(settled);
  options.val_every = f.val_every;
  options.val_batches = f.val_batches;
  options.sample_every = f.sample_every;
  options.sample_tokens = f.sample_tokens;
  options.tokenizer = f.tokenizer;
  options.checkpoint_dir = f.checkpoint_dir;
  options.checkpoint_every = f.checkpoint_every;
  options.keep_checkpoints = f.keep;
  options.resume = f.resume;
  options.eval_set = f.eval_set;
  options.eval_every = f.eval_every;
  options.eval_limit = f.eval_limit;
  options.run_json = f.run_json;
  options.command = line.text();
  options.sample_temperature = f.sample_temperature;
  options.sample_top_k = f.sample_top_k;
  return options;
}

void report_beside_steps(gpt2::LoopOptions& options, bool json) {
  report_evaluation(options, json);
  options.on_validation = [json](int64_t step, double loss) {
    to_reader([&] {
      if (json) return print_event(validation_event(step, loss));
      fmt::print("validation after step {} | loss {:.6f}\n", step, loss);
    });
  };
  options.on_sample = [json](int64_t step, const std::string& text) {
    to_reader([&] {
      if (json) return print_event(sample_event(step, text));
      fmt::print("sample after step {}:\n{}\n", step, text);
    });
  };
}

// False while a pager or ctrl-S holds the output up.
bool output_is_taken() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 100) != 0;
}

constexpr double kEnd_s = 15;  // for what usually takes less than one

// What must be the same on all ranks, beside the flags of the trainer: what the loop does together.
gpt2::distributed::Identity identity_of_run(const TrainFlags& f, const TrainerFlags& settled) {
  gpt2::distributed::Identity id = identity_of(as_arguments(settled, settled.steps), settled.trainer);
  for (const auto& [name, value] :
       {std::pair{"--val-every", f.val_every}, std::pair{"--val-batches", f.val_batches}, std::pair{"--sample-every", f.sample_every},
        std::pair{"--checkpoint-every", f.checkpoint_every}, std::pair{"--resume", static_cast<int64_t>(f.resume)},
        std::pair{"--eval-every", f.eval_every}, std::pair{"--direct-in-silence", static_cast<int64_t>(f.direct_in_silence)},
        std::pair{"--exchange-nothing", static_cast<int64_t>(f.exchange_nothing)}})
    id.push_back({name, std::to_string(value)});
  id.push_back({"--eval", f.eval_set.empty() ? "" : "given"});  // rank 0 alone reads it
  id.push_back({"--checkpoints", f.checkpoint_dir});
  const std::vector<std::string> exchange = as_arguments(f.ranks.exchange);
  for (size_t i = 0; i < exchange.size(); i += 2) id.push_back({exchange[i], exchange[i + 1]});
  return id;
}

std::unique_ptr<gpt2::RangeListener> make_listener(const TrainFlags& f, const std::string& trainer, const CommandLine& line) {
#ifdef STEPSCOPE_WITH_CUDA
  if (trainer != "reference") return std::make_unique<gpt2::cuda::NvtxRanges>();
#endif
  if (trainer != "reference" || f.cpu_recording.empty()) return nullptr;
  return std::make_unique<RangeRecorder>(f.cpu_recording,
                                         line.text());  // a plan, the same for all ranks; the recorder names its file by the rank
}

// settle() for a run of so many ranks, with what --total-batch sets. One of them says what was settled.
void settle_run(TrainerFlags& flags, int64_t total_batch, int ranks, bool says) {
  const auto notice = settle(flags);
  if (notice && says) say(*notice);
  if (total_batch > 0) flags.accumulation = accumulation_for(total_batch, flags.batch_size, flags.seq_len, ranks);
}

// One rank, or the only one (`session` is nullptr). `trainer` outlives an exception, so that the other ranks hear of it before anything
// waits for the device; and so does `silent`, which it talks through.
bool train(const TrainFlags& f, const CommandLine& line, RankSession* session, std::unique_ptr<SilentSteps>& silent,
           std::unique_ptr<gpt2::Trainer>& trainer) {
  gpt2::distributed::ControlChannel* channel = session == nullptr ? nullptr : &session->channel();
  const bool first = session == nullptr || session->is_first();
  const int ranks = session == nullptr ? 1 : session->world().size;
  TrainerFlags flags = f.trainer;
  gpt2::distributed::agree(channel, [&] { settle_run(flags, f.ranks.total_batch, ranks, first); });
  if (session != nullptr) session->compare(identity_of_run(f, flags));
  gpt2::LoopOptions options = all_loop_options(f, flags, line);
  options.channel = channel;
  if (first) report_beside_steps(options, f.json);
  gpt2::TrainerOptions trainer_opts;
  std::string finished;
  gpt2::distributed::agree(channel, [&] {
    trainer_opts = trainer_options(flags);
    gpt2::check_run(trainer_opts, options);  // before a trainer takes the whole GPU
    if (!f.log.empty() && first) gpt2::check_run_log(f.log, f.resume);
    finished = gpt2::finished_before(trainer_opts, flags.trainer, options).value_or("");
  });
  if (channel != nullptr) finished = gpt2::distributed::from_rank_0(*channel, finished);
  if (!finished.empty()) {
    if (first) say(finished + (f.log.empty() ? "" : fmt::format("; {} gets no line", f.log)));
    return true;
  }
  const std::unique_ptr<gpt2::RangeListener> listener = make_listener(f, flags.trainer, line);
  if (session != nullptr) {
    trainer_opts.communicator = &session->connect(f.ranks, flags.trainer, dynamic_cast<CollectiveListener*>(listener.get()));
    if (f.ranks.exchange.nccl_blocks > 0 && trainer_opts.communicator->name().starts_with("nccl"))
      options.nccl_blocks = f.ranks.exchange.nccl_blocks;
    trainer_opts.bucket_mib = bucket_mib_of(f.ranks.exchange, trainer_opts, {flags.batch_size * flags.seq_len, flags.accumulation, ranks});
  }
  if (f.exchange_nothing && session == nullptr) throw stepscope::InputError("--exchange-nothing: expected several ranks, --gpus N");
  if (session != nullptr && (f.direct_in_silence || f.exchange_nothing)) {
    const auto [from, count] =
        f.exchange_nothing ? std::pair(int64_t{1}, std::numeric_limits<int64_t>::max()) : std::pair(flags.direct_from, flags.direct_steps);
    silent = std::make_unique<SilentSteps>(*trainer_opts.communicator, *channel, from, count);
    trainer_opts.communicator = &silent->communicator();
    options.channel = &silent->channel();
  }
  // A GPU trainer exchanges something when it is made, so its ranks cannot hear each other out in between: the watchdog tells them.
  gpt2::distributed::agree(flags.trainer == "reference" ? channel : nullptr, [&] { trainer = make_trainer(flags, trainer_opts); });
  gpt2::set_range_listener(listener.get());

  if (!f.quiet && !f.json && first) print_start(*trainer, ranks);
  std::optional<TrainingLog> log;
  if (!f.log.empty() && first) log.emplace(f.log, *trainer, options);
  std::vector<double> ms;
  const auto on_step = [&](const gpt2::StepLog& s) {
    ms.push_back(s.outcome.time_ns * 1e-6);
    if (log) log->step(s);
    if (f.quiet || !(first || f.exchange_nothing)) return;  // ranks that never meet have times of their own
    // A rank whose output waits for its reader is well, however long that takes: the others must not give it up.
    while (channel != nullptr && !output_is_taken()) channel->now(gpt2::distributed::Phase::step, s.outcome.step);
    to_reader([&] { print_step(f.json, s); });
  };
  gpt2::RunResult result;
  try {
    std::optional<CatchInterrupt> caught;
    if (channel == nullptr) {  // of several ranks the channel hears it
      caught.emplace();
      options.stop = &CatchInterrupt::interrupted();
    }
    std::signal(SIGPIPE, SIG_IGN);
    result = gpt2::train(*trainer, options, on_step);
  } catch (const std::exception& e) {
    if (log) log->end(e.what());
    throw;
  }
  if (log) log->end(result.interrupted ? fmt::format("interrupted after step {}", result.steps.back().outcome.step) : "");
  gpt2::set_range_listener(nullptr);
  if (!f.json && first && !ms.empty()) {
    const int64_t tokens = flags.batch_size * flags.seq_len * flags.accumulation * ranks;
    try {
      print_summary(ms, static_cast<double>(tokens), result.steps.back().outcome.loss);
    } catch (const std::system_error&) {  // of fmt
      if (!result.interrupted) throw;     // what closed the terminal interrupted the run, too
    }
  }
  return !result.interrupted;
}

// What one rank of several prints and returns. A failure is one for all: rank 0 prints it, or the next where rank 0 itself is gone.
int train_as_rank(const TrainFlags& f, const CommandLine& line, RankSession& session) {
  namespace dist = gpt2::distributed;
  const int rank = session.world().rank;
  std::unique_ptr<SilentSteps> silent;
  std::unique_ptr<gpt2::Trainer> trainer;
  dist::Failure mine;
  bool of_others = false;  // this rank is well and only heard of it
  try {
    const bool complete = train(f, line, &session, silent, trainer);
    const int code = complete ? 0 : kInterrupted;
    std::fflush(stdout);
    EndOfRank end(rank, code);
    end.doing("letting go of its GPU", kEnd_s);
    trainer.reset();
    // NCCL waits for the graphs of all ranks, and rank 0 may still write a checkpoint.
    end.doing("waiting for the other ranks", 0);
    session.channel().close();
    end.doing("disconnecting and ending its process", kEnd_s);
    session.leave();
    return code;
  } catch (const gpt2::TrainingDiverged& e) {
    mine = {e.rank, e.what(), 1};
  } catch (const dist::RankFailure& e) {
    mine = e.failure;
    of_others = true;
  } catch (...) {
    mine = dist::failure_of_current_exception(rank);
  }
  gpt2::set_range_listener(nullptr);
  const dist::Failure agreed = session.channel().fail(mine);
  // `train --gpus` saw how that rank ended, and says it; other starters do not.
  const bool starter_says = of_others && dist::ended_without_a_word(agreed) && dist::RankPage::inherited(session.world().size).has_value();
  const bool rank_0_is_gone = agreed.rank == 0 && !session.channel().told_by_rank_0();
  if (!starter_says && (rank == 0 || (of_others && rank_0_is_gone && rank == 1))) {
    say(agreed.what);
  } else if (!of_others && mine.what != agreed.what) {
    say(mine.what);
  }
  std::fflush(stdout);
  session.disconnect();
  EndOfRank(rank, agreed.exit_code).doing("letting go of its GPU and ending its process", kEnd_s);
  return agreed.exit_code;
}

void run(const TrainFlags& f, const CommandLine& line, int& exit_code) {
  stepscope::NamedFiles inputs{{"--model", f.trainer.model}, {"--tokenizer", f.tokenizer}, {"--eval", f.eval_set}};
  add_shards(inputs, "--data", f.trainer.data);
  add_shards(inputs, "--val-data", f.trainer.val_data);
  stepscope::NamedFiles outputs{{"--log", f.log}, {"--run-json", f.run_json}};
  for (int64_t rank = 1; rank < f.ranks.gpus && !f.run_json.empty(); ++rank)
    outputs.emplace_back("--run-json of a rank", gpt2::rank_file(f.run_json, static_cast<int>(rank)));
  stepscope::check_files_differ(inputs, outputs);
  if (f.val_data->count() > 0 && f.val_every == 0) throw stepscope::InputError("--val-data: expected --val-every N with it");
  if (f.ranks.total_batch > 0 && f.accumulation->count() > 0)
    throw stepscope::InputError("--accumulation: --total-batch sets it; leave one of the two out");
  TrainerFlags settled = f.trainer;
  if (!f.sweep_rates.empty()) {
    if (f.learning_rate->count() > 0) throw stepscope::InputError("--lr: --sweep-learning-rates names the rates; leave one of the two out");
    if (f.ranks.gpus > 1) throw stepscope::InputError("--sweep-learning-rates: its runs use one GPU each; expected no --gpus");
    only_these(f.ranks.of_several, {}, "--sweep-learning-rates does runs of one GPU each; leave one of the two out");
    refuse_one_of_several("--sweep-learning-rates", "and each would do the whole sweep; expected one process");
    settle_run(settled, f.ranks.total_batch, 1, true);
    if (!sweep_learning_rates(settled, all_loop_options(f, settled, line), {f.sweep_rates, f.log, f.json, f.quiet}))
      exit_code = kInterrupted;
    return;
  }
  if (f.ranks.gpus > 1) {
    settle_run(settled, f.ranks.total_batch, static_cast<int>(f.ranks.gpus), false);  // rank 0 says it
    gpt2::check_run(trainer_options(settled), loop_options(settled));                 // wrong flags are refused before a GPU is missed
  }
  if (const auto code = launch_ranks(f.ranks, settled.trainer, line)) {
    exit_code = *code;
    return;
  }
  const std::unique_ptr<RankSession> session = RankSession::join(f.ranks);
  if (session) {
    exit_code = train_as_rank(f, line, *session);
  } else {
    std::unique_ptr<SilentSteps> silent;
    std::unique_ptr<gpt2::Trainer> trainer;
    if (!train(f, line, nullptr, silent, trainer)) exit_code = kInterrupted;
  }
}

}  // namespace

void add_train_command(Command& app, const CommandLine& line, int& exit_code) {
  auto f = std::make_shared<TrainFlags>();
  Command* c = app.add_subcommand("train", "Train a GPT-2");
  add_trainer_flags(*c, f->trainer);
  c->for_each_argument([&](const std::string&, const Argument& a) {
    if (a.name() == "--val-data") f->val_data = &a;
    if (a.name() == "--lr") f->learning_rate = &a;
    if (a.name() == "--accumulation") f->accumulation = &a;
  });
  add_rank_flags(*c, f->ranks);
  Argument* val_every = c->add_option("--val-every", f->val_every, "steps between two validation losses; 0 = never")->check(whole(0));
  c->add_option("--val-batches", f->val_batches, "batches of a validation loss")->check(whole(1))->capture_default_str()->needs(val_every);
  Argument* sample_every =
      c->add_option("--sample-every", f->sample_every, "steps between two samples of text; 0 = never")->check(whole(0));
  c->add_option("--sample-tokens", f->sample_tokens, "tokens of a sample")->check(whole(1))->capture_default_str()->needs(sample_every);
  c->add_option("--sample-temperature", f->sample_temperature, "temperature of the samples; 0 = always the likeliest token")
      ->check(real(0, 1e38))
      ->capture_default_str()
      ->needs(sample_every);
  c->add_option("--sample-top-k", f->sample_top_k, "choose among this many likeliest tokens; 0 = all tokens")
      ->check(whole(0))
      ->capture_default_str()
      ->needs(sample_every);
  c->add_option("--tokenizer", f->tokenizer, "decode the samples with this tokenizer file (llm.c format)")->needs(sample_every);
  auto* checkpoints = c->add_option("--checkpoints", f->checkpoint_dir, "keep checkpoints in this folder");
  c->add_option("--checkpoint-every", f->checkpoint_every, "steps between checkpoints; the last step is always kept")->check(whole(0));
  c->add_option("--keep-checkpoints", f->keep, "keep this many of the newest checkpoints")
      ->check(whole(1))
      ->capture_default_str()
      ->needs(checkpoints);
  c->add_flag("--resume", f->resume, "continue from the newest checkpoint in --checkpoints that loads; start at step 1 if there is none");
  auto* run_json = c->add_option("--run-json", f->run_json, "write the run's settings and every step's loss and time to this file");
  c->add_option("--log", f->log, "append every step, validation, evaluation, sample and note to this file, one JSON object per line");
  auto* eval = c->add_option("--eval", f->eval_set, "after the last step, count the right answers on this evaluation set (llm.c format)");
  c->add_option("--eval-every", f->eval_every, "steps between two counts of right answers; 0 = only after the last step")
      ->check(whole(0))
      ->needs(eval);
  c->add_option("--eval-limit", f->eval_limit, "ask only the first N examples of --eval (default: all)")->check(whole(1))->needs(eval);
  auto* sweep = c->add_list("--sweep-learning-rates", f->sweep_rates,
                            "do the run once per rate, such as 1e-4,3e-4,1e-3, and print which came to the lowest loss");
  sweep->check(real_above(0, 1e38))->type_name("RATE,RATE,…");
  Argument* quiet = c->add_flag("--quiet,-q", f->quiet, "print no line for a step: only validations, evaluations, samples and the summary");
  c->add_flag("--json", f->json, "print one JSON object per step, and one per validation, evaluation and sample")->excludes(quiet);
  c->add_flag("--list-variants", f->list_variants, "print the ops that have variants, of both GPU trainers or of --trainer, and stop");
  c->add_option("--cpu-recording", f->cpu_recording, "write the CPU reference's ranges as a recording")
      ->group("");  // set by `profile` for the CPU reference
  c->add_flag("--direct-in-silence", f->direct_in_silence, "ranks exchange nothing in the steps that launch without the CUDA graph")
      ->group("");  // set by `profile`, which counts these steps
  c->add_flag("--exchange-nothing", f->exchange_nothing,
              "ranks take steps without exchanging anything and print their own times: the weights are worth nothing, the time is what the "
              "exchange is held against")
      ->group("");  // set by tests/device/ranks_evidence.py
  for (Argument* other : {checkpoints, run_json, eval}) sweep->excludes(other);
  c->footer(
      "Examples:\n"
      "  stepscope train --trainer fp32 --model d12 --matmul tf32 --data tiny_shakespeare_train.bin --steps 60\n"
      "  stepscope train --trainer reference --model tiny --steps 20\n"
      "  stepscope train --gpus 2 --trainer reference --model tiny --steps 20\n"
      "  stepscope train --checkpoints run1 --checkpoint-every 100 --resume --steps 1000\n"
      "  stepscope train --trainer reference --model tiny --steps 20 --log run.jsonl\n"
      "  stepscope train --trainer reference --model tiny --steps 10 --sweep-learning-rates 1e-4,1e-3,1e-2");
  f->all = c->arguments();
  c->callback([f, line, &exit_code] {
    if (f->list_variants) {
      only_these(f->all, {"--list-variants", "--trainer"}, "--list-variants prints a list and trains nothing; leave one of the two out");
      return print_variants(f->trainer);
    }
    run(*f, line, exit_code);
  });
}

}  // namespace cli
