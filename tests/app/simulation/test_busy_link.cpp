#include "app/simulation/busy_link.hpp"
#include "tests/catch.hpp"

using mpzero::plan::BusyLink;

TEST_CASE("work waits for what a link was asked for before") {
  BusyLink link;
  CHECK(link.use(1, 2) == 3);
  CHECK(link.use(2, 4) == 7);
  CHECK(link.use(10, 1) == 11);
}

TEST_CASE("later work takes a gap, and is interrupted where it is too long for it") {
  BusyLink link;
  link.use(10, 5);
  CHECK(link.use(0, 4) == 4);
  // 4 to 10, then 15 to 17.
  CHECK(link.use(2, 8) == 17);
  CHECK(link.use(0, 1) == 18);
}

TEST_CASE("no work takes no time") {
  BusyLink link;
  link.use(0, 5);
  CHECK(link.use(2, 0) == 2);
}
