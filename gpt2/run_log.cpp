#include "gpt2/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
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

void read_settings(const Line& line, RunLog& log) {
  if (!line.has("settings") || !line.object().at("settings").is_object()) line.fail("no \"settings\"", "an object with the run's settings");
  const Line settings = line.within("settings");
  const auto text = [&](const char* name) { return settings.has(name) ? settings.word(name) : std::string(); };
  log.command = text("command");
  log.trainer = text("trainer");
  log.device = text("device");
  log.model = text("model_name");
  log.ranks = settings.has("world") ? settings.within("world").whole("size") : 1;
  if (settings.has("tokens_per_step")) log.tokens_per_step = settings.whole("tokens_per_step");  // of one rank
  if (settings.has("learning_rate")) log.peak_learning_rate = settings.amount("learning_rate");
  if (line.has("resumed_after")) log.resumed_after.push_back(line.whole("resumed_after"));
  log.ended = false;
  log.stopped.clear();
}

void read_step(const Line& line, RunLog& log) {
  LoggedStep s{line.whole("step"), line.real("loss"), line.amount("grad_norm"), line.amount("learning_rate"), line.amount("time_ns")};
  if (log.ended) line.fail(fmt::format("step {} stands behind the run's end", s.step), "a line of event \"run\" between the two");
  if (!log.steps.empty() && s.step <= log.steps.back().step)
    line.fail(fmt::format("step {} stands behind step {}", s.step, log.steps.back().step), "steps in order, none twice");
  log.steps.push_back(s);
}

[[noreturn]] void fail_errno(const std::string& path, const char* doing) {
  throw InputError(fmt::format("--log {}: cannot {}: {}", path, doing, std::strerror(errno)));
}

// A checkpoint goes on with the same weights, rows and data order; a log with others tells of another run, and would lose its lines here.
void require_same_run(const Line& line, const json& settings) {
  if (!line.has("settings")) return;
  const json& logged = line.object().at("settings");
  for (const char* name : {"seed", "model", "batch_size", "seq_len"}) {
    if (!logged.is_object() || !logged.contains(name) || !settings.contains(name)) continue;
    const json &was = logged.at(name), &is = settings.at(name);
    // Programs until 2026-11-23 wrote a seed of 2^63 and more as the negative number of the same bits.
    const bool same = was.is_number_integer() && is.is_number_integer() ? was.get<uint64_t>() == is.get<uint64_t>() : was == is;
    if (!same)
      line.fail(fmt::format("the log of a run with {} {}, this one has {}", name, stepscope::shown_json(was), stepscope::shown_json(is)),
                "another file");
  }
}

// The lines of a log that stay when the run of `settings` goes on behind step `done`.
std::string kept_lines(std::string_view text, const std::string& source, int64_t done, const json& settings,
                       const std::string& checkpoints) {
  constexpr std::string_view kBegin = "{\"event\":\"run\"";
  if (text.find('\n') == std::string_view::npos && !text.starts_with(kBegin.substr(0, text.size())))
    throw InputError(fmt::format("{}: this is no run's log, expected another file", source));
  std::string kept, logged_checkpoints;
  int64_t steps = 0;
  for_each_line(text, [&](std::string_view line, size_t number) {
    const Line l(line, source, number);
    if (l.event() == "run") {
      require_same_run(l, settings);
      logged_checkpoints = l.has("checkpoints") ? l.word("checkpoints") : "";
    }
    steps += l.event() == "step";
    if (l.event() != "run" && l.whole("step") > done) return;
    kept += line;
    kept += '\n';
  });
  if (done > 0) return kept;
  // A run that was ended before its first checkpoint begins anew, and its log with it. Without a checkpoint because the folder is another
  // one, the log is somebody's history.
  if (steps > 0 && logged_checkpoints != checkpoints)
    throw InputError(
        fmt::format("{}: {} step{} of a run {}, and this run begins at step 1 because {} holds no checkpoint; expected the "
                    "folder of that run, or another log",
                    source, steps, steps == 1 ? "" : "s",
                    logged_checkpoints.empty() ? "without --checkpoints" : "with its checkpoints in " + logged_checkpoints, checkpoints));
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

void RunLogWriter::write(const nlohmann::ordered_json& line) {
  const std::string text = stepscope::json_text(line, -1) + "\n";
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t n = ::write(file_.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(path_, "write");
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
  RunLog log;
  log.path = source;
  if (text.find('\n') == std::string_view::npos)
    throw InputError(fmt::format("{}: not one whole line, expected a run's log as `train --log` writes it", source));
  for_each_line(text, [&](std::string_view bytes, size_t number) {
    const Line line(bytes, source, number);
    const std::string& event = line.event();
    if (event == "run") read_settings(line, log);
    if (event == "step") read_step(line, log);
    if (event == "validation") log.validations.push_back({line.whole("step"), line.real("loss")});
    if (event == "eval") log.accuracies.push_back({line.whole("step"), line.share("accuracy")});
    if (event == "note") log.notes.push_back(line.word("text"));
    if (event == "end") {
      log.ended = true;
      log.stopped = line.has("stopped") ? line.word("stopped") : "";
    }
  });
  return log;
}

RunLog load_run_log(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_run_log(file.text(), path.string());
}

}  // namespace gpt2
