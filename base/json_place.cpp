#include "base/json_place.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/json_read.h"

namespace stepscope {

JsonPlace JsonPlace::in(std::string_view key) const {
  return {source, fmt::format("{}{}{}", place, place.empty() ? "" : ".", key), below_zero};
}

JsonPlace JsonPlace::in(size_t index) const { return {source, fmt::format("{}[{}]", place, index), below_zero}; }

void JsonPlace::fail(const std::string& what) const {
  throw InputError(fmt::format("{}: {}{}{}", source, place, place.empty() ? "" : ": ", what));
}

void JsonPlace::type(bool ok, const char* expected) const {
  if (!ok) fail(fmt::format("expected {}", expected));
}

void JsonPlace::sign(bool good, const Json& j) const {
  if (!good && !below_zero) fail(fmt::format("found {}, expected 0 or more", shown_json(j)));
}

void JsonPlace::get(const Json& j, std::string& v) const {
  type(j.is_string(), "a string");
  v = j.get<std::string>();
}

void JsonPlace::get(const Json& j, int64_t& v) const {
  // Beyond 2^63 the conversion would wrap.
  type(j.is_number_integer() && (!j.is_number_unsigned() || j.get<uint64_t>() <= INT64_MAX), "an integer below 2^63");
  v = j.get<int64_t>();
  sign(v >= 0, j);
}

void JsonPlace::get(const Json& j, int& v) const {
  int64_t whole = 0;
  get(j, whole);
  type(whole >= INT32_MIN && whole <= INT32_MAX, "an integer below 2^31");
  v = static_cast<int>(whole);
}

void JsonPlace::get(const Json& j, uint64_t& v) const {
  type(j.is_number_integer(), "an integer below 2^64");
  v = j.get<uint64_t>();
}

void JsonPlace::get(const Json& j, bool& v) const {
  type(j.is_boolean(), "true or false");
  v = j.get<bool>();
}

void JsonPlace::get(const Json& j, double& v) const {
  type(j.is_number(), "a number");
  v = j.get<double>();
  sign(v >= 0, j);
}

void JsonPlace::get(const Json& j, std::vector<double>& v) const {
  type(j.is_array(), "a list of numbers");
  for (const Json& e : j) get(e, v.emplace_back());
}

void JsonPlace::get(const Json& j, std::vector<std::string>& v) const {
  type(j.is_array(), "a list of strings");
  for (const Json& e : j) get(e, v.emplace_back());
}

void JsonPlace::get(const Json& j, std::array<int64_t, 3>& v) const {
  type(j.is_array() && j.size() == 3, "three integers");
  for (size_t i = 0; i < 3; ++i) get(j[i], v[i]);
}

}  // namespace stepscope
