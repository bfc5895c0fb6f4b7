// `stepscope data`: makes token shards of text, converts weights, and looks into the binary files that the trainers read.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "base/errors.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/named_files.h"
#include "base/stderr_text.h"
#include "cli/commands.h"
#include "cli/values.h"
#include "gpt2/checkpoint.h"
#include "gpt2/data/bpe.h"
#include "gpt2/data/eval_set.h"
#include "gpt2/data/token_shards.h"
#include "gpt2/data/tokenizer.h"
#include "gpt2/evaluation.h"
#include "gpt2/prepare/convert_weights.h"
#include "gpt2/prepare/fetch_data.h"
#include "gpt2/prepare/make_eval_set.h"
#include "gpt2/prepare/remote_sets.h"
#include "gpt2/prepare/set_manifests.h"
#include "gpt2/prepare/tokenize_text.h"
#include "gpt2/tensor_table.h"
#include "gpt2/training_state.h"

namespace cli {
namespace {

void print_eval_set(const std::string& path, const std::vector<gpt2::EvalExample>& examples) {
  size_t completions = 0;
  uint16_t largest = 0;
  const auto see = [&](const std::vector<uint16_t>& tokens) {
    largest = std::max(largest, *std::max_element(tokens.begin(), tokens.end()));
  };
  for (const gpt2::EvalExample& e : examples) {
    see(e.context);
    for (const auto& c : e.completions) see(c);
    completions += e.completions.size();
  }
  fmt::print("{}: evaluation set, {} examples, {} completions, longest row {} positions, largest id {}\n", path, examples.size(),
             completions, gpt2::longest_row(examples), largest);
}

// Nothing that was trained holds NaN or an infinity, and a run from such weights has no loss.
void refuse_what_is_no_number(const gpt2::Checkpoint& c, const std::string& path) {
  const gpt2::TensorLayout layout = gpt2::tensor_layout(c.config);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const gpt2::TensorSpan& at = layout[row.id];
    const auto values = std::span(c.parameters).subspan(static_cast<size_t>(at.offset), static_cast<size_t>(at.size));
    const auto bad = [](float v) { return !std::isfinite(v); };
    const auto first = std::find_if(values.begin(), values.end(), bad);
    if (first == values.end()) continue;
    throw stepscope::InputError(fmt::format("{}: {} of {} values of {} are no finite numbers, the first ({}) at index {}", path,
                                            std::count_if(first, values.end(), bad), at.size, row.name, *first, first - values.begin()));
  }
}

// A training run's model.bin has a checksum in the state.bin beside it; alone its format has none.
void refuse_another_model(const gpt2::MappedFile& file, const std::filesystem::path& path) {
  const std::filesystem::path state = path.parent_path() / "state.bin";
  if (path.filename() != "model.bin" || !std::filesystem::exists(state)) return;
  gpt2::require_model_of(gpt2::load_training_state(state), file);
}

void check(const std::string& path) {
  gpt2::refuse_another_form(path);
  const gpt2::MappedFile file(path);
  int32_t magic = 0;
  if (file.bytes().size() < sizeof magic)
    throw stepscope::InputError(
        fmt::format("{}: {} bytes, too few for any of the formats; expected {} or more", path, file.bytes().size(), sizeof magic));
  if (gpt2::begins_as_training_state(file.bytes())) {
    const gpt2::TrainingState s = gpt2::parse_training_state(file.bytes(), path);
    fmt::print("{}: training state after step {}{}, B={} T={}, {} parameters\n", path, s.step,
               s.trainer.empty() ? "" : fmt::format(" of the {} trainer", s.trainer), s.batch_size, s.seq_len, s.m.size());
    return;
  }
  std::copy_n(file.bytes().data(), sizeof magic, reinterpret_cast<std::byte*>(&magic));
  switch (magic) {
    case gpt2::kLlmcTokens: {
      const auto tokens = gpt2::parse_token_shard(file.bytes(), path);
      const auto largest = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
      fmt::print("{}: tokens, {} of them, largest id {}\n", path, tokens.size(), largest);
      return;
    }
    case gpt2::kLlmcCheckpoint: {
      const gpt2::Checkpoint c = gpt2::parse_checkpoint(file.bytes(), path);
      refuse_what_is_no_number(c, path);
      refuse_another_model(file, path);
      fmt::print("{}: checkpoint, {}, {} parameters\n", path, gpt2::describe(c.config), c.parameters.size());
      return;
    }
    case gpt2::kLlmcTokenizer: {
      const gpt2::Tokenizer t = gpt2::Tokenizer::parse(file.bytes(), path);
      fmt::print("{}: tokenizer, {} tokens, end of text {}\n", path, t.vocab_size(), t.end_of_text());
      return;
    }
    case gpt2::kLlmcEvalSet: {
      print_eval_set(path, gpt2::parse_eval_set(file.bytes(), path));
      return;
    }
    case gpt2::kLlmcState: {
      const auto [batch_size, seq_len] = gpt2::reference_state_shape(file.bytes(), path);
      fmt::print(
          "{}: reference state, B={} T={}; its size follows from its model: `stepscope gate --trainer reference --checkpoint F "
          "--state {}` checks the rest\n",
          path, batch_size, seq_len, path);
      return;
    }
    default:
      throw stepscope::InputError(fmt::format(
          "{}: begins with magic {}, expected {} (tokens), {} (checkpoint), {} (reference state), {} (tokenizer), {} (evaluation set) or "
          "SSTATE (training state)",
          path, magic, gpt2::kLlmcTokens, gpt2::kLlmcCheckpoint, gpt2::kLlmcState, gpt2::kLlmcTokenizer, gpt2::kLlmcEvalSet));
  }
}

struct DataFlags {
  std::vector<std::string> check;
  std::string fetch;
  gpt2::FetchOptions remote;
  std::vector<const Argument*> of_remote;
  std::string eval_set;
  std::string import_file, export_file;
  std::optional<int64_t> heads;
  bool bf16 = false;
  gpt2::TokenizeOptions text;
  std::string document = "file", end_of_text = "before";
  bool json = false;
};

std::vector<std::string> fetched_sets() {
  std::vector<std::string> names = gpt2::known_data_sets();
  for (std::string& name : gpt2::remote_set_names()) names.push_back(std::move(name));
  return names;
}

void fetch_set(const DataFlags& flags) {
  const std::vector<std::string> names = gpt2::remote_set_names(), here = gpt2::known_data_sets();
  const auto has = [&](const std::vector<std::string>& sets) { return std::find(sets.begin(), sets.end(), flags.fetch) != sets.end(); };
  if (has(names) || (!has(here) && gpt2::is_manifest(flags.remote.from))) {
    gpt2::FetchOptions options = flags.remote;
    options.folder = flags.text.out;
    return gpt2::fetch_remote_set(flags.fetch, options);
  }
  const std::vector<std::string> all = fetched_sets();
  if (!has(all)) throw stepscope::InputError(fmt::format("--fetch {}: no such data set, expected {}", flags.fetch, fmt::join(all, " or ")));
  only_these(flags.of_remote, {}, fmt::format("expected --fetch {} with it", fmt::join(names, " or ")));
  gpt2::fetch_data_set(flags.fetch, flags.text.out);
}

void check_vocab_and_out(const gpt2::TokenizeOptions& o, const char* out) {
  stepscope::NamedFiles inputs{{"--vocab", o.vocab}, {"--encoder", o.encoder}};
  for (const std::string& text : o.texts) inputs.emplace_back("the text to read", text);
  stepscope::check_files_differ(inputs, {{"--out", o.out}});
  if (o.vocab.empty()) {
    throw stepscope::InputError("--vocab: expected GPT-2's vocab.bpe, which `stepscope data --fetch tinyshakespeare` downloads");
  }
  if (o.out.empty()) throw stepscope::InputError(fmt::format("--out: expected {}", out));
}

void evaluation_set(const DataFlags& flags) {
  const gpt2::TokenizeOptions& o = flags.text;
  check_vocab_and_out(o, "the name of the evaluation set, FILE.bin");
  const gpt2::MadeEvalSet made = gpt2::make_eval_set({flags.eval_set, o.texts, o.vocab, o.encoder, o.out});
  if (flags.json) {
    fmt::print("{}\n", stepscope::json_text(
                           nlohmann::ordered_json{{"path", o.out}, {"examples", made.examples}, {"longest_row", made.longest_row}}, 2));
  } else {
    fmt::print("{}: {} examples, longest row {} positions\n", o.out, made.examples, made.longest_row);
  }
}

void tokenize(const DataFlags& flags) {
  gpt2::TokenizeOptions o = flags.text;
  o.end_of_text = flags.end_of_text == "before";
  if (flags.document == "paragraph") o.documents = gpt2::Documents::paragraph;
  if (flags.document == "marker") o.documents = gpt2::Documents::marker;
  check_vocab_and_out(o, "FILE.bin or the prefix of the shards' names");
  if (o.validation_share && !(*o.validation_share > 0 && *o.validation_share < 1)) {
    throw stepscope::InputError(fmt::format("--validation-share {}: expected a part between 0 and 1, such as 0.1", *o.validation_share));
  }
  if (o.documents != gpt2::Documents::marker) {
    for (const std::string& path : o.texts) {
      const gpt2::MappedFile file(path);
      if (o.json_field.empty() && path.ends_with(".jsonl"))
        stepscope::put_on_stderr(
            fmt::format("{}: tokenized as it stands, braces and quotes included; --jsonl-field NAME takes the text of its lines\n", path));
      if (file.text().find(gpt2::kEndOfText) != std::string_view::npos)
        stepscope::put_on_stderr(fmt::format("{}: has \"{}\" in it, tokenized as text like any other{}\n", path, gpt2::kEndOfText,
                                             o.json_field.empty() ? "; --document marker makes it end a document" : ""));
    }
  }
  const gpt2::Tokenized done = gpt2::tokenize_texts(o);
  if (flags.json) {
    nlohmann::ordered_json j{{"text_bytes", done.text_bytes}, {"shards", nlohmann::ordered_json::array()}};
    for (const auto& shard : done.shards) j["shards"].push_back({{"path", shard.path.string()}, {"tokens", shard.tokens}});
    fmt::print("{}\n", stepscope::json_text(j, 2));
    return;
  }
  uint64_t tokens = 0;
  for (const auto& shard : done.shards) {
    fmt::print("{}: {} tokens\n", shard.path.string(), shard.tokens);
    tokens += shard.tokens;
  }
  fmt::print("{} bytes of text, {} tokens, {:.2f} bytes each\n", done.text_bytes, tokens,
             static_cast<double>(done.text_bytes) / static_cast<double>(tokens));
}

}  // namespace

void add_data_command(Command& app, int&) {
  auto f = std::make_shared<DataFlags>();
  gpt2::TokenizeOptions& t = f->text;
  Command* c = app.add_subcommand("data", "Tokenize text to token shards, download known sets, convert weights, check binary files");
  auto* texts = c->add_option("text", t.texts, "text files to tokenize with GPT-2's byte-level BPE")->type_name("TEXT");
  auto* check_option = c->add_option("--check", f->check,
                                     "check token shards, checkpoints, training states, tokenizers, reference states and evaluation sets; "
                                     "stop at the first damaged one with exit 2 and say what is wrong");
  auto* fetch = c->add_option("--fetch", f->fetch, fmt::format("download a known set and check it: {}", fmt::join(fetched_sets(), ", ")));
  auto* import_option =
      c->add_option("--import", f->import_file,
                    "make the checkpoint --out of GPT-2 weights from Hugging Face: a folder with config.json and model.safetensors, in one "
                    "file or several, or a file")
          ->type_name("FOLDER|FILE");
  auto* export_option = c->add_option("--export", f->export_file,
                                      "make of a checkpoint what from_pretrained of transformers loads: config.json and "
                                      "model.safetensors in the folder --out, or only the file --out FILE.safetensors");
  auto* eval_set = c->add_option(
      "--eval-set", f->eval_set,
      "make an evaluation set (llm.c format) of these files, or of those in a folder: hellaswag (.jsonl) or mmlu (.csv or .jsonl)");
  eval_set->one_of({"hellaswag", "mmlu"})->needs(texts);
  f->of_remote = {
      c->add_option("--shards", f->remote.shards, "fetch this many files for training, beside the one for validation (default: 1)")
          ->check(whole(1))
          ->needs(fetch),
      c->add_option("--from", f->remote.from, "fetch from a mirror: an address that holds the files under their names, or a manifest FILE")
          ->type_name("URL|FILE")
          ->needs(fetch),
      c->add_option("--jobs", f->remote.jobs, "files to fetch at a time")->check(whole(1, 64))->capture_default_str()->needs(fetch),
      c->add_option("--retries", f->remote.retries, "further tries for a file after a server error or a cut transfer")
          ->check(whole(0, 100))
          ->capture_default_str()
          ->needs(fetch)};
  texts->excludes(check_option)->excludes(fetch)->excludes(import_option)->excludes(export_option);
  check_option->excludes(fetch)->excludes(import_option)->excludes(export_option);
  fetch->excludes(import_option)->excludes(export_option);
  import_option->excludes(export_option);
  c->add_flag("--bf16", f->bf16, "store the imported weights as bf16, rounded to nearest even (default: fp32)")->needs(import_option);
  c->add_option("--heads", f->heads, "attention heads of the imported model where no config.json says it (default: one for 64 channels)")
      ->check(whole(1))
      ->needs(import_option);
  c->add_option("--vocab", t.vocab, "GPT-2's vocab.bpe (the merges; the ids follow from them)")->needs(texts);
  c->add_option("--encoder", t.encoder, "GPT-2's encoder.json; a vocabulary with other ids is refused")->needs(texts);
  c->add_option("-o,--out", t.out,
                "FILE.bin for one file; else a prefix: PREFIX_train.bin, PREFIX_val.bin, or PREFIX_train_000000.bin … with "
                "--shard-tokens. With --fetch the folder (default: the set's name), with --import the file, with --export folder or file");
  auto* shard_tokens =
      c->add_option("--shard-tokens", t.shard_tokens, "put at most this many tokens in a shard (default: all tokens in one file)")
          ->check(whole(1))
          ->needs(texts);
  auto* tokens =
      c->add_option("--validation-tokens", t.validation_tokens, "keep the first N tokens for validation")->check(whole(1))->needs(texts);
  auto* share = c->add_option("--validation-share", t.validation_share,
                              "keep this share of the tokens, from the beginning, for validation; the text is read twice")
                    ->check(real_between(0, 1))
                    ->needs(texts)
                    ->excludes(tokens);
  auto* document =
      c->add_option("--document", f->document,
                    "take as one document: the file, a paragraph (up to an empty line), or the text between \"<|endoftext|>\" markers")
          ->capture_default_str()
          ->one_of({"file", "paragraph", "marker"})
          ->needs(texts);
  c->add_option("--jsonl-field", t.json_field, "the files are JSON lines; take the text in this member of each line as a document")
      ->type_name("NAME")
      ->needs(texts)
      ->excludes(document)
      ->excludes(eval_set);
  auto* end_of_text = c->add_option("--end-of-text", f->end_of_text, "put an end-of-text token before each document, or none")
                          ->capture_default_str()
                          ->one_of({"before", "none"})
                          ->needs(texts);
  for (Argument* other : {shard_tokens, tokens, share, document, end_of_text}) eval_set->excludes(other);
  c->add_flag("--json", f->json, "print what was written as JSON")->needs(texts);
  c->footer(
      "Examples:\n"
      "  stepscope data --fetch tinyshakespeare                                   text, vocabulary, shards, in ./tinyshakespeare\n"
      "  stepscope data book.txt --vocab vocab.bpe --out book.bin                 one file\n"
      "  stepscope data books/*.txt --vocab vocab.bpe --out books/tokens --validation-share 0.1 --shard-tokens 100000000\n"
      "  stepscope data tinyshakespeare.txt --vocab vocab.bpe --encoder encoder.json --document paragraph \\\n"
      "      --validation-tokens 32768 --out tiny_shakespeare                     as llm.c's dev/data/tinyshakespeare.py\n"
      "  stepscope data stories.jsonl --jsonl-field text --vocab vocab.bpe --out stories\n"
      "  stepscope data --eval-set hellaswag hellaswag_val.jsonl --vocab vocab.bpe --out hellaswag_val.bin\n"
      "  stepscope data --fetch fineweb --shards 4                                800 MB of training tokens, in ./fineweb\n"
      "  stepscope data --import gpt2-folder --out gpt2_124M.bin                  GPT-2 from Hugging Face, as train and gate read it\n"
      "  stepscope data --export gpt2_124M.bin --out gpt2-mine                    and back: a folder for from_pretrained\n"
      "  stepscope data --export gpt2_124M.bin --out model.safetensors            the weights alone\n"
      "  stepscope data --check tiny_shakespeare_train.bin gpt2_124M.bin");
  c->callback([f] {
    if (!f->fetch.empty()) return fetch_set(*f);
    if (!f->eval_set.empty()) return evaluation_set(*f);
    if (!f->import_file.empty()) return gpt2::import_safetensors(f->import_file, f->text.out, f->bf16, f->heads);
    if (!f->export_file.empty()) return gpt2::export_safetensors(f->export_file, f->text.out);
    if (!f->text.texts.empty()) return tokenize(*f);
    if (f->check.empty())
      throw stepscope::InputError("data: expected text files, --fetch SET, --import FILE, --export CHECKPOINT or --check FILE…");
    if (!f->text.out.empty()) throw stepscope::InputError("--out: --check writes nothing; leave one of the two out");
    for (const std::string& file : f->check) check(file);
  });
}

}  // namespace cli
