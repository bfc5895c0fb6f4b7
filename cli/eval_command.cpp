// `stepscope eval`: how many questions of an evaluation set a checkpoint answers right, on any trainer.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/json_text.h"
#include "base/output_file.h"
#include "base/progress_line.h"
#include "cli/catch_interrupt.h"
#include "cli/commands.h"
#include "cli/report_output.h"
#include "cli/say.h"
#include "cli/trainer_flags.h"
#include "cli/values.h"
#include "gpt2/checkpoint.h"
#include "gpt2/evaluation.h"

namespace cli {
namespace {

using nlohmann::ordered_json;
using stepscope::InputError;

struct EvalFlags {
  std::string checkpoint, set, trainer = "auto", items;
  int64_t batch_size = 4, limit = 0;
  bool json = false;
};

void check_items_path(const EvalFlags& f) {
  if (f.items.empty()) return;
  for (const std::string& input : {f.checkpoint, f.set})
    if (std::error_code ec; std::filesystem::equivalent(f.items, input, ec))
      throw InputError(fmt::format("--items {}: this is the file that is evaluated; expected another", f.items));
  stepscope::check_output(f.items, "--items");
}

// The shortest trainer that holds every row. Lengths in steps of 64, which is what tensor cores are laid out for.
TrainerFlags trainer_flags(const EvalFlags& f, std::span<const gpt2::EvalExample> examples, int64_t positions) {
  TrainerFlags t;
  t.trainer = f.trainer;
  t.model = f.checkpoint;
  int64_t rows = 0;
  for (const gpt2::EvalExample& e : examples) rows += static_cast<int64_t>(e.completions.size());
  t.batch_size = std::min(f.batch_size, rows);
  t.seq_len = std::min(positions, (gpt2::longest_row(examples) + 63) / 64 * 64);
  return t;
}

void write_items(const std::string& path, const gpt2::EvalOutcome& outcome) {
  std::string lines;
  for (const gpt2::EvalItem& item : outcome.items) {
    const ordered_json line{{"index", item.index},
                            {"label", item.label},
                            {"answer", item.answer},
                            {"correct", item.answer == item.label},
                            {"loss", item.loss},
                            {"sum", item.sum},
                            {"answer_by_sum", item.answer_by_sum}};
    lines += line.dump() + "\n";
  }
  WrittenFiles().write("answers", path, lines);
}

void print(const EvalFlags& f, const gpt2::EvalOutcome& outcome, const gpt2::Trainer& trainer, int64_t all) {
  const auto n = static_cast<int64_t>(outcome.items.size());
  const auto share = [n](int64_t correct) { return static_cast<double>(correct) / static_cast<double>(n); };
  const auto [low, high] = gpt2::wilson_interval(outcome.correct, n);
  const auto [sum_low, sum_high] = gpt2::wilson_interval(outcome.correct_by_sum, n);
  if (f.json) {
    const ordered_json j{{"file", f.set},
                         {"checkpoint", f.checkpoint},
                         {"trainer", trainer.name()},
                         {"device", trainer.device()},
                         {"batch_size", trainer.options().batch_size},
                         {"seq_len", trainer.options().seq_len},
                         {"examples", n},
                         {"examples_in_file", all},
                         {"correct", outcome.correct},
                         {"accuracy", share(outcome.correct)},
                         {"accuracy_interval_95", {low, high}},
                         {"correct_by_sum", outcome.correct_by_sum},
                         {"accuracy_by_sum", share(outcome.correct_by_sum)},
                         {"accuracy_by_sum_interval_95", {sum_low, sum_high}}};
    fmt::print("{}\n", stepscope::json_text(j, 2));
    return;
  }
  fmt::print("{}: {}{} examples, {} trainer on {}\n", f.set, n == all ? "" : "first ",
             n == all ? fmt::format("{}", n) : fmt::format("{} of {}", n, all), trainer.name(), trainer.device());
  fmt::print("accuracy {:.4f} [{:.4f}, {:.4f}]   {} of {} by the lowest mean loss, as llm.c counts\n", share(outcome.correct), low, high,
             outcome.correct, n);
  fmt::print("accuracy {:.4f} [{:.4f}, {:.4f}]   {} of {} by the lowest sum of losses\n", share(outcome.correct_by_sum), sum_low, sum_high,
             outcome.correct_by_sum, n);
}

void run(const EvalFlags& f) {
  const auto presets = gpt2::model_names();
  if (std::find(presets.begin(), presets.end(), f.checkpoint) != presets.end())
    throw InputError(fmt::format("{}: the name of a model without weights, expected a checkpoint file", f.checkpoint));
  const gpt2::ModelConfig model = gpt2::checkpoint_config(f.checkpoint);
  std::vector<gpt2::EvalExample> examples = gpt2::load_eval_set(f.set, model.vocab_size);
  const auto all = static_cast<int64_t>(examples.size());
  if (f.limit > 0 && f.limit < all) examples.resize(static_cast<size_t>(f.limit));
  gpt2::check_rows_fit(examples, model.max_seq_len, fmt::format("{} with {}", f.set, f.checkpoint));
  check_items_path(f);

  TrainerFlags flags = trainer_flags(f, examples, model.max_seq_len);
  if (const auto notice = settle(flags)) say(*notice);
  const std::unique_ptr<gpt2::Trainer> trainer = make_trainer(flags, trainer_options(flags));
  gpt2::EvalOutcome outcome;
  {
    const SayInterrupted guard;
    stepscope::ProgressLine progress;
    const auto count = static_cast<int64_t>(examples.size());
    outcome = gpt2::evaluate_examples(*trainer, examples, [&](int64_t done, int64_t correct) {
      progress.show([&] { return gpt2::progress_text(done, correct, count); });
    });
  }
  if (!f.items.empty()) write_items(f.items, outcome);
  print(f, outcome, *trainer, all);
}

}  // namespace

void add_eval_command(Command& app, int&) {
  auto f = std::make_shared<EvalFlags>();
  Command* c = app.add_subcommand("eval", "Accuracy of a checkpoint on an evaluation set (HellaSwag, MMLU)");
  c->add_option("checkpoint", f->checkpoint, "checkpoint file (llm.c format)")->required()->type_name("CHECKPOINT");
  c->add_option("set", f->set, "evaluation set (llm.c format)")->required()->type_name("FILE");
  c->add_option("--trainer", f->trainer, "mixed (bf16), fp32, reference (CPU), or auto: the best this machine can run")
      ->capture_default_str();
  c->add_option("--batch-size,-b", f->batch_size, "rows at a time; a row is a context with one completion")
      ->check(whole(1, int64_t{1} << 20))
      ->capture_default_str();
  c->add_option("--limit", f->limit, "evaluate only the first N examples (default: all)")->check(whole(1));
  c->add_option("--items", f->items, "write each example's losses and answer to this file, one JSON object per line");
  c->add_flag("--json", f->json, "print the result as JSON");
  c->footer(
      "Examples:\n"
      "  stepscope eval gpt2_124M.bin hellaswag_val.bin\n"
      "  stepscope eval gpt2_124M.bin hellaswag_val.bin --trainer fp32 --batch-size 16 --items items.jsonl --json\n"
      "  stepscope eval gpt2_124M.bin hellaswag_val.bin --trainer reference --limit 20");
  c->callback([f] { run(*f); });
}

}  // namespace cli
