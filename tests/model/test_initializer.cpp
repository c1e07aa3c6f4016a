#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "model/initializer.hpp"
#include "tests/catch.hpp"

namespace mpzero::model {
namespace {

std::vector<float> read(const RandomInitializer& source, const ParameterSpec& parameter, int64_t begin, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count), -1.0f);
  source.read(parameter, begin, out);
  return out;
}

double moment(const std::vector<float>& x, int power) {
  double sum = 0;
  for (const float v : x) sum += std::pow(static_cast<double>(v), power);
  return sum / static_cast<double>(x.size());
}

const ParameterSpec kMatrix{"model.layers.3.mlp.up_proj.weight", {3000, 1001}};

}  // namespace

TEST_CASE("matrices are normally distributed: mean, deviation, skewness, kurtosis, tails") {
  const std::vector<float> x = read(RandomInitializer(1, 0.02), kMatrix, 0, kMatrix.numel());
  const double n = static_cast<double>(x.size());
  const double deviation = std::sqrt(moment(x, 2));
  // Five standard errors of each estimate.
  CHECK(std::abs(moment(x, 1)) < 5 * 0.02 / std::sqrt(n));
  CHECK(std::abs(deviation - 0.02) < 5 * 0.02 / std::sqrt(2 * n));
  CHECK(std::abs(moment(x, 3) / std::pow(0.02, 3)) < 5 * std::sqrt(15 / n));
  CHECK(std::abs(moment(x, 4) / std::pow(0.02, 4) - 3) < 5 * std::sqrt(96 / n));
  double beyond_two = 0, beyond_four = 0;
  for (const float v : x) {
    beyond_two += std::abs(v) > 0.04f ? 1 : 0;
    beyond_four += std::abs(v) > 0.08f ? 1 : 0;
  }
  CHECK(beyond_two / n == Approx(0.0455003).epsilon(0.02));
  CHECK(beyond_four / n == Approx(6.3342e-5).epsilon(0.4));
  // Neighbours, of one pair and of two, are independent.
  for (const size_t lag : {1, 2, 3}) {
    double product = 0;
    for (size_t i = 0; i + lag < x.size(); ++i) product += static_cast<double>(x[i]) * static_cast<double>(x[i + lag]);
    CHECK(std::abs(product / n / 4e-4) < 5 / std::sqrt(n));
  }
}

TEST_CASE("any range is bitwise equal to the full parameter, for any number of threads") {
  const std::vector<float> full = read(RandomInitializer(7, 0.02, 1), kMatrix, 0, kMatrix.numel());
  const RandomInitializer threaded(7, 0.02, 3);
  CHECK(read(threaded, kMatrix, 0, kMatrix.numel()) == full);
  for (const auto& [begin, count] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 1}, {1, 1}, {1023, 2}, {1024, 1024}, {777, 5000}, {3002999, 1}, {1500001, 1500000}, {5, 0}}) {
    const std::vector<float> slice = read(threaded, kMatrix, begin, count);
    const std::span expected = std::span(full).subspan(begin, count);
    CHECK(std::ranges::equal(std::as_bytes(std::span(slice)), std::as_bytes(expected)));
  }
}

TEST_CASE("the bits are the same on every machine") {
  // Recorded when the generator was written: changing these values would change the start of every new run.
  const std::vector<float> x = read(RandomInitializer(42, 1.0), {"model.embed_tokens.weight", {100, 100}}, 0, 10000);
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float v : x) {
    uint32_t bits = 0;
    std::memcpy(&bits, &v, sizeof(bits));
    hash = (hash ^ bits) * 0x100000001b3u;
  }
  CHECK(hash == 0x81113d55a0c6cb66u);
}

TEST_CASE("adapters are initialized like PEFT's: A uniform in 1 / sqrt(in), B zero") {
  const ParameterSpec a{"model.layers.0.mlp.up_proj.lora_A.weight", {16, 4096}};
  const std::vector<float> x = read(RandomInitializer(3, 0.02), a, 0, a.numel());
  const double bound = 1 / std::sqrt(4096.0), n = static_cast<double>(x.size());
  CHECK(std::ranges::max(x) < bound);
  CHECK(std::ranges::min(x) >= -static_cast<float>(bound));
  CHECK(std::ranges::max(x) > 0.999 * bound);
  // Five standard errors; the variance of a uniform distribution is bound^2 / 3.
  CHECK(std::abs(moment(x, 1)) < 5 * bound / std::sqrt(3 * n));
  CHECK(moment(x, 2) * 3 / (bound * bound) == Approx(1).margin(5 * std::sqrt(0.8 / n)));
  CHECK(read(RandomInitializer(3, 0.02), a, 777, 5000) == std::vector<float>(x.begin() + 777, x.begin() + 5777));
  const ParameterSpec b{"model.layers.0.mlp.up_proj.lora_B.weight", {4096, 16}};
  CHECK(read(RandomInitializer(3, 0.02), b, 5, 100) == std::vector<float>(100, 0.0f));
}

TEST_CASE("seeds and names give different weights; norms are ones, biases zeros") {
  const ParameterSpec other{"model.layers.2.mlp.up_proj.weight", {3000, 1001}};
  const std::vector<float> x = read(RandomInitializer(1, 0.02), kMatrix, 0, 4096);
  CHECK(x != read(RandomInitializer(2, 0.02), kMatrix, 0, 4096));
  CHECK(x != read(RandomInitializer(1, 0.02), other, 0, 4096));
  CHECK(x == read(RandomInitializer(1, 0.02), kMatrix, 0, 4096));
  const std::vector<float> norm = read(RandomInitializer(1, 0.02), {"model.norm.weight", {64}}, 10, 5);
  CHECK(norm == std::vector<float>(5, 1.0f));
  const std::vector<float> bias =
      read(RandomInitializer(1, 0.02), {"model.layers.0.self_attn.q_proj.bias", {64}}, 3, 5);
  CHECK(bias == std::vector<float>(5, 0.0f));
}

}  // namespace mpzero::model
