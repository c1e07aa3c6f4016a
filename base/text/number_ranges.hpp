#pragma once

#include <string>
#include <vector>

namespace mpzero {

// Formats numbers in ascending order as in Linux CPU lists: 2, 3, 4, 7 as "2-4,7".
std::string number_ranges(std::vector<int> numbers);

// Parses the format of number_ranges(). Returns an empty vector if the text is malformed.
std::vector<int> numbers_in(const std::string& ranges);

}  // namespace mpzero
