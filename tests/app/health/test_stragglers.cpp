#include <vector>

#include "app/health/stragglers.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

// Adds this many steps with the same times.
void feed(Stragglers& stragglers, const std::vector<double>& seconds, int steps) {
  for (int i = 0; i < steps; ++i) stragglers.add(seconds);
}

constexpr int kWarmUp = 2;

}  // namespace

TEST_CASE("The slowest rank's share is its time beyond the others' median") {
  Stragglers stragglers;
  const std::vector<double> seconds{1.0, 1.0, 4.0, 1.2};
  const auto slowest = stragglers.add(seconds);
  REQUIRE(slowest);
  CHECK(slowest->rank == 2);
  CHECK(slowest->share == Approx(0.75));
}

TEST_CASE("A single rank, or times that were not measured, have no slowest rank") {
  Stragglers stragglers;
  CHECK_FALSE(stragglers.add(std::vector<double>{1.0}));
  CHECK_FALSE(stragglers.add(std::vector<double>{1.0, 0.0}));
  feed(stragglers, {1.0, 0.0}, 100);
  CHECK_FALSE(stragglers.take_straggler());
}

TEST_CASE("A rank that is slow in every step is named after twenty steps, and then after twice as many each time") {
  Stragglers stragglers;
  feed(stragglers, {0.1, 0.1, 0.12}, kWarmUp + 19);
  CHECK_FALSE(stragglers.take_straggler());
  feed(stragglers, {0.1, 0.1, 0.12}, 1);
  const auto late = stragglers.take_straggler();
  REQUIRE(late);
  CHECK(late->rank == 2);
  CHECK(late->steps == 20);
  CHECK(late->of == 20);
  CHECK(late->seconds == Approx(0.12));
  CHECK(late->median_seconds == Approx(0.1));
  CHECK_FALSE(stragglers.take_straggler());
  std::vector<int> named;
  for (int window = 2; window <= 9; ++window) {
    feed(stragglers, {0.1, 0.1, 0.12}, 20);
    if (stragglers.take_straggler()) named.push_back(window);
  }
  CHECK(named == std::vector<int>{2, 4, 8});
  // Normal for a while, then slow again: that is reported.
  feed(stragglers, {0.1, 0.1, 0.1}, 20);
  CHECK_FALSE(stragglers.take_straggler());
  feed(stragglers, {0.1, 0.1, 0.12}, 20);
  CHECK(stragglers.take_straggler());
}

TEST_CASE("With two ranks, each is compared with the other") {
  Stragglers stragglers;
  feed(stragglers, {0.112, 0.1}, kWarmUp + 20);
  const auto late = stragglers.take_straggler();
  REQUIRE(late);
  CHECK(late->rank == 0);
}

TEST_CASE("Small, short, single and alternating delays are not consistent slowness") {
  SECTION("9% more") {
    Stragglers stragglers;
    feed(stragglers, {0.1, 0.109}, 200);
    CHECK_FALSE(stragglers.take_straggler());
  }
  SECTION("less than a millisecond") {
    Stragglers stragglers;
    feed(stragglers, {0.001, 0.0019}, 200);
    CHECK_FALSE(stragglers.take_straggler());
  }
  SECTION("one long step") {
    Stragglers stragglers;
    feed(stragglers, {0.1, 0.1}, kWarmUp + 10);
    feed(stragglers, {0.1, 10.0}, 1);
    feed(stragglers, {0.1, 0.1}, 50);
    CHECK_FALSE(stragglers.take_straggler());
  }
  SECTION("ranks that take turns") {
    Stragglers stragglers;
    for (int i = 0; i < 100; ++i) {
      feed(stragglers, {0.1, 0.15}, 1);
      feed(stragglers, {0.15, 0.1}, 1);
    }
    CHECK_FALSE(stragglers.take_straggler());
  }
  SECTION("the first steps") {
    Stragglers stragglers;
    feed(stragglers, {0.1, 9.0}, kWarmUp);
    feed(stragglers, {0.1, 0.1}, 20);
    CHECK_FALSE(stragglers.take_straggler());
  }
}

}  // namespace mpzero
