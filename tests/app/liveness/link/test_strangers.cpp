#include <set>

#include "app/liveness/link/strangers.hpp"
#include "tests/app/liveness/link/loopback_ranks.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("The first stranger is reported immediately, and the others together after a while") {
  Strangers strangers;
  CHECK(strangers.take_warning(kNow).empty());
  strangers.turned_away("10.0.0.7:4711", "it does not know this run's secret");
  CHECK(
      strangers.take_warning(kNow) ==
      "has closed a connection from 10.0.0.7:4711, because it does not know this run's secret; the run continues, but "
      "check what connects to its ports");
  CHECK(strangers.take_warning(kNow + std::chrono::hours(1)).empty());
  for (int i = 0; i < 1000; ++i) strangers.turned_away("10.0.0." + std::to_string(i % 250) + ":1", "it is late");
  CHECK(strangers.take_warning(kNow + Strangers::kSilence - std::chrono::seconds(1)).empty());
  CHECK_THAT(strangers.take_warning(kNow + Strangers::kSilence),
             Catch::StartsWith("has closed a connection from 10.0.0.0:1 and 999 more, because it is late;"));
  CHECK(strangers.take_warning(kNow + 3 * Strangers::kSilence).empty());
}

TEST_CASE("Each reason has its own text") {
  using Refusal = Handshake::Refusal;
  std::set<std::string> reasons;
  for (const Refusal why : {Refusal::kNotOurs, Refusal::kWrongSecret, Refusal::kTooLate, Refusal::kTooLong,
                            Refusal::kNoRoom, Refusal::kChanged, Refusal::kClosed}) {
    reasons.insert(describe(why));
  }
  CHECK(reasons.size() == 7);
}

}  // namespace mpzero
