#include "cli/learning_rate_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>

#include "base/errors.h"
#include "base/statistics.h"
#include "base/stderr_text.h"
#include "cli/catch_interrupt.h"
#include "cli/say.h"
#include "cli/training_log.h"

namespace cli {
namespace {

using stepscope::InputError;

struct Outcome {
  std::string rate;                            // as typed
  std::optional<double> final_loss, val_loss;  // absent: the run diverged; no validation was asked for
  double first_loss = 0;
  int64_t steps = 0;
  std::string diverged;  // why
  bool interrupted = false;
  double judged() const { return val_loss.value_or(final_loss.value_or(HUGE_VAL)); }
};

std::string log_of(const std::string& log, const std::string& rate) {
  std::filesystem::path path = log;
  const std::string name = fmt::format("{}-{}{}", path.stem().string(), rate, path.extension().string());
  return path.replace_filename(name).string();
}

Outcome run_one(const TrainerFlags& flags, gpt2::LoopOptions options, const std::string& rate, const std::string& log_path) {
  Outcome o;
  o.rate = rate;
  options.learning_rate.peak = std::strtof(rate.c_str(), nullptr);
  const auto trainer = make_trainer(flags, trainer_options(flags));
  std::optional<TrainingLog> log;
  if (!log_path.empty()) log.emplace(log_path, *trainer, options);
  std::vector<double> losses;
  try {
    const gpt2::RunResult r = gpt2::train(*trainer, options, [&](const gpt2::StepLog& s) {
      losses.push_back(s.outcome.loss);
      if (log) log->step(s);
    });
    o.final_loss = stepscope::mean_of_last_tenth(losses);
    if (!r.val_losses.empty()) o.val_loss = r.val_losses.back();
    o.interrupted = r.interrupted;
    if (log) log->end(o.interrupted ? fmt::format("interrupted after step {}", losses.size()) : "");
  } catch (const gpt2::TrainingDiverged& e) {
    o.diverged = e.what();
    if (log) log->end(e.what());
  }
  o.steps = static_cast<int64_t>(losses.size());
  if (!losses.empty()) o.first_loss = losses.front();
  return o;
}

const char* verdict_of(const Outcome& o, const Outcome* best) {
  if (!o.final_loss) return "diverged";
  if (*o.final_loss > o.first_loss) return "ended above its first loss";
  return &o == best ? "best" : "";
}

std::string advice_of(const std::vector<Outcome>& outcomes, const Outcome& best) {
  const auto rate = [](const Outcome& o) { return std::strtod(o.rate.c_str(), nullptr); };
  const auto by_rate = [&](const Outcome& a, const Outcome& b) { return rate(a) < rate(b); };
  const auto [low, high] = std::minmax_element(outcomes.begin(), outcomes.end(), by_rate);
  if (&best == &*high) return "; it is the largest rate tried, so a larger one may be better";
  if (&best == &*low) return "; it is the smallest rate tried, so a smaller one may be better";
  return "";
}

void print_json(const std::vector<Outcome>& outcomes, const Outcome& best) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Outcome& o : outcomes) {
    nlohmann::ordered_json row{{"learning_rate", std::strtod(o.rate.c_str(), nullptr)}, {"steps", o.steps}};
    if (o.steps > 0) row["first_loss"] = o.first_loss;
    if (o.final_loss) row["final_loss"] = *o.final_loss;
    if (o.val_loss) row["validation_loss"] = *o.val_loss;
    if (!o.diverged.empty()) row["diverged"] = o.diverged;
    rows.push_back(std::move(row));
  }
  const nlohmann::ordered_json j{{"runs", rows}, {"best_learning_rate", std::strtod(best.rate.c_str(), nullptr)}};
  fmt::print("{}\n", j.dump(2));
}

void print_table(const std::vector<Outcome>& outcomes, const Outcome& best) {
  fmt::print("{:>12}  {:>6}  {:>11}  {:>11}  {:>11}\n", "rate", "steps", "first loss", "final loss", "validation");
  const auto cell = [](const std::optional<double>& v) { return v ? fmt::format("{:.6f}", *v) : std::string("-"); };
  for (const Outcome& o : outcomes) {
    fmt::print("{:>12}  {:>6}  {:>11.6f}  {:>11}  {:>11}  {}\n", o.rate, o.steps, o.first_loss, cell(o.final_loss), cell(o.val_loss),
               verdict_of(o, &best));
  }
  const char* by = best.val_loss ? "validation loss" : "training loss, the mean over the last tenth of the steps";
  fmt::print("best learning rate {} by {}{}\n", best.rate, by, advice_of(outcomes, best));
}

}  // namespace

bool sweep_learning_rates(const TrainerFlags& flags, const gpt2::LoopOptions& options, const RateSweepOptions& sweep) {
  std::set<float> seen;
  for (const std::string& rate : sweep.rates)
    if (!seen.insert(std::strtof(rate.c_str(), nullptr)).second)
      throw InputError(fmt::format("--sweep-learning-rates: the rate {} stands there twice, expected different rates", rate));
  if (sweep.rates.size() < 2) throw InputError("--sweep-learning-rates: one rate, expected at least two, such as 1e-4,3e-4,1e-3");
  gpt2::check_run(trainer_options(flags), options);
  if (!sweep.log.empty())
    for (const std::string& rate : sweep.rates) gpt2::check_run_log(log_of(sweep.log, rate), false);
  // Of the peak it tells shares, so it is the same for every rate.
  if (const std::string misfit = options.learning_rate.misfit(options.steps); !misfit.empty()) say(misfit);
  std::vector<Outcome> outcomes;
  const CatchInterrupt guard;
  gpt2::LoopOptions stoppable = options;
  stoppable.stop = &CatchInterrupt::interrupted();
  for (const std::string& rate : sweep.rates) {
    outcomes.push_back(run_one(flags, stoppable, rate, sweep.log.empty() ? "" : log_of(sweep.log, rate)));
    const Outcome& o = outcomes.back();
    if (o.interrupted) {
      say(fmt::format("interrupted after step {} with the rate {}; no rate is chosen", o.steps, rate));
      return false;
    }
    if (!sweep.quiet && !sweep.json)
      stepscope::put_on_stderr(
          fmt::format("rate {}: {}\n", rate, o.final_loss ? fmt::format("loss {:.6f}", *o.final_loss) : "diverged: " + o.diverged));
  }
  const auto best =
      std::min_element(outcomes.begin(), outcomes.end(), [](const Outcome& a, const Outcome& b) { return a.judged() < b.judged(); });
  if (!best->final_loss) throw std::runtime_error(fmt::format("every rate diverged; the first: {}", outcomes.front().diverged));
  if (sweep.json)
    print_json(outcomes, *best);
  else
    print_table(outcomes, *best);
  return true;
}

}  // namespace cli
