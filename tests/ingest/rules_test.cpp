#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/errors.h"
#include "profiler/ingest/rules.h"

namespace {

using namespace profiler;
using testing::HasSubstr;

constexpr char kHead[] = "schema: stepscope.rules/1\nname: test\n";

std::vector<ForeignResult> kernels(std::initializer_list<const char*> names) {
  std::vector<ForeignResult> list;
  for (const char* name : names) {
    ForeignResult r;
    r.name = name;
    list.push_back(r);
  }
  return list;
}
std::string words(const std::optional<RulePlace>& p) {
  return p ? p->pass + "/" + (p->layer ? std::to_string(*p->layer) : "-") + "/" + p->op : "none";
}
std::vector<std::string> places(const std::string& yaml, const std::vector<ForeignResult>& results) {
  std::vector<std::string> out;
  for (const auto& p : place_by_rules(parse_rules(kHead + yaml, "r.yaml"), results)) out.push_back(words(p));
  return out;
}
std::string rules_error_of(const std::string& yaml) {
  try {
    parse_rules(yaml, "r.yaml");
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

TEST(Rules, TheFirstThatFitsPlacesALaunch) {
  EXPECT_THAT(places("rules:\n- {kernel: '^adamw', pass: optimizer, op: adamw}\n- {kernel: adamw, pass: "
                     "other, op: copy}\n",
                     kernels({"adamw_k", "my_adamw", "gemm"})),
              testing::ElementsAre("optimizer/-/adamw", "other/-/copy", "none"));
}

TEST(Rules, SectionsTellEqualNamesApartAndCountLayers) {
  EXPECT_THAT(places("sections:\n- {name: start, begins_with: embed}\n- {name: first, begins_with: gemm, from: "
                     "[start, second]}\n"
                     "- {name: second, begins_with: gemm, from: first}\n- {name: bwd, begins_with: loss}\n- {name: "
                     "back, begins_with: gemm, from: [bwd, back]}\n"
                     "rules:\n- {kernel: gemm, in: first, pass: forward, op: qkv, layer: up}\n- {in: second, pass: "
                     "forward, op: mlp_down, layer: up}\n"
                     "- {kernel: gemm, in: back, pass: backward, op: qkv, layer: down}\n",
                     kernels({"embed", "gemm", "gelu", "gemm", "split", "gemm", "gemm", "loss", "gemm", "gemm"})),
              testing::ElementsAre("none", "forward/0/qkv", "none", "forward/0/mlp_down", "forward/0/mlp_down", "forward/1/qkv",
                                   "forward/1/mlp_down", "none", "backward/1/qkv", "backward/0/qkv"));
}

TEST(Rules, NeighboursDecideWhereNamesDoNot) {
  EXPECT_THAT(places("rules:\n- {kernel: gemm, next: loss, pass: forward, op: lm_head}\n- {kernel: gemm, "
                     "previous: ln, pass: forward, op: qkv, layer: up}\n",
                     kernels({"gemm", "ln", "gemm", "ln", "gemm", "gemm", "loss"})),
              testing::ElementsAre("none", "none", "forward/0/qkv", "none", "forward/1/qkv", "forward/-/lm_head", "none"));
}

TEST(Rules, LayersCountAgainInTheNextStep) {
  EXPECT_THAT(places("sections:\n- {name: fwd, begins_with: embed}\n- {name: opt, begins_with: adamw}\nrules:\n"
                     "- {kernel: gemm, pass: forward, op: qkv, layer: up}\n",
                     kernels({"embed", "gemm", "gemm", "adamw", "embed", "gemm"})),
              testing::ElementsAre("none", "forward/0/qkv", "forward/1/qkv", "none", "none", "forward/0/qkv"));
}

// Two ranks that take turns: sections, layers and neighbours are those of each, as they are in a report of it alone.
TEST(Rules, WhatAnotherProcessLaunchesBetweenChangesNothing) {
  const std::string yaml =
      "sections:\n- {name: fwd, begins_with: embed}\n- {name: bwd, begins_with: loss}\nrules:\n"
      "- {kernel: gemm, next: loss, pass: forward, op: lm_head}\n- {kernel: gemm, in: fwd, previous: ln, pass: forward, op: qkv}\n"
      "- {kernel: ln, pass: forward, op: ln1, layer: up}\n- {kernel: gemm, in: bwd, pass: backward, op: lm_head}\n";
  auto one = kernels({"embed", "ln", "gemm", "ln", "gemm", "gemm", "loss", "gemm", "embed", "ln"});
  const auto alone = places(yaml, one);
  EXPECT_THAT(alone, testing::ElementsAre("none", "forward/0/ln1", "forward/-/qkv", "forward/1/ln1", "forward/-/qkv", "forward/-/lm_head",
                                          "none", "backward/-/lm_head", "none", "forward/0/ln1"));
  for (uint32_t lot = 0; lot < 100; ++lot) {
    std::vector<ForeignResult> both;
    size_t next[2] = {};
    std::vector<std::string> expected;
    for (uint32_t i = 0; both.size() < 2 * one.size(); ++i) {
      const size_t p = (lot + 1) * 2654435761u * (2 * i + 1) >> 31;
      if (next[p] == one.size()) continue;
      both.push_back(one[next[p]]);
      both.back().process = static_cast<int64_t>(p);
      expected.push_back(alone[next[p]++]);
    }
    EXPECT_EQ(places(yaml, both), expected) << lot;
  }
  // The second one was attached to behind its embedding: it is in no section, whichever the first ended in.
  auto both = kernels({"embed", "ln", "ln", "gemm"});
  both[2].process = both[3].process = 1;
  EXPECT_THAT(places(yaml, both), testing::ElementsAre("none", "forward/0/ln1", "forward/0/ln1", "none"));
}

TEST(Rules, RangesOfTheReportCanBeAskedFor) {
  auto list = kernels({"k", "k"});
  list[0].path = "train/matmul_forward";
  EXPECT_THAT(places("rules:\n- {range: matmul_forward, pass: forward, op: mlp_up}\n", list),
              testing::ElementsAre("forward/-/mlp_up", "none"));
}

TEST(Rules, CopiesAreNeitherPlacedNorNeighbours) {
  auto list = kernels({"a", "copy HtoD", "b"});
  list[1].kind = ForeignKind::copy;
  EXPECT_THAT(places("rules:\n- {kernel: 'b|copy', previous: a, pass: forward, op: qkv}\n", list),
              testing::ElementsAre("none", "none", "forward/-/qkv"));
}

TEST(Rules, ErrorsNameLineAndCause) {
  EXPECT_THAT(rules_error_of("schema: stepscope.rules/2\nname: x\n"), HasSubstr("expected stepscope.rules/1"));
  EXPECT_THAT(rules_error_of(kHead), HasSubstr("there are no rules"));
  EXPECT_THAT(rules_error_of(kHead + std::string("rules:\n- {kernel: k, pass: forwards, op: qkv}\n")),
              testing::AllOf(HasSubstr("line 4"), HasSubstr("pass 'forwards'")));
  EXPECT_THAT(rules_error_of(kHead + std::string("rules:\n- {kernel: k, pass: forward, op: qkv, colour: red}\n")),
              HasSubstr("unknown key 'colour'"));
  EXPECT_THAT(rules_error_of(kHead + std::string("rules:\n- {kernel: k, pass: forward, op: qkv, op: ln1}\n")),
              HasSubstr("'op' stands twice"));
  EXPECT_THAT(
      rules_error_of(kHead + std::string("rules:\n- {kernel: k, pass: forward, op: qkv}\nrules:\n- {kernel: j, pass: forward, op: ln1}\n")),
      HasSubstr("'rules' stands twice"));
  EXPECT_THAT(rules_error_of(kHead + std::string("rules:\n- {kernel: '(', pass: forward, op: qkv}\n")),
              HasSubstr("not a regular expression"));
  EXPECT_THAT(rules_error_of(kHead + std::string("rules:\n- {pass: forward, op: qkv}\n")), HasSubstr("needs 'kernel', 'range' or 'in'"));
  EXPECT_THAT(rules_error_of(kHead + std::string("rules:\n- {kernel: k, in: nowhere, pass: forward, op: qkv}\n")),
              HasSubstr("no section is named"));
  EXPECT_THAT(rules_error_of(kHead + std::string("rules:\n- {kernel: k, pass: forward, op: qkv, times: 0}\n")), HasSubstr("'times'"));
  EXPECT_THAT(rules_error_of("a: [b\n"), HasSubstr("not YAML"));
  EXPECT_THAT(rules_error_of("schema: x\nrules:\n\t- a: b\n"), HasSubstr("line 3: not YAML: "));
  EXPECT_THAT(rules_error_of("schema: x\nrules:\n\t- a: b\n"),
              HasSubstr(": a tab stands before the text of this line, expected spaces alone"));
  EXPECT_THAT(rules_error_of("- 1\n"), HasSubstr("expected a map"));
  EXPECT_THAT(rules_error_of(""), HasSubstr("expected a map"));
  const std::string whole = kHead + std::string("rules:\n- {kernel: k, pass: forward, op: qkv}\n");
  EXPECT_EQ(rules_error_of(whole), "");
  EXPECT_THAT(rules_error_of(whole + "---\nrules: []\n"), HasSubstr("line 6: a second YAML document begins behind `---`"));
}

// The first two ended the stack, the third did not end.
TEST(Rules, NoPatternEndsTheStackOrTakesYears) {
  const auto pattern = [](const std::string& text) {
    return kHead + std::string("rules:\n- {kernel: '") + text + "', pass: forward, op: qkv}\n";
  };
  const auto nested = [](size_t levels) { return std::string(levels, '(') + "a" + std::string(levels, ')'); };
  EXPECT_THAT(rules_error_of(pattern(nested(100'000))),
              HasSubstr("line 4: a regular expression of 200001 characters, expected at most 1000"));
  const auto placed = [&](const std::string& text, const std::string& name) {
    return place_by_rules(parse_rules(pattern(text), "x"), kernels({name.c_str()}))[0].has_value();
  };
  EXPECT_TRUE(placed("^" + nested(20) + "*$", std::string(2000, 'a')));
  EXPECT_FALSE(placed("^((a|b|_|[a-z0-9])*)+$", std::string(40, 'a') + "!"));
  EXPECT_THAT(rules_error_of(pattern("(a)\\1")), HasSubstr("not a regular expression"));
  for (const char* endless : {"(.?){15000}zzz", "((.*){20}){6}zz", "(a){1,101}"})
    EXPECT_THAT(rules_error_of(pattern(endless)), HasSubstr("its parts more than 100 times")) << endless;
  EXPECT_TRUE(placed("^a{2,100}$", "aaa"));
  EXPECT_FALSE(placed("a\\{2000}", "aaa"));
}

TEST(Rules, TheShippedOnesParse) {
  ASSERT_TRUE(shipped_rules().contains("llm.c"));
  for (const auto& [name, yaml] : shipped_rules()) EXPECT_EQ(parse_rules(yaml, name).name, name);
}

// Kernel names of one step of llm.c (f1e2ace, d12, B=4, T=1024, H200, 2026-11-21), each behind the layer that llm.c's own NVTX range named.
class LlmcStep : public testing::TestWithParam<const char*> {};

TEST_P(LlmcStep, EveryKernelIsPlacedInTheLayerOfItsOwnRange) {
  std::ifstream in(std::string(INGEST_DATA) + "/" + GetParam());
  std::vector<ForeignResult> results;
  std::vector<std::string> layers;
  for (std::string layer, name; in >> layer && std::getline(in >> std::ws, name);) {
    layers.push_back(layer);
    results.emplace_back().name = name;
  }
  ASSERT_GT(results.size(), 300u);
  const auto places = place_by_rules(parse_rules(shipped_rules().at("llm.c"), "llm.c"), results);
  int64_t in_layers = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(places[i]) << i << " " << results[i].name;
    if (layers[i] == "-") continue;
    ASSERT_TRUE(places[i]->layer) << i << " " << results[i].name;
    EXPECT_EQ(std::to_string(*places[i]->layer), layers[i])
        << i << " " << results[i].name << " " << places[i]->pass << " " << places[i]->op;
    ++in_layers;
  }
  EXPECT_GT(in_layers, 200);
}
INSTANTIATE_TEST_SUITE_P(, LlmcStep, testing::Values("llmc_cudnn.txt", "llmc_plain.txt"));

}  // namespace
