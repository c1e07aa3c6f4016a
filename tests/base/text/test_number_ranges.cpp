#include "base/text/number_ranges.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("numbers are written as ranges, and read") {
  const std::vector<int> numbers{2, 3, 4, 7};
  CHECK(number_ranges({7, 3, 2, 4}) == "2-4,7");
  CHECK(number_ranges({5}) == "5");
  CHECK(number_ranges({}).empty());
  CHECK(numbers_in("2-4,7") == numbers);
  CHECK(numbers_in("0") == std::vector<int>{0});
}

TEST_CASE("what is no list of ranges has no numbers") {
  for (const char* text : {"", "a", ",1", "1-", "3-1", "-1", "1 2", "0-999999999999", "0-99999999"}) {
    INFO(text);
    CHECK(numbers_in(text).empty());
  }
}

}  // namespace mpzero
