// Rules that give a kernel of a foreign report its pass, layer and op where the report has no NVTX ranges that say so. Unlike our own
// attribution they go by kernel names and launch order, so documents made with them say that they were.
//
//   schema: stepscope.rules/1
//   name: llm.c
//   sections:                       # optional: which part of the step we are in; the last one whose begins_with was seen
//     - {name: forward, begins_with: encoder_forward}
//   rules:                          # the first that fits a launch places it
//     - kernel: layernorm_forward   # regular expression (ECMAScript), searched in the kernel name; at least one of kernel and range
//       range: matmul_forward       # ... in the report's own range path
//       in: forward                 # only in this section
//       previous: softmax           # ... in the name of the launch before; next: of the launch behind
//       pass: forward
//       op: ln1
//       layer: up                   # 0, 1, 2, … per fit in one section; down: counted down to 0; a number; left out: outside the layers
//       times: 12                   # this launch stands for 12 equal layers: shown 12 times, as layers 0 to 11, and said so
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/ingest/foreign_report.h"

namespace profiler {

enum class LayerRule { none, up, down, number };

struct Rule {
  std::string kernel, range, in, previous, next;  // "" = not asked
  std::string pass, op;
  LayerRule layer = LayerRule::none;
  int64_t layer_number = 0;
  int64_t times = 1;
};
struct Section {
  std::string name, begins_with;
};
struct Rules {
  std::string name;
  std::vector<Section> sections;
  std::vector<Rule> rules;
};

// Throws profiler::DataError "SOURCE: line N: …": not YAML, another schema, an unknown key, a pass or op outside the vocabulary, a regular
// expression that is none.
Rules parse_rules(const std::string& yaml, const std::string& source);

// The rules that ship with the project, by name ("llm.c") -> YAML text.
const std::map<std::string, std::string>& shipped_rules();

struct RulePlace {
  std::string pass, op;
  std::optional<int64_t> layer;
  int64_t times = 1;
};
// Parallel to `results`; nullopt where no rule fits. Copies and memsets are never placed.
std::vector<std::optional<RulePlace>> place_by_rules(const Rules& rules, const std::vector<ForeignResult>& results);

}  // namespace profiler
