// Holds what a row of a variant table says about launches against the launches of a profile document.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gpt2/trainer.h"

namespace trainers {

inline std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = text.find(by);
    if (end != 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

inline bool names_one_of(const std::string& kernel, std::string_view parts) {
  for (const std::string& part : split(parts, '|'))
    if (kernel.find(part) != std::string::npos) return true;
  return false;
}

// One sentence for everything that is not as the row says. `launches`: of a profile document, with "name", "activity", "path"
// ("step/PASS/LAYER/OP") and, inside a graph, "graph_node".
inline std::vector<std::string> differences(const gpt2::VariantFacts& variant, const nlohmann::json& launches) {
  std::vector<std::string> out;
  for (const gpt2::VariantLaunches& want : variant.launches) {
    if (want.in_graph >= 0) {
      int kernels = 0, nodes = 0;
      for (const auto& l : launches)
        if (l.at("activity") == "kernel") ++kernels, nodes += l.contains("graph_node") ? 1 : 0;
      if (kernels == 0 || nodes != (want.in_graph == 1 ? kernels : 0))
        out.push_back(fmt::format("{} of {} kernels are nodes of a graph", nodes, kernels));
    }
    for (const std::string& where : split(want.where, ' ')) {
      const std::string pass = where.substr(0, where.find('/')), op = where.substr(where.find('/') + 1);
      std::map<std::string, std::vector<std::string>> ranges;  // path -> names
      for (const auto& l : launches) {
        const auto words = split(l.at("path").get<std::string>(), '/');
        if (words.size() == 4 && words[1] == pass && words[3] == op) ranges[l.at("path")].push_back(l.at("name"));
      }
      if (ranges.empty() && (!want.must.empty() || want.at_least > 0)) out.push_back(where + " has no launch");
      for (const auto& [path, names] : ranges) {
        bool found = want.must.empty();
        for (const std::string& name : names) {
          found = found || names_one_of(name, want.must);
          if (names_one_of(name, want.never)) out.push_back(fmt::format("{} launched {}", path, name));
        }
        if (!found) out.push_back(fmt::format("{} launched no {}, but {}", path, want.must, fmt::join(names, "; ")));
        const auto count = static_cast<int>(names.size());
        if (count < want.at_least || count > want.at_most)
          out.push_back(fmt::format("{} has {} launches, expected {} to {}", path, count, want.at_least, want.at_most));
      }
    }
  }
  return out;
}

}  // namespace trainers
