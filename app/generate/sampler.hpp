#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace mpzero {

// Chooses the next token. The same seed and logits give the same tokens.
class Sampler {
 public:
  // `temperature`: 0 takes the largest logit, the first of several; else a token is drawn with the probabilities of
  // softmax(logits / temperature). `top_k`: draws from so many largest logits, the first of several that are equal; 0:
  // from all.
  Sampler(double temperature, int64_t top_k, uint64_t seed);

  // The index of one of the logits, which are finite and of which there is at least one.
  int64_t pick(std::span<const float> logits);

 private:
  double temperature_;
  size_t top_k_;
  std::mt19937_64 random_;
  std::vector<int64_t> order_;
  std::vector<double> weights_;
};

}  // namespace mpzero
