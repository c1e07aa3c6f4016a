#include <algorithm>
#include <limits>
#include <map>

#include "model/tuning.hpp"
#include "tests/catch.hpp"

namespace mpzero::model {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Candidates with scripted run times; `runs` counts the timed ones.
struct Script {
  std::vector<double> seconds;
  // How much longer or, if negative, shorter the first timed run of a candidate takes.
  std::map<size_t, double> first_run_error = {};
  std::map<size_t, int> runs = {};

  TimeRuns timer() {
    return [this](std::span<const size_t> candidates) {
      std::vector<double> times;
      for (const size_t candidate : candidates) {
        const double error =
            runs[candidate]++ == 0 && first_run_error.contains(candidate) ? first_run_error.at(candidate) : 0.0;
        times.push_back(seconds[candidate] + error);
      }
      return times;
    };
  }
  int total_runs() const {
    int sum = 0;
    for (const auto& [candidate, count] : runs) sum += count;
    return sum;
  }
};

}  // namespace

TEST_CASE("the fastest candidate is found at any position") {
  for (size_t fastest = 0; fastest <= 24; ++fastest) {
    Script script{std::vector<double>(25, 2e-3)};
    script.seconds[fastest] = 1e-3;
    const TuningResult result = find_fastest(24, script.timer());
    CHECK(result.fastest == fastest);
    CHECK(result.tried == 25);
    CHECK(result.seconds[fastest] == 1e-3);
    CHECK(result.seconds[24] == script.seconds[24]);
  }
}

TEST_CASE("ties between candidates go to the first, and to the baseline last") {
  Script script{{1.005e-3, 1.0e-3, 1.2e-3, 0.996e-3}};
  CHECK(find_fastest(3, script.timer()).fastest == 0);
  Script clear{{1.02e-3, 1.0e-3, 1.2e-3, 0.999e-3}};
  CHECK(find_fastest(3, clear.timer()).fastest == 1);
  Script yardstick{{1.02e-3, 1.0e-3, 1.2e-3, 0.9e-3}};
  CHECK(find_fastest(3, yardstick.timer()).fastest == 3);
}

TEST_CASE("a single lucky run wins the first round but not the last") {
  Script script{{1.0e-3, 1.3e-3, 1.1e-3, 1.2e-3, 1.2e-3}};
  script.first_run_error[1] = -1.0e-3;
  const TuningResult result = find_fastest(4, script.timer());
  CHECK(result.fastest == 0);
  CHECK(result.seconds[1] == 1.3e-3);
}

TEST_CASE("candidates that cannot run are never selected") {
  Script script{{kNever, 2e-3, kNever, 3e-3}};
  CHECK(find_fastest(3, script.timer()).fastest == 1);
  Script none{{kNever, kNever, 3e-3}};
  CHECK(find_fastest(2, none.timer()).fastest == 2);
  Script alone{{3e-3}};
  const TuningResult result = find_fastest(0, alone.timer());
  CHECK(result.fastest == 0);
  CHECK(result.seconds[0] == 3e-3);
}

TEST_CASE("only the best few candidates run more than once") {
  Script script{std::vector<double>(25)};
  for (size_t i = 0; i < 25; ++i) script.seconds[i] = (1.0 + static_cast<double>(i) / 10) * 1e-3;
  find_fastest(24, script.timer());
  const TuningBounds bounds;
  for (size_t i = 0; i < 24; ++i) {
    CHECK(script.runs[i] == 1 + (i < bounds.finalists ? static_cast<int>(bounds.repeats) : 0));
  }
}

TEST_CASE("if runs are slow, fewer candidates run, with fewer repeats") {
  const TuningBounds bounds;
  for (const double seconds : {1e-5, 1e-3, 5e-3, 0.1}) {
    Script script{std::vector<double>(25, seconds)};
    const TuningResult result = find_fastest(24, script.timer());
    CHECK(result.tried >= bounds.least_candidates + 1);
    const double least_runs =
        static_cast<double>(bounds.least_candidates + 1 + (bounds.finalists + 1) * bounds.least_repeats);
    CHECK(script.total_runs() * seconds <= std::max(2 * bounds.round_seconds, least_runs * seconds) + 1e-9);
  }
}

}  // namespace mpzero::model
