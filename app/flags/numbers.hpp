#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>

#include "base/error.hpp"

// Parsers for numbers on the command line. All functions throw UserError with the flag and the value. `flag`: without
// leading dashes.
namespace mpzero {

// `wanted`: description of the expected value: "an integer".
template <typename T>
T parse_number(const std::string& flag, const std::string& text, const char* wanted) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range)
    throw_user_error("--{} {} is out of range; pass {}.", flag, text, wanted);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw_user_error("--{} must be {}, not \"{}\".", flag, wanted, text);
  }
  return number;
}

int64_t parse_integer(const std::string& flag, const std::string& text, int64_t minimum,
                      int64_t maximum = std::numeric_limits<int64_t>::max());

// Parses a finite number in [minimum, limit).
double parse_real(const std::string& flag, const std::string& text, double minimum, double limit);

}  // namespace mpzero
