#include "profiler/document/run_info.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "profiler/records/errors.h"

namespace profiler {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kRunSchema = "stepscope.run/1";

struct Reader {
  const std::string& source;

  [[noreturn]] void fail(const std::string& place, std::string_view expected) const {
    throw DataError(fmt::format("{}: {}: expected {}", source, place, expected));
  }
  const Json* find(const Json& o, const char* key) const {
    const auto at = o.find(key);
    return at == o.end() ? nullptr : &*at;
  }
  std::string text(const Json& o, const char* key) const {
    const Json* v = find(o, key);
    if (!v || !v->is_string()) fail(key, "a string");
    return v->get<std::string>();
  }
  int64_t count(const Json& o, const char* key) const {
    const Json* v = find(o, key);
    if (!v || !v->is_number_integer()) fail(key, "an integer");
    return v->get<int64_t>();
  }
  double number(const Json& o, const char* key) const {
    const Json* v = find(o, key);
    if (!v || !v->is_number()) fail(key, "a number");
    return v->get<double>();
  }
  std::optional<double> number_if_there(const Json& o, const char* key) const {
    return find(o, key) ? std::optional(number(o, key)) : std::nullopt;
  }
  std::optional<int64_t> count_if_there(const Json& o, const char* key) const {
    return find(o, key) ? std::optional(count(o, key)) : std::nullopt;
  }
  const Json& list(const Json& o, const char* key) const {
    const Json* v = find(o, key);
    if (!v || !v->is_array()) fail(key, "a list");
    for (const Json& e : *v)
      if (!e.is_object()) fail(key, "a list of objects");
    return *v;
  }
};

}  // namespace

std::string RunInfo::precision() const { return trainer == "mixed" ? "bf16" : matmul; }

RunInfo run_info_from_json(std::string_view text, const std::string& source) {
  const Json j = Json::parse(text, nullptr, false);
  const Reader r{source};
  if (j.is_discarded() || !j.is_object())
    throw DataError(fmt::format("{}: not a run.json: not a JSON object", source));
  if (const std::string schema = r.text(j, "schema"); schema != kRunSchema)
    throw DataError(fmt::format("{}: schema \"{}\"; this program reads \"{}\"", source, schema, kRunSchema));
  RunInfo run;
  run.command = r.text(j, "command");
  run.trainer = r.text(j, "trainer");
  run.device = r.text(j, "device");
  run.matmul = r.text(j, "matmul");
  const Json* model = r.find(j, "model");
  if (!model || !model->is_object()) r.fail("model", "an object");
  run.layers = r.count(*model, "layers");
  run.heads = r.count(*model, "heads");
  run.channels = r.count(*model, "channels");
  run.vocab_size = r.count(*model, "vocab_size");
  run.padded_vocab = r.count(*model, "padded_vocab");
  run.max_seq_len = r.count(*model, "max_seq_len");
  run.batch_size = r.count(j, "batch_size");
  run.seq_len = r.count(j, "seq_len");
  run.accumulation = r.count(j, "accumulation");
  run.tokens_per_step = r.count(j, "tokens_per_step");
  run.model_flops = r.number(j, "model_flops");
  run.parameters = r.count_if_there(j, "parameters");
  run.seed = r.count_if_there(j, "seed");
  if (r.find(j, "stopped")) run.stopped = r.text(j, "stopped");
  if (const Json* variants = r.find(j, "variants")) {
    if (!variants->is_object()) r.fail("variants", "an object of strings");
    for (const auto& [slot, variant] : variants->items()) {
      if (!variant.is_string()) r.fail("variants." + slot, "a string");
      run.variants[slot] = variant.get<std::string>();
    }
  }
  if (const Json* data = r.find(j, "data")) {
    if (!data->is_array()) r.fail("data", "a list of strings");
    for (const Json& file : *data) {
      if (!file.is_string()) r.fail("data", "a list of strings");
      run.data.push_back(file.get<std::string>());
    }
  }
  if (r.find(j, "memory"))
    for (const Json& item : r.list(j, "memory"))
      run.memory_bytes[r.text(item, "name")] += r.number(item, "bytes");
  for (const Json& s : r.list(j, "steps"))
    run.steps.push_back({r.count(s, "step"), r.number_if_there(s, "loss"), r.number_if_there(s, "grad_norm"),
                         r.number(s, "time_ns")});
  for (const Json& w : r.list(j, "work"))
    run.work.push_back({r.text(w, "path"), r.number(w, "flops"), r.number(w, "min_bytes")});
  return run;
}

RunInfo load_run_info(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw DataError(fmt::format("cannot read '{}'", path));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return run_info_from_json(text, path);
}

}  // namespace profiler
