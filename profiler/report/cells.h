// Values as text, each format in one place: every output that shows a number shows these digits. "-" is no answer.
#pragma once
#include <optional>
#include <string>

#include "profiler/attribute/numbers.h"
#include "profiler/attribute/shown.h"

namespace profiler {

std::string text_of(Format format, const std::optional<double>& value);
std::string milliseconds(const std::optional<double>& ns);  // 0.400, 25.70, 1234.5
std::string change_in_milliseconds(double ns);              // +0.008
std::string thousands(double value);                        // 462.3k
std::string percent(const std::optional<double>& pct);      // 25.7

// Tensor use: a percentage; the number of instructions where it is all there is ("8.4M inst").
std::string tensor_cell(const Numbers& numbers);

}  // namespace profiler
