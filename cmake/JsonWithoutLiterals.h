// nlohmann/json.hpp for the precompiled headers, without its literals ("…"_json).
//
// The body of the inline operator"" _json calls json::parse. GCC keeps that call as work to be done in every source that uses the
// precompiled header: an empty source takes 0.66 s instead of 0.21 s with it (GCC 12, JSON 3.11.2), and there are hundreds of sources.
// The macro makes the operator a declaration and its body that of a template which nobody calls. Later versions of the library spell
// the operator as one token, which the macro does not touch.
#pragma once
#include <cstddef>
#define JSON_USE_GLOBAL_UDLS 0
#define _json(...)                                       \
  _stepscope_absent(const char* text, std::size_t size); \
  template <class Never>                                 \
  inline nlohmann::json stepscope_absent_literal(__VA_ARGS__)
#include <nlohmann/json.hpp>  // IWYU pragma: export
#undef _json
