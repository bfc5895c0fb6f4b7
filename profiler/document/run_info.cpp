#include "profiler/document/run_info.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/errors.h"
#include "base/json_place.h"
#include "base/json_read.h"
#include "base/read_file.h"

namespace profiler {
namespace {

using RunJson = nlohmann::ordered_json;

struct RunReader {
  const std::string& source;

  stepscope::JsonPlace at(std::string_view key) const { return {source, std::string(key)}; }
  const RunJson* find(const RunJson& o, std::string_view key) const {
    const auto found = o.find(key);
    return found == o.end() ? nullptr : &*found;
  }
  // One that is missing says what was expected there.
  template <class T>
  T get(const RunJson& o, std::string_view key) const {
    const RunJson* v = find(o, key);
    T value{};
    at(key).get(v ? *v : RunJson(), value);
    return value;
  }
  std::optional<double> number_if_there(const RunJson& o, std::string_view key) const {
    const RunJson* v = find(o, key);
    std::optional<double> value;
    if (v) stepscope::JsonPlace{source, std::string(key), true}.get(*v, value);
    return value;
  }
  const RunJson& list(const RunJson& o, std::string_view key) const {
    const RunJson* v = find(o, key);
    at(key).type(v && v->is_array(), "a list");
    for (const RunJson& e : *v) at(key).type(e.is_object(), "a list of objects");
    return *v;
  }
  void fields(const RunJson& j, stepscope::RunFields& run) const {
    for (const stepscope::RunField& f : stepscope::run_fields()) {
      const RunJson* holder = f.object.empty() ? &j : find(j, f.object);
      at(f.object).type(holder && holder->is_object(), "an object");
      const RunJson* v = find(*holder, f.name);
      std::visit(
          [&](auto member) {
            // No count of a run is below 0. An amount may be: `clip` is then none.
            constexpr bool kAmount = std::is_same_v<decltype(member), std::optional<double> stepscope::RunFields::*>;
            const stepscope::JsonPlace here{source, std::string(f.name), kAmount};
            if (v)
              here.get(*v, run.*member);
            else if (f.required)
              here.get(RunJson(), run.*member);  // says what was expected
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
  if (const std::string schema = r.get<std::string>(j, "schema"); schema != stepscope::kRunSchema)
    throw stepscope::InputError(fmt::format("{}: schema \"{}\"; this program reads \"{}\"", source, schema, stepscope::kRunSchema));
  RunInfo run;
  r.fields(j, run);
  if (const RunJson* world = r.find(j, "world")) {
    r.at("world").type(world->is_object(), "an object");
    run.rank = r.get<int64_t>(*world, "rank");
    run.ranks = r.get<int64_t>(*world, "size");
  }
  if (r.find(j, "stopped")) run.stopped = r.get<std::string>(j, "stopped");
  if (r.find(j, "memory"))
    for (const RunJson& item : r.list(j, "memory")) run.memory_bytes[r.get<std::string>(item, "name")] += r.get<double>(item, "bytes");
  for (const RunJson& s : r.list(j, "steps"))
    run.steps.push_back(
        {r.get<int64_t>(s, "step"), r.number_if_there(s, "loss"), r.number_if_there(s, "grad_norm"), r.get<double>(s, "time_ns")});
  for (const RunJson& w : r.list(j, "work"))
    run.work.push_back({r.get<std::string>(w, "path"), r.get<double>(w, "flops"), r.get<double>(w, "min_bytes")});
  return run;
}

RunInfo load_run_info(const std::string& path) { return run_info_from_json(stepscope::read_file(path), path); }

}  // namespace profiler
