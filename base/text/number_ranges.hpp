#pragma once

#include <string>
#include <vector>

namespace mpzero {

// Formats numbers in ascending order like a Linux CPU list, e.g. "2-4,7" for 2, 3, 4 and 7.
std::string number_ranges(std::vector<int> numbers);

}  // namespace mpzero
