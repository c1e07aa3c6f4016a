#pragma once

#include <string>
#include <vector>

namespace mpzero {

// 2, 3, 4, 7 as "2-4,7", in rising order, as the kernel writes lists of cores.
std::string number_ranges(std::vector<int> numbers);

// The numbers of such a list; empty where it is none.
std::vector<int> numbers_in(const std::string& ranges);

}  // namespace mpzero
