#include "profiler/document/run_info.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/json_read.h"
#include "base/read_file.h"

namespace profiler {
namespace {

using RunJson = nlohmann::json;

struct RunReader {
  const std::string& source;

  [[noreturn]] void fail(const std::string& place, std::string_view expected) const {
    throw stepscope::InputError(fmt::format("{}: {}: expected {}", source, place, expected));
  }
  const RunJson* find(const RunJson& o, const char* key) const {
    const auto at = o.find(key);
    return at == o.end() ? nullptr : &*at;
  }
  std::string text(const RunJson& o, const char* key) const {
    const RunJson* v = find(o, key);
    if (!v || !v->is_string()) fail(key, "a string");
    return v->get<std::string>();
  }
  int64_t count(const RunJson& o, const char* key) const {
    const RunJson* v = find(o, key);
    if (!v) fail(key, "an integer");
    return whole(*v, key);
  }
  // No count of a run is below 0, and 2^63 and more would wrap.
  int64_t whole(const RunJson& v, const std::string& key) const {
    if (!v.is_number_integer()) fail(key, "an integer");
    if (v.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))  // one below 0 too
      fail(key, fmt::format("an integer of 0 or more, below 2^63, found {}", v.dump()));
    return v.get<int64_t>();
  }
  double number(const RunJson& o, const char* key) const {
    const RunJson* v = find(o, key);
    if (!v || !v->is_number()) fail(key, "a number");
    return v->get<double>();
  }
  // Of bytes, FLOPs and nanoseconds.
  double amount(const RunJson& o, const char* key) const {
    const double v = number(o, key);
    if (!(v >= 0)) fail(key, fmt::format("0 or more, found {}", v));
    return v;
  }
  std::optional<double> number_if_there(const RunJson& o, const char* key) const {
    return find(o, key) ? std::optional(number(o, key)) : std::nullopt;
  }
  const RunJson& list(const RunJson& o, const char* key) const {
    const RunJson* v = find(o, key);
    if (!v || !v->is_array()) fail(key, "a list");
    for (const RunJson& e : *v)
      if (!e.is_object()) fail(key, "a list of objects");
    return *v;
  }

  void take(const RunJson& v, const std::string& key, std::string& to) const {
    if (!v.is_string()) fail(key, "a string");
    to = v.get<std::string>();
  }
  void take(const RunJson& v, const std::string& key, int64_t& to) const { to = whole(v, key); }
  // Any of 64 bits. Programs until 2026-11-23 wrote one of 2^63 and more as the negative number of the same bits.
  void take(const RunJson& v, const std::string& key, uint64_t& to) const {
    if (!v.is_number_integer()) fail(key, "an integer");
    to = v.get<uint64_t>();
  }
  void take(const RunJson& v, const std::string& key, double& to) const {
    if (!v.is_number()) fail(key, "a number");
    to = v.get<double>();
  }
  void take(const RunJson& v, const std::string& key, bool& to) const {
    if (!v.is_boolean()) fail(key, "true or false");
    to = v.get<bool>();
  }
  template <class T>
  void take(const RunJson& v, const std::string& key, std::optional<T>& to) const {
    take(v, key, to.emplace());
  }
  void take(const RunJson& v, const std::string& key, std::vector<std::string>& to) const {
    if (!v.is_array()) fail(key, "a list of strings");
    for (const RunJson& e : v) {
      if (!e.is_string()) fail(key, "a list of strings");
      to.push_back(e.get<std::string>());
    }
  }
  void take(const RunJson& v, const std::string& key, std::map<std::string, std::string>& to) const {
    if (!v.is_object()) fail(key, "an object of strings");
    for (const auto& [name, e] : v.items()) take(e, key + "." + name, to[name]);
  }
  void fields(const RunJson& j, stepscope::RunFields& run) const {
    for (const stepscope::RunField& f : stepscope::run_fields()) {
      const std::string key(f.name), object(f.object);
      const RunJson* holder = object.empty() ? &j : find(j, object.c_str());
      if (!holder || !holder->is_object()) fail(object, "an object");
      const RunJson* v = find(*holder, key.c_str());
      std::visit(
          [&](auto member) {
            if (v) return take(*v, key, run.*member);
            if (f.required) take(RunJson(), key, run.*member);  // says what was expected
          },
          f.member);
    }
  }
};

}  // namespace

std::string RunInfo::precision() const { return trainer == "mixed" ? "bf16" : matmul.value_or(""); }

RunInfo run_info_from_json(std::string_view text, const std::string& source) {
  const RunJson j = stepscope::read_json<RunJson>(text);
  const RunReader r{source};
  if (j.is_discarded() || !j.is_object())
    throw stepscope::InputError(fmt::format("{}: not a run.json: {}", source, stepscope::why_no_object(text, source)));
  if (const std::string schema = r.text(j, "schema"); schema != stepscope::kRunSchema)
    throw stepscope::InputError(fmt::format("{}: schema \"{}\"; this program reads \"{}\"", source, schema, stepscope::kRunSchema));
  RunInfo run;
  r.fields(j, run);
  if (const RunJson* world = r.find(j, "world")) {
    if (!world->is_object()) r.fail("world", "an object");
    run.rank = r.count(*world, "rank");
    run.ranks = r.count(*world, "size");
  }
  if (r.find(j, "stopped")) run.stopped = r.text(j, "stopped");
  if (r.find(j, "memory"))
    for (const RunJson& item : r.list(j, "memory")) run.memory_bytes[r.text(item, "name")] += r.amount(item, "bytes");
  for (const RunJson& s : r.list(j, "steps"))
    run.steps.push_back({r.count(s, "step"), r.number_if_there(s, "loss"), r.number_if_there(s, "grad_norm"), r.amount(s, "time_ns")});
  for (const RunJson& w : r.list(j, "work")) run.work.push_back({r.text(w, "path"), r.amount(w, "flops"), r.amount(w, "min_bytes")});
  return run;
}

RunInfo load_run_info(const std::string& path) { return run_info_from_json(stepscope::read_file(path), path); }

}  // namespace profiler
