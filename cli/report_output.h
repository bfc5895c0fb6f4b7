// How `profile` and `report` show a document: the same flags, the same table, the same files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/named_files.h"
#include "cli/arguments.h"
#include "profiler/document/profile.h"

namespace cli {

struct ReportFlags {
  std::string by = "kernel";
  int64_t top = 12;
  bool json = false;
  std::string csv, csv_rows = "kernel", trace;
  std::vector<std::string> outputs;  // the name's ending says what is written
  std::vector<std::string> out;      // of `report` alone: the same under -o, so that errors name what was typed
  const Argument *by_flag = nullptr, *top_flag = nullptr, *csv_rows_flag = nullptr;
};

// Files beside what a command shows. They are written at once, and stderr names them at the end, below the tables: `report: x.html`.
class WrittenFiles {
 public:
  WrittenFiles() = default;
  WrittenFiles(const WrittenFiles&) = delete;
  WrittenFiles& operator=(const WrittenFiles&) = delete;
  ~WrittenFiles();
  // Throws as write_output does.
  void write(const char* what, const std::string& path, const std::string& text);

 private:
  std::vector<std::pair<const char*, std::string>> files_;
};

// Why --by and --top are refused beside --json where no table is written; `diff` has the same three flags.
inline constexpr const char* kNoTable = "--json prints all rows and no table; leave one of the two out";

void add_report_flags(Command& command, ReportFlags& flags);
// Before anything is measured: a flag or folder that would fail afterwards, two outputs that are one file, and an output that is a file to
// read. `inputs`, `outputs`: the command's other files.
void check_report_outputs(const ReportFlags& flags, const stepscope::NamedFiles& inputs = {}, stepscope::NamedFiles outputs = {});
// Of a command whose --out takes the document: `report -o x.html` writes a page, so that is what people type there, too.
void check_document_name(const char* flag, const std::string& out);
// Table (or the document with --json) on stdout, CSV and trace into their files. The exit code: 1 where something severe is missing.
[[nodiscard]] int print_report(const profiler::ProfileDocument& document, const ReportFlags& flags);
// The same of a document that this program has made: it goes into the file `out`.
[[nodiscard]] int print_new_report(const profiler::ProfileDocument& document, const std::string& out, const ReportFlags& flags);

// The same flags for something that is no profile: each text is made when a file or stdout wants it.
struct ReportTexts {
  std::function<std::string()> html, markdown, json, csv;
  std::function<std::string(size_t width, bool color)> table;
};
void print_texts(const ReportFlags& flags, const ReportTexts& texts);
// Throws stepscope::InputError for flags that ask for launches or kernels, which a run's log does not have.
void check_log_outputs(const ReportFlags& flags);

}  // namespace cli
