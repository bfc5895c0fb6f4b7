// Every command line that a reader can copy from README, docs or a --help text is run here; one that the program does not understand
// (exit 2) fails, and so does one that crashes or says an unforeseen no. Commands run without a GPU, in a folder that holds the files they
// name; what needs a GPU then exits 3, which is fine: the flags were understood. A line that is no command as it stands (a placeholder without a substitute) fails too, so that none is skipped
// by accident.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "gpt2/checkpoint.h"
#include "gpt2/data/hugging_face_weights.h"
#include "gpt2/data/pretokenizer.h"
#include "gpt2/tensor_table.h"
#include "profiler/report/page_files.h"
#include "tests/cli/run_stepscope.h"
#include "tests/energy/made_profile.h"

namespace {

namespace fs = std::filesystem;

struct Line {
  std::string text;   // from the word after `stepscope` on
  std::string where;  // file:line
};

// What a placeholder of the docs stands for. Applied to whole words, longest first.
const std::map<std::string, std::string> kPlaceholders = {
    {"NAME", "fp32-zero-grad-memset"},
    {"OP", "layernorm_forward"},
    {"op=name", "zero_grad=memset"},
    {"CMD", "./print_steps"},
    {"TEXT…", "text.txt --vocab vocab.bpe"},
    {"--variant …", "--variant zero_grad=memset"},
    {"--checkpoint …", "--checkpoint tiny.bin"},
    {"--state …", "--state tiny_debug_state.bin"},
    {"[flags]", ""},
    {"COMMAND …", "doctor"},
    {"scaling profile.json", "scaling one.json"},    // profile.json is of no trainer here
    {"--record aa.json", "--record new.json"},       // a recording that is there is refused, and other commands read aa.json
    {"--checkpoints trained", "--checkpoints new"},  // likewise a folder with checkpoints, and other commands read one of these
    {"FILE", "report.ncu-rep"},
};

// Lines that are not run, each with its reason. An entry that no document holds any more fails.
const std::map<std::string, std::string> kNotRun = {
    {"test", "the launcher's own command: this test is a part of it"},
    {"test --long", "likewise"},
    {"data tinyshakespeare.txt --vocab vocab.bpe --encoder encoder.json --document paragraph --validation-tokens 32768 --out "
     "tiny_shakespeare",
     "compares with GPT-2's own encoder.json, a download; tests/gpt2 has the comparison"},
    {"ingest capture.sqlite", "needs an export of Nsight Systems; tests/ingest makes databases of that form"},
};

// Beginnings of lines that say no here, and why that is what they should say.
const std::map<std::string, std::string> kExit1 = {
    {"baseline verify", "the folder holds an unfinished copy, fp32-v2, for `baseline freeze`"},
    {"join big.rank0.jsonl big.rank3.jsonl --partial", "two of four ranks: the page says that some are missing"},
    {"profile", "the trainer that it starts may need more than a second of processor time"},
    {"experiment aa", "and so may arms"},
    {"experiment run", "and so may arms; the programs of an example are not here"},
    {"diff python/measured/profile_ours.json python/measured/profile_compiled.json --fail-if-slower 1",
     "B is slower: the chapter asks why"},
};

// The packages that a command may name because this program was built without them.
std::string packages_not_built_in() {
  std::string names;
  if (!gpt2::unicode_tables_built_in()) names += "|libicu-dev";
  if (profiler::page::charts().empty()) names += "|libjs-chart\\.js";
  return names;
}

// "" for a line that does what a reader may expect: it ends well, is still at work when its time is over, or says that this machine has no
// GPU, tool, package or network for it. A crash is none of these, nor a "no" that nobody foresaw.
std::string why_not_as_printed(const std::string& line, const Outcome& o) {
  constexpr int kTimeOver = 124, kKilled = 137, kOutOfProcessorTime = 152;  // of timeout, and of ulimit
  if (o.exit_code == 0 || o.exit_code == kTimeOver || o.exit_code == kKilled || o.exit_code == kOutOfProcessorTime) return "";
  if (o.exit_code == 1)
    return std::any_of(kExit1.begin(), kExit1.end(), [&](const auto& known) { return line.starts_with(known.first); })
               ? ""
               : "it exits 1, and kExit1 does not say why it should";
  static const std::regex lacks("GPU|CUDA|NVML|nvcc|curl|network|cannot be reached" + packages_not_built_in());
  if (o.exit_code == 4 && line.starts_with("experiment run")) return "";  // undecided
  if (o.exit_code == 3) return std::regex_search(o.err + o.out, lacks) ? "" : "it exits 3 and names nothing that this machine lacks";
  return "it exits " + std::to_string(o.exit_code);
}

std::string trimmed(std::string s) {
  const auto first = s.find_first_not_of(" \t"), last = s.find_last_not_of(" \t");
  return first == std::string::npos ? "" : s.substr(first, last - first + 1);
}

// One shell command per element: split at |, &, ; and newline outside quotes; a comment or an aligned explanation ends the command.
std::vector<std::string> commands_of(const std::string& line) {
  std::vector<std::string> out{""};
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote) {
      quote = c == quote ? 0 : quote;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '|' || c == '&' || c == ';') {
      out.emplace_back();
      continue;
    } else if (c == '#' && i > 0 && line[i - 1] == ' ') {
      break;
    } else if (c == ' ' && i + 1 < line.size() && line[i + 1] == ' ' && !trimmed(out.back()).empty()) {
      break;
    }
    out.back() += c;
  }
  for (std::string& s : out) s = trimmed(s);
  return out;
}

// The arguments behind `stepscope` in a command, if it is one of ours. A word alone, as in prose ("`stepscope gate` says …"), is a command too.
std::optional<std::string> arguments_of(const std::string& command) {
  static const std::regex ours(R"(^(\$ )?(run: )?([A-Z_0-9]+=\S* )*(\./)?stepscope ([A-Za-z-].*)$)");
  std::smatch m;
  return std::regex_match(command, m, ours) ? std::optional(m[5].str()) : std::nullopt;
}

void add(std::vector<Line>& out, const std::string& text, const std::string& where) {
  for (const std::string& command : commands_of(text))
    if (const auto arguments = arguments_of(command)) out.push_back({*arguments, where});
}

// Whether a backslash ends the line; it is taken off, so that the next line can be appended.
bool continues(std::string& line) {
  if (!line.ends_with('\\')) return false;
  line = trimmed(line.substr(0, line.size() - 1)) + " ";
  return true;
}

// In prose "`stepscope experiment`" is a name; with a flag or a file it is something to type.
bool is_typed(const std::string& code) {
  return code.find(" -") != std::string::npos || code.find('.') != code.npos || code.find("NAME") != code.npos;
}

// Lines of code blocks (joined at a trailing backslash), inline code, and `run:` lines of workflows.
std::vector<Line> lines_of_file(const fs::path& file) {
  std::vector<Line> out;
  std::istringstream in(slurp(file));
  const bool markdown = file.extension() == ".md";
  bool code = !markdown;
  std::string line, pending;
  for (int n = 1; std::getline(in, line); ++n) {
    const std::string where = file.lexically_relative(SOURCE_DIR).string() + ":" + std::to_string(n);
    if (markdown && trimmed(line).starts_with("```")) {
      code = !code;
      continue;
    }
    // A verdict's page records the command of its day and of its machine. Where there is a GPU it would measure for minutes, and write there.
    if (!code && line.starts_with("Made by `stepscope experiment run ")) continue;
    if (code) {
      pending += pending.empty() ? line : trimmed(line);
      if (continues(pending)) continue;
      add(out, trimmed(pending), where);
      pending.clear();
      continue;
    }
    for (size_t at = line.find('`'); at != std::string::npos;) {
      const size_t end = line.find('`', at + 1);
      if (end == std::string::npos) break;
      if (const std::string inside = line.substr(at + 1, end - at - 1); is_typed(inside)) add(out, inside, where);
      at = line.find('`', end + 1);
    }
  }
  return out;
}

// Examples at the end of a command's --help, and of its subcommands'.
void add_help(std::vector<Line>& out, const std::string& command) {
  const Outcome help = stepscope(command + " --help");
  ASSERT_EQ(help.exit_code, 0) << command;
  std::istringstream in(help.out);
  std::string line, pending;
  bool subcommands = false;
  while (std::getline(in, line)) {
    if (line.starts_with("Subcommands:")) {
      subcommands = true;
    } else if (subcommands && line.starts_with("  ") && line.size() > 2 && line[2] != ' ') {
      add_help(out, command + (command.empty() ? "" : " ") + line.substr(2, line.find(' ', 2) - 2));
    } else if (line.empty()) {
      subcommands = false;
    }
    pending += trimmed(line);
    if (continues(pending)) continue;
    add(out, pending, "stepscope " + command + " --help");
    pending.clear();
  }
}

std::vector<Line> all_lines() {
  std::vector<Line> lines = lines_of_file(fs::path(SOURCE_DIR) / "README.md");
  std::vector<fs::path> files;
  for (const char* folder : {"docs", "experiments/studies"})
    for (const auto& e : fs::recursive_directory_iterator(fs::path(SOURCE_DIR) / folder))
      if (e.path().extension() == ".md" || e.path().extension() == ".yml") files.push_back(e.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& f : files)
    for (Line& l : lines_of_file(f)) lines.push_back(std::move(l));
  add_help(lines, "");
  return lines;
}

std::string with_placeholders(std::string text) {
  for (auto it = kPlaceholders.rbegin(); it != kPlaceholders.rend(); ++it) {
    const auto& [from, to] = *it;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
      const auto word = [&](size_t i) {
        return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_' || text[i] == '.');
      };
      if ((at > 0 && word(at - 1)) || word(at + from.size())) {
        ++at;
        continue;
      }
      text.replace(at, from.size(), to);
      at += to.size();
    }
  }
  return text;
}

void place(const fs::path& from, const fs::path& to) {
  fs::create_directories(to.parent_path());
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

// llm.c's tokenizer file: 256 int32, then each token as a length and its bytes.
void write_tokenizer(const fs::path& file) {
  std::ofstream out(file, std::ios::binary);
  std::array<int32_t, 256> header{20240328, 2, 50257, 50256};
  out.write(reinterpret_cast<const char*>(header.data()), sizeof header);
  for (int i = 0; i < 50257; ++i) out.write("\x01x", 2);
}

// A source tree to write into (`experiment index`, `baseline freeze`) and the files that the command lines name.
fs::path prepared_folder() {
  const fs::path folder = fresh_folder(), source = SOURCE_DIR, data = TEST_DATA, reports = source / "tests" / "ingest" / "data";
  for (const char* part : {"experiments/studies", "docs/study", "baselines", "receipts", "tests/data/golden", "tests/data/aa", "docs/learn",
                           "python/measured"})
    if (fs::exists(source / part)) place(source / part, folder / part);
  for (const char* name : {"tiny.bin", "tiny_debug_state.bin"}) place(data / "golden" / name, folder / name);
  place(source / "baselines" / "fp32-v1", folder / "baselines" / "fp32-v2");
  fs::remove(folder / "baselines" / "fp32-v2" / "MANIFEST.json");
  place(data / "golden" / "tiny.bin", folder / "trained" / "step-00000100" / "model.bin");
  place(data / "aa" / "cpu-tiny.json", folder / "aa.json");
  place(reports / "mixed_nvtx.ncu-rep", folder / "report.ncu-rep");
  place(reports / "mixed_nvtx.raw.base.csv", folder / "report.csv");
  place(reports / "mixed_nvtx.ncu-rep", folder / "tests/ingest/data/mixed_nvtx.ncu-rep");
  // With ceilings, as a profile made on a GPU has them.
  std::string profile = slurp(source / "tests" / "profiler" / "data" / "gpu.profile.json");
  profile = std::regex_replace(profile, std::regex("Test GPU"), "NVIDIA H200");  // the report's device
  std::ofstream(folder / "profile.json") << profile;
  std::ofstream(folder / "energy.json") << made_energy();
  std::ofstream(folder / "mixed.json") << made_profile(4);
  std::string vocabulary = "#version: 0.2\n";
  for (const char* pair : {"t h", "th e", "a n"}) vocabulary += std::string(pair) + "\n";
  std::ofstream(folder / "vocab.bpe") << vocabulary;
  fs::create_directories(folder / "tinyshakespeare");
  fs::create_directories(folder / "build");
  place(folder / "vocab.bpe", folder / "tinyshakespeare" / "vocab.bpe");
  for (const char* name : {"text.txt", "book.txt", "tinyshakespeare.txt", "books/a.txt"}) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream out(folder / name);
    for (int i = 0; i < 4000; ++i) out << "the cat and the hat " << i << "\n\n";
  }
  write_tokenizer(folder / "tinyshakespeare" / "gpt2_tokenizer.bin");
  for (const char* name : {"print_steps", "my_program", "my_cuda_program"}) {
    std::ofstream(folder / name) << "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9; do echo step $i 5.0 ms; done\n";
    fs::permissions(folder / name, fs::perms::owner_all);
  }
  return folder;
}

// Written here and not by `data`, which tokenizes only where ICU was built in.
void write_shard(const fs::path& file) {
  fs::create_directories(file.parent_path());
  constexpr int32_t kTokens = 5000;
  std::vector<int32_t> header(256);
  header[0] = 20240520, header[1] = 1, header[2] = kTokens;
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(header.data()), static_cast<std::streamsize>(header.size() * sizeof(int32_t)));
  for (int32_t i = 0; i < kTokens; ++i) {
    const uint16_t token = static_cast<uint16_t>(i % 300);
    out.write(reinterpret_cast<const char*>(&token), sizeof(token));
  }
}

// Two examples in llm.c's format (gpt2/data/eval_set.h).
void write_eval_set(const fs::path& file) {
  std::vector<int32_t> header(256);
  header[0] = 20240522, header[1] = 1, header[2] = 2, header[3] = 24;
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(header.data()), static_cast<std::streamsize>(header.size() * sizeof(int32_t)));
  for (uint16_t i = 0; i < 2; ++i) {
    const std::array<uint16_t, 12> example{65535, 24, i, 1, 2, 2, 7, 8, 1, 9, 1, 10};
    out.write(reinterpret_cast<const char*>(example.data()), sizeof example);
  }
}

// One question of HellaSwag's form and one of MMLU's, two documents, and the logs of two runs.
void write_texts_of_lines(const fs::path& folder) {
  for (const char* name : {"hellaswag_val.jsonl", "questions.jsonl"})
    std::ofstream(folder / name) << R"({"ctx": "the cat", "label": 1, "endings": ["a", "an", "the", "hat"]})"
                                 << "\n";
  std::ofstream(folder / "abstract_algebra_test.csv") << "the cat,a,an,the,hat,B\n";
  std::ofstream(folder / "stories.jsonl") << R"({"text": "the cat"})"
                                          << "\n"
                                          << R"({"text": "an ant and the hat"})"
                                          << "\n";
  for (const char* name : {"run.jsonl", "a.jsonl", "b.jsonl"}) {
    std::ofstream(folder / name) << R"({"event":"run","schema":"stepscope.log/1","settings":{"trainer":"fp32"}})"
                                 << "\n"
                                 << R"({"event":"step","step":1,"loss":5,"grad_norm":1,"learning_rate":0.1,"time_ns":1e6})"
                                 << "\n";
  }
}

// The smallest GPT-2 whose heads are 64 channels wide, as a checkpoint and as Hugging Face's file.
void write_weights(const fs::path& folder) {
  const gpt2::ModelConfig config{8, 100, 128, 1, 1, 64};
  const std::vector<float> parameters = gpt2::init_parameters(config, 1);
  gpt2::save_checkpoint(folder / "gpt2_124M.bin", config, parameters);
  const gpt2::Checkpoint checkpoint{config, gpt2::CheckpointPrecision::fp32, parameters};
  gpt2::export_weights(folder / "model.safetensors", checkpoint);
  gpt2::export_model(folder / "gpt2-folder", checkpoint);
}

// Whether a process has its working directory there.
bool process_in(const fs::path& folder) {
  std::error_code gone;
  for (const auto& process : fs::directory_iterator("/proc", gone))
    if (fs::read_symlink(process.path() / "cwd", gone).string().starts_with(folder.string())) return true;
  return false;
}

// A command that was killed leaves children for a moment; they must not write where the next one reads. False: they stayed.
bool children_end_in(const fs::path& folder) {
  for (int i = 0; i < 1500 && process_in(folder); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !process_in(folder);
}

// A copy of a folder for one command after the other. What the last one changed is restored, and no more: to make and remove 230 files for
// each of 180 commands took half of the processor time of this test (ext4 looks for inodes that were not deleted just now).
class RestoredCopy {
 public:
  explicit RestoredCopy(const fs::path& from) : from_(from), at_(fresh_folder()) {
    place(from_, at_);
    for (const auto& entry : fs::recursive_directory_iterator(at_)) made_[entry.path()] = state_of(entry);
  }
  ~RestoredCopy() { fs::remove_all(at_); }
  RestoredCopy(const RestoredCopy&) = delete;
  RestoredCopy& operator=(const RestoredCopy&) = delete;

  const fs::path& folder() const { return at_; }
  void restore() {
    std::vector<fs::path> others;
    std::set<fs::path> same;
    for (const auto& entry : fs::recursive_directory_iterator(at_)) {
      const auto made = made_.find(entry.path());
      if (made != made_.end() && made->second == state_of(entry))
        same.insert(entry.path());
      else
        others.push_back(entry.path());
    }
    for (const fs::path& p : others) fs::remove_all(p);
    for (auto& [p, state] : made_) {  // a folder before what is in it
      if (same.contains(p)) continue;
      const fs::path original = from_ / fs::relative(p, at_);
      if (fs::is_directory(original))
        fs::create_directory(p);
      else
        place(original, p);
      state = state_of(fs::directory_entry(p));
    }
  }

 private:
  struct State {
    bool folder = false;
    uintmax_t bytes = 0;
    fs::file_time_type written;
    bool operator==(const State&) const = default;
  };
  static State state_of(const fs::directory_entry& e) {
    return e.is_regular_file() ? State{false, e.file_size(), e.last_write_time()} : State{e.is_directory(), 0, {}};
  }
  fs::path from_, at_;
  std::map<fs::path, State> made_;
};

class CommandLines : public ::testing::Test {
 protected:
  // A line has been understood long before `processor_s` seconds of computing, and what only waits ends after `wall_s`: too soon on a loaded
  // machine for what must come to its end.
  static Outcome run(const fs::path& folder, const std::string& arguments, int processor_s, int wall_s = 4) {
    const std::string root = arguments.starts_with("gate --check-receipts") ? SOURCE_DIR : folder.string();  // that asks for sources
    const std::string limit = "cd '" + folder.string() + "' && ulimit -t " + std::to_string(processor_s) + " && STEPSCOPE_ROOT='" + root +
                              "' CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 https_proxy=http://127.0.0.1:9 timeout -k 2 " +
                              std::to_string(wall_s);
    return stepscope(arguments, limit);
  }
};

TEST_F(CommandLines, none_that_a_reader_can_copy_exits_2) {
  const fs::path folder = prepared_folder();
  for (const char* name : {"a.json", "b.json", "A.json", "B.json", "before.json", "after.json", "all_tensors.json", "bf16_gradients.json"})
    place(folder / "profile.json", folder / name);
  for (const char* name : {"tiny_shakespeare_train.bin", "books/tokens_train_000000.bin", "tinyshakespeare/tiny_shakespeare_train.bin"})
    write_shard(folder / name);
  write_weights(folder);
  write_eval_set(folder / "hellaswag_val.bin");
  write_texts_of_lines(folder);
  // For `join` and `scaling`: steps of the CPU with one, two and four ranks, and a sweep of collectives that two H200s made.
  for (const char* made :
       {"--out one.json", "--out two.json --gpus 2 --keep-recording pair.jsonl", "--out four.json --gpus 4 --keep-recording big.jsonl"}) {
    const std::string profile = std::string("profile --trainer reference --model tiny --steps 2 ") + made;
    ASSERT_EQ(run(folder, profile, 60, 300).exit_code, 0) << profile;
  }
  for (const char* rank : {".rank0.jsonl", ".rank1.jsonl"})  // to have kept it as run.jsonl would have taken the log of that name away
    fs::rename(folder / (std::string("pair") + rank), folder / (std::string("run") + rank));
  place(fs::path(TEST_DATA) / "links/h200-x2-nccl.json", folder / "links.json");

  std::map<std::string, std::string> once;  // command -> where it was seen first
  std::set<std::string> unused;
  for (const auto& [word, reason] : kNotRun) unused.insert(word);
  for (const Line& line : all_lines()) {
    if (kNotRun.contains(line.text)) {
      unused.erase(line.text);
      continue;
    }
    once.emplace(with_placeholders(line.text), line.where);
  }
  EXPECT_THAT(unused, ::testing::IsEmpty()) << "excused from running, but no document holds it";
  ASSERT_GT(once.size(), 50u);  // the reader of the documents still finds them

  std::vector<std::pair<std::string, std::string>> commands(once.begin(), once.end());
  std::vector<Outcome> outcomes(commands.size());
  std::atomic<size_t> next{0};
  std::vector<std::jthread> workers;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    workers.emplace_back([&] {
      RestoredCopy copy(folder);
      const fs::path& own = copy.folder();
      for (size_t k = next++; k < commands.size(); k = next++) {
        if (commands[k].first.starts_with("data books")) fs::remove(own / "books" / "tokens_train_000000.bin");
        if (commands[k].first.starts_with("train") && commands[k].first.find(" --log run.jsonl") != std::string::npos)
          fs::remove(own / "run.jsonl");
        if (commands[k].first.starts_with("data --fetch")) fs::remove_all(own / "tinyshakespeare");  // it keeps what is there
        outcomes[k] = run(own, commands[k].first, 1);
        EXPECT_TRUE(children_end_in(own)) << "15 s after its end: stepscope " << commands[k].first;
        copy.restore();
      }
    });
  workers.clear();
  for (size_t k = 0; k < commands.size(); ++k) {
    std::printf("exit %3d  stepscope %s  (%s)\n", outcomes[k].exit_code, commands[k].first.c_str(), commands[k].second.c_str());
    const std::string why = why_not_as_printed(commands[k].first, outcomes[k]);
    EXPECT_EQ(why, "") << commands[k].second << ": stepscope " << commands[k].first << "\n" << outcomes[k].err;
    EXPECT_EQ(commands[k].first.find("…"), std::string::npos) << commands[k].second << ": a placeholder without a substitute";
  }
  fs::remove_all(folder);
}

TEST_F(CommandLines, what_one_command_wrote_the_next_does_not_find) {
  const fs::path from = fresh_folder();
  for (const char* name : {"changed", "gone", "kept", "of a folder/changed", "of a folder/deep/gone"}) {
    fs::create_directories((from / name).parent_path());
    std::ofstream(from / name) << name;
  }
  const auto all = [](const fs::path& folder) {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      found[fs::relative(entry.path(), folder).string()] = entry.is_regular_file() ? slurp(entry.path()) : "(folder)";
    return found;
  };
  RestoredCopy copy(from);
  const fs::path& at = copy.folder();
  for (const char* round : {"one", "two"}) {
    const auto kept = fs::last_write_time(at / "kept");
    std::ofstream(at / "changed", std::ios::in) << round[0];  // as long as before
    std::ofstream(at / "of a folder/changed", std::ios::app) << round;
    fs::remove(at / "gone");
    fs::create_directory(at / "gone");
    fs::remove_all(at / "of a folder/deep");
    fs::create_directories(at / "new/deep");
    std::ofstream(at / "new/deep/file") << round;
    copy.restore();
    EXPECT_EQ(all(at), all(from)) << round;
    EXPECT_EQ(fs::last_write_time(at / "kept"), kept) << "was not touched";
  }
  ASSERT_EQ(std::system(("cd '" + at.string() + "'; sleep 0.5 &").c_str()), 0);
  EXPECT_TRUE(process_in(at));
  EXPECT_TRUE(children_end_in(at));
  EXPECT_FALSE(process_in(at));
  fs::remove_all(from);
}

TEST_F(CommandLines, a_crash_and_an_unforeseen_no_are_found) {
  EXPECT_EQ(why_not_as_printed("doctor", {0, "", ""}), "");
  EXPECT_EQ(why_not_as_printed("train", {137, "", ""}), "");
  EXPECT_EQ(why_not_as_printed("gate", {3, "", "--trainer fp32 needs a GPU: none"}), "");
  EXPECT_NE(why_not_as_printed("report profile.json", {3, "", "profile.json: a disk is full"}), "");
  const Outcome no_charts{3, "", "'x.html': this program was built without Chart.js (package libjs-chart.js)"};
  EXPECT_EQ(why_not_as_printed("report profile.json -o x.html", no_charts).empty(), profiler::page::charts().empty());
  EXPECT_NE(why_not_as_printed("report profile.json", {1, "", ""}), "");
  for (const int crash : {134, 136, 139, -1}) EXPECT_NE(why_not_as_printed("doctor", {crash, "", ""}), "") << crash;
}

TEST_F(CommandLines, a_wrong_line_in_a_document_is_found) {
  const fs::path folder = fresh_folder();
  const fs::path page = folder / "page.md";
  std::ofstream(page) << "What `stepscope gate` says. Try `stepscope gate --no-such-flag`.\n```\n$ FOO=1 ./stepscope train --steps 1 \\\n  "
                         "--nonsense   # why\n./stepscope doctor && stepscope report x | tee y\n```\n";
  std::vector<std::string> found;
  for (const Line& l : lines_of_file(page)) found.push_back(l.text);
  EXPECT_THAT(found, ::testing::ElementsAre("gate --no-such-flag", "train --steps 1 --nonsense", "doctor", "report x"));
  fs::remove_all(folder);
}

}  // namespace
