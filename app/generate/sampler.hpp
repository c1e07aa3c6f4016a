#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace mpzero {

// Samples the next token. Deterministic for a given seed.
class Sampler {
 public:
  // `temperature`: samples from softmax(logits / temperature); 0 is greedy. `top_k`: samples from the k largest logits;
  // 0 samples from all. Ties are resolved in favor of the lower index.
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
