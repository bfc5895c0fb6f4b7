#include "experiments/runner/arm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/errors.h"
#include "base/first_steps.h"

namespace experiments {
namespace {

using nlohmann::ordered_json;
using Read = ChildProcessGroup::Read;

constexpr std::string_view kSteps = "{steps}", kBeforeReady = "before it was ready";

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string with_last_words(std::string sentence, const ChildProcessGroup& child) {
  const std::string words = child.last_words();
  return words.empty() ? sentence : sentence + "; its last output:\n" + words;
}

// How it ended, when its output ended: the output of a process closes a moment before the process is gone.
[[noreturn]] void fail_by_ending(const std::string& label, ChildProcessGroup& child, std::string_view when) {
  const auto ending = child.wait(after(5));
  if (!ending) throw ArmFailure(with_last_words(fmt::format("arm {} closed its output {} and does not end", label, when), child));
  // The code for bad input. A program of another revision may lack a flag.
  if (ending->exited && ending->code == 2 && when == kBeforeReady)
    throw ArmFailure(with_last_words(fmt::format("arm {} refused its arguments", label), child));
  throw ArmFailure(with_last_words(fmt::format("arm {} {} {}", label, ending->text(), when), child));
}

class SteppingArm : public Arm {
 public:
  SteppingArm(ArmSpec spec, const std::atomic<bool>* stop) : spec_(std::move(spec)), stop_(stop) {}

  void start() override {
    try {
      child_ = std::make_unique<ChildProcessGroup>(ChildProcessGroup::Options{spec_.argv, spec_.environment, true, false});
    } catch (const stepscope::InputError& e) {
      throw ArmFailure(fmt::format("arm {}: {}", spec_.label, e.what()));
    }
  }

  void wait_ready(double timeout_s) override {
    const ordered_json answer = receive(timeout_s, kBeforeReady);
    if (!answer.contains("ready") || !answer["ready"].is_object()) bad_answer("expected {\"ready\": {…}}", answer.dump());
    info_ = answer["ready"];
  }

  BlockTimes block(int steps, double timeout_s) override {
    const Answered answer =
        ask(fmt::format("step {}", steps + 1), fmt::format("in a block of {} steps", steps + 1), static_cast<size_t>(steps) + 1, timeout_s);
    BlockTimes out{{answer.times_ns.begin() + 1, answer.times_ns.end()}, answer.last_loss, answer.audit};
    return out;
  }

  Stretch stretch(const StretchRequest& r, double timeout_s) override {
    const std::string when = fmt::format("in a run of {:.1f} s", r.settle_s + r.measure_s);
    Answered answer =
        ask(fmt::format("run {} {} {} {}", r.settle_s, r.settle_steps, r.measure_s, r.measure_steps), when, std::nullopt, timeout_s);
    Stretch out{std::move(answer.times_ns), std::nullopt, "", answer.last_loss, answer.audit};
    if (static_cast<int>(out.times_ns.size()) < r.settle_steps + r.measure_steps)
      bad_answer(fmt::format("expected at least {} times_ns", r.settle_steps + r.measure_steps), answer.json.dump());
    const auto began = answer.json.find("began_ns");
    if (began == answer.json.end() || !began->is_number_integer()) bad_answer("expected began_ns", answer.json.dump());
    const Clock::time_point at{std::chrono::nanoseconds(began->get<int64_t>())};
    if (at < answer.asked || at > answer.answered)
      bad_answer("expected began_ns between the question and the answer by CLOCK_MONOTONIC", began->dump());
    out.began = at;
    return out;
  }

  int steps_again(uint64_t seed, double timeout_s) override {
    const std::string when = "while it took steps again";
    if (!child_->write_line(fmt::format("again {}", seed))) fail_by_ending(spec_.label, *child_, when);
    const ordered_json answer = receive(timeout_s, when);
    const auto checks = answer.find("checks");
    if (checks == answer.end() || !checks->is_array() || checks->empty()) bad_answer("expected checks", answer.dump());
    int passed = 0;
    for (const ordered_json& c : *checks) {
      if (!c.is_object() || !c.contains("passed") || !c["passed"].is_boolean()) bad_answer("expected checks that passed or not", c.dump());
      const auto text = [&](const char* field) {
        return c.contains(field) && c[field].is_string() ? c[field].get<std::string>() : std::string();
      };
      if (!c["passed"].get<bool>())
        throw ArmFailure(fmt::format("arm {}: {}: a fresh trainer computes other results for the steps after the timed ones: {} {}",
                                     spec_.label, text("name"), text("tensor"), text("detail")));
      ++passed;
    }
    return passed;
  }

  bool keeps_state() const override { return true; }
  const ordered_json& info() const override { return info_; }

 private:
  [[noreturn]] void bad_answer(const std::string& expected, const std::string& got) {
    throw ArmFailure(with_last_words(fmt::format("arm {}: {}, got '{}'", spec_.label, expected, got.substr(0, 200)), *child_));
  }

  struct Answered {
    ordered_json json;
    std::vector<double> times_ns;
    std::optional<double> last_loss;
    gate::BlockAudit audit;
    Clock::time_point asked, answered;
  };

  // Asks for steps and reads what every answer with steps has. `expected`: so many of them.
  Answered ask(const std::string& question, const std::string& when, std::optional<size_t> expected, double timeout_s) {
    Answered out;
    const gate::CpuWait cpu;
    const double waited_before_ns = cpu.so_far_ns();
    out.asked = Clock::now();
    if (!child_->write_line(question)) fail_by_ending(spec_.label, *child_, when);
    out.json = receive(timeout_s, when);
    out.answered = Clock::now();
    const double waited_ns = cpu.so_far_ns() - waited_before_ns;
    const ordered_json& answer = out.json;
    const auto times = answer.find("times_ns");
    if (times == answer.end() || !times->is_array() || times->empty() || (expected && times->size() != *expected))
      bad_answer(expected ? fmt::format("expected {} times_ns", *expected) : "expected times_ns", answer.dump());
    for (const ordered_json& t : *times) {
      // JSON has no NaN: a writer makes it null.
      if (!t.is_number() || !(t.get<double>() > 0) || !std::isfinite(t.get<double>()))
        throw ArmFailure(fmt::format("arm {} gave {} as a step's time", spec_.label, t.dump()));
      out.times_ns.push_back(t.get<double>());
    }
    if (const auto losses = answer.find("losses"); losses != answer.end() && losses->is_array()) {
      for (const ordered_json& l : *losses) {
        if (!l.is_number() || !std::isfinite(l.get<double>()))
          throw ArmFailure(
              fmt::format("arm {}: the loss became {}: the arm no longer trains", spec_.label, l.is_null() ? "NaN" : l.dump()));
        out.last_loss = l.get<double>();
      }
    }
    const auto audit = answer.find("audit");
    if (audit == answer.end()) bad_answer("expected an audit of the block", answer.dump());
    try {
      out.audit = gate::block_audit_from_json(*audit);
    } catch (const nlohmann::json::exception& e) {
      bad_answer(fmt::format("an audit of the block that cannot be read ({})", e.what()), audit->dump());
    }
    // What the arm added up is not taken on trust.
    out.audit.steps = static_cast<int>(out.times_ns.size()) - 1;
    out.audit.reported_ns = std::accumulate(out.times_ns.begin() + 1, out.times_ns.end(), 0.0);
    out.audit.outside_ns = std::max(0.0, std::chrono::duration<double, std::nano>(out.answered - out.asked).count() - waited_ns);
    return out;
  }

  ordered_json receive(double timeout_s, std::string_view when) {
    std::string line;
    switch (child_->read_line(line, after(timeout_s), stop_)) {
      case Read::line:
        break;
      case Read::interrupted:
        throw Interrupted();
      case Read::timeout:
        throw ArmFailure(with_last_words(fmt::format("arm {} said nothing for {:.0f} s {}", spec_.label, timeout_s, when), *child_));
      case Read::end_of_output:
        fail_by_ending(spec_.label, *child_, when);
    }
    const ordered_json answer = ordered_json::parse(line, nullptr, false);
    if (!answer.is_object()) bad_answer("expected a JSON object", line);
    if (const auto error = answer.find("error"); error != answer.end())
      throw ArmFailure(fmt::format("arm {}: {}", spec_.label, error->is_string() ? error->get<std::string>() : error->dump()));
    return answer;
  }

  ArmSpec spec_;
  const std::atomic<bool>* stop_;
  std::unique_ptr<ChildProcessGroup> child_;
  ordered_json info_;
};

class CommandArm : public Arm {
 public:
  CommandArm(ArmSpec spec, const std::atomic<bool>* stop) : spec_(std::move(spec)), stop_(stop), lines_(spec_.step_regex) {
    info_["command"] = without_folder(spec_.argv);
  }
  void start() override {}
  void wait_ready(double) override {}

  BlockTimes block(int, double timeout_s) override {
    const std::vector<double> all = run_to_end(timeout_s).times_ns;
    const int n = static_cast<int>(all.size());
    const int skip = spec_.skip_steps >= 0 ? spec_.skip_steps : stepscope::first_steps_left_out(n);
    refuse_unless_more_than(skip, n);
    return {{all.begin() + skip, all.end()}, std::nullopt, std::nullopt};
  }

  Stretch stretch(const StretchRequest&, double timeout_s) override {
    Stretch out = run_to_end(timeout_s);
    if (out.times_ns.size() < 2)
      throw ArmFailure(
          fmt::format("arm {} printed {} step times: expected lines like 'step 3 | 25.7 ms', or a "
                      "--step-regex that finds them{}",
                      spec_.label, out.times_ns.size(), last_words_));
    refuse_unless_more_than(spec_.skip_steps, static_cast<int>(out.times_ns.size()));
    return out;
  }
  int steps_again(uint64_t, double) override { return 0; }

  bool keeps_state() const override { return false; }
  const ordered_json& info() const override { return info_; }

 private:
  void refuse_unless_more_than(int skip, int n) const {
    if (n <= skip)
      throw ArmFailure(
          fmt::format("arm {} printed {} step times and the first {} do not count: expected lines like "
                      "'step 3 | 25.7 ms', or a --step-regex that finds them{}",
                      spec_.label, n, skip, last_words_));
  }
  Stretch run_to_end(double timeout_s) {
    const std::vector<pid_t> others = children_of_this_process();
    std::unique_ptr<ChildProcessGroup> child;
    const Clock::time_point started = Clock::now();
    try {
      child = std::make_unique<ChildProcessGroup>(ChildProcessGroup::Options{argv(), spec_.environment, false, true});
    } catch (const stepscope::InputError& e) {
      throw ArmFailure(fmt::format("arm {}: {}", spec_.label, e.what()));
    }
    const auto deadline = after(timeout_s);
    std::vector<double> all;
    Clock::time_point first_line, last_line;
    std::string line;
    for (bool open = true; open;) {
      switch (child->read_line(line, deadline, stop_)) {
        case Read::interrupted:
          throw Interrupted();
        case Read::timeout:
          throw ArmFailure(with_last_words(
              fmt::format("arm {} did not end within {:.0f} s (--block-timeout-s; {} step times read)", spec_.label, timeout_s, all.size()),
              *child));
        case Read::end_of_output:
          open = false;
          break;
        case Read::line:
          if (const auto step = lines_.parse(line)) {
            if (step->separated)
              throw ArmFailure(fmt::format("arm {} printed '{}': expected milliseconds without separators, such as 1234.5", spec_.label,
                                           line.substr(0, 200)));
            if (!step->time_ns) throw ArmFailure(fmt::format("arm {} printed '{}'", spec_.label, line.substr(0, 200)));
            if (step->ambiguous)
              throw ArmFailure(fmt::format("arm {} printed '{}', with more than one number of ms: name the step's by --step-regex",
                                           spec_.label, line.substr(0, 200)));
            all.push_back(*step->time_ns);
            last_line = Clock::now();
            if (all.size() == 1) first_line = last_line;
          }
      }
    }
    const auto ending = child->wait(deadline);
    if (!ending) throw ArmFailure(fmt::format("arm {} closed its output and did not end within {:.0f} s", spec_.label, timeout_s));
    if (!ending->exited || ending->code != 0)
      throw ArmFailure(with_last_words(fmt::format("arm {} {} after {} steps", spec_.label, ending->text(), all.size()), *child));
    // Steps come one after the other, so they take no longer than the process. A wrong unit, or times since the start, do.
    const double steps_s = std::accumulate(all.begin(), all.end(), 0.0) * 1e-9,
                 process_s = std::chrono::duration<double>(Clock::now() - started).count();
    if (spec_.in_real_time && steps_s > 1.1 * process_s + 1)
      throw ArmFailure(
          fmt::format("arm {} printed {} steps that take {:.3g} s together, and ran for {:.3g} s: expected the milliseconds "
                      "of each step (--step-regex), or --recorded for times of another run",
                      spec_.label, all.size(), steps_s, process_s));
    // What it left behind would run beside the other arm.
    child->kill_all();
    kill_orphans(others);
    last_words_ = child->last_words();
    if (!last_words_.empty()) last_words_ = "; its last output:\n" + last_words_;
    return placed(std::move(all), first_line, last_line);
  }

  // When the steps ran, by when their lines came: only where the lines came as the steps did, which a buffer in between prevents.
  static Stretch placed(std::vector<double> times, Clock::time_point first_line, Clock::time_point last_line) {
    const double between_ns = std::chrono::duration<double, std::nano>(last_line - first_line).count();
    const double sum_ns = std::accumulate(times.begin(), times.end(), 0.0);
    Stretch out{std::move(times), std::nullopt, "the command's step lines did not come as its steps ran", std::nullopt, std::nullopt};
    if (out.times_ns.empty()) return out;
    const double steps_ns = sum_ns - out.times_ns.front();
    if (std::fabs(between_ns - steps_ns) > 0.1 * steps_ns) return out;
    out.began = last_line - std::chrono::nanoseconds(static_cast<int64_t>(sum_ns));
    out.began_absent.clear();
    return out;
  }

  std::vector<std::string> argv() const {
    std::vector<std::string> out = spec_.argv;
    for (std::string& a : out)
      for (size_t at; (at = a.find(kSteps)) != std::string::npos;) a.replace(at, kSteps.size(), std::to_string(spec_.steps));
    return out;
  }

  ArmSpec spec_;
  const std::atomic<bool>* stop_;
  StepLines lines_;
  ordered_json info_;
  std::string last_words_;
};

}  // namespace

bool ArmSpec::takes_steps() const {
  return std::any_of(argv.begin(), argv.end(), [](const std::string& a) { return a.find(kSteps) != std::string::npos; });
}

std::unique_ptr<Arm> make_arm(const ArmSpec& spec, const std::atomic<bool>* stop) {
  if (spec.steps_on_command) return std::make_unique<SteppingArm>(spec, stop);
  return std::make_unique<CommandArm>(spec, stop);
}

std::vector<std::string> without_folder(std::vector<std::string> argv) {
  argv[0] = std::filesystem::path(argv[0]).filename().string();
  return argv;
}

}  // namespace experiments
