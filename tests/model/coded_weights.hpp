#pragma once

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "model/architecture/architectures.hpp"
#include "model/decoder.hpp"
#include "model/fp8/cast.hpp"
#include "model/fp8/layer_product.hpp"
#include "model/rows.hpp"

namespace mpzero::model {

// A layer's weights as gathered in FP8: the FP8 data of whole matmul operands, with their scales.
struct CodedWeights {
  // `layer`: the weights in bf16.
  CodedWeights(const Decoder& decoder, std::span<const at::Tensor> layer, int64_t index = 0)
      : tensors(layer.begin(), layer.end()) {
    const ModelConfig& config = decoder.config();
    const LayerLayout layout(find_architecture(config.model_type, "a test").layer_parameters(config));
    std::vector<at::Tensor> maxima, inverses;
    for (const LayerProduct product : kLayerProducts) {
      if (!decoder.fp8_products()[static_cast<size_t>(index)][static_cast<size_t>(product)]) continue;
      const std::vector<LayerRole> roles = roles_of(product, layout);
      const at::Tensor whole = join_rows(layer.subspan(layout[roles.front()], roles.size()));
      const fp8::CastMatrix cast = fp8::cast(whole, fp8::Format::kE4m3, fp8::Scaling::kTensorwise, fp8::Forms::kRows);
      int64_t row = 0;
      for (const LayerRole role : roles) {
        at::Tensor& weight = tensors[layout[role]];
        const int64_t rows = weight.size(0);
        weight = cast.rows.codes.narrow(0, row, rows);
        row += rows;
      }
      maxima.push_back(cast.maxima);
      inverses.push_back(cast.rows.scale_inverse);
    }
    // The scales are spaced for cuBLASLt's alignment, as in CodedGather.
    const at::Tensor all = at::stack({at::stack(maxima), at::stack(inverses)});
    scales = at::zeros({all.size(0), all.size(1), 64}, all.options()).select(2, 0);
    scales.copy_(all);
    this->index = index;
  }
  Weights weights() const {
    Weights made(tensors);
    made.layer = index;
    made.scales = scales;
    return made;
  }

  std::vector<at::Tensor> tensors;
  at::Tensor scales;
  int64_t index = 0;
};

}  // namespace mpzero::model
