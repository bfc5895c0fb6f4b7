// One value of a JSON document that somebody may have edited, into one variable: of exactly the type that the variable has. nlohmann's
// get_to() makes 64 of 64.9, -1 of 4294967295 and -9223372036854775808 of 1e30.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

// Where the value stands: the file, and the path in it, "ops[3].added.joules"; "" is the document. Each get() and type() throws InputError
// with both and what was expected. The file's name must outlive the place.
struct JsonPlace {
  using Json = nlohmann::ordered_json;
  const std::string& source;
  std::string place;
  bool below_zero = false;  // a number below zero is an answer

  JsonPlace in(std::string_view key) const;
  JsonPlace in(size_t index) const;

  [[noreturn]] void fail(const std::string& what) const;
  void type(bool ok, const char* expected) const;

  void get(const Json& j, std::string& v) const;
  void get(const Json& j, int64_t& v) const;
  void get(const Json& j, int& v) const;
  // Programs until 2026-11-23 wrote a seed of 2^63 and more as the negative number of the same bits.
  void get(const Json& j, uint64_t& v) const;
  void get(const Json& j, bool& v) const;
  void get(const Json& j, double& v) const;
  void get(const Json& j, std::vector<double>& v) const;
  void get(const Json& j, std::vector<std::string>& v) const;
  void get(const Json& j, std::array<int64_t, 3>& v) const;
  template <class T>
  void get(const Json& j, std::optional<T>& v) const {
    get(j, v.emplace());
  }
  template <class T>
  void get(const Json& j, std::map<std::string, T>& v) const {
    type(j.is_object(), "an object");
    for (const auto& [key, e] : j.items()) in(key).get(e, v[key]);
  }

 private:
  void sign(bool good, const Json& j) const;
};

}  // namespace stepscope
