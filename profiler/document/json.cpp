#include "profiler/document/json.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/json_text.h"
#include "profiler/document/fields.h"

namespace profiler {
namespace {

using Json = nlohmann::ordered_json;

struct Writing {
  std::string place;  // "kernels[3].time_ns"

  double finite(double v) const {
    if (!std::isfinite(v)) throw stepscope::InputError(fmt::format("profile document: {} is not a finite number", place));
    return v;
  }
  void put(Json& o, const std::string& key, const std::string& v) const { o[key] = v; }
  void put(Json& o, const std::string& key, int64_t v) const { o[key] = v; }
  void put(Json& o, const std::string& key, uint64_t v) const { o[key] = v; }
  void put(Json& o, const std::string& key, bool v) const { o[key] = v; }
  void put(Json& o, const std::string& key, double v) const { o[key] = finite(v); }
  template <class T>
  void put(Json& o, const std::string& key, const std::optional<T>& v) const {
    if (v) put(o, key, *v);
  }
  void put(Json& o, const std::string& key, const std::vector<double>& v) const {
    Json list = Json::array();
    for (const double x : v) list.push_back(finite(x));
    o[key] = std::move(list);
  }
  void put(Json& o, const std::string& key, const std::vector<std::string>& v) const { o[key] = v; }
  void put(Json& o, const std::string& key, const std::array<int64_t, 3>& v) const { o[key] = v; }
  void put(Json& o, const std::string& key, const std::map<std::string, std::string>& v) const {
    o[key] = Json::object();
    for (const auto& [k, x] : v) o[key][k] = x;
  }
  void put(Json& o, const std::string& key, const std::map<std::string, double>& v) const {
    o[key] = Json::object();
    for (const auto& [k, x] : v) o[key][k] = finite(x);
  }
};

template <class Row>
Json object_of(const Row& row, const std::string& place) {
  Json o = Json::object();
  for (const Field<Row>& f : fields_of<Row>()) {
    const Writing w{fmt::format("{}.{}", place, f.name)};
    std::visit([&](auto member) { w.put(o, std::string(f.name), row.*member); }, f.member);
  }
  return o;
}

template <class Row>
Json list_of(const std::vector<Row>& rows, const std::string& place) {
  Json list = Json::array();
  for (size_t i = 0; i < rows.size(); ++i) list.push_back(object_of(rows[i], fmt::format("{}[{}]", place, i)));
  return list;
}

// Which measurement or formula stands behind each number.
Json sources(bool of_ranks) {
  Json o = Json::object();
  for (const SectionDescription& s : describe_document()) {
    if (s.of_ranks && !of_ranks) continue;
    for (const FieldDescription& f : s.fields)
      if (f.type.find("number") != std::string::npos) o[s.path + "." + f.name] = f.source;
  }
  return o;
}

}  // namespace

std::string to_json(const ProfileDocument& d) {
  Json j;
  j["schema"] = kProfileSchema;
  j["run"] = object_of(d.run, "run");
  j["environment"] = object_of(d.environment, "environment");
  j["ceilings"] = object_of(d.ceilings, "ceilings");
  j["collection"] = object_of(d.collection, "collection");
  j["collection"]["counter_sets"] = list_of(d.collection.counter_sets, "collection.counter_sets");
  Json timing;
  timing["step_time_ns"] = object_of(d.timing.step_time_ns, "timing.step_time_ns");
  timing.update(object_of(d.timing, "timing"));
  if (!d.timing.states.empty()) timing["states"] = list_of(d.timing.states, "timing.states");
  j["timing"] = std::move(timing);
  j["totals"] = object_of(d.totals, "totals");
  j["passes"] = list_of(d.passes, "passes");
  j["ops"] = list_of(d.ops, "ops");
  j["layers"] = list_of(d.layers, "layers");
  j["kernels"] = list_of(d.kernels, "kernels");
  j["timeline"] = object_of(d.timeline, "timeline");
  j["timeline"]["gaps"] = list_of(d.timeline.gaps, "timeline.gaps");
  j["timeline"]["copies"] = list_of(d.timeline.copies, "timeline.copies");
  j["timeline"]["environment"] = list_of(d.timeline.environment, "timeline.environment");
  j["missing"] = list_of(d.missing, "missing");
  j["launches"] = list_of(d.launches, "launches");
  if (!d.ranks.empty()) {
    j["world"] = object_of(d.world, "world");
    j["ranks"] = list_of(d.ranks, "ranks");
    j["rank_passes"] = list_of(d.rank_passes, "rank_passes");
    j["collectives"] = list_of(d.collectives, "collectives");
    j["collective_ranks"] = list_of(d.collective_ranks, "collective_ranks");
    j["lanes"] = list_of(d.lanes, "lanes");
  }
  j["sources"] = sources(!d.ranks.empty());
  return stepscope::json_text(j, 1) + "\n";
}

}  // namespace profiler
