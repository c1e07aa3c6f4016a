#include <utility>
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

TEST_CASE("the slowest rank's share is the excess of its time over the others' median") {
  Stragglers stragglers;
  const std::vector<double> seconds{1.0, 1.0, 4.0, 1.2};
  const auto slowest = stragglers.add(seconds);
  REQUIRE(slowest);
  CHECK(slowest->rank == 2);
  CHECK(slowest->share == Approx(0.75));
}

TEST_CASE("a single rank, or unmeasured times, have no slowest rank") {
  Stragglers stragglers;
  CHECK_FALSE(stragglers.add(std::vector<double>{1.0}));
  CHECK_FALSE(stragglers.add(std::vector<double>{1.0, 0.0}));
  feed(stragglers, {1.0, 0.0}, 100);
  CHECK_FALSE(stragglers.take_straggler());
}

TEST_CASE("a consistently slow rank is reported after twenty steps, then at doubling intervals") {
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

TEST_CASE("with two ranks, each is compared with the other") {
  Stragglers stragglers;
  feed(stragglers, {0.112, 0.1}, kWarmUp + 20);
  const auto late = stragglers.take_straggler();
  REQUIRE(late);
  CHECK(late->rank == 0);
}

TEST_CASE("small, short, single and alternating delays are not reported") {
  using Times = std::vector<std::pair<std::vector<double>, int>>;  // and for how many steps
  for (const auto& [title, times] : std::vector<std::pair<const char*, Times>>{
           {"9% more", {{{0.1, 0.109}, 200}}},
           {"less than a millisecond", {{{0.001, 0.0019}, 200}}},
           {"one long step", {{{0.1, 0.1}, kWarmUp + 10}, {{0.1, 10.0}, 1}, {{0.1, 0.1}, 50}}},
           {"ranks that take turns", Times(200, {{0.1, 0.15}, 1})},
           {"the first steps", {{{0.1, 9.0}, kWarmUp}, {{0.1, 0.1}, 20}}}}) {
    INFO(title);
    Stragglers stragglers;
    bool turns = false;
    for (auto [seconds, steps] : times) {
      if (times.size() == 200 && (turns = !turns)) std::swap(seconds[0], seconds[1]);
      feed(stragglers, seconds, steps);
    }
    CHECK_FALSE(stragglers.take_straggler());
  }
}

}  // namespace mpzero
