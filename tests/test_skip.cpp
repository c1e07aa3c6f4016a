#include "tests/catch.hpp"
#include "tests/skip.hpp"

// Run by name in tests/base/CMakeLists.txt, which looks at the exit status.
namespace mpzero {

TEST_CASE("a skipped case", "[.][skips]") { skip_test("a machine that has it"); }

TEST_CASE("a case with as many failures as the largest meaningful Catch2 status", "[.][fails]") {
  for (int i = 0; i < 77; ++i) CHECK(i < 0);
}

}  // namespace mpzero
