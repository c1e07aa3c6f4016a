#include "app/lora/lora_settings.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "model/architecture/lora.hpp"

namespace mpzero {
namespace {

constexpr const char* kAllLinear = "all-linear";  // PEFT's name for every projection of the layers

// Returns the unique targets, in the order of the layer's matmuls.
std::vector<std::string> ordered_targets(const std::vector<std::string>& given, const std::vector<std::string>& known) {
  if (given.empty() || given == std::vector<std::string>{kAllLinear}) return known;
  std::vector<std::string> ordered;
  const auto is_given = [&](const std::string& name) { return std::ranges::find(given, name) != given.end(); };
  std::ranges::copy_if(known, std::back_inserter(ordered), is_given);
  // Append unknown names, which validate() rejects.
  std::ranges::copy_if(given, std::back_inserter(ordered),
                       [&](const std::string& name) { return std::ranges::find(known, name) == known.end(); });
  return ordered;
}

void refuse_other_methods(const Settings& config, const std::string& source) {
  if (config.lora.load_in_8bit && config.lora.load_in_4bit) {
    throw_user_error("{}: --load_in_8bit and --load_in_4bit are mutually exclusive; pass only one", source);
  }
  if (!config.freeze_parameters.empty()) {
    throw_user_error("{}: --freeze_parameters {} is redundant with adapters, which freeze all other weights; omit it",
                     source, fmt::join(config.freeze_parameters, ","));
  }
  if (config.fp8 != "none" && (config.lora.load_in_8bit || config.lora.load_in_4bit)) {
    throw_user_error("{}: --fp8 does not support --load_in_8bit and --load_in_4bit; omit one of these flags", source);
  }
  if (config.deepspeed_format) {
    throw_user_error("{}: --checkpoint_format deepspeed does not support adapters (--lora_r); omit one of these flags",
                     source);
  }
}

}  // namespace

void set_up_lora(const Settings& config, const std::string& source, const std::string& adapters,
                 model::ModelConfig& model) {
  const LoraSettings& lora = config.lora;
  if (!lora.r && !model.lora) {
    if (lora == LoraSettings{}) return;
    throw_user_error(
        "{}: adapter settings (--lora_alpha, --lora_target_modules, --lora_dropout, --use_rslora, --load_in_8bit, "
        "--load_in_4bit) require --lora_r",
        source);
  }
  const std::vector<std::string> known = model::lora_targets(model, source);
  // Unset values are taken from the initial adapters.
  if (model.lora) model.lora->targets = ordered_targets(model.lora->targets, known);
  LoraConfig wanted = model.lora.value_or(LoraConfig{});
  if (lora.r) wanted.r = *lora.r;
  if (lora.alpha || !model.lora) wanted.alpha = lora.alpha.value_or(static_cast<double>(wanted.r));
  if (!lora.targets.empty() || !model.lora) wanted.targets = ordered_targets(lora.targets, known);
  if (lora.rslora) wanted.rslora = *lora.rslora;
  if (model.lora && wanted != *model.lora) {
    throw_user_error(
        "--init_from {}: the adapters have {}, but {} results in {}; use the same settings, or start from the base "
        "model",
        adapters, describe_lora(*model.lora), source, describe_lora(wanted));
  }
  if (lora.dropout) wanted.dropout = *lora.dropout;
  model.lora = std::move(wanted);
  model.validate(source);
  refuse_other_methods(config, source);
}

std::string describe_lora(const LoraConfig& lora) {
  return fmt::format("r {}, alpha {}{}, {}", lora.r, lora.alpha, lora.rslora ? ", rslora" : "",
                     fmt::join(lora.targets, " "));
}

}  // namespace mpzero
