#include "app/simulation/shared_cores.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;

TEST_CASE("if only one thread may use MPI, a collective has completed when the call returns") {
  SharedCores cores({.moves_beside = false, .share = 0.5});
  CHECK(cores.work(0, 2) == 2);
  const SharedCores::Move move = cores.move(2, 3);
  CHECK(move.now == 5);
  CHECK(cores.work(5, 1) == 6);
  CHECK(cores.wait(6, move.number) == 6);
}

TEST_CASE("a concurrent collective takes a share of the cores until it ends") {
  SharedCores cores({.moves_beside = true, .share = 0.5});
  CHECK(cores.move(10, 3).now == 10);
  // Both run at half their speed for six seconds, then the work alone.
  CHECK(cores.work(10, 4) == 10 + 6 + 1);
  CHECK(cores.work(17, 1) == 18);
}

TEST_CASE("the remainder of a collective runs at full speed, after earlier collectives") {
  SharedCores cores({.moves_beside = true, .share = 0.5});
  const auto first = cores.move(0, 3), second = cores.move(0, 5);
  CHECK(second.number == first.number + 1);
  CHECK(cores.work(0, 1) == 2);
  CHECK(cores.wait(2, second.number) == 2 + 2 + 5);
  CHECK(cores.wait(9, first.number) == 9);
  // With a core of its own.
  SharedCores free({.moves_beside = true, .share = 1});
  const auto move = free.move(0, 3);
  CHECK(free.work(0, 2) == 2);
  CHECK(free.wait(2, move.number) == 3);
}
