#include "app/simulation/busy_link.hpp"
#include "tests/catch.hpp"

using mpzero::plan::BusyLink;

TEST_CASE("a request waits for earlier requests on the link") {
  BusyLink link;
  CHECK(link.use(1, 2) == 3);
  CHECK(link.use(2, 4) == 7);
  CHECK(link.use(10, 1) == 11);
}

TEST_CASE("a later request uses an idle gap, and is split if the gap is too short") {
  BusyLink link;
  link.use(10, 5);
  CHECK(link.use(0, 4) == 4);
  // 4 to 10, then 15 to 17.
  CHECK(link.use(2, 8) == 17);
  CHECK(link.use(0, 1) == 18);
}

TEST_CASE("an empty request takes no time") {
  BusyLink link;
  link.use(0, 5);
  CHECK(link.use(2, 0) == 2);
}
