#include "app/fp8/weight_codec.hpp"

#include <utility>
#include <vector>

#include "model/architecture/architectures.hpp"
#include "model/fp8/codes.hpp"
#include "model/fp8/layer_product.hpp"

namespace mpzero {
namespace {

constexpr model::fp8::Format kFormat = model::fp8::Format::kE4m3;

class Fp8WeightCodec final : public parallel::WeightCodec {
 public:
  // `ranges`: one element per unit.
  explicit Fp8WeightCodec(std::vector<std::vector<parallel::CodedRange>> ranges) : ranges_(std::move(ranges)) {}

  std::vector<parallel::CodedRange> ranges(size_t unit) const override { return ranges_[unit]; }
  at::ScalarType type() const override { return model::fp8::scalar_type(kFormat); }
  void raise_maximum(const at::Tensor& values, const at::Tensor& largest) const override {
    model::fp8::raise_maximum(values, largest);
  }
  void scales_out(const at::Tensor& maxima, const at::Tensor& scales) const override {
    model::fp8::scales_out(maxima, kFormat, scales);
  }
  void encode_out(const at::Tensor& values, const at::Tensor& maximum, const at::Tensor& codes) const override {
    model::fp8::encode_out(values, maximum, kFormat, codes);
  }

 private:
  std::vector<std::vector<parallel::CodedRange>> ranges_;
};

// Returns the range of a layer's matmul, whose matrices are adjacent in the unit.
parallel::CodedRange range_of(model::LayerProduct product, const UnitSpec& layer, const model::LayerLayout& layout) {
  const std::vector<model::LayerRole> roles = model::roles_of(product, layout);
  parallel::CodedRange range{.begin = parameter_offset(layer, layout[roles.front()])};
  for (const model::LayerRole role : roles) range.count += layer.parameters[layout[role]].numel();
  return range;
}

}  // namespace

std::shared_ptr<const parallel::WeightCodec> weight_codec(const std::optional<model::Fp8Options>& options,
                                                          const model::ModelConfig& model) {
  // Units with adapters have two parts, but only complete units can be quantized.
  if (!options || options->recipe.scaling != model::fp8::Scaling::kTensorwise || model.lora) return nullptr;
  const std::vector<UnitSpec> units = model::model_units(model);
  const model::LayerLayout layout(
      model::find_architecture(model.model_type, "model configuration").layer_parameters(model));
  const std::vector<UnitSpec> layers(units.begin() + 1, units.end() - 1);
  const std::vector<model::Fp8Products> products = model::fp8_products(*options, layers, layout, "DecoderOptions");
  std::vector<std::vector<parallel::CodedRange>> ranges(units.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const model::LayerProduct product : model::kLayerProducts) {
      if (!products[layer][static_cast<size_t>(product)]) continue;
      ranges[layer + 1].push_back(range_of(product, layers[layer], layout));
    }
  }
  return std::make_shared<Fp8WeightCodec>(std::move(ranges));
}

}  // namespace mpzero
