#include "cli/log_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/statistics.h"
#include "base/text.h"
#include "cli/training_log.h"
#include "profiler/report/text_table.h"

namespace cli {
namespace {

using gpt2::RunLog;

std::string cell(const std::optional<double>& value, int digits) { return value ? fmt::format("{:.{}f}", *value, digits) : "-"; }
std::string rate_cell(const std::optional<double>& value) { return value ? fmt::format("{:.2e}", *value) : "-"; }

// What a table shows of one interval; the same for terminal and Markdown.
struct Column {
  const char* title;
  std::string (*text)(const LogInterval&);
  bool beside;  // also where several logs stand side by side
};
constexpr Column kColumns[] = {
    {"loss", [](const LogInterval& i) { return cell(i.loss, 4); }, true},
    {"validation", [](const LogInterval& i) { return cell(i.validation, 4); }, true},
    {"accuracy", [](const LogInterval& i) { return cell(i.accuracy, 4); }, true},
    {"norm", [](const LogInterval& i) { return cell(i.grad_norm, 3); }, false},
    {"lr", [](const LogInterval& i) { return rate_cell(i.learning_rate); }, false},
    {"ms", [](const LogInterval& i) { return cell(i.ms, 3); }, true},
};

struct Grid {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;
};

// A column where no log has a value is left out.
Grid grid_of(const std::vector<RunLog>& logs, size_t rows) {
  const auto intervals = log_intervals(logs, rows);
  Grid g;
  g.titles.push_back("steps");
  const size_t count = intervals.front().size();
  g.rows.resize(count);
  for (size_t r = 0; r < count; ++r) {
    const LogInterval& i = intervals.front()[r];
    g.rows[r].push_back(i.from == i.to ? fmt::format("{}", i.to) : fmt::format("{}-{}", i.from, i.to));
  }
  for (const Column& c : kColumns) {
    for (size_t l = 0; l < logs.size(); ++l) {
      if (logs.size() > 1 && !c.beside) continue;
      if (std::all_of(intervals[l].begin(), intervals[l].end(), [&](const LogInterval& i) { return c.text(i) == "-"; })) continue;
      g.titles.push_back(logs.size() > 1 ? fmt::format("{} {}", c.title, l + 1) : c.title);
      for (size_t r = 0; r < count; ++r) g.rows[r].push_back(c.text(intervals[l][r]));
    }
  }
  return g;
}

struct SummaryLine {
  std::string head, facts;
};
SummaryLine line_of(const LogSummary& s, size_t number, size_t all) {
  std::string facts = fmt::format("{} steps", s.steps);
  if (s.final_loss) facts += fmt::format(", final loss {:.6f}", *s.final_loss);
  if (s.lowest_validation) facts += fmt::format(", lowest validation loss {:.6f}", *s.lowest_validation);
  if (s.last_accuracy) facts += fmt::format(", accuracy {:.4f}", *s.last_accuracy);
  if (s.median_ms) facts += fmt::format(", median {:.3f} ms a step", *s.median_ms);
  if (s.tokens_per_s) facts += fmt::format(", {:.0f} tokens/s", *s.tokens_per_s);
  return {fmt::format("{}{}: {}", all > 1 ? fmt::format("{}  ", number) : "", s.name, s.what), fmt::format("{}; {}", facts, s.state)};
}

constexpr const char* kLegend =
    "Losses, norms and ms are means over the steps of a row, the final loss over the last tenth of all; validation and accuracy are the "
    "last in it. The median of the steps' ms leaves the first tenth out, at most ten, as train's does.";

// The names of the files, or whole paths where two files have one name.
std::vector<std::string> short_names(const std::vector<RunLog>& logs) {
  std::vector<std::string> names;
  for (const RunLog& log : logs) names.push_back(std::filesystem::path(log.path).filename().string());
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    for (size_t i = 0; i < logs.size(); ++i) names[i] = logs[i].path;
  return names;
}

std::string not_logged_text(int64_t from, int64_t to) {
  return fmt::format("the log lacks {}: the run was resumed after step {} and had written {} to another log or to none",
                     from == to ? fmt::format("step {}", to) : fmt::format("steps {} to {}", from, to), to, from == to ? "it" : "them");
}

int64_t last_step(const std::vector<RunLog>& logs) {
  int64_t last = 0;
  for (const RunLog& log : logs) {
    if (!log.steps.empty()) last = std::max(last, log.steps.back().step);
    if (!log.validations.empty()) last = std::max(last, log.validations.back().step);
    if (!log.accuracies.empty()) last = std::max(last, log.accuracies.back().step);
  }
  return last;
}

class Mean {
 public:
  void add(double v) {
    sum_ += v;
    ++count_;
  }
  std::optional<double> value() const { return count_ ? std::optional(sum_ / static_cast<double>(count_)) : std::nullopt; }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

LogInterval interval_of(const RunLog& log, int64_t from, int64_t to) {
  LogInterval out{from, to, {}, {}, {}, {}, {}, {}};
  Mean loss, norm, ms;
  const auto before = [](const gpt2::LoggedStep& s, int64_t step) { return s.step < step; };
  for (auto s = std::lower_bound(log.steps.begin(), log.steps.end(), from, before); s != log.steps.end() && s->step <= to; ++s) {
    loss.add(s->loss);
    norm.add(s->grad_norm);
    ms.add(s->time_ns * 1e-6);
    out.learning_rate = s->learning_rate;
  }
  out.loss = loss.value();
  out.grad_norm = norm.value();
  out.ms = ms.value();
  const auto last_of = [&](const std::vector<gpt2::LoggedValue>& values, std::optional<double>& into) {
    for (const gpt2::LoggedValue& v : values)
      if (v.step >= from && v.step <= to) into = v.value;
  };
  last_of(log.validations, out.validation);
  last_of(log.accuracies, out.accuracy);
  return out;
}

}  // namespace

std::vector<std::vector<LogInterval>> log_intervals(const std::vector<RunLog>& logs, size_t count) {
  const int64_t last = last_step(logs), rows = static_cast<int64_t>(count);
  const int64_t length = last / rows + (last % rows > 0 ? 1 : 0) + (last == 0 ? 1 : 0);  // last + rows - 1 may pass 2^63
  std::vector<std::vector<LogInterval>> all;
  for (const RunLog& log : logs) {
    all.emplace_back();
    for (int64_t from = 1; from <= last; from += length) all.back().push_back(interval_of(log, from, std::min(last, from + length - 1)));
  }
  return all;
}

std::vector<LogSummary> log_summaries(const std::vector<RunLog>& logs) {
  const std::vector<std::string> names = short_names(logs);
  std::vector<LogSummary> all;
  for (size_t l = 0; l < logs.size(); ++l) {
    const RunLog& log = logs[l];
    LogSummary s;
    s.name = names[l];
    // A log that was not written by this program may say nothing of its run.
    s.what = log.trainer.empty() ? "a run" : log.trainer + " trainer";
    if (!log.device.empty()) s.what += " on " + log.device;
    if (log.ranks > 1) s.what += fmt::format(", {} ranks", log.ranks);
    if (!log.model.empty()) s.what += ", " + log.model;
    if (log.peak_learning_rate) s.what += fmt::format(", peak rate {:g}", *log.peak_learning_rate);
    s.steps = static_cast<int64_t>(log.steps.size());
    s.state = !log.stopped.empty() ? "stopped: " + log.stopped : log.ended ? "ended" : "goes on, or was interrupted";
    for (const auto& [from, to] : log.not_logged) s.notes.push_back(not_logged_text(from, to));
    s.notes.insert(s.notes.end(), log.notes.begin(), log.notes.end());
    std::vector<double> ms, losses;
    for (const gpt2::LoggedStep& step : log.steps) {
      ms.push_back(step.time_ns * 1e-6);
      losses.push_back(step.loss);
    }
    if (!ms.empty()) {
      s.final_loss = stepscope::mean_of_last_tenth(losses);
      s.median_ms = stepscope::median(std::vector(ms.begin() + static_cast<std::ptrdiff_t>(steps_left_out(ms.size())), ms.end()));
      if (log.tokens_per_step > 0 && *s.median_ms > 0)
        s.tokens_per_s = static_cast<double>(log.ranks) * static_cast<double>(log.tokens_per_step) / *s.median_ms * 1e3;
    }
    for (const gpt2::LoggedValue& v : log.validations) s.lowest_validation = std::min(s.lowest_validation.value_or(v.value), v.value);
    if (!log.accuracies.empty()) s.last_accuracy = log.accuracies.back().value;
    all.push_back(std::move(s));
  }
  return all;
}

std::string log_table_text(const std::vector<RunLog>& logs, size_t rows, size_t width, bool color) {
  std::string out;
  const auto summaries = log_summaries(logs);
  for (size_t l = 0; l < logs.size(); ++l) {
    const SummaryLine line = line_of(summaries[l], l + 1, logs.size());
    out += profiler::wrapped(line.head, width, 3) + "\n" + profiler::wrapped("   " + line.facts, width, 3) + "\n";
    for (const std::string& note : summaries[l].notes) out += profiler::wrapped("   note: " + note, width, 3) + "\n";
  }
  const Grid g = grid_of(logs, rows);
  if (g.rows.empty()) return out + "No step is logged yet.\n";
  std::vector<profiler::TextTable::Column> columns;
  for (size_t c = 0; c < g.titles.size(); ++c) {
    profiler::TextTable::Column column;
    column.header = g.titles[c];
    column.drop = static_cast<int>(c);
    columns.push_back(std::move(column));
  }
  profiler::TextTable table(std::move(columns));
  for (const auto& row : g.rows) table.row(row);
  return out + "\n" + table.text(width, color) + profiler::wrapped(kLegend, width, 0) + "\n";
}

std::string log_markdown_text(const std::vector<RunLog>& logs, size_t rows) {
  std::string out = "# Training log\n\n";
  const auto summaries = log_summaries(logs);
  for (size_t l = 0; l < logs.size(); ++l) {
    const SummaryLine line = line_of(summaries[l], l + 1, logs.size());
    out += fmt::format("- {}: {}\n", stepscope::markdown_escaped(line.head), stepscope::markdown_escaped(line.facts));
    for (const std::string& note : summaries[l].notes) out += fmt::format("  - note: {}\n", stepscope::markdown_escaped(note));
  }
  const Grid g = grid_of(logs, rows);
  if (g.rows.empty()) return out + "\nNo step is logged yet.\n";
  out += "\n|";
  for (const std::string& title : g.titles) out += fmt::format(" {} |", title);
  out += "\n|";
  for (size_t c = 0; c < g.titles.size(); ++c) out += "---:|";
  out += "\n";
  for (const auto& row : g.rows) {
    out += "|";
    for (const std::string& text : row) out += fmt::format(" {} |", text);
    out += "\n";
  }
  return out + "\n" + kLegend + "\n";
}

std::string log_csv_text(const std::vector<RunLog>& logs) {
  constexpr const char* kNames[] = {"loss", "grad_norm", "learning_rate", "time_ns", "validation_loss", "accuracy"};
  constexpr size_t kFields = std::size(kNames);
  std::map<int64_t, std::vector<std::string>> rows;
  const auto put = [&](int64_t step, size_t log, size_t field, double value) {
    auto& row = rows[step];
    row.resize(kFields * logs.size());
    row[kFields * log + field] = fmt::format("{}", value);
  };
  std::string out = "step";
  for (size_t l = 0; l < logs.size(); ++l) {
    for (const char* name : kNames) out += l == 0 ? fmt::format(",{}", name) : fmt::format(",{}_{}", name, l + 1);
    for (const gpt2::LoggedStep& s : logs[l].steps) {
      put(s.step, l, 0, s.loss);
      put(s.step, l, 1, s.grad_norm);
      put(s.step, l, 2, s.learning_rate);
      put(s.step, l, 3, s.time_ns);
    }
    for (const gpt2::LoggedValue& v : logs[l].validations) put(v.step, l, 4, v.value);
    for (const gpt2::LoggedValue& v : logs[l].accuracies) put(v.step, l, 5, v.value);
  }
  out += "\n";
  for (const auto& [step, row] : rows) out += fmt::format("{},{}\n", step, fmt::join(row, ","));
  return out;
}

std::string log_json_text(const std::vector<RunLog>& logs) {
  using nlohmann::ordered_json;
  const auto summaries = log_summaries(logs);
  ordered_json all = ordered_json::array();
  for (size_t l = 0; l < logs.size(); ++l) {
    const LogSummary& s = summaries[l];
    ordered_json j{{"file", logs[l].path},   {"trainer", logs[l].trainer}, {"device", logs[l].device},
                   {"model", logs[l].model}, {"ranks", logs[l].ranks},     {"steps", s.steps}};
    const auto put = [&](const char* name, const std::optional<double>& value) {
      if (value) j[name] = *value;
    };
    put("final_loss", s.final_loss);
    put("lowest_validation_loss", s.lowest_validation);
    put("accuracy", s.last_accuracy);
    put("median_ms", s.median_ms);
    put("tokens_per_s", s.tokens_per_s);
    j["state"] = s.state;
    for (const auto& [from, to] : logs[l].not_logged) j["not_logged"].push_back({{"from", from}, {"to", to}});
    all.push_back(std::move(j));
  }
  return stepscope::json_text(ordered_json{{"logs", all}}, 1) + "\n";
}

}  // namespace cli
