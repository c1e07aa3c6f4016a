#include "model/architecture/architectures.hpp"

#include <array>

#include "base/error.hpp"
#include "model/architecture/config_reader.hpp"

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

void refuse_attention_bias(ConfigReader& reader) {
  reader.only("attention_bias", false, "use a model whose projections have no biases");
}

void refuse_sliding_window(ConfigReader& reader) {
  reader.only("use_sliding_window", false, "set it to false to attend to the whole sequence");
  // No effect without use_sliding_window.
  reader.harmless({"sliding_window", "max_window_layers"});
}

}  // namespace mpzero::model
