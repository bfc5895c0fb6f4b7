// Rules that give a kernel of a foreign report its pass, layer and op where the report has no NVTX ranges that say so. Unlike our own
// attribution they go by kernel names and launch order, so documents made with them say that they were.
//
//   schema: stepscope.rules/1
//   name: llm.c
//   sections:                       # optional: which part of the step we are in, read in launch order of each process. The first one listed begins a step
//     - {name: start, begins_with: encoder_forward}
//     - {name: qkv, begins_with: gemm, from: [start, mlp]}   # only when it follows one of these; without from: whenever another one is on
//   rules:                          # the first that fits a launch places it
//     - kernel: layernorm_forward   # regular expression (ECMAScript, no \1), searched in the kernel name; at least one of kernel, range, in
//       range: matmul_forward       # ... in the report's own range path
//       in: [qkv]                   # only in these sections
//       previous: softmax           # ... in the name of the launch before; next: of the launch behind
//       pass: forward
//       op: ln1
//       layer: up                   # how many times its section began in this step, from 0 (without `in`: how many launches it fitted);
//                                   # down: the same counted down to 0; a number; left out: outside the layers
//       times: 12                   # this launch stands for 12 equal layers: shown 12 times, as layers 0 to 11, and said so;
//                                   // of a report without time stamps only
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
  std::string kernel, range, previous, next;  // "" = not asked
  std::vector<std::string> in;
  std::string pass, op;
  LayerRule layer = LayerRule::none;
  int64_t layer_number = 0;
  int64_t times = 1;
};
struct Section {
  std::string name, begins_with;
  std::vector<std::string> from;
};
struct Rules {
  std::string name;
  std::vector<Section> sections;
  std::vector<Rule> rules;
};

// Throws stepscope::InputError "SOURCE: line N: …": not YAML, another schema, an unknown key, a pass or op outside the vocabulary, a regular
// expression that is none.
Rules parse_rules(const std::string& yaml, const std::string& source);

// The rules that ship with the project, by name ("llm.c") -> YAML text.
const std::map<std::string, std::string>& shipped_rules();

struct RulePlace {
  std::string pass, op;
  std::optional<int64_t> layer;
  int64_t times = 1;
};
// Parallel to `results`; nullopt where no rule fits, and where a range of the program names a place already. Copies and memsets are never
// placed.
std::vector<std::optional<RulePlace>> place_by_rules(const Rules& rules, const std::vector<ForeignResult>& results);

}  // namespace profiler
