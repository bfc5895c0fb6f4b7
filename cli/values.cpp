#include "cli/values.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <string>

namespace cli {
namespace {

// Decimal digits, a sign only where it is negative; no blanks, no leading zeros, no digit separators.
template <class T>
std::optional<T> parse_whole(const std::string& text) {
  const size_t digits = text.starts_with('-') ? 1 : 0;
  if (text.size() > digits + 1 && text[digits] == '0') return std::nullopt;
  T v{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(v) : std::nullopt;
}

std::optional<double> parse_real(const std::string& text) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(v)) return std::nullopt;
  return v;
}

std::string refusal(const std::string& text, const std::string& expected) { return fmt::format("found '{}', expected {}", text, expected); }

template <class T>
Check whole_in(T low, T high) {
  const std::string range = high == std::numeric_limits<T>::max() ? fmt::format("{} or more", low) : fmt::format("{} to {}", low, high);
  return {[=](const std::string& text) {
            const auto v = parse_whole<T>(text);
            if (v && *v >= low && *v <= high) return std::string();
            const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
            if (!v && digits && text[0] != '0')
              return refusal(text, fmt::format("a whole number, {} to {}", low, high));  // too large for T
            return refusal(text, "a whole number, " + range);
          },
          range};
}

Check real_in(const std::string& range, std::function<bool(double)> fits) {
  return {[=](const std::string& text) {
            const auto v = parse_real(text);
            return v && fits(*v) ? std::string() : refusal(text, "a number, " + range);
          },
          range};
}

bool is_number(const Argument& a) {
  const std::string type = a.type_name();
  return type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
}

}  // namespace

Check whole(int64_t low, int64_t high) { return whole_in<int64_t>(low, high); }
Check seed() { return whole_in<uint64_t>(0, std::numeric_limits<uint64_t>::max()); }
Check real(double low, double high) {
  return real_in(fmt::format("{} to {}", low, high), [=](double v) { return v >= low && v <= high; });
}
Check real_above(double low, double high) {
  return real_in(fmt::format("above {} to {}", low, high), [=](double v) { return v > low && v <= high; });
}
Check real_between(double low, double high) {
  return real_in(fmt::format("above {} and below {}", low, high), [=](double v) { return v > low && v < high; });
}

void guard_values(Command& app) {
  app.for_each_argument([](const std::string&, Argument& a) {
    if (!a.takes_value()) return;
    if (a.positional() && a.name() == "program") return;  // its arguments are another program's
    const bool number = is_number(a);
    a.check({[number](const std::string& text) {
               if (text.empty()) return refusal(text, "a value");
               return number && !parse_real(text) ? refusal(text, "a number") : std::string();
             },
             ""});
  });
}

}  // namespace cli
