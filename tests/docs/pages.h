// The pages of the tree as tests read them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace docs_test {

namespace fs = std::filesystem;

inline fs::path root() { return SOURCE_DIR; }

inline std::string read(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// README and every page below these folders.
inline std::vector<fs::path> pages() {
  std::vector<fs::path> out{root() / "README.md", root() / "tests" / "README.md"};
  for (const char* folder : {"docs", "experiments", "baselines", "python"})
    for (const auto& e : fs::recursive_directory_iterator(root() / folder))
      if (e.path().extension() == ".md") out.push_back(e.path());
  std::sort(out.begin(), out.end());
  return out;
}

// Paths of all files, relative to the root, without build folders and what begins with a dot.
inline std::vector<std::string> files_of_the_tree() {
  std::vector<std::string> out;
  for (auto it = fs::recursive_directory_iterator(root()); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory() && (name.starts_with('.') || (it.depth() == 0 && name == "build"))) it.disable_recursion_pending();
    if (it->is_regular_file()) out.push_back(it->path().lexically_relative(root()).string());
  }
  return out;
}

struct Code {
  std::string text;   // between two backticks of one line
  std::string where;  // file:line
};

inline std::vector<Code> inline_code(const fs::path& page) {
  std::vector<Code> out;
  std::istringstream in(read(page));
  bool block = false;
  std::string line;
  for (int n = 1; std::getline(in, line); ++n) {
    if (line.starts_with("```")) block = !block;
    if (block) continue;
    for (size_t at = line.find('`'); at != std::string::npos;) {
      const size_t end = line.find('`', at + 1);
      if (end == std::string::npos) break;
      out.push_back({line.substr(at + 1, end - at - 1), page.lexically_relative(root()).string() + ":" + std::to_string(n)});
      at = line.find('`', end + 1);
    }
  }
  return out;
}

// The anchors of a page's headings: small letters, punctuation dropped, spaces to dashes.
inline std::set<std::string> anchors_of(const std::string& text) {
  static const std::regex link(R"(\[([^\]]*)\]\([^)]*\))");
  std::set<std::string> out;
  std::istringstream in(text);
  bool block = false;
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with("```")) block = !block;
    if (block || !line.starts_with('#')) continue;
    const std::string heading = std::regex_replace(line.substr(std::min(line.find_first_not_of("# "), line.size())), link, "$1");
    std::string anchor;
    for (const char c : heading) {
      const auto u = static_cast<unsigned char>(c);
      if (c == ' ' || c == '-')
        anchor += '-';
      else if (std::isalnum(u) || c == '_' || u >= 0x80)
        anchor += static_cast<char>(std::tolower(u));
    }
    out.insert(anchor);
  }
  return out;
}

// Slot -> its variants, the default first, from the rows of a trainer's table (`fp32` or `mixed`).
inline std::map<std::string, std::vector<std::string>> rows_of(const std::string& trainer) {
  static const std::regex row(R"re(\.slot = "(\w+)",\s*\.name = "(\w+)")re");
  std::map<std::string, std::vector<std::string>> out;
  const std::string text = read(root() / trainer / "variants.cpp");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), row); it != std::sregex_iterator(); ++it) out[(*it)[1]].push_back((*it)[2]);
  return out;
}

inline std::map<std::string, std::vector<std::string>> rows_of_the_trainers() {
  auto out = rows_of("mixed");
  for (const auto& [slot, names] : rows_of("fp32")) out[slot].insert(out[slot].end(), names.begin(), names.end());
  return out;
}

}  // namespace docs_test
