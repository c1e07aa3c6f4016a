#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace mpzero {

// Samples the next token. Deterministic for the same seed and logits.
class Sampler {
 public:
  // `temperature`: 0 returns the largest logit, the first of equal ones; else samples from softmax(logits /
  // temperature). `top_k`: samples from the k largest logits, the first of equal ones; 0: from all.
  Sampler(double temperature, int64_t top_k, uint64_t seed);

  // Returns an index into `logits`, which must be finite and not empty.
  int64_t pick(std::span<const float> logits);

 private:
  double temperature_;
  size_t top_k_;
  std::mt19937_64 random_;
  std::vector<int64_t> order_;
  std::vector<double> weights_;
};

}  // namespace mpzero
