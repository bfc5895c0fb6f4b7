// A recording read as plain JSON lines, so that these tests do not depend on the stage to the right.
#pragma once
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace profiler::collect {

struct Lines {
  explicit Lines(const std::string& path) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
  }
  std::vector<nlohmann::json> of(const std::string& type) const {
    std::vector<nlohmann::json> some;
    for (const auto& j : all)
      if (j.value("type", "") == type) some.push_back(j);
    return some;
  }
  // Of what the fakes decide; the host's own times, which differ from run to run, are "now".
  std::string text() const {
    std::string out;
    for (nlohmann::json j : all) {
      for (const char* key : {"at_ns", "begin_ns", "end_ns", "host_begin_ns", "host_end_ns", "setup_ns", "run_ns", "pid", "wall_ns"})
        if (j.contains(key) && j.at("type") != "launch") j[key] = "now";
      out += j.dump() + "\n";
    }
    return out;
  }
  bool complete() const { return !all.empty() && all.back().value("type", "") == "end"; }
  int64_t missing(const std::string& name) const {
    int64_t n = 0;
    for (const auto& j : of("missing"))
      if (j.at("name") == name) n += j.at("count").get<int64_t>();
    return n;
  }
  std::vector<nlohmann::json> all;
};

}  // namespace profiler::collect
