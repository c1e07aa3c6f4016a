#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/parameter_source.hpp"
#include "model/architecture/config.hpp"

namespace mpzero::model {

// Random weights as in transformers: matrices are normal with mean 0 and standard deviation `initializer_range` or the
// architecture's own, norm weights are 1, biases 0. Adapters as in PEFT: A [r, in] is uniform in ±1/sqrt(in), B is 0.
// Element i of a parameter depends only on the seed, the parameter's name and i: shards are generated independently,
// with the same bits on every machine, for any number of threads and any split into ranges.
class RandomInitializer final : public ParameterSource {
 public:
  // `threads`: 0 uses ATen's number of threads.
  RandomInitializer(uint64_t seed, double initializer_range, int threads = 0);
  RandomInitializer(uint64_t seed, const ModelConfig& config, int threads = 0);

  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

 private:
  uint64_t seed_;
  std::function<double(std::string_view name)> deviation_;
  int threads_;
};

}  // namespace mpzero::model
