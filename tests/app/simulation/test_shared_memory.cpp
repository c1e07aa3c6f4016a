// Oracle: by hand.
#include "app/simulation/shared_memory.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;

TEST_CASE("a transfer reduces the memory bandwidth of a concurrent kernel") {
  SharedMemory memory;
  // A quarter of the bandwidth from 10 to 18.
  memory.take(10, 18, 2);
  CHECK(memory.work(0, 5) == 5);
  CHECK(memory.work(11, 3) == 15);
  // Before, beside and after it: 2 + 6 of 8 seconds + 3.
  CHECK(memory.work(8, 11) == 21);
  CHECK(memory.work(18, 3) == 21);
}

TEST_CASE("concurrent transfers use at most the full bandwidth, and a kernel continues after them") {
  SharedMemory memory;
  memory.take(0, 4, 2);
  memory.take(2, 6, 2);
  memory.take(4, 5, 7);
  // Half until 2, none until 5, half until 6.
  CHECK(memory.work(0, 1) == 2);
  CHECK(memory.work(0, 1.5) == 6);
  CHECK(memory.work(0, 3.5) == 8);
}

TEST_CASE("empty transfers have no effect, and old transfers are removed") {
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
