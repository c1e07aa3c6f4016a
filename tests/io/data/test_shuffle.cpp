#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "io/data/data_loader.hpp"
#include "tests/catch.hpp"

using mpzero::io::Permutation;

namespace {

std::vector<uint64_t> order_of(uint64_t size, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<uint64_t> order(size);
  for (uint64_t i = 0; i < size; ++i) order[i] = permutation(i);
  return order;
}

bool is_permutation_of_indices(std::vector<uint64_t> order) {
  std::sort(order.begin(), order.end());
  for (uint64_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("each order contains every index once, for any size") {
  for (uint64_t size = 1; size <= 300; ++size) {
    INFO("size " << size);
    REQUIRE(is_permutation_of_indices(order_of(size, 7, 0)));
  }
  for (const uint64_t size : {1023, 1024, 1025, 4095, 4096, 4097, 65537, 100003}) {
    INFO("size " << size);
    REQUIRE(is_permutation_of_indices(order_of(size, 123456789, 3)));
  }
}

TEST_CASE("very large sizes stay in range and do not repeat") {
  const uint64_t size = (uint64_t{1} << 40) + 12345;
  const Permutation permutation(size, 1, 0);
  std::vector<uint64_t> seen;
  for (uint64_t i = 0; i < 10000; ++i) seen.push_back(permutation(size - 1 - i));
  CHECK(*std::max_element(seen.begin(), seen.end()) < size);
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE("seed and epoch determine the order") {
  const auto order = order_of(1000, 42, 0);
  CHECK(order == order_of(1000, 42, 0));
  CHECK(order != order_of(1000, 42, 1));
  CHECK(order != order_of(1000, 43, 0));
  // Seed and epoch must not be interchangeable.
  CHECK(order_of(1000, 1, 2) != order_of(1000, 2, 1));
}

TEST_CASE("the order looks random: few fixed points, no correlation between position and index") {
  constexpr uint64_t kSize = 10007;
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    const auto order = order_of(kSize, 42, epoch);
    int64_t fixed_points = 0;
    double covariance = 0;
    int64_t ascents = 0;
    const double mean = (kSize - 1) / 2.0;
    for (uint64_t i = 0; i < kSize; ++i) {
      fixed_points += order[i] == i;
      covariance += (static_cast<double>(i) - mean) * (static_cast<double>(order[i]) - mean);
      if (i > 0) ascents += order[i] > order[i - 1];
    }
    const double correlation = covariance / (kSize * (static_cast<double>(kSize) * kSize - 1) / 12);
    // A random permutation has 1 fixed point on average (Poisson), correlation 0 +- 1/sqrt(n) and (n-1)/2 ascents with
    // variance (n+1)/12. The bounds are at five standard deviations or more.
    CHECK(fixed_points < 10);
    CHECK(std::abs(correlation) < 5 / std::sqrt(static_cast<double>(kSize)));
    CHECK(std::abs(static_cast<double>(ascents) - (kSize - 1) / 2.0) < 5 * std::sqrt((kSize + 1) / 12.0));
  }
}

TEST_CASE("the order never changes between versions, since resumed runs depend on it") {
  // Computed by an implementation of the same algorithm with Python's integers.
  CHECK(order_of(8, 42, 0) == std::vector<uint64_t>{7, 4, 6, 0, 2, 1, 5, 3});
  const Permutation permutation(1000003, 7, 5);
  std::vector<uint64_t> first;
  for (uint64_t i = 0; i < 6; ++i) first.push_back(permutation(i));
  CHECK(first == std::vector<uint64_t>{59632, 873731, 424687, 968006, 812613, 300241});
}

TEST_CASE("positions outside the range are refused") {
  CHECK_THROWS_AS(Permutation(0, 1, 0), mpzero::Failure);
  CHECK_THROWS_AS(Permutation(5, 1, 0)(5), mpzero::Failure);
}
