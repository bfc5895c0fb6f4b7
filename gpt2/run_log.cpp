#include "gpt2/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/json_read.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/output_file.h"

namespace gpt2 {
namespace {

using nlohmann::json;
using stepscope::InputError;

// The members of one line, with the place for messages.
class Line {
 public:
  Line(std::string_view text, const std::string& source, size_t number) : where_(fmt::format("{}:{}", source, number)) {
    object_ = stepscope::read_json<json>(text);
    if (!object_.is_object()) fail("no JSON object: " + stepscope::why_no_object_in_line(text, source), "one object per line");
    event_ = word("event");
    if (number == 1 && (event_ != "run" || word("schema") != kRunLogSchema))
      fail("this is not the first line of a run's log", fmt::format("\"event\": \"run\" and \"schema\": \"{}\"", kRunLogSchema));
  }

  const std::string& event() const { return event_; }
  bool has(const char* name) const { return object_.contains(name); }
  std::string word(const char* name) const {
    if (!has(name)) fail(fmt::format("no \"{}\"", name), "a text");
    const json& v = object_.at(name);
    if (!v.is_string()) fail(fmt::format("\"{}\" is {}", name, stepscope::shown_json(v)), "a text");
    return v.get<std::string>();
  }
  int64_t whole(const char* name) const {
    const json* v = has(name) ? &object_.at(name) : nullptr;
    const bool good = v && v->is_number_integer() && (!v->is_number_unsigned() || v->get<uint64_t>() <= (uint64_t{1} << 62));
    if (!good || v->get<int64_t>() < 0)
      fail(v ? fmt::format("\"{}\" is {}", name, stepscope::shown_json(*v)) : fmt::format("no \"{}\"", name), "a whole number, 0 or more");
    return v->get<int64_t>();
  }
  double real(const char* name) const {
    const json* v = has(name) ? &object_.at(name) : nullptr;
    if (!v || !v->is_number() || !std::isfinite(v->get<double>()))
      fail(v ? fmt::format("\"{}\" is {}", name, stepscope::shown_json(*v)) : fmt::format("no \"{}\"", name), "a number");
    return v->get<double>();
  }
  double amount(const char* name) const {
    const double v = real(name);
    if (v < 0) fail(fmt::format("\"{}\" is {}", name, stepscope::shown_json(object_.at(name))), "0 or more");
    return v;
  }
  // A loss that a model with nothing left to learn comes to is 0 but for rounding: with lm_head=hopper it is the logarithm of a sum of
  // exponentials, of which the target's own may be somewhat below 1.
  double loss() const {
    constexpr double kMostRounding = 0.01;
    const double v = real("loss");
    if (v < -kMostRounding) fail(fmt::format("\"loss\" is {}", stepscope::shown_json(object_.at("loss"))), "0 or more but for rounding");
    return v;
  }
  double share(const char* name) const {
    const double v = real(name);
    if (v < 0 || v > 1) fail(fmt::format("\"{}\" is {}", name, stepscope::shown_json(object_.at(name))), "0 to 1");
    return v;
  }
  const json& object() const { return object_; }
  // A member that is an object, read like a line.
  Line within(const char* name) const { return Line(object_.at(name), fmt::format("{}: {}", where_, name)); }
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(fmt::format("{}: {}, expected {}", where_, found, expected));
  }

 private:
  Line(json object, std::string where) : where_(std::move(where)), object_(std::move(object)) {}
  std::string where_, event_;
  json object_;
};

// Calls `visit` with every whole line and its number, from 1.
template <class Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  size_t number = 0;
  while (true) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return;
    visit(text.substr(0, end), ++number);
    text.remove_prefix(end + 1);
  }
}

[[noreturn]] void fail_errno(const std::string& path, const char* doing) {
  throw InputError(fmt::format("--log {}: cannot {}: {}", path, doing, std::strerror(errno)));
}

// The first setting, of those that stay when a run is resumed, in which two settings differ; nullptr: none.
const char* setting_of_another_run(const json& was, const json& is) {
  for (const char* name : {"seed", "model", "batch_size", "seq_len"}) {
    if (!was.is_object() || !was.contains(name) || !is.contains(name)) continue;
    const json &a = was.at(name), &b = is.at(name);
    // Programs until 2026-11-23 wrote a seed of 2^63 and more as the negative number of the same bits.
    if (!(a.is_number_integer() && b.is_number_integer() ? a.get<uint64_t>() == b.get<uint64_t>() : a == b)) return name;
  }
  return nullptr;
}

// What one line says must fit those before it: each stands behind the step that it is about, and no step is left out within a run.
class LogReader {
 public:
  explicit LogReader(const std::string& source) { log_.path = source; }

  void take(const Line& line) {
    const std::string& event = line.event();
    const bool known =
        event == "step" || event == "validation" || event == "eval" || event == "sample" || event == "note" || event == "end";
    if (event == "run") return run(line);
    if (!known) return;  // of a later version
    if (log_.ended) line.fail(fmt::format("{} stands behind the run's end", about(line)), "a line of event \"run\" between the two");
    if (event == "step") return step(line);
    if (line.has("step") && line.whole("step") != at_) {
      if (at_ == 0) line.fail(fmt::format("{} stands before step 1", about(line)), "it behind its step");
      line.fail(fmt::format("{} stands behind step {}", about(line), at_), fmt::format("step {}", at_));
    }
    if (event == "note") return log_.notes.push_back(line.word("text"));
    if (event == "end") return end(line);
    const auto [said, first] = said_.try_emplace(event, at_);
    if (!first && said->second == at_) line.fail(fmt::format("{} stands there twice", about(line)), "it once");
    said->second = at_;
    if (event == "validation") log_.validations.push_back({line.whole("step"), line.loss()});
    if (event == "eval") eval(line);
  }

  // The step behind which the last line stands, or that it tells of.
  int64_t at() const { return at_; }

  RunLog log() && {
    name_steps_before();
    return std::move(log_);
  }

 private:
  // "step 3", "the validation of step 4"
  static std::string about(const Line& line) {
    const std::string step = line.has("step") ? fmt::format("step {}", line.whole("step")) : "no step";
    return line.event() == "step" ? step : fmt::format("the {} of {}", line.event(), step);
  }
  int64_t last() const { return log_.steps.empty() ? 0 : log_.steps.back().step; }

  void run(const Line& line) {
    const int64_t resumed = line.has("resumed_after") ? line.whole("resumed_after") : 0;
    if (!first_ && resumed == 0) line.fail("a run that begins at step 1 stands behind another run", "\"resumed_after\", or a log for each");
    if (resumed < last())
      line.fail(fmt::format("a run that was resumed after step {} stands behind step {}", resumed, last()),
                fmt::format("{} or more", last()));
    read_settings(line);
    if (line.has("resumed_after")) log_.resumed_after.push_back(resumed);
    log_.ended = false;
    log_.stopped.clear();
    at_ = resumed;
    first_ = false;
  }

  void read_settings(const Line& line) {
    if (!line.has("settings") || !line.object().at("settings").is_object())
      line.fail("no \"settings\"", "an object with the run's settings");
    const json& object = line.object().at("settings");
    const Line settings = line.within("settings");
    if (const char* name = setting_of_another_run(settings_, object))
      settings.fail(fmt::format("\"{}\" is {}", name, stepscope::shown_json(object.at(name))),
                    fmt::format("{}, as in the run that goes on here", stepscope::shown_json(settings_.at(name))));
    settings_ = object;
    const auto text = [&](const char* name) { return settings.has(name) ? settings.word(name) : std::string(); };
    log_.command = text("command");
    log_.trainer = text("trainer");
    log_.device = text("device");
    log_.model = text("model_name");
    log_.ranks = settings.has("world") ? ranks_of(settings.within("world")) : 1;
    steps_ = settings.has("steps") ? std::optional(settings.whole("steps")) : std::nullopt;
    log_.peak_learning_rate = settings.has("learning_rate") ? std::optional(settings.amount("learning_rate")) : std::nullopt;
    if (!settings.has("tokens_per_step")) return;
    log_.tokens_per_step = settings.whole("tokens_per_step");  // of one rank
    double tokens = 1;
    for (const char* name : {"batch_size", "seq_len", "accumulation"}) {
      if (!settings.has(name)) return;
      tokens *= static_cast<double>(settings.whole(name));
    }
    if (static_cast<double>(log_.tokens_per_step) != tokens)
      settings.fail(fmt::format("\"tokens_per_step\" is {}", log_.tokens_per_step),
                    fmt::format("{}: batch_size x seq_len x accumulation", tokens));
  }
  static int64_t ranks_of(const Line& world) {
    const int64_t size = world.whole("size");
    if (size < 1) world.fail(fmt::format("\"size\" is {}", size), "1 or more");
    return size;
  }

  void step(const Line& line) {
    const LoggedStep s{line.whole("step"), line.loss(), line.amount("grad_norm"), line.amount("learning_rate"), line.amount("time_ns")};
    if (s.step != at_ + 1) {
      const std::string behind = at_ == 0        ? "the run's beginning"
                                 : at_ == last() ? fmt::format("step {}", at_)
                                                 : fmt::format("the beginning of a run that was resumed after step {}", at_);
      line.fail(fmt::format("step {} stands behind {}", s.step, behind), fmt::format("step {}", at_ + 1));
    }
    if (steps_ && s.step > *steps_)
      line.fail(fmt::format("step {} of a run whose settings say {} steps", s.step, *steps_), "no step behind it");
    // The settings hold the rate as it was typed, a step the float that was made of it.
    constexpr double kRoundingOfAFloat = 1e-6;
    if (const auto& peak = log_.peak_learning_rate; peak && s.learning_rate > *peak * (1 + kRoundingOfAFloat))
      line.fail(fmt::format("\"learning_rate\" is {}", s.learning_rate), fmt::format("{} or less, the peak that the settings say", *peak));
    name_steps_before();
    log_.steps.push_back(s);
    at_ = s.step;
  }

  // A run may be resumed whose last steps went to no log, or to another.
  void name_steps_before() {
    if (at_ > last()) log_.not_logged.emplace_back(last() + 1, at_);
  }

  void eval(const Line& line) {
    log_.accuracies.push_back({line.whole("step"), line.share("accuracy")});
    if (!line.has("examples")) return;
    const int64_t all = line.whole("examples");
    if (all == 0) line.fail("\"examples\" is 0", "1 or more");
    for (const auto& [correct, accuracy] : {std::pair("correct", "accuracy"), std::pair("correct_by_sum", "accuracy_by_sum")}) {
      if (!line.has(correct)) continue;
      const int64_t right = line.whole(correct);
      if (right > all) line.fail(fmt::format("\"{}\" is {}", correct, right), fmt::format("at most {}, the examples", all));
      const double share = static_cast<double>(right) / static_cast<double>(all);
      constexpr double kHalfOfTheLastDigitShown = 5e-5;
      if (line.has(accuracy) && std::abs(line.share(accuracy) - share) > kHalfOfTheLastDigitShown)
        line.fail(fmt::format("\"{}\" is {}", accuracy, line.share(accuracy)), fmt::format("{:.4f}: {} of {} examples", share, right, all));
    }
  }

  void end(const Line& line) {
    log_.ended = true;
    log_.stopped = line.has("stopped") ? line.word("stopped") : "";
    if (steps_ && at_ != *steps_ && log_.stopped.empty())
      line.fail(fmt::format("the run ends at step {} of {} and does not say why", at_, *steps_), "\"stopped\", or the last step");
  }

  RunLog log_;
  json settings_;                        // of the last run
  std::optional<int64_t> steps_;         // that it was to do, over the whole history of the model
  int64_t at_ = 0;                       // the step behind which the next line stands
  std::map<std::string, int64_t> said_;  // the last step of each event that comes once a step
  bool first_ = true;
};

// A checkpoint goes on with the same weights, rows and data order; a log with others tells of another run, and would lose its lines here.
void require_same_run(const Line& line, const json& settings) {
  const json& logged = line.object().at("settings");
  if (const char* name = setting_of_another_run(logged, settings))
    line.fail(fmt::format("the log of a run with {} {}, this one has {}", name, stepscope::shown_json(logged.at(name)),
                          stepscope::shown_json(settings.at(name))),
              "another file");
}

// The lines of a log that stay when the run of `settings` goes on behind step `done`. A log that `report` would refuse is refused, as lines
// behind its damage would be lost to every reader.
std::string kept_lines(std::string_view text, const std::string& source, int64_t done, const json& settings,
                       const std::string& checkpoints) {
  constexpr std::string_view kBegin = "{\"event\":\"run\"";
  if (text.find('\n') == std::string_view::npos && !text.starts_with(kBegin.substr(0, text.size())))
    throw InputError(fmt::format("{}: this is no run's log, expected another file", source));
  std::string kept, logged_checkpoints;
  int64_t steps = 0, dropped = 0;  // lines of steps
  LogReader reader(source);
  for_each_line(text, [&](std::string_view line, size_t number) {
    const Line l(line, source, number);
    reader.take(l);
    if (l.event() == "run") {
      require_same_run(l, settings);
      logged_checkpoints = l.has("checkpoints") ? l.word("checkpoints") : "";
      if (l.has("resumed_after") && l.whole("resumed_after") > done) return;  // from a checkpoint that does not load any more
    }
    steps += l.event() == "step";
    if (l.event() != "run" && reader.at() > done) {
      dropped += l.event() == "step";
      return;
    }
    kept += line;
    kept += '\n';
  });
  const auto logged_run = [&](int64_t n, const std::string& which) {
    return fmt::format("{}: {} step{}{} of a run {}", source, n, n == 1 ? "" : "s", which,
                       logged_checkpoints.empty() ? "without --checkpoints" : "with its checkpoints in " + logged_checkpoints);
  };
  // A folder that was moved has no step to lose, unless the run ended between two checkpoints; in another one a shorter run may have the
  // same settings.
  if (done > 0 && dropped > 0 && logged_checkpoints != checkpoints)
    throw InputError(fmt::format("{}, and this run goes on behind step {} from {}; expected the folder of that run, or another log",
                                 logged_run(dropped, fmt::format(" behind step {}", done)), done, checkpoints));
  if (done > 0) return kept;
  // A run that was ended before its first checkpoint begins anew, and its log with it. Without a checkpoint because the folder is another
  // one, the log is somebody's history.
  if (steps > 0 && logged_checkpoints != checkpoints)
    throw InputError(
        fmt::format("{}, and this run begins at step 1 because {} holds no checkpoint; expected the folder of that run, or another log",
                    logged_run(steps, ""), checkpoints));
  return "";
}

}  // namespace

void check_run_log(const std::filesystem::path& path, bool resume) {
  stepscope::check_output(path, "--log");
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec) || std::filesystem::file_size(path, ec) == 0) return;
  const MappedFile file(path);
  kept_lines(file.text(), "--log " + path.string(), std::numeric_limits<int64_t>::max(), json::object(), "");
  if (!resume) {
    throw InputError(fmt::format("--log {}: the file holds the log of another run; expected --resume, or another file", path.string()));
  }
}

RunLogWriter::RunLogWriter(const std::filesystem::path& path, int64_t done, const std::string& settings, const std::string& checkpoints)
    : path_(path.string()) {
  const auto open_it = [&] {
    file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
    if (!file_) fail_errno(path_, "open it");
    if (!lock_as_writer(file_.get(), false))
      throw InputError(fmt::format("--log {}: another run is writing it, expected another file", path_));
  };
  open_it();
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) return;  // a pipe has no history
  std::string kept;
  {
    const MappedFile file(path);
    if (file.bytes().empty()) return;
    kept = kept_lines(file.text(), "--log " + path_, done, settings.empty() ? json::object() : json::parse(settings), checkpoints);
    if (kept.size() == file.bytes().size()) return;
  }
  write_file_atomically(path, kept);
  open_it();
}

// The begin of a line that did not fit: the end of the run, where there is room for it again, would stand behind it in the same line. What cannot be
// cut, like a pipe, keeps it.
void RunLogWriter::take_back(size_t bytes) const {
  if (struct stat s{}; ::fstat(file_.get(), &s) == 0 && S_ISREG(s.st_mode))
    (void)!::ftruncate(file_.get(), s.st_size - static_cast<off_t>(bytes));
}

void RunLogWriter::write(const nlohmann::ordered_json& line) {
  const std::string text = stepscope::json_text(line, -1) + "\n";
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t n = ::write(file_.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      take_back(text.size() - rest.size());
      errno = error;
      fail_errno(path_, "write");
    }
    rest.remove_prefix(static_cast<size_t>(n));
  }
}

bool is_run_log(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of an editor; the JSON reader steps over it, too
  std::string_view first = text.substr(0, text.find('\n'));
  if (first.starts_with(kByteOrderMark)) first.remove_prefix(kByteOrderMark.size());
  return first.starts_with('{') && first.find(fmt::format("\"{}\"", kRunLogSchema)) != std::string_view::npos;
}

RunLog parse_run_log(std::string_view text, const std::string& source) {
  if (text.find('\n') == std::string_view::npos)
    throw InputError(fmt::format("{}: not one whole line, expected a run's log as `train --log` writes it", source));
  LogReader reader(source);
  for_each_line(text, [&](std::string_view bytes, size_t number) { reader.take(Line(bytes, source, number)); });
  return std::move(reader).log();
}

}  // namespace gpt2
