#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.hpp"

// Parsers for command lines of the form --flag VALUE or --flag=VALUE.
namespace mpzero {

// Values that a flag accepts: none, a required value or an optional value. kUnknown: the argument is not a known flag.
enum class Takes : uint8_t { kUnknown, kNothing, kValue, kOptionalValue };

struct Argument {
  std::string text;  // as written: "--seed=7"
  std::string flag;  // with its dashes: "--seed"
  Takes takes = Takes::kUnknown;
  std::optional<std::string> value;

  // Throws UserError if a value is missing, empty or not allowed.
  void check_value() const;
};

// Splits a command line. A word that begins with -- is never parsed as the value of the preceding flag. `takes`
// receives a flag with its leading dashes and returns whether the flag accepts a value.
std::vector<Argument> split_arguments(const std::vector<std::string>& arguments,
                                      const std::function<Takes(const std::string& flag)>& takes);

// Returns true for --help and -h.
bool asks_for_help(const std::string& argument);

// Parsers for flag values. Each parser throws UserError with the flag and the value if the value is invalid. `flag`:
// name of the flag without leading dashes.

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
double parse_real(const std::string& flag, const std::string& text, double minimum,
                  double limit = std::numeric_limits<double>::infinity());

// Returns the index of `text` in `choices`.
size_t parse_choice(const std::string& flag, const std::string& text, const std::vector<std::string>& choices);

}  // namespace mpzero
