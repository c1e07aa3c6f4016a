#pragma once

#include <string>
#include <vector>

namespace mpzero {

// Formats numbers in ascending order as in Linux CPU lists: 2, 3, 4, 7 as "2-4,7".
std::string number_ranges(std::vector<int> numbers);

}  // namespace mpzero
