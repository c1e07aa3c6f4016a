#include "app/generate/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace mpzero {

Sampler::Sampler(double temperature, int64_t top_k, uint64_t seed)
    : temperature_(temperature), top_k_(static_cast<size_t>(top_k)), random_(seed) {}

int64_t Sampler::pick(std::span<const float> logits) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature_ == 0) return largest - logits.begin();
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  if (top_k_ > 0 && top_k_ < order_.size()) {
    const auto comes_first = [&](int64_t a, int64_t b) {
      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    };
    std::nth_element(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(top_k_), order_.end(), comes_first);
    order_.resize(top_k_);
    // The order after nth_element depends on the standard library.
    std::sort(order_.begin(), order_.end());
  }
  weights_.clear();
  double sum = 0;
  for (const int64_t id : order_) {
    sum += std::exp((static_cast<double>(logits[static_cast<size_t>(id)]) - *largest) / temperature_);
    weights_.push_back(sum);
  }
  // 53 random bits. The distributions of the standard library are not portable.
  const double draw = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
  const auto drawn = std::upper_bound(weights_.begin(), weights_.end(), draw) - weights_.begin();
  return order_[std::min(static_cast<size_t>(drawn), order_.size() - 1)];
}

}  // namespace mpzero
