#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/parameter_source.hpp"
#include "model/architecture/config.hpp"

namespace mpzero::model {

// Random initialization as in transformers: matrices are normal with mean 0 and standard deviation `initializer_range`
// or an architecture-specific value, norm weights are 1, and biases are 0. Adapters are initialized as in PEFT: A [r,
// in] is uniform in ±1/sqrt(in), and B is 0. Element i of a parameter depends only on the seed, the parameter's name
// and i. Shards can be generated independently, with bitwise identical results on every machine and for any number of
// threads.
class RandomInitializer final : public ParameterSource {
 public:
  // `threads`: number of threads; 0 selects ATen's number of threads.
  RandomInitializer(uint64_t seed, double initializer_range, int threads = 0);
  RandomInitializer(uint64_t seed, const ModelConfig& config, int threads = 0);

  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

 private:
  uint64_t seed_;
  std::function<double(std::string_view name)> deviation_;
  int threads_;
};

}  // namespace mpzero::model
