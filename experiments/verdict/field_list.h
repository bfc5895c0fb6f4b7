// One list for every struct that becomes a JSON object: name, unit, help and member of each field. Writer, reader with its
// checks, and the page that describes the document all walk the list, so that none of them can know a field that another does not.
//
// The profile document has such lists too (profiler/document/fields.h). Its rows are flat, while a verdict holds objects in lists in
// objects, so a field here is made from the member alone, and a member that is itself listed becomes an object of its own.
//
// Absent is never null and never zero: an optional member without a value, and a text, list or map that is declared
// `optional_field` and is empty, has no key.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json_place.h"

namespace experiments {

using Json = nlohmann::ordered_json;

using Place = stepscope::JsonPlace;
// The outermost object of `source`, whose name must outlive the place. Differences may be below zero; check.h asks what numbers must be.
inline Place outermost(const std::string& source) { return {source, "", true}; }

struct FieldText {
  std::string name, type, unit, help;
  bool required = true;
};
struct SectionText {
  std::string path;  // "workloads[].statistics"; "" = the document
  std::vector<FieldText> fields;
};
using Sections = std::vector<SectionText>;

// What is done with a member, one for each type of members: with one for each field GCC took twice the time for the lists of a verdict.
struct MemberType {
  std::string (*text)();  // "list of number"
  bool (*is_absent)(const void* member);
  void (*save)(const void* member, Json& object, std::string_view name, const Place&);
  void (*load)(const Json& value, void* member, const Place&);
  void (*describe)(const std::string& path, Sections&);  // what it holds, where that is listed
};

template <class Row>
struct Field {
  std::string_view name, unit, help;
  bool required = true;
  const MemberType* type = nullptr;
  const void* (*member)(const Row&) = nullptr;
};

// Specialized, with a static `list()`, for every struct that becomes an object.
template <class Row>
struct FieldsOf;
// Specialized for every enum that becomes a word: static `name(T)` and `parse(std::string_view)`.
template <class T>
struct WordsOf;

template <class T>
concept Listed = requires {
  FieldsOf<T>::list();
};
template <class T>
concept Word = requires(T word) {
  WordsOf<T>::name(word);
};

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsMap = false;
template <class T>
inline constexpr bool kIsMap<std::map<std::string, T>> = true;

using Range = std::array<double, 2>;  // low, high

template <class Row>
Json object_of(const Row& row, const Place& place);
template <class Row>
void read_object(const Json& object, Row& row, const Place& place);

template <class T>
Json json_of(const T& v, const Place& place) {
  if constexpr (std::is_same_v<T, double>) {
    if (!std::isfinite(v)) place.fail("is not a finite number");
    return v;
  } else if constexpr (std::is_same_v<T, char>) {
    return std::string(1, v);
  } else if constexpr (Word<T>) {
    return std::string(WordsOf<T>::name(v));
  } else if constexpr (Listed<T>) {
    return object_of(v, place);
  } else if constexpr (std::is_same_v<T, Range>) {
    return Json::array({json_of(v[0], place), json_of(v[1], place)});
  } else if constexpr (kIsVector<T>) {
    Json list = Json::array();
    for (size_t i = 0; i < v.size(); ++i) list.push_back(json_of(v[i], place.in(i)));
    return list;
  } else if constexpr (kIsMap<T>) {
    Json object = Json::object();
    for (const auto& [key, value] : v) object[key] = json_of(value, place.in(key));
    return object;
  } else {
    return v;  // a text, a whole number, true or false, or what an arm said in its own words
  }
}

template <class T>
void read(const Json& j, T& v, const Place& place) {
  if constexpr (kIsOptional<T>) {
    read(j, v.emplace(), place);
  } else if constexpr (std::is_same_v<T, Json>) {
    v = j;
  } else if constexpr (std::is_same_v<T, char>) {
    place.type(j == "A" || j == "B", "A or B");
    v = j.get<std::string>()[0];
  } else if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
    place.get(j, v);
  } else if constexpr (Word<T>) {
    place.type(j.is_string(), "a word");
    const auto word = WordsOf<T>::parse(j.get<std::string>());
    if (!word) place.fail("unknown word '" + j.get<std::string>() + "'");
    v = *word;
  } else if constexpr (Listed<T>) {
    read_object(j, v, place);
  } else if constexpr (std::is_same_v<T, Range>) {
    place.type(j.is_array() && j.size() == 2, "two numbers");
    for (size_t i = 0; i < 2; ++i) read(j[i], v[i], place.in(i));
  } else if constexpr (kIsVector<T>) {
    place.type(j.is_array(), "a list");
    v.clear();
    for (size_t i = 0; i < j.size(); ++i) read(j[i], v.emplace_back(), place.in(i));
  } else {
    static_assert(kIsMap<T>, "a member of a type that no document holds");
    place.type(j.is_object(), "an object");
    for (const auto& [key, value] : j.items()) read(value, v[key], place.in(key));
  }
}

template <class T>
bool is_absent(const T& v) {
  if constexpr (kIsOptional<T>)
    return !v.has_value();
  else if constexpr (std::is_same_v<T, Json>)
    return v.is_null();
  else if constexpr (std::is_same_v<T, std::string> || kIsVector<T> || kIsMap<T>)
    return v.empty();
  else
    return false;
}

template <class T>
std::string type_of() {
  if constexpr (kIsOptional<T>) {
    return type_of<typename T::value_type>();
  } else if constexpr (std::is_same_v<T, Json>) {
    return "any object";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "text";
  } else if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_same_v<T, double>) {
    return "number";
  } else if constexpr (std::is_same_v<T, char>) {
    return "A or B";
  } else if constexpr (std::is_integral_v<T>) {
    return "whole number";
  } else if constexpr (Word<T>) {
    return "word";
  } else if constexpr (Listed<T>) {
    return "object";
  } else if constexpr (std::is_same_v<T, Range>) {
    return "two numbers";
  } else if constexpr (kIsVector<T>) {
    return "list of " + type_of<typename T::value_type>();
  } else {
    return "object of " + type_of<typename T::mapped_type>();
  }
}

template <class Row>
void describe_row(const std::string& path, Sections& out);

// What a member holds, described below `path`.
template <class T>
void describe_member(const std::string& path, Sections& out) {
  if constexpr (kIsOptional<T>)
    describe_member<typename T::value_type>(path, out);
  else if constexpr (kIsVector<T>)
    describe_member<typename T::value_type>(path + "[]", out);
  else if constexpr (Listed<T>)
    describe_row<T>(path, out);
}

template <class Row>
void describe_row(const std::string& path, Sections& out) {
  SectionText section{path, {}};
  for (const Field<Row>& f : FieldsOf<Row>::list())
    section.fields.push_back({std::string(f.name), f.type->text(), std::string(f.unit), std::string(f.help), f.required});
  out.push_back(std::move(section));
  for (const Field<Row>& f : FieldsOf<Row>::list()) f.type->describe((path.empty() ? "" : path + ".") + std::string(f.name), out);
}

template <class T>
struct MemberOf;
template <class R, class M>
struct MemberOf<M R::*> {
  using Row = R;
  using Type = M;
};

// The member of a member: at<&AloneRun::device, &DeviceWindow::joules>(run).
template <auto First, auto... Rest>
auto& at(auto& row) {
  if constexpr (sizeof...(Rest) == 0)
    return row.*First;
  else
    return at<Rest...>(row.*First);
}

template <class T>
inline constexpr MemberType kMemberType = {
    type_of<T>,
    [](const void* member) { return is_absent(*static_cast<const T*>(member)); },
    [](const void* member, Json& object, std::string_view name, const Place& place) {
      const T& v = *static_cast<const T*>(member);
      if constexpr (kIsOptional<T>)
        object[std::string(name)] = json_of(*v, place);
      else
        object[std::string(name)] = json_of(v, place);
    },
    [](const Json& value, void* member, const Place& place) { read(value, *static_cast<T*>(member), place); },
    describe_member<T>,
};

template <auto First, auto... Rest>
constexpr auto listed_field(std::string_view name, std::string_view unit, std::string_view help, bool required) {
  using Row = typename MemberOf<decltype(First)>::Row;
  using T = std::remove_cvref_t<decltype(at<First, Rest...>(std::declval<Row&>()))>;
  return Field<Row>{name,
                    unit,
                    help,
                    required && !kIsOptional<T>,
                    &kMemberType<T>,
                    [](const Row& row) -> const void* { return &at<First, Rest...>(row); }};
}

// A field that is always there, unless its member is a std::optional without a value.
template <auto... Members>
constexpr auto field(std::string_view name, std::string_view unit, std::string_view help) {
  return listed_field<Members...>(name, unit, help, true);
}
// A text, list, map or free object that has no key when it is empty.
template <auto... Members>
constexpr auto optional_field(std::string_view name, std::string_view unit, std::string_view help) {
  return listed_field<Members...>(name, unit, help, false);
}

template <class Row>
Json object_of(const Row& row, const Place& place) {
  Json object = Json::object();
  for (const Field<Row>& f : FieldsOf<Row>::list())
    if (const void* member = f.member(row); f.required || !f.type->is_absent(member))
      f.type->save(member, object, f.name, place.in(f.name));
  return object;
}

template <class Row>
void read_object(const Json& object, Row& row, const Place& place) {
  place.type(object.is_object(), "an object");
  size_t known = 0;
  for (const Field<Row>& f : FieldsOf<Row>::list()) {
    const auto found = object.find(f.name);
    if (found == object.end()) {
      if (f.required) place.in(f.name).fail("is missing");
      continue;
    }
    ++known;
    f.type->load(*found, const_cast<void*>(f.member(row)), place.in(f.name));  // `row` is not const
  }
  if (known == object.size()) return;
  for (const auto& [key, value] : object.items()) {
    bool listed = false;
    for (const Field<Row>& f : FieldsOf<Row>::list()) listed |= f.name == key;
    if (!listed) place.fail("unknown field '" + key + "'");
  }
}

}  // namespace experiments
