#pragma once

#include <cstdint>
#include <span>

#include "base/parameter_source.hpp"

namespace mpzero::model {

// Random weights as transformers initializes these models: matrices normal with mean 0 and standard deviation
// `initializer_range`, norm weights one, biases zero. Element i of a parameter depends only on seed, the parameter's
// name and i, so each shard is generated independently, with the same bits on every machine and for any number of
// threads and any split into ranges.
class RandomInitializer final : public ParameterSource {
 public:
  // `threads`: 0 uses ATen's number of threads.
  RandomInitializer(uint64_t seed, double initializer_range, int threads = 0);

  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

 private:
  uint64_t seed_;
  float initializer_range_;
  int threads_;
};

}  // namespace mpzero::model
