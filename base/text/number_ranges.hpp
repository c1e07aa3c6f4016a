#pragma once

#include <string>
#include <vector>

namespace mpzero {

// Formats 2, 3, 4, 7 as "2-4,7", ascending, as in the kernel's CPU lists.
std::string number_ranges(std::vector<int> numbers);

// Parses such a list; empty if it is malformed.
std::vector<int> numbers_in(const std::string& ranges);

}  // namespace mpzero
