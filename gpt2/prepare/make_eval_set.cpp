#include "gpt2/prepare/make_eval_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/encoding.h"
#include "base/errors.h"
#include "base/json_read.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/progress_line.h"
#include "gpt2/data/bpe.h"
#include "gpt2/data/eval_set.h"
#include "gpt2/data/json_lines.h"
#include "gpt2/data/pretokenizer.h"
#include "gpt2/evaluation.h"
#include "gpt2/prepare/vocabulary.h"

namespace gpt2 {
namespace {

using nlohmann::json;
using stepscope::InputError;

constexpr size_t kCompletions = 4;  // llm.c's scripts and its reader know no other number

struct Question {
  std::string context;
  std::vector<std::string> completions;
  int64_t label = 0;
};

std::string as_index(int64_t value) { return fmt::format("{}", value); }

// 3, "3" or "D": the data sets write the right answer in all three ways.
int64_t label_of(const JsonLine& line, const char* name) {
  const json& v = line.member(name);
  std::string text = v.is_string() ? v.get<std::string>() : v.is_number_integer() ? stepscope::shown_json(v) : "";
  if (text.size() == 1 && text[0] >= 'A') text = as_index(text[0] - 'A');
  if (text.size() != 1 || text[0] < '0' || text[0] >= static_cast<char>('0' + kCompletions))
    line.fail(fmt::format("\"{}\" is {}", name, stepscope::shown_json(v)), "0 to 3, or A to D");
  return text[0] - '0';
}

std::vector<std::string> four_texts(const JsonLine& line, const char* name) {
  const json& v = line.member(name);
  if (!v.is_array() || v.size() != kCompletions)
    line.fail(fmt::format("\"{}\" is {}", name, v.is_array() ? fmt::format("a list of {}", v.size()) : stepscope::shown_json(v)),
              "a list of 4 texts");
  std::vector<std::string> out;
  for (const json& text : v) {
    if (!text.is_string()) line.fail(fmt::format("\"{}\" holds {}", name, stepscope::shown_json(text)), "a list of 4 texts");
    out.push_back(text.get<std::string>());
  }
  return out;
}

std::string mmlu_context(const std::string& question) { return "Question: " + question + "\n\nAnswer:"; }

Question from_json(const JsonLine& line, bool hellaswag) {
  if (hellaswag) return {line.text("ctx"), four_texts(line, "endings"), label_of(line, "label")};
  return {mmlu_context(line.text("question")), four_texts(line, "choices"), label_of(line, "answer")};
}

// Rows of RFC 4180: fields in quotes may hold commas, line ends and doubled quotes.
class CsvReader {
 public:
  // A byte order mark is a spreadsheet's and no part of the first question.
  CsvReader(std::string_view text, std::string source) : text_(text), source_(std::move(source)) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }
  // False at the end.
  bool next(std::vector<std::string>& fields) {
    fields.clear();
    if (text_.find_first_not_of("\r\n", at_) == std::string_view::npos) return false;
    row_line_ = line_;
    while (field(fields)) {
    }
    return true;
  }
  bool in_first_line() const { return row_line_ == 1; }
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(fmt::format("{}:{}: {}, expected {}", source_, row_line_, found, expected));
  }

 private:
  // True: another field of this row follows.
  bool field(std::vector<std::string>& fields) {
    std::string value;
    if (text_.substr(at_).starts_with('"')) {
      quoted(value);
    } else {
      const size_t end = std::min(text_.find_first_of(",\n", at_), text_.size());
      value = text_.substr(at_, end - at_);
      at_ = end;
      if (!value.empty() && value.back() == '\r' && (at_ == text_.size() || text_[at_] == '\n')) value.pop_back();
    }
    fields.push_back(std::move(value));
    if (at_ == text_.size()) return false;
    const bool more = text_[at_] == ',';
    line_ += !more;
    ++at_;
    return more;
  }
  void quoted(std::string& value) {
    ++at_;
    while (true) {
      if (at_ == text_.size()) fail("a quoted field that does not end", "a closing quote");
      const char c = text_[at_++];
      if (c == '"') {
        if (at_ < text_.size() && text_[at_] == '"') {
          ++at_;
        } else {
          break;
        }
      }
      line_ += c == '\n';
      value += c;
    }
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n')
      fail("text behind a closing quote", "a comma or the end of the line");
  }

  std::string_view text_;
  std::string source_;
  size_t at_ = 0, line_ = 1, row_line_ = 1;
};

class Maker {
 public:
  explicit Maker(const EvalSetOptions& o) : o_(o), hellaswag_(o.form == "hellaswag"), bpe_(load_vocabulary(o.vocab, o.encoder)) {}
  std::vector<EvalExample> run() {
    for (const std::string& path : with_folders_opened()) {
      const MappedFile file(path);
      if (const std::string problem = stepscope::not_utf8(file.text(), path); !problem.empty())
        throw InputError(fmt::format("{}: {}", path, problem));
      const bool csv = !hellaswag_ && path.ends_with(".csv");
      csv ? read_csv(file.text(), path) : read_json(file.text(), path);
    }
    if (examples_.empty()) throw InputError(fmt::format("{}: no question, expected at least one", fmt::join(o_.files, ", ")));
    return std::move(examples_);
  }

 private:
  // MMLU is published as a folder with a file for each subject. Their names decide the order, which a file system does not keep.
  std::vector<std::string> with_folders_opened() const {
    namespace fs = std::filesystem;
    std::vector<std::string> files;
    for (const std::string& path : o_.files) {
      std::error_code absent;
      if (!fs::is_directory(path, absent)) {
        files.push_back(path);
        continue;
      }
      const char* ending = hellaswag_ ? ".jsonl" : ".csv";
      std::vector<std::string> inside;
      for (const auto& entry : fs::directory_iterator(path))
        if (entry.path().extension() == ending && !entry.path().filename().string().starts_with('.'))
          inside.push_back(entry.path().string());
      if (inside.empty())
        throw InputError(fmt::format("{}: the folder has no file that ends in {}, expected one or more{}", path, ending,
                                     hellaswag_ ? "" : "; those of MMLU are in data/test"));
      std::sort(inside.begin(), inside.end());
      files.insert(files.end(), inside.begin(), inside.end());
    }
    return files;
  }
  void read_json(std::string_view text, const std::string& path) {
    for_each_json_line(text, path, [&](const JsonLine& line) {
      add(from_json(line, hellaswag_), [&](const std::string& found, const std::string& expected) { line.fail(found, expected); });
    });
  }
  void read_csv(std::string_view text, const std::string& path) {
    CsvReader reader(text, path);
    std::vector<std::string> f;
    while (reader.next(f)) {
      if (f.size() != 2 + kCompletions) reader.fail(fmt::format("{} fields", f.size()), "6: question, four answers, A to D");
      const std::string& letter = f.back();
      if (letter.size() != 1 || letter[0] < 'A' || letter[0] > 'D')
        reader.fail(fmt::format("the right answer is '{}'", letter), reader.in_first_line() ? "A to D, and no header line" : "A to D");
      add({mmlu_context(f[0]), {f[1], f[2], f[3], f[4]}, letter[0] - 'A'},
          [&](const std::string& found, const std::string& expected) { reader.fail(found, expected); });
    }
  }
  // Context and completions are encoded apart, each completion with a space before it.
  template <class Fail>
  void add(const Question& q, const Fail& fail) {
    EvalExample e;
    e.label = q.label;
    e.context = bpe_.encode(q.context);
    if (e.context.empty()) fail("an empty context", "text");
    size_t words = 6 + e.context.size();
    for (const std::string& completion : q.completions) {
      // Nothing but the space in front of it would be judged: a cell that was lost. HellaSwag's endings go where llm.c's script puts them.
      if (!hellaswag_ && completion.find_first_not_of(" \t\r\n") == std::string::npos) fail("an empty answer", "text");
      e.completions.push_back(bpe_.encode(" " + completion));
      words += 1 + e.completions.back().size();
    }
    if (2 * words > kEvalTokens) fail(fmt::format("a question of {} bytes in the file", 2 * words), "at most 65535");
    if (examples_.size() == kEvalTokens) fail("question 65536", "at most 65535, which is what the format counts");
    examples_.push_back(std::move(e));
    progress_.show([&] { return fmt::format("tokenizing: {} questions", examples_.size()); });
  }

  const EvalSetOptions& o_;
  bool hellaswag_;
  Bpe bpe_;
  std::vector<EvalExample> examples_;
  stepscope::ProgressLine progress_;
};

}  // namespace

MadeEvalSet make_eval_set(const EvalSetOptions& options) {
  require_unicode_tables();
  stepscope::check_output(options.out, "--out");
  const std::vector<EvalExample> examples = Maker(options).run();
  write_eval_set(options.out, examples);
  return {static_cast<int64_t>(examples.size()), longest_row(examples)};
}

}  // namespace gpt2
