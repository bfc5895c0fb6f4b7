// `stepscope report run.jsonl …`: logs of runs (gpt2/run_log.h) as table, Markdown, CSV and a page with curves, several side by side.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gpt2/run_log.h"

namespace cli {

// The steps between two rows of a table, summed up.
struct LogInterval {
  int64_t from = 0, to = 0;                    // steps, both included
  std::optional<double> loss, grad_norm, ms;   // means over the logged steps; absent: none was logged
  std::optional<double> learning_rate;         // of the last of them
  std::optional<double> validation, accuracy;  // the last ones in the interval
};
// `count` intervals (fewer where there are fewer steps) of equal length over the steps 1 to the last of all logs; the last one may be
// shorter. One list per log, all with the same bounds.
std::vector<std::vector<LogInterval>> log_intervals(const std::vector<gpt2::RunLog>& logs, size_t count);

struct LogSummary {
  std::string name;  // file, without what all names share
  std::string what;  // "reference trainer, tiny, peak rate 0.0003"
  int64_t steps = 0;
  std::optional<double> final_loss;  // mean over the last tenth of the steps
  std::optional<double> lowest_validation, last_accuracy, median_ms, tokens_per_s;
  std::string state;               // "ended", "stopped: …", "goes on or was interrupted"
  std::vector<std::string> notes;  // what the log lacks, then the run's own
};
std::vector<LogSummary> log_summaries(const std::vector<gpt2::RunLog>& logs);

std::string log_table_text(const std::vector<gpt2::RunLog>& logs, size_t rows, size_t width, bool color);
std::string log_markdown_text(const std::vector<gpt2::RunLog>& logs, size_t rows);
// A row per step that any of the logs holds; columns of a second log on carry its number: loss_2.
std::string log_csv_text(const std::vector<gpt2::RunLog>& logs);
std::string log_json_text(const std::vector<gpt2::RunLog>& logs);
std::string log_html_text(const std::vector<gpt2::RunLog>& logs);

}  // namespace cli
