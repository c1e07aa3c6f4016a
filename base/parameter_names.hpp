#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "base/parameter_spec.hpp"

// The Hugging Face names of the weights that files and models treat in a way of their own.
namespace mpzero {

inline constexpr const char* kEmbeddingWeight = "model.embed_tokens.weight";
// Of the matrix that makes logits. A model whose output is tied to its embedding has no parameter of this name.
inline constexpr const char* kOutputWeight = "lm_head.weight";

inline bool has_parameter(std::span<const ParameterSpec> parameters, std::string_view name) {
  return std::ranges::any_of(parameters, [&](const ParameterSpec& parameter) { return parameter.name == name; });
}

// Whether the embedding is the output weight, too.
inline bool is_output_tied(std::span<const ParameterSpec> parameters) {
  return has_parameter(parameters, kEmbeddingWeight) && !has_parameter(parameters, kOutputWeight);
}

}  // namespace mpzero
