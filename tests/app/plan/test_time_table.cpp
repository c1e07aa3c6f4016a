#include <cmath>
#include <vector>

#include "app/plan/time_table.hpp"
#include "tests/catch.hpp"

namespace mpzero::plan {
namespace {

using Sample = TimeTable::Sample;

// An operation of `flops` and `bytes` at the place log2(flops).
Sample sample(double flops, double bytes, double seconds) {
  return {.work = {flops, bytes, 1}, .place = {std::log2(flops)}, .seconds = seconds};
}

double rate_model(double flops, double bytes) { return flops / 500 + bytes / 4 + 3; }

}  // namespace

TEST_CASE("times that follow a trend are reproduced, between the samples and beyond") {
  std::vector<Sample> samples;
  for (const auto& [flops, bytes] :
       std::vector<std::pair<double, double>>{{1e3, 100}, {4e3, 90}, {2e4, 300}, {1e5, 4000}, {6e5, 900}}) {
    samples.push_back(sample(flops, bytes, rate_model(flops, bytes)));
  }
  const TimeTable table(samples);
  CHECK(table.coefficients()[0] == Approx(1.0 / 500));
  CHECK(table.coefficients()[1] == Approx(1.0 / 4));
  CHECK(table.coefficients()[2] == Approx(3));
  const Sample between = sample(5e4, 200, 0), beyond = sample(1e7, 1e4, 0);
  CHECK(table.at(between.work, between.place).seconds == Approx(rate_model(5e4, 200)));
  CHECK_FALSE(table.at(between.work, between.place).extrapolated);
  CHECK(table.at(beyond.work, beyond.place).seconds == Approx(rate_model(1e7, 1e4)));
  CHECK(table.at(beyond.work, beyond.place).extrapolated);
}

TEST_CASE("estimates match hand-computed values") {
  // One term. The least squares of relative errors of 1 and 4 seconds for 1 and 2 units: sum(w/t) / sum((w/t)^2) =
  // (1 + 0.5) / (1 + 0.25) = 1.2.
  const TimeTable table({{.work = {1}, .place = {0}, .seconds = 1}, {.work = {2}, .place = {3}, .seconds = 4}});
  CHECK(table.trend({1}) == Approx(1.2));
  CHECK(table.at({1}, {0}).seconds == Approx(1));
  CHECK(table.at({2}, {3}).seconds == Approx(4));
  // At distances 1 and 2, weights 1 and 1/4; deviations log(1 / 1.2) and log(4 / 2.4).
  const double deviation = (std::log(1 / 1.2) + 0.25 * std::log(4 / 2.4)) / 1.25;
  CHECK(table.at({1.5}, {1}).seconds == Approx(1.5 * 1.2 * std::exp(deviation)));
}

TEST_CASE("repeated measurements count as their geometric mean") {
  const TimeTable table({{.work = {1}, .place = {0}, .seconds = 1}, {.work = {1}, .place = {0}, .seconds = 4}});
  CHECK(table.at({1}, {0}).seconds == Approx(2));
}

TEST_CASE("a single sample determines the rate of its first term") {
  const TimeTable table({sample(1e3, 100, 5)});
  CHECK(table.at({2e3, 100, 1}, {11}).seconds == Approx(10));
}

TEST_CASE("no term has a negative coefficient") {
  // Faster with more bytes, which no rate explains.
  const TimeTable table({{.work = {1, 1}, .place = {0}, .seconds = 4}, {.work = {8, 1}, .place = {3}, .seconds = 2}});
  for (const double coefficient : table.coefficients()) CHECK(coefficient >= 0);
  CHECK(table.at({1, 1}, {0}).seconds == Approx(4));
  CHECK(table.trend({100, 1}) > 0);
}

}  // namespace mpzero::plan
