#include "model/architecture/architectures.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "base/error.hpp"

namespace mpzero::model {
namespace {

// Guesses the kind of an unsupported model from Hugging Face's naming conventions. Returns null if the kind is unknown.
const char* kind_not_trained(std::string_view model_type) {
  const auto has_any = [&](std::initializer_list<std::string_view> parts) {
    return std::ranges::any_of(parts, [&](auto part) { return model_type.find(part) != std::string_view::npos; });
  };
  if (has_any({"moe", "mixtral", "deepseek_v2", "deepseek_v3", "gpt_oss", "dbrx", "llama4"})) {
    return "a mixture of experts";
  }
  if (has_any({"_vl", "llava", "vision", "mllama", "omni", "audio", "whisper"})) return "an image or audio model";
  return nullptr;
}

}  // namespace

const Architecture& find_architecture(std::string_view model_type, std::string_view source) {
  std::string supported;
  for (const Architecture& architecture : architectures()) {
    if (architecture.model_type == model_type) return architecture;
    supported += fmt::format("{}\"{}\"", supported.empty() ? "" : ", ", architecture.model_type);
  }
  if (const char* kind = kind_not_trained(model_type)) {
    throw_user_error("{}: model_type \"{}\" ({}) is not supported; use one of {} (docs/limits.md).", source, model_type,
                     kind, supported);
  }
  throw_user_error("{}: model_type \"{}\" is not supported; use one of {}.", source, model_type, supported);
}

}  // namespace mpzero::model
