#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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
  // Frozen and equal to the initial weights: checkpoints refer to those instead of storing a copy.
  bool in_base = false;
  bool coded = false;  // frozen and quantized to 8 or 4 bits

  int64_t numel() const {
    int64_t sum = 0;
    for (const ParameterSpec& parameter : parameters) sum += parameter.numel();
    return sum;
  }
  // Whether any parameter is trainable.
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

// Hugging Face names of weights that need special handling.
inline constexpr const char* kEmbeddingWeight = "model.embed_tokens.weight";
// T5's, shared by encoder and decoder.
inline constexpr const char* kSharedEmbedding = "shared.weight";
inline bool is_embedding(std::string_view name) { return name == kEmbeddingWeight || name == kSharedEmbedding; }
// The output projection. A model with tied embeddings has no parameter of this name.
inline constexpr const char* kOutputWeight = "lm_head.weight";

// PEFT's suffixes of adapter names.
inline constexpr const char* kLoraA = ".lora_A.weight";
inline constexpr const char* kLoraB = ".lora_B.weight";
inline bool is_adapter(std::string_view name) { return name.ends_with(kLoraA) || name.ends_with(kLoraB); }

inline bool has_parameter(std::span<const ParameterSpec> parameters, std::string_view name) {
  return std::ranges::any_of(parameters, [&](const ParameterSpec& parameter) { return parameter.name == name; });
}

// Whether the embedding is also the output weight.
inline bool is_output_tied(std::span<const ParameterSpec> parameters) {
  return std::ranges::any_of(parameters, is_embedding, &ParameterSpec::name) &&
         !has_parameter(parameters, kOutputWeight);
}

// The part of a parameter within a range of its unit's flat buffer, in elements.
struct ParameterRange {
  const ParameterSpec& parameter;
  int64_t begin;   // in the parameter
  int64_t count;   // at least 1
  int64_t offset;  // of `begin` in the range
};

// Calls `visit` with a ParameterRange for each parameter that overlaps [begin, end) of the unit's flat buffer, in the
// unit's order. Ignores the part of the range beyond the unit.
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

// The three fp32 values that AdamW stores for each parameter.
enum class StateKind { kMaster, kExpAvg, kExpAvgSq };

inline constexpr std::array kStateKinds = {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq};

// The states stored for a unit whose parameters are all trainable or all frozen. Frozen: only the master weights, which
// equal the parameters, or nothing with `in_base`.
inline std::span<const StateKind> states_of(const UnitSpec& unit) {
  if (unit.in_base) return {};
  return std::span(kStateKinds).first(unit.trainable() ? kStateKinds.size() : 1);
}

}  // namespace mpzero
