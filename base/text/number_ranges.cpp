#include "base/text/number_ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

namespace mpzero {

std::string number_ranges(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> numbers_in(const std::string& ranges) {
  // Larger than the number of CPUs of any machine. A damaged file must not exhaust memory.
  constexpr int kMost = 1 << 20;
  std::vector<int> numbers;
  const char* at = ranges.data();
  const char* const end = at + ranges.size();
  while (at < end) {
    int first = 0, last = 0;
    std::from_chars_result read = std::from_chars(at, end, first);
    last = first;
    if (read.ec == std::errc() && read.ptr < end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || first < 0 || last < first || last >= kMost) return {};
    for (int number = first; number <= last; ++number) numbers.push_back(number);
    if (read.ptr < end && *read.ptr != ',') return {};
    at = read.ptr + 1;
  }
  return numbers;
}

}  // namespace mpzero
