#include "model/architectures.hpp"

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace mpzero::model {

std::span<const Architecture* const> architectures() {
  static constexpr std::array<const Architecture*, 3> kAll{&kLlama, &kQwen2, &kQwen3};
  return kAll;
}

const Architecture& find_architecture(std::string_view model_type, std::string_view source) {
  std::string supported;
  for (const Architecture* architecture : architectures()) {
    if (architecture->model_type == model_type) return *architecture;
    supported += fmt::format("{}\"{}\"", supported.empty() ? "" : ", ", architecture->model_type);
  }
  throw_user_error("{}: model_type \"{}\" is not supported; use a model of one of these types: {}.", source, model_type,
                   supported);
}

namespace {

bool is_on(const nlohmann::json& json, const char* key) {
  const auto value = json.find(key);
  return value != json.end() && value->is_boolean() && value->get<bool>();
}

}  // namespace

void refuse_attention_bias(const nlohmann::json& json, const std::string& source) {
  if (is_on(json, "attention_bias")) {
    throw_user_error("{}: attention_bias true is not supported; use a model whose projections have no biases.", source);
  }
}

void refuse_sliding_window(const nlohmann::json& json, const std::string& source) {
  if (is_on(json, "use_sliding_window")) {
    throw_user_error("{}: use_sliding_window true is not supported; set it to false to attend to the whole sequence.",
                     source);
  }
}

}  // namespace mpzero::model
