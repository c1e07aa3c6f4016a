#include <cmath>
#include <limits>

#include "model/kernels/cpu/lanes.hpp"
#include "tests/catch.hpp"

namespace mpzero::model::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

MPZERO_FOR_EACH_CPU void exp_of(const float* x, float* y) { store(y, exp(load(x))); }
MPZERO_FOR_EACH_CPU void round_of(const float* x, c10::BFloat16* y) { store(y, load(x)); }
MPZERO_FOR_EACH_CPU float sum_of(const float* x) { return sum(load(x)); }
MPZERO_FOR_EACH_CPU float largest_of(const float* x) { return largest(load(x)); }
MPZERO_FOR_EACH_CPU void double_all(const float* x, int64_t count, float* y) {
  for_each_lanes(
      count, [&](int64_t i, auto load, auto store)
                 __attribute__((always_inline)) { store(y + i, load(x + i) * 2.0F); });
}

}  // namespace

TEST_CASE("exp is within 2 ULP of the C library's in fp64") {
  double worst = 0;
  for (float start = -87.25F; start < 88.0F; start += 0.0625F) {
    float x[kLanes], y[kLanes];
    for (int i = 0; i < kLanes; ++i) x[i] = std::min(start + static_cast<float>(i) * 0.00390625F, 88.0F);
    exp_of(x, y);
    for (int i = 0; i < kLanes; ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      const auto rounded = static_cast<float>(exact);
      const double unit = static_cast<double>(std::nextafter(rounded, kInfinity)) - static_cast<double>(rounded);
      worst = std::max(worst, std::abs(static_cast<double>(y[i]) - exact) / unit);
    }
  }
  CHECK(worst < 2);
}

TEST_CASE("exp of values out of range is 0, large or NaN") {
  float x[kLanes] = {-kInfinity, -1e30F, -88.0F, 0.0F, 100.0F, kInfinity, std::numeric_limits<float>::quiet_NaN()},
        y[kLanes];
  exp_of(x, y);
  CHECK(y[0] == 0);
  CHECK(y[1] == 0);
  CHECK(y[2] == 0);
  CHECK(y[3] == 1);
  CHECK(y[4] > 1e38F);
  CHECK(y[5] > 1e38F);
  CHECK(std::isnan(y[6]));
}

TEST_CASE("values are rounded to bf16 as c10 rounds them") {
  // Ties between two numbers, NaN and infinity among them.
  const uint32_t bits[kLanes] = {0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF808000,
                                 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0x00000001, 0x80000000,
                                 0x00008000, 0x00018000, 0x477FFFFF, 0xC2F6E979};
  float x[kLanes];
  std::memcpy(x, bits, sizeof(x));
  c10::BFloat16 y[kLanes];
  round_of(x, y);
  for (int i = 0; i < kLanes; ++i) {
    CAPTURE(i);
    if (std::isnan(x[i])) {
      CHECK(std::isnan(static_cast<float>(y[i])));
    } else {
      CHECK(y[i].x == c10::BFloat16(x[i]).x);
    }
  }
}

TEST_CASE("lanes are added and compared, and a partial vector is not written beyond its end") {
  float x[2 * kLanes], y[2 * kLanes];
  for (int i = 0; i < 2 * kLanes; ++i) x[i] = static_cast<float>(i + 1);
  CHECK(sum_of(x) == 136);
  CHECK(largest_of(x) == 16);
  for (int64_t count = 0; count <= 2 * kLanes; ++count) {
    std::fill(y, y + 2 * kLanes, -1.0F);
    double_all(x, count, y);
    for (int64_t i = 0; i < 2 * kLanes; ++i) CHECK(y[i] == (i < count ? 2 * x[i] : -1.0F));
  }
}

}  // namespace mpzero::model::cpu
