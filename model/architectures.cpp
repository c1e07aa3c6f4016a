#include "model/architectures.hpp"

#include <array>

#include "base/error.hpp"

namespace mpzero::model {

std::span<const Architecture* const> architectures() {
  static constexpr std::array<const Architecture*, 2> kAll{&kLlama, &kQwen3};
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

}  // namespace mpzero::model
