// The verdict document to and from JSON, by its field list; what schema 1 lacked or claimed too much.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/atomic_file.h"
#include "base/json_read.h"
#include "base/json_text.h"
#include "base/read_file.h"
#include "base/sha256.h"
#include "experiments/verdict/document.h"
#include "experiments/verdict/fields.h"

namespace experiments {
namespace {

// Holds only numbers and texts, or an object's lists of them: a process with its curve, a text that is long.
bool is_row(const Json& j) {
  return std::all_of(j.begin(), j.end(), [&](const Json& e) {
    return !e.is_structured() ||
           (j.is_object() && e.is_array() && std::none_of(e.begin(), e.end(), [](const Json& x) { return x.is_structured(); }));
  });
}

// A block without samples of its own was given the clock, power and temperature of an earlier one.
bool has_borrowed_samples(const Json& pairs) {
  for (const Json& p : pairs)
    for (const Json& b : p.at("blocks"))
      if (b.contains("sm_clock_mhz") && !b.contains("samples")) return true;
  return false;
}

void drop_borrowed_samples(Json& w) {
  const bool borrowed = has_borrowed_samples(w.at("pairs"));
  for (Json& p : w.at("pairs")) {
    if (borrowed) p.erase("log_ratio_cycles");
    for (Json& b : p.at("blocks")) {
      if (b.contains("power_w") && b.at("step_ns").get<double>() * b.at("steps").get<double>() < kPowerWindow_ns) b.erase("power_w");
      if (!b.contains("samples"))
        for (const char* key : {"sm_clock_mhz", "power_w", "temperature_c", "throttle_reasons"}) b.erase(key);
    }
  }
  if (!borrowed) return;
  w.erase("statistics_in_cycles");
  Json& environment = w.at("environment");
  environment["sampled_blocks"] = 0;
  for (const char* key : {"power_capped_blocks", "throttled_blocks", "a_sm_clock_mhz_median", "b_sm_clock_mhz_median"})
    environment.erase(key);
}

// Schema 1 knew one procedure and did not name it.
void upgrade(Json& d) {
  for (Json& w : d.at("workloads")) {
    w["procedure"] = name(Procedure::in_turns);
    const Json& a = w.at("a");
    w["whole_programs"] = a.contains("said") && a.at("said").contains("command");
    for (const char* arm : {"a", "b"})
      if (Json& gate = w.at(arm).at("gate"); !gate.contains("checked")) gate["checked"] = true;
    drop_borrowed_samples(w);
  }
}

bool alike(const Json& a, const Json& b) {
  if (!a.is_number_float() && !b.is_number_float()) return a == b;
  if (!a.is_number() || !b.is_number()) return false;
  const double x = a.get<double>(), y = b.get<double>();
  return std::fabs(x - y) <= 1e-9 * std::max(std::fabs(x), std::fabs(y));
}

void look(const Json& was, const Json& now, const std::string& path, std::vector<Difference>& out) {
  if (was.is_object() && now.is_object()) {
    const auto of = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
    for (const auto& [key, value] : was.items()) {
      if (!now.contains(key))
        out.push_back({of(key), value.dump(), ""});
      else if (key != "content_sha256")
        look(value, now.at(key), of(key), out);
    }
    for (const auto& [key, value] : now.items())
      if (!was.contains(key)) out.push_back({of(key), "", value.dump()});
  } else if (was.is_array() && now.is_array() && was.size() == now.size()) {
    for (size_t i = 0; i < was.size(); ++i) look(was[i], now[i], fmt::format("{}[{}]", path, i), out);
  } else if (!alike(was, now)) {
    out.push_back({path, was.dump(), now.dump()});
  }
}

// A decision is made again with these: a look that no plan has, or a level that has no quantile, would end a command over all files.
void check_plan(const VerdictDocument& d, const Place& place) {
  const Place thresholds = place.in("thresholds");
  const auto share = [](const Place& of, double v) { of.type(v > 0 && v < 1, "a number above 0 and below 1"); };
  share(thresholds.in("alpha"), d.thresholds.alpha);
  share(thresholds.in("power"), d.thresholds.power);
  thresholds.in("minimum_effect_pct").type(d.thresholds.minimum_effect_pct >= 0, "0 or more");
  for (size_t i = 0; i < d.thresholds.looks.size(); ++i) {
    const LookSection& l = d.thresholds.looks[i];
    const Place look = thresholds.in("looks").in(i);
    look.in("pairs").type(l.pairs >= 2, "at least 2");
    share(look.in("alpha"), l.alpha);
    share(look.in("equivalence_alpha"), l.equivalence_alpha);
    if (l.sign_flip_alpha) share(look.in("sign_flip_alpha"), *l.sign_flip_alpha);
  }
  const auto looks = std::ssize(d.thresholds.looks);
  for (size_t i = 0; i < d.workloads.size(); ++i)
    if (const int64_t look = d.workloads[i].statistics.look; look < 1 || (looks > 0 && look > looks))
      place.in("workloads").in(i).in("statistics").in("look").fail(fmt::format("found {}, expected one of thresholds.looks, from 1", look));
}

}  // namespace

bool says_the_same(const Json& a, const Json& b) { return differences(a, b).empty(); }

std::vector<Difference> differences(const Json& was, const Json& now) {
  std::vector<Difference> out;
  look(was, now, "", out);
  return out;
}

std::string content_sha256(Json json) {
  json.erase("content_sha256");
  return gpt2::sha256_text(stepscope::json_text(json, -1));
}

VerdictDocument verdict_from_json(const Json& json, const std::string& source) {
  const Place place = outermost(source);
  const auto no_verdict = [&](const std::string& found) {
    return NoVerdict(fmt::format("{}: not a verdict document: {}, expected {}", source, found, kVerdictSchema));
  };
  if (!json.is_object() || !json.contains("schema")) throw no_verdict("no schema");
  Json d = json;
  if (d["schema"] == kFirstVerdictSchema) {
    try {
      upgrade(d);
    } catch (const nlohmann::json::exception& e) {
      place.fail(fmt::format("a part of a {} document is missing: {}", kFirstVerdictSchema, e.what()));
    }
  } else if (d["schema"] != kVerdictSchema) {
    throw no_verdict("schema " + stepscope::shown_json(d["schema"]));
  } else if (!d.contains("content_sha256") || d["content_sha256"] != content_sha256(d)) {
    place.fail("its content does not fit its content_sha256: the file was changed by hand after it was written");
  }
  VerdictDocument out;
  read_object(d, out, place);
  check_plan(out, place);
  return out;
}

Json to_json(const VerdictDocument& document) {
  VerdictDocument copy = document;
  copy.schema = kVerdictSchema;
  copy.content_sha256.clear();
  Json out = object_of(copy, outermost(document.name));
  out["content_sha256"] = content_sha256(out);
  return out;
}

namespace {

std::string readable(const std::filesystem::path& file) {
  try {
    return stepscope::read_file(file);
  } catch (const stepscope::InputError& e) {
    throw NoVerdict(e.what());
  }
}

}  // namespace

VerdictDocument load_verdict(const std::filesystem::path& file) {
  const std::string text = readable(file);
  const auto json = stepscope::read_json<Json>(text);
  if (!json.is_object())
    throw NoVerdict(fmt::format("{}: not a verdict document: {}", file.string(), stepscope::why_no_object(text, file.string())));
  return verdict_from_json(json, file.string());
}

std::string verdict_text(const Json& j, int depth) {
  constexpr size_t kLine = 600;
  const std::string flat = stepscope::json_text(j, -1);
  if (!j.is_structured() || j.empty() || (depth > 0 && (flat.size() <= kLine || is_row(j)))) return flat;
  const std::string indent = "\n" + std::string(static_cast<size_t>(depth) + 1, ' ');
  std::string out(1, j.is_object() ? '{' : '[');
  for (auto it = j.begin(); it != j.end(); ++it) {
    if (it != j.begin()) out += ',';
    out += indent;
    if (j.is_object()) out += Json(it.key()).dump() + ": ";
    out += verdict_text(*it, depth + 1);
  }
  return out + "\n" + std::string(static_cast<size_t>(depth), ' ') + (j.is_object() ? "}" : "]");
}

void save_verdict(const std::filesystem::path& file, const VerdictDocument& document) {
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  gpt2::write_file_atomically(file, verdict_text(to_json(document)) + "\n");
}

}  // namespace experiments
