// Oracle: by hand.
#include "app/simulation/shared_memory.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;

TEST_CASE("a kernel loses to a transfer what that takes of the memory while both run") {
  SharedMemory memory;
  // A quarter of the bandwidth from 10 to 18.
  memory.take(10, 18, 2);
  CHECK(memory.work(0, 5) == 5);
  CHECK(memory.work(11, 3) == 15);
  // Before, beside and after it: 2 + 6 of 8 seconds + 3.
  CHECK(memory.work(8, 11) == 21);
  CHECK(memory.work(18, 3) == 21);
}

TEST_CASE("transfers together take no more than all of the memory, and a kernel goes on after them") {
  SharedMemory memory;
  memory.take(0, 4, 2);
  memory.take(2, 6, 2);
  memory.take(4, 5, 7);
  // Half until 2, none until 5, half until 6.
  CHECK(memory.work(0, 1) == 2);
  CHECK(memory.work(0, 1.5) == 6);
  CHECK(memory.work(0, 3.5) == 8);
}

TEST_CASE("transfers that take no time or no memory slow nothing, and old ones are forgotten") {
  SharedMemory memory;
  memory.take(1, 1, 5);
  memory.take(1, 3, 0);
  CHECK(memory.work(0, 4) == 4);
  memory.take(1, 3, 1);
  memory.take(5, 7, 1);
  memory.forget_before(3);
  CHECK(memory.work(1, 2) == 3);
  CHECK(memory.work(5, 1) == 7);
}
