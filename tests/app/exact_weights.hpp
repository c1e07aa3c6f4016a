#pragma once

#include <algorithm>
#include <string>

#include "base/parameter_source.hpp"
#include "tests/model/flat_model.hpp"

namespace mpzero {

// fp32 weights that are identical on all ranks and in all engines.
class ExactWeights final : public ParameterSource {
 public:
  explicit ExactWeights(const model::Decoder& decoder)
      : model_(decoder, at::TensorOptions().dtype(at::kFloat), at::kFloat, 7) {}

  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    const at::Tensor flat = model_.weight(parameter.name).reshape({-1});
    std::copy_n(flat.const_data_ptr<float>() + begin, out.size(), out.begin());
  }
  // Returns the same values in fp64.
  model::FlatModel in_fp64(const model::Decoder& decoder) const {
    model::FlatModel exact(decoder, at::TensorOptions().dtype(at::kDouble), at::kDouble, 7);
    for (const std::string& name : exact.names()) exact.weight(name).copy_(model_.weight(name));
    return exact;
  }

 private:
  model::FlatModel model_;
};

}  // namespace mpzero
