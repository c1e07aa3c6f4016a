#include "base/command_line/arguments.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace mpzero {

std::vector<Argument> split_arguments(const std::vector<std::string>& arguments,
                                      const std::function<Takes(const std::string& flag)>& takes) {
  std::vector<Argument> all;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& text = arguments[i];
    const std::string flag = text.substr(0, text.find('='));
    Argument argument{.text = text, .flag = flag, .takes = takes(flag), .value = std::nullopt};
    const bool may_follow = argument.takes == Takes::kValue || argument.takes == Takes::kOptionalValue;
    if (flag.size() < text.size()) {
      argument.value = text.substr(flag.size() + 1);
    } else if (may_follow && i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      argument.value = arguments[++i];
    }
    all.push_back(std::move(argument));
  }
  return all;
}

void Argument::check_value() const {
  if (takes == Takes::kNothing && value) throw_user_error("{} takes no value; remove the value.", flag);
  if (value ? value->empty() : takes == Takes::kValue) {
    throw_user_error("{0} needs a value; pass one ({0}=VALUE if it begins with --), or omit the flag.", flag);
  }
}

bool asks_for_help(const std::string& argument) { return argument == "--help" || argument == "-h"; }

int64_t parse_integer(const std::string& flag, const std::string& text, int64_t minimum, int64_t maximum) {
  const auto number = parse_number<int64_t>(flag, text, "an integer");
  if (number < minimum) throw_user_error("--{} {} is too small; it must be {} or more.", flag, text, minimum);
  if (number > maximum) throw_user_error("--{} {} is too large; it must be {} or less.", flag, text, maximum);
  return number;
}

double parse_real(const std::string& flag, const std::string& text, double minimum, double limit) {
  const auto number = parse_number<double>(flag, text, "a number");
  if (!std::isfinite(number) || number < minimum || number >= limit) {
    throw_user_error("--{} {} is out of range; it must be {} or more{}.", flag, text, minimum,
                     std::isinf(limit) ? std::string(" and finite") : fmt::format(" and less than {}", limit));
  }
  return number;
}

size_t parse_choice(const std::string& flag, const std::string& text, const std::vector<std::string>& choices) {
  const auto chosen = std::find(choices.begin(), choices.end(), text);
  if (chosen != choices.end()) return static_cast<size_t>(chosen - choices.begin());
  throw_user_error("--{} must be one of {}, not \"{}\".", flag, fmt::join(choices, ", "), text);
}

}  // namespace mpzero
