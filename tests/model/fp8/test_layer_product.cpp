#include <string>
#include <vector>

#include "base/error.hpp"
#include "model/architecture/architectures.hpp"
#include "model/fp8/layer_product.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::model {
namespace {

// Of a model of two layers.
std::vector<Fp8Products> products(std::vector<std::string> names) {
  const ModelConfig config = small_qwen3();
  const std::vector<UnitSpec> units = model_units(config);
  const LayerLayout layout(find_architecture(config.model_type, "test").layer_parameters(config));
  return fp8_products({.recipe = {}, .filter_fqns = std::move(names)}, {units.begin() + 1, units.end() - 1}, layout,
                      "ds.json");
}

}  // namespace

TEST_CASE("filter_fqns matches matmuls by layer and by components of names") {
  using All = std::vector<Fp8Products>;
  CHECK((products({}) == All{{true, true, true, true}, {true, true, true, true}}));
  CHECK((products({"down_proj"}) == All{{true, true, true, false}, {true, true, true, false}}));
  CHECK((products({"k_proj", "layers.1.mlp.up_proj"}) == All{{false, true, true, true}, {false, true, false, true}}));
  CHECK((products({"last", "model.layers.0.self_attn.o_proj.weight"}) ==
         All{{true, false, true, true}, {false, false, false, false}}));
  CHECK_NOTHROW(products({"layers"}));
}

TEST_CASE("a name without a matching matmul is refused, with the file that contains it") {
  for (const std::string name : {"layers.2", "norm", "lm_head", "proj", "layer"}) {
    INFO(name);
    CHECK_THROWS_AS(products({name}), UserError);
  }
  CHECK_THROWS_WITH(products({"layers.2"}), Catch::Contains("ds.json: fp8.filter_fqns contains \"layers.2\"") &&
                                                Catch::Contains("model.layers.0.mlp.down_proj.weight"));
}

TEST_CASE("a matmul's matrices are those that it reads as one") {
  using enum LayerRole;
  const auto roles = [](const ModelConfig& config, LayerProduct product) {
    const LayerLayout layout(find_architecture(config.model_type, "test").layer_parameters(config));
    return roles_of(product, layout);
  };
  CHECK(roles(small_qwen3(), LayerProduct::kQkv) == std::vector{kQuery, kKey, kValue});
  CHECK(roles(small_qwen3(), LayerProduct::kOutput) == std::vector{kOutput});
  CHECK(roles(small_qwen3(), LayerProduct::kGateUp) == std::vector{kGate, kUp});
  CHECK(roles(small_qwen3(), LayerProduct::kDown) == std::vector{kDown});
  CHECK(roles(small_phi3(), LayerProduct::kQkv) == std::vector{kQuery});
  CHECK(roles(small_phi3(), LayerProduct::kGateUp) == std::vector{kGate});
}

}  // namespace mpzero::model
