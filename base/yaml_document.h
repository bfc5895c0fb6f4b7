// A YAML text that holds one document. For sources that link yaml-cpp.
#pragma once
#include <yaml-cpp/yaml.h>

#include <sstream>
#include <string>
#include <vector>

namespace stepscope {

// The document; an undefined node of an empty text. fail(node, sentence), which throws, is called with a second one: YAML::Load would leave it
// unread. Throws YAML::Exception where the text is no YAML.
template <class Fail>
YAML::Node only_yaml_document(const std::string& yaml, const Fail& fail) {
  const std::vector<YAML::Node> documents = YAML::LoadAll(yaml);
  if (documents.size() > 1) fail(documents[1], "a second YAML document begins behind `---`; expected one, since nothing would read it");
  return documents.empty() ? YAML::Node() : documents.front();
}

// What YAML::Exception says of the text, and what to write where the line shows it: yaml-cpp calls a tab, and a colon within a text, an
// "illegal map value".
inline std::string yaml_problem(const std::string& yaml, const YAML::Exception& e) {
  std::istringstream lines(yaml);
  std::string line;
  for (int n = 0; n <= e.mark.line && std::getline(lines, line); ++n) {
  }
  if (const size_t text = line.find_first_not_of(" \t"); line.substr(0, text).find('\t') != std::string::npos)
    return e.msg + ": a tab stands before the text of this line, expected spaces alone";
  if (e.msg == "illegal map value")
    return e.msg + ": expected a text with `: ` in it in quotes or behind `>-`, and the keys of one block below each other";
  return e.msg;
}

}  // namespace stepscope
