#include <limits>

#include "base/text/times.hpp"
#include "tests/catch.hpp"

using namespace mpzero;

TEST_CASE("durations are shown in their two largest units") {
  CHECK(duration_text(0) == "0.0 s");
  CHECK(duration_text(2.46) == "2.5 s");
  CHECK(duration_text(9.96) == "10 s");
  CHECK(duration_text(59.4) == "59 s");
  CHECK(duration_text(59.6) == "1 min 0 s");
  CHECK(duration_text(150) == "2 min 30 s");
  CHECK(duration_text(3 * 3600 + 125) == "3 h 2 min");
  CHECK(duration_text(4 * 86'400 + 7 * 3600) == "4 d 7 h");
}

TEST_CASE("clock skew and arbitrary values from files produce text") {
  CHECK(duration_text(-5) == "0.0 s");
  CHECK(duration_text(std::numeric_limits<double>::quiet_NaN()) == "0.0 s");
  CHECK(duration_text(std::numeric_limits<double>::infinity()) == "11574074074 d 1 h");
}

TEST_CASE("the current time is after the time of writing this test") { CHECK(seconds_since_1970() > 1.79e9); }
