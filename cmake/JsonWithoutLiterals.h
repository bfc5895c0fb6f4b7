// nlohmann/json.hpp for the precompiled headers, without its literals ("…"_json).
//
// The body of the inline operator"" _json calls json::parse. GCC keeps that call as work to be done in every source that uses the
// precompiled header: an empty source takes 0.66 s instead of 0.21 s with it (GCC 12, JSON 3.11.2), and there are hundreds of sources.
// The macro makes the operator a declaration and its body that of a template which nobody calls. Later versions of the library spell
// the operator as one token, which the macro does not touch.
#pragma once
#include <cstddef>
#include <string>
#include <vector>
#define JSON_USE_GLOBAL_UDLS 0
#define _json(...)                                       \
  _stepscope_absent(const char* text, std::size_t size); \
  template <class Never>                                 \
  inline nlohmann::json stepscope_absent_literal(__VA_ARGS__)
#include <nlohmann/json.hpp>  // IWYU pragma: export
#undef _json

// What nearly every source asks of the library is compiled once, in JsonInstances.cpp, and only named here: a tenth to a sixth of the time
// of a source that uses it. Sources without a precompiled header instantiate their own, which is the same code.
#ifndef STEPSCOPE_JSON_HERE
#define STEPSCOPE_JSON_HERE extern
#endif
namespace nlohmann {
STEPSCOPE_JSON_HERE template class basic_json<>;
STEPSCOPE_JSON_HERE template class basic_json<ordered_map>;
namespace detail {
STEPSCOPE_JSON_HERE template class serializer<json>;
STEPSCOPE_JSON_HERE template class serializer<ordered_json>;
STEPSCOPE_JSON_HERE template class lexer<json, input_stream_adapter>;
STEPSCOPE_JSON_HERE template class lexer<ordered_json, input_stream_adapter>;
STEPSCOPE_JSON_HERE template class lexer<json, iterator_input_adapter<std::string::const_iterator>>;
STEPSCOPE_JSON_HERE template class lexer<ordered_json, iterator_input_adapter<std::string::const_iterator>>;
STEPSCOPE_JSON_HERE template class iter_impl<const json>;
STEPSCOPE_JSON_HERE template class iter_impl<const ordered_json>;
// json::parse of a string, of a literal and of a stream.
#define STEPSCOPE_JSON_PARSER(Json, Input)                                                               \
  STEPSCOPE_JSON_HERE template class parser<Json, Input>;                                                \
  STEPSCOPE_JSON_HERE template bool parser<Json, Input>::sax_parse_internal(json_sax_dom_parser<Json>*); \
  STEPSCOPE_JSON_HERE template bool parser<Json, Input>::sax_parse_internal(json_sax_dom_callback_parser<Json>*);
#define STEPSCOPE_JSON_PARSERS(Json)                                               \
  STEPSCOPE_JSON_HERE template class json_sax_dom_parser<Json>;                    \
  STEPSCOPE_JSON_HERE template class json_sax_dom_callback_parser<Json>;           \
  STEPSCOPE_JSON_PARSER(Json, iterator_input_adapter<std::string::const_iterator>) \
  STEPSCOPE_JSON_PARSER(Json, iterator_input_adapter<const char*>)                 \
  STEPSCOPE_JSON_PARSER(Json, input_stream_adapter)
STEPSCOPE_JSON_HERE template class lexer<json, iterator_input_adapter<const char*>>;
STEPSCOPE_JSON_HERE template class lexer<ordered_json, iterator_input_adapter<const char*>>;
STEPSCOPE_JSON_PARSERS(json)
STEPSCOPE_JSON_PARSERS(ordered_json)
#undef STEPSCOPE_JSON_PARSERS
#undef STEPSCOPE_JSON_PARSER
}  // namespace detail
}  // namespace nlohmann
STEPSCOPE_JSON_HERE template class std::vector<nlohmann::json>;
STEPSCOPE_JSON_HERE template class std::vector<nlohmann::ordered_json>;
