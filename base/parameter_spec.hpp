#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace mpzero {

// One weight of the model, with its Hugging Face name.
struct ParameterSpec {
  std::string name;            // e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // e.g. {out_features, in_features}
  bool trainable = true;       // otherwise frozen: gathered and saved, but without gradient and optimizer states

  int64_t numel() const {
    int64_t product = 1;
    for (const int64_t extent : shape) product *= extent;
    return product;
  }
  bool operator==(const ParameterSpec&) const = default;
};

// The embedding, one decoder layer or the head: the unit of gathering, running, reducing, updating and saving. Its
// parameters are contiguous in one flat buffer, in this order.
struct UnitSpec {
  std::string name;  // e.g. "layers.0"
  std::vector<ParameterSpec> parameters;

  int64_t numel() const {
    int64_t sum = 0;
    for (const ParameterSpec& parameter : parameters) sum += parameter.numel();
    return sum;
  }
  // Whether it has a trainable parameter.
  bool trainable() const {
    return std::ranges::any_of(parameters, [](const ParameterSpec& parameter) { return parameter.trainable; });
  }
  bool operator==(const UnitSpec&) const = default;
};

// The offset of parameter `index` in its unit's flat buffer, in elements.
inline int64_t parameter_offset(const UnitSpec& unit, size_t index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index; ++i) offset += unit.parameters[i].numel();
  return offset;
}

}  // namespace mpzero
