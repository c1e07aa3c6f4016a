#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mpzero {

// A weight of the model, with its Hugging Face name.
struct ParameterSpec {
  std::string name;            // e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // e.g. {out_features, in_features}
  bool trainable = true;       // frozen otherwise: no gradients and no optimizer states

  int64_t numel() const {
    int64_t product = 1;
    for (const int64_t extent : shape) product *= extent;
    return product;
  }
  bool operator==(const ParameterSpec&) const = default;
};

// A group of parameters that is gathered, used, reduced, updated and saved together: the embedding, a decoder layer or
// the head. The parameters are contiguous in one flat buffer, in the order of `parameters`.
struct UnitSpec {
  std::string name;  // e.g. "layers.0"
  std::vector<ParameterSpec> parameters;
  // True if the unit is frozen and equal to the initial weights. Checkpoints then store a reference to the initial
  // weights instead of a copy.
  bool in_base = false;
  bool coded = false;  // frozen and quantized to 8 or 4 bits

  int64_t numel() const {
    int64_t sum = 0;
    for (const ParameterSpec& parameter : parameters) sum += parameter.numel();
    return sum;
  }
  bool trainable() const {
    return std::ranges::any_of(parameters, [](const ParameterSpec& parameter) { return parameter.trainable; });
  }
  bool operator==(const UnitSpec&) const = default;
};

// Returns the offset of parameter `index` in the unit's flat buffer, in elements.
inline int64_t parameter_offset(const UnitSpec& unit, size_t index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index; ++i) offset += unit.parameters[i].numel();
  return offset;
}

// Hugging Face names of weights that need special handling.
inline constexpr const char* kEmbeddingWeight = "model.embed_tokens.weight";
// Name of the embedding that T5's encoder and decoder share.
inline constexpr const char* kSharedEmbedding = "shared.weight";
inline bool is_embedding(std::string_view name) { return name == kEmbeddingWeight || name == kSharedEmbedding; }
// Name of the output projection's weight. Models with tied embeddings do not have this parameter.
inline constexpr const char* kOutputWeight = "lm_head.weight";

// PEFT's name suffixes for adapter weights.
inline constexpr const char* kLoraA = ".lora_A.weight";
inline constexpr const char* kLoraB = ".lora_B.weight";
inline bool is_adapter(std::string_view name) { return name.ends_with(kLoraA) || name.ends_with(kLoraB); }

inline bool has_parameter(std::span<const ParameterSpec> parameters, std::string_view name) {
  return std::ranges::any_of(parameters, [&](const ParameterSpec& parameter) { return parameter.name == name; });
}

// Returns true if the embedding is also the output weight.
inline bool is_output_tied(std::span<const ParameterSpec> parameters) {
  return std::ranges::any_of(parameters, is_embedding, &ParameterSpec::name) &&
         !has_parameter(parameters, kOutputWeight);
}

// Intersection of a parameter with a range of the unit's flat buffer, in elements.
struct ParameterRange {
  const ParameterSpec& parameter;
  int64_t begin;   // relative to the parameter
  int64_t count;   // at least 1
  int64_t offset;  // position of `begin`, relative to the range
};

// Calls `visit` with a ParameterRange for each parameter that overlaps [begin, end) of the unit's flat buffer, in the
// unit's order. Ignores the part of the range beyond the end of the unit.
template <class Visit>
void visit_parameters(const UnitSpec& unit, int64_t begin, int64_t end, Visit visit) {
  int64_t first = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    const int64_t last = first + parameter.numel();
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, last);
    if (from < to) {
      visit(ParameterRange{.parameter = parameter, .begin = from - first, .count = to - from, .offset = from - begin});
    }
    first = last;
  }
}

// The three values that AdamW stores for each element of a parameter: the master weight and two moments.
enum class StateKind { kMaster, kExpAvg, kExpAvgSq };

inline constexpr std::array kStateKinds = {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq};

// Returns the optimizer states to store for a unit whose parameters are either all trainable or all frozen. A frozen
// unit has only master weights, which equal the parameters. A unit with `in_base` has no states.
inline std::span<const StateKind> states_of(const UnitSpec& unit) {
  if (unit.in_base) return {};
  return std::span(kStateKinds).first(unit.trainable() ? kStateKinds.size() : 1);
}

}  // namespace mpzero
