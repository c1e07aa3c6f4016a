#include "tests/catch.hpp"
#include "tests/skip.hpp"

// Run by name in tests/base/CMakeLists.txt, which looks at the exit status.
namespace mpzero {

TEST_CASE("a case that is skipped", "[.][skips]") { skip_test("a machine that has it"); }

TEST_CASE("a case that fails as often as a status of Catch2 has a meaning", "[.][fails]") {
  for (int i = 0; i < 77; ++i) CHECK(i < 0);
}

}  // namespace mpzero
