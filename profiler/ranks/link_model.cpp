#include "profiler/ranks/link_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/errors.h"
#include "base/json_read.h"
#include "base/json_text.h"
#include "profiler/ranks/collectives.h"

namespace profiler {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kSchema = "stepscope.links/2";
constexpr std::string_view kOldSchema = "stepscope.links/1";
constexpr size_t kLeastOfALine = 3;  // a line through two points says nothing about them

double moved_bytes(const LinkPoint& p) { return bus_factor(p.kind, p.ranks) * static_cast<double>(p.bytes); }

struct Fitted {
  LinkLine line;
  double error = 0;  // sum of squared relative errors
};

// t = a + b x with weights 1/t^2.
Fitted fit_line(const LinkPoint* begin, const LinkPoint* end) {
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
  for (const LinkPoint* p = begin; p != end; ++p) {
    const double x = moved_bytes(*p), t = p->time_ns, weight = 1 / (t * t);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wt += weight * t;
    wxt += weight * x * t;
  }
  const double determinant = w * wxx - wx * wx;
  double a = determinant > 0 ? (wt * wxx - wxt * wx) / determinant : 0;
  double b = determinant > 0 ? (wxt * w - wt * wx) / determinant : (wxx > 0 ? wxt / wxx : 0);
  if (a < 0) {
    a = 0;
    b = wxx > 0 ? wxt / wxx : 0;
  }
  if (b < 0) {
    b = 0;
    a = wt / w;
  }
  Fitted f;
  f.line = {a, b > 0 ? 1e9 / b : 0};
  for (const LinkPoint* p = begin; p != end; ++p) {
    const double relative = (a + b * moved_bytes(*p)) / p->time_ns - 1;
    f.error += relative * relative;
  }
  return f;
}

double on_line(const LinkLine& line, double moved) {
  return line.latency_ns + (line.bus_bytes_per_s > 0 ? moved / line.bus_bytes_per_s * 1e9 : 0);
}

struct Neighbours {
  double below = 0, above = 0;  // the values; equal where one key is the nearest
  double share = 0;             // from below to above
};

// Where `x` lies among the keys, along their logarithms; the nearest value outside of them. Not empty.
Neighbours neighbours(const std::map<int64_t, double>& values, int64_t x) {
  const auto above = values.lower_bound(x);
  if (above == values.end()) return {values.rbegin()->second, values.rbegin()->second, 0};
  if (above->first == x || above == values.begin()) return {above->second, above->second, 0};
  const auto below = std::prev(above);
  const auto log_of = [](int64_t n) { return std::log(static_cast<double>(std::max<int64_t>(n, 1))); };  // no rows: 0
  return {below->second, above->second, (log_of(x) - log_of(below->first)) / (log_of(above->first) - log_of(below->first))};
}

}  // namespace

double predicted_ns(const LinkFit& fit, int64_t bytes) {
  const double moved = bus_factor(fit.kind, fit.ranks) * static_cast<double>(bytes);
  return on_line(bytes <= fit.knee_bytes ? fit.small : fit.large, moved);
}

std::optional<LinkFit> fit_link(std::vector<LinkPoint> points) {
  std::erase_if(points, [](const LinkPoint& p) { return !(p.time_ns > 0) || p.bytes <= 0; });
  if (points.size() < 2) return std::nullopt;
  std::sort(points.begin(), points.end(), [](const LinkPoint& a, const LinkPoint& b) { return a.bytes < b.bytes; });
  LinkFit fit{points.front().communicator, points.front().kind, points.front().type, points.front().ranks, 0, {}, {}, 0};
  const LinkPoint* all = points.data();
  const LinkPoint* end = all + points.size();
  const Fitted one = fit_line(all, end);
  fit.large = one.line;
  double best = one.error;
  for (size_t cut = kLeastOfALine; cut + kLeastOfALine <= points.size(); ++cut) {
    const Fitted below = fit_line(all, all + cut), above = fit_line(all + cut, end);
    if (below.error + above.error >= best) continue;
    best = below.error + above.error;
    fit.knee_bytes = points[cut - 1].bytes;
    fit.small = below.line;
    fit.large = above.line;
  }
  for (const LinkPoint& p : points)
    fit.worst_error_pct = std::max(fit.worst_error_pct, std::abs(predicted_ns(fit, p.bytes) / p.time_ns - 1) * 100);
  return fit;
}

std::vector<LinkFit> fit_links(const std::vector<LinkPoint>& points) {
  std::map<std::tuple<std::string, std::string, std::string, int64_t>, std::vector<LinkPoint>> sets;
  for (const LinkPoint& p : points) sets[{p.communicator, p.kind, p.type, p.ranks}].push_back(p);
  std::vector<LinkFit> fits;
  for (auto& [key, set] : sets)
    if (const auto fit = fit_link(std::move(set))) fits.push_back(*fit);
  return fits;
}

std::optional<double> measured_ns(const LinkCeilings& links, const std::string& communicator, const std::string& kind,
                                  const std::string& type, int64_t ranks, int64_t bytes) {
  std::map<int64_t, double> times;
  for (const LinkPoint& p : links.points)
    if (p.communicator == communicator && p.kind == kind && p.type == type && p.ranks == ranks && p.time_ns > 0) times[p.bytes] = p.time_ns;
  if (times.empty() || bytes <= 0) return std::nullopt;
  const auto& [largest, largest_ns] = *times.rbegin();
  if (bytes > largest) return largest_ns * static_cast<double>(bytes) / static_cast<double>(largest);
  const Neighbours n = neighbours(times, bytes);
  if (n.share == 0) return n.below;  // exactly as it was measured
  return std::exp(std::log(n.below) + n.share * (std::log(n.above) - std::log(n.below)));
}

namespace {

double along_logarithms(const std::map<int64_t, double>& values, int64_t x) {
  const Neighbours n = neighbours(values, x);
  return n.below + n.share * (n.above - n.below);
}

using OfPoint = double (*)(const BesidePoint&);
// Of the points of one kind and work: first between sizes, then between numbers of rows.
std::optional<double> beside_number(const std::vector<const BesidePoint*>& points, const char* work, int64_t bytes, int64_t rows,
                                    OfPoint number) {
  std::map<int64_t, std::map<int64_t, double>> by_rows;
  for (const BesidePoint* p : points)
    if (p->work == work) by_rows[p->rows][p->bytes] = number(*p);
  if (by_rows.empty()) return std::nullopt;
  std::map<int64_t, double> values;
  for (const auto& [r, by_bytes] : by_rows) values[r] = along_logarithms(by_bytes, bytes);
  return along_logarithms(values, rows);
}

}  // namespace

std::optional<BesideSpeeds> speeds_beside(const LinkCeilings& links, const std::string& communicator, const std::string& kind,
                                          const std::string& type, int64_t bytes, int64_t rows, double product_share) {
  std::vector<const BesidePoint*> of_kind, of_type;
  for (const BesidePoint& p : links.beside) {
    if (p.communicator != communicator || p.kind != kind || !(p.time_ns > 0) || !(p.alone_ns > 0)) continue;
    of_kind.push_back(&p);
    if (p.type == type) of_type.push_back(&p);
  }
  const auto& points = of_type.empty() ? of_kind : of_type;
  const auto mixed = [&](OfPoint number) -> std::optional<double> {
    const auto product = beside_number(points, "product", bytes, rows, number);
    const auto memory = beside_number(points, "memory", bytes, 0, number);
    if (!product || !memory) return product ? product : memory;
    return product_share * *product + (1 - product_share) * *memory;
  };
  // Noise makes work faster and collectives too; neither does.
  static constexpr double kSlowest = 0.01;
  const auto work = mixed([](const BesidePoint& p) { return std::clamp(1 - p.slowed_ns / p.time_ns, kSlowest, 1.0); });
  const auto collective = mixed([](const BesidePoint& p) { return std::clamp(p.alone_ns / p.time_ns, kSlowest, 1.0); });
  if (!work || !collective) return std::nullopt;
  return BesideSpeeds{*work, *collective};
}

std::string communicator_word(const std::string& name) { return name.substr(0, name.find(' ')); }

std::string links_to_json(const LinkCeilings& l) {
  Json j;
  j["schema"] = kSchema;
  j["device"] = l.device;
  j["communicator"] = l.communicator;
  j["driver"] = l.driver;
  j["measured_at"] = l.measured_at;
  j["uuids"] = l.uuids;
  j["points"] = Json::array();
  for (const LinkPoint& p : l.points)
    j["points"].push_back({{"communicator", p.communicator},
                           {"kind", p.kind},
                           {"type", p.type},
                           {"ranks", p.ranks},
                           {"bytes", p.bytes},
                           {"time_ns", p.time_ns}});
  // The fits follow from the points; they are written for readers of the file and made again when it is read.
  j["fits"] = Json::array();
  for (const LinkFit& f : l.fits)
    j["fits"].push_back({{"communicator", f.communicator},
                         {"kind", f.kind},
                         {"type", f.type},
                         {"ranks", f.ranks},
                         {"knee_bytes", f.knee_bytes},
                         {"small_latency_ns", f.small.latency_ns},
                         {"small_bus_bytes_per_s", f.small.bus_bytes_per_s},
                         {"latency_ns", f.large.latency_ns},
                         {"bus_bytes_per_s", f.large.bus_bytes_per_s},
                         {"worst_error_pct", f.worst_error_pct}});
  j["beside"] = Json::array();
  for (const BesidePoint& b : l.beside)
    j["beside"].push_back({{"communicator", b.communicator},
                           {"kind", b.kind},
                           {"type", b.type},
                           {"ranks", b.ranks},
                           {"bytes", b.bytes},
                           {"work", b.work},
                           {"rows", b.rows},
                           {"alone_ns", b.alone_ns},
                           {"time_ns", b.time_ns},
                           {"slowed_ns", b.slowed_ns}});
  if (l.awake) j["awake"] = {{"ranks", l.awake->ranks}, {"asleep_ns", l.awake->asleep_ns}, {"awake_ns", l.awake->awake_ns}};
  return stepscope::json_text(j, 1) + "\n";
}

namespace {

struct LinkReader {
  const std::string& source;

  const Json& member(const Json& o, const std::string& place, const char* key, bool good(const Json&), const char* expected) const {
    const auto at = o.is_object() ? o.find(key) : o.end();
    if (!o.is_object() || at == o.end())
      throw stepscope::InputError(fmt::format("{}: {}{} is missing, expected {}", source, place, key, expected));
    if (!good(*at)) throw stepscope::InputError(fmt::format("{}: {}{}: found {}, expected {}", source, place, key, at->dump(), expected));
    return *at;
  }
  std::string text(const Json& o, const std::string& place, const char* key) const {
    return member(
               o, place, key, [](const Json& v) { return v.is_string(); }, "a string")
        .get<std::string>();
  }
  // The JSON library turns a number of 2^63 or more into one below zero.
  int64_t count(const Json& o, const std::string& place, const char* key) const {
    return member(
               o, place, key, [](const Json& v) { return v.is_number_integer() && v.get<int64_t>() > 0; }, "a whole number above 0")
        .get<int64_t>();
  }
  int64_t count_or_0(const Json& o, const std::string& place, const char* key) const {
    return member(
               o, place, key, [](const Json& v) { return v.is_number_integer() && v.get<int64_t>() >= 0; }, "a whole number of 0 or more")
        .get<int64_t>();
  }
  double number(const Json& o, const std::string& place, const char* key) const {
    return member(
               o, place, key, [](const Json& v) { return v.is_number(); }, "a number")
        .get<double>();
  }
  double time_ns(const Json& o, const std::string& place, const char* key) const {
    return member(
               o, place, key, [](const Json& v) { return v.is_number() && v.get<double>() >= 0; }, "a number of 0 or more")
        .get<double>();
  }
  // Of one collective: above 0, and less than eleven days, as in reports.
  double call_ns(const Json& o, const std::string& place, const char* key) const {
    return member(
               o, place, key, [](const Json& v) { return v.is_number() && v.get<double>() > 0 && v.get<double>() < 1e15; },
               "nanoseconds above 0 and below 1e15")
        .get<double>();
  }
  int64_t ranks(const Json& o, const std::string& place) const {
    return member(
               o, place, "ranks", [](const Json& v) { return v.is_number_integer() && v.get<int64_t>() >= 2; },
               "a whole number of 2 or more")
        .get<int64_t>();
  }
  std::string kind(const Json& o, const std::string& place) const {
    return member(
               o, place, "kind", [](const Json& v) { return v.is_string() && bus_factor(v.get<std::string>(), 2) > 0; },
               "all_reduce, reduce_scatter, all_gather or all_gather_in_place")
        .get<std::string>();
  }
};

// A size that stands twice has two times, of which a prediction would take either.
void check_points(const std::vector<LinkPoint>& points, const std::string& source) {
  std::map<std::tuple<std::string, std::string, std::string, int64_t, int64_t>, size_t> seen;
  for (size_t i = 0; i < points.size(); ++i) {
    const LinkPoint& p = points[i];
    if (const auto [first, is_new] = seen.emplace(std::tuple(p.communicator, p.kind, p.type, p.ranks, p.bytes), i); !is_new)
      throw stepscope::InputError(fmt::format(
          "{}: points[{}] has the communicator, kind, type, ranks and bytes of points[{}], expected each once", source, i, first->second));
  }
}

}  // namespace

LinkCeilings links_from_json(std::string_view text, const std::string& source) {
  const Json j = stepscope::read_json<Json>(text);
  if (!j.is_object())
    throw stepscope::InputError(fmt::format("{}: not a sweep of collectives: {}", source, stepscope::why_no_object(text, source)));
  const bool old = j.contains("schema") && j["schema"] == kOldSchema;
  if (!old && (!j.contains("schema") || j["schema"] != kSchema))
    throw stepscope::InputError(
        fmt::format("{}: not a sweep of collectives: expected \"schema\": \"{}\" or \"{}\"", source, kSchema, kOldSchema));
  const LinkReader r{source};
  LinkCeilings l;
  l.device = r.text(j, "", "device");
  l.communicator = r.text(j, "", "communicator");
  l.driver = r.text(j, "", "driver");
  l.measured_at = r.text(j, "", "measured_at");
  const auto are_strings = [](const Json& v) {
    return v.is_array() && std::all_of(v.begin(), v.end(), [](const Json& e) { return e.is_string(); });
  };
  l.uuids = r.member(j, "", "uuids", are_strings, "a list of strings").get<std::vector<std::string>>();
  const auto is_list = [](const Json& v) { return v.is_array(); };
  const Json& points = r.member(j, "", "points", is_list, "a list");
  for (size_t i = 0; i < points.size(); ++i) {
    const std::string place = fmt::format("points[{}].", i);
    const std::string communicator = old ? communicator_word(l.communicator) : r.text(points[i], place, "communicator");
    l.points.push_back({communicator, r.kind(points[i], place), r.text(points[i], place, "type"), r.ranks(points[i], place),
                        r.count(points[i], place, "bytes"), r.call_ns(points[i], place, "time_ns")});
  }
  check_points(l.points, source);
  l.fits = fit_links(l.points);
  if (old) return l;
  const Json& beside = r.member(j, "", "beside", is_list, "a list");
  for (size_t i = 0; i < beside.size(); ++i) {
    const std::string place = fmt::format("beside[{}].", i);
    const Json& b = beside[i];
    l.beside.push_back({r.text(b, place, "communicator"), r.kind(b, place), r.text(b, place, "type"), r.ranks(b, place),
                        r.count(b, place, "bytes"), r.text(b, place, "work"), r.count_or_0(b, place, "rows"),
                        r.call_ns(b, place, "alone_ns"), r.call_ns(b, place, "time_ns"), r.number(b, place, "slowed_ns")});
  }
  if (const auto awake = j.find("awake"); awake != j.end())
    l.awake = {r.count(*awake, "awake.", "ranks"), r.time_ns(*awake, "awake.", "asleep_ns"), r.time_ns(*awake, "awake.", "awake_ns")};
  return l;
}

}  // namespace profiler
