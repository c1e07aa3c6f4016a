#include "app/flags/numbers.hpp"

#include <cmath>

namespace mpzero {

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

}  // namespace mpzero
