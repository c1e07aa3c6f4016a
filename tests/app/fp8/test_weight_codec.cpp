// Weights of a model that a store gathers in FP8. Oracle: the reference cast of each product's whole weight.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "app/fp8/weight_codec.hpp"
#include "model/architecture/architectures.hpp"
#include "model/fp8/cast.hpp"
#include "model/fp8/layer_product.hpp"
#include "model/layer_casts.hpp"
#include "model/rows.hpp"
#include "parallel/zero/parameter_store.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"
#include "tests/parallel/same_bits.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero {
namespace {

using model::LayerProduct;
using parallel::mpi;
using parallel::same_bits;

model::ModelConfig config_of(const model::ModelConfig& small) {
  model::ModelConfig config = small;
  // Wide enough that codes are fewer bytes in spite of norms and padding.
  config.hidden_size = 72;
  config.num_hidden_layers = 3;
  return config;
}

struct Model {
  explicit Model(const model::ModelConfig& config)
      : units(model::model_units(config)),
        layout(model::find_architecture(config.model_type, "a test").layer_parameters(config)) {}
  std::vector<UnitSpec> units;
  model::LayerLayout layout;
};

// The same on all ranks.
at::Tensor values_of(const UnitSpec& unit, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({unit.numel()}).to(at::kBFloat16);
}

// A store of this rank.
struct Store {
  Store(const Model& model, std::shared_ptr<const parallel::WeightCodec> codec, const parallel::Levels& levels,
        bool overlap, const parallel::GatherLimits& limits) {
    const parallel::ParallelLayout ranks = levels.layout();
    for (const UnitSpec& unit : model.units) layouts.emplace_back(unit.numel(), ranks.ranks(), ranks.nodes);
    const parallel::ParameterStoreOptions options{
        .sharded = true, .overlap = overlap, .codec = std::move(codec), .limits = limits, .dtype = at::kBFloat16};
    in_codes = units_in_codes(layouts, ranks, options);
    index = levels.shard_index();
    store = make_parameter_store(model.units, layouts, index, levels, options);
  }
  void publish(const std::vector<at::Tensor>& values) {
    store->invalidate();
    for (size_t u = 0; u < values.size(); ++u) {
      const at::Tensor padded = at::zeros({layouts[u].padded_numel()}, at::kBFloat16);
      padded.narrow(0, 0, values[u].numel()).copy_(values[u]);
      store->shard(u).copy_(padded.narrow(0, layouts[u].shard_begin(index), layouts[u].shard_numel()));
      store->publish(u);
    }
  }
  std::vector<parallel::FlatLayout> layouts;
  std::vector<bool> in_codes;
  int index = 0;
  std::unique_ptr<parallel::ParameterStore> store;
};

// The rows that a product reads as one matrix.
at::Tensor joined(std::span<const at::Tensor> weights, const model::LayerLayout& layout, LayerProduct product) {
  const std::vector<model::LayerRole> roles = model::roles_of(product, layout);
  return model::join_rows(weights.subspan(layout[roles.front()], roles.size()));
}

void check_unit(Store& store, const Model& model, size_t unit, const at::Tensor& values,
                const model::Fp8Products* products) {
  const std::vector<at::Tensor> expected = parallel::parameter_views(values, model.units[unit]);
  const std::span<const at::Tensor> made = store.store->gather(unit);
  const at::Tensor scales = store.store->scales(unit);
  std::vector<bool> coded(expected.size(), false);
  if (products != nullptr) {
    const model::LayerCasts casts(0, *products, {}, nullptr, false, 0, nullptr, scales);
    int64_t index = 0;
    for (const LayerProduct product : model::kLayerProducts) {
      if (!(*products)[static_cast<size_t>(product)]) continue;
      INFO(model.units[unit].name << " " << name(product));
      for (const model::LayerRole role : model::roles_of(product, model.layout)) coded[model.layout[role]] = true;
      const model::fp8::CastMatrix whole =
          model::fp8::reference::cast(joined(expected, model.layout, product), model::fp8::Format::kE4m3,
                                      model::fp8::Scaling::kTensorwise, model::fp8::Forms::kBoth);
      const model::Operand operand =
          casts.weight(product, joined(made, model.layout, product), model::fp8::Forms::kBoth);
      CHECK(same_bits(operand.rows().codes, whole.rows.codes));
      CHECK(same_bits(operand.columns().codes, whole.columns.codes));
      CHECK(same_bits(operand.rows().scale_inverse, whole.rows.scale_inverse));
      CHECK(same_bits(operand.columns().scale_inverse, whole.columns.scale_inverse));
      CHECK(same_bits(scales[0][index++], whole.maxima));
    }
  }
  for (size_t p = 0; p < expected.size(); ++p) {
    INFO(model.units[unit].parameters[p].name);
    CHECK(made[p].scalar_type() == (coded[p] ? at::kFloat8_e4m3fn : at::kBFloat16));
    if (!coded[p]) CHECK(same_bits(made[p], expected[p]));
  }
  store.store->release(unit);
}

std::vector<size_t> uses_of(size_t units) {
  std::vector<size_t> uses;
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t u = 0; u < units; ++u) uses.push_back(u);
    for (size_t u = units - 1; u-- > 1;) uses.push_back(u);
  }
  return uses;
}

// Every layout of these ranks: one level, and each number of ranks a node.
void on_each_layout(const std::function<void(const parallel::Levels&)>& run) {
  {
    parallel::MpiCommunicator all(mpi());
    run(all);
  }
  for (const int size : parallel::node_sizes()) {
    if (size == 1) continue;  // a rank without peers gathers no unit
    parallel::VirtualNodes nodes(size);
    run(nodes.levels());
  }
}

constexpr parallel::GatherLimits kNothingKept{
    .prefetch_bucket_size = 0, .param_persistence_threshold = 0, .max_live_parameters = 0, .max_reuse_distance = 0};

}  // namespace

TEST_CASE("a store gathers the casts of whole weights") {
  for (const auto& small : model::small_models()) {
    const model::ModelConfig config = config_of(small);
    const Model model(config);
    const size_t units = model.units.size();
    for (const std::vector<std::string>& filter : std::vector<std::vector<std::string>>{{}, {"first", "o_proj"}}) {
      const model::Fp8Options options{.recipe = {}, .filter_fqns = filter};
      const std::shared_ptr<const parallel::WeightCodec> codec = weight_codec(options, config);
      const std::vector<model::Fp8Products> products =
          fp8_products(options, {model.units.begin() + 1, model.units.end() - 1}, model.layout, "a test");
      on_each_layout([&](const parallel::Levels& levels) {
        for (const bool overlap : {false, true}) {
          for (const parallel::GatherLimits& limits : {kNothingKept, parallel::GatherLimits()}) {
            INFO(config.model_type << ", " << levels.layout().nodes << " nodes, overlap " << overlap << ", filter "
                                   << filter.size());
            Store store(model, codec, levels, overlap, limits);
            // Without filter, all layers and nothing else; of four products three are codes.
            for (size_t u = 0; u < units; ++u) {
              const bool layer = u > 0 && u + 1 < units;
              if (filter.empty()) CHECK(store.in_codes[u] == layer);
              if (u == 0 || u + 1 == units || (!filter.empty() && u == 1)) CHECK_FALSE(store.in_codes[u]);
            }
            for (uint64_t update = 0; update < 2; ++update) {
              std::vector<at::Tensor> values;
              for (size_t u = 0; u < units; ++u) values.push_back(values_of(model.units[u], 100 * update + u));
              store.store->plan(uses_of(units));
              store.publish(values);
              for (const size_t unit : uses_of(units)) {
                check_unit(store, model, unit, values[unit], store.in_codes[unit] ? &products[unit - 1] : nullptr);
              }
            }
          }
        }
      });
    }
  }
}

TEST_CASE("a NaN in one rank's part makes the whole matmul operand NaN on all ranks") {
  const model::ModelConfig config = config_of(model::small_llama());
  const Model model(config);
  const std::shared_ptr<const parallel::WeightCodec> codec = weight_codec(model::Fp8Options{}, config);
  on_each_layout([&](const parallel::Levels& levels) {
    Store store(model, codec, levels, true, parallel::GatherLimits());
    REQUIRE(store.in_codes[1]);
    for (const double bad : {std::nan(""), -std::numeric_limits<double>::infinity()}) {
      std::vector<at::Tensor> values;
      for (size_t u = 0; u < model.units.size(); ++u) values.push_back(values_of(model.units[u], u));
      const std::vector<at::Tensor> views = parallel::parameter_views(values[1], model.units[1]);
      views[model.layout[model::LayerRole::kValue]].view({-1})[3] = bad;
      store.store->plan({1});
      store.publish(values);
      const std::span<const at::Tensor> made = store.store->gather(1);
      const auto all_nan = [&](model::LayerRole role) {
        return made[model.layout[role]].view(at::kByte).bitwise_and(0x7f).eq(0x7f).all().item<bool>();
      };
      CHECK(all_nan(model::LayerRole::kQuery));
      CHECK(all_nan(model::LayerRole::kKey));
      CHECK(all_nan(model::LayerRole::kValue));
      CHECK_FALSE(all_nan(model::LayerRole::kOutput));
      CHECK(std::isnan(store.store->scales(1)[1][0].item<float>()));
      CHECK(std::isfinite(store.store->scales(1)[1][1].item<float>()));
      store.store->release(1);
    }
  });
}

TEST_CASE("weights are gathered in FP8 only with tensorwise scaling") {
  const model::ModelConfig config = config_of(model::small_llama());
  model::Fp8Options rowwise;
  rowwise.recipe.scaling = model::fp8::Scaling::kRowwise;
  CHECK(weight_codec(std::nullopt, config) == nullptr);
  CHECK(weight_codec(rowwise, config) == nullptr);
  const auto codec = weight_codec(model::Fp8Options{.recipe = {}, .filter_fqns = {"last"}}, config);
  CHECK(codec->ranges(0).empty());
  CHECK(codec->ranges(1).size() == model::kLayerProducts.size());
  CHECK(codec->ranges(3).empty());
  CHECK(codec->ranges(4).empty());
}

}  // namespace mpzero
