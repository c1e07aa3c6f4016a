#include <ATen/ops/from_blob.h>

#include "app/generate/model_weights.hpp"
#include "model/initializer.hpp"
#include "model/rows.hpp"
#include "tests/app/generate/stored_models.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("weights are read in pieces, rounded, and stored contiguously") {
  // The embedding has more than one piece of 2^20 elements.
  model::ModelConfig config = testing::byte_model();
  config.vocab_size = 50'000;
  const model::RandomInitializer source(3, 0.1, 1);
  const std::vector<UnitSpec> units = model_units(config);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<int64_t> progress;
    const ModelWeights weights =
        read_weights(config, source, at::kCPU, type, [&](int64_t done) { progress.push_back(done); });
    REQUIRE(weights.size() == units.size());
    CHECK((progress.size() == units.size() && progress.back() == num_parameters(config)));
    for (size_t u = 0; u < units.size(); ++u) {
      REQUIRE(weights[u].size() == units[u].parameters.size());
      const char* next = static_cast<const char*>(weights[u][0].const_data_ptr());
      for (size_t p = 0; p < weights[u].size(); ++p) {
        const ParameterSpec& parameter = units[u].parameters[p];
        std::vector<float> expected(static_cast<size_t>(parameter.numel()));
        source.read(parameter, 0, expected);
        const at::Tensor& weight = weights[u][p];
        INFO(parameter.name);
        CHECK(weight.sizes() == at::IntArrayRef(parameter.shape));
        CHECK(weight.reshape(-1).equal(at::from_blob(expected.data(), {parameter.numel()}, at::kFloat).to(type)));
        CHECK(static_cast<const char*>(weight.const_data_ptr()) == next);
        next += weight.nbytes();
      }
    }
  }
}

}  // namespace mpzero
