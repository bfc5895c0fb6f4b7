// A YAML text that holds one document. For sources that link yaml-cpp.
#pragma once
#include <yaml-cpp/yaml.h>

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

}  // namespace stepscope
