#include "app/config/deepspeed_format.hpp"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"

namespace mpzero {

void check_deepspeed_format(const RunConfig& config, std::vector<std::string>& warnings) {
  const nlohmann::json json =
      config.ds_config_json.empty()
          ? nlohmann::json::object()
          : parse_user_json(config.ds_config_json, "the ds_config.json of the run", kConfigurationLimits);
  for (const char* key : {"round_robin_gradients", "parameter_alignment"}) {
    const nlohmann::json::json_pointer place("/zero_optimization/" + std::string(key));
    if (!json.contains(place) || json[place] != true) continue;
    throw_user_error(
        "zero_optimization.{} changes DeepSpeed's checkpoint layout, which --checkpoint_format deepspeed does not "
        "support; set the key to false or omit the flag.",
        key);
  }
  if (!config.optimizer.no_decay.empty()) {
    throw_user_error(
        "--checkpoint_format deepspeed writes a single parameter group, so DeepSpeed would ignore --no_decay {}; omit "
        "one of the two flags.",
        fmt::join(config.optimizer.no_decay, ","));
  }
  if (!config.freeze_parameters.empty()) {
    throw_user_error(
        "--checkpoint_format deepspeed does not support --freeze_parameters {}; omit one of the two flags.",
        fmt::join(config.freeze_parameters, ","));
  }
  if (std::holds_alternative<parallel::TrainerLr>(config.schedule.variant())) {
    warnings.emplace_back(
        "--checkpoint_format deepspeed does not save the scheduler state of --lr_scheduler_type; resume in "
        "DeepSpeed with load_lr_scheduler_states=False.");
  }
  if (config.zero.quantized_gradient_bits > 0 || config.zero.quantized_weights) {
    warnings.emplace_back(
        "--checkpoint_format deepspeed does not save the error feedback of zero_quantized_gradients and "
        "zero_quantized_weights: a resumed run starts without error feedback, which slightly changes the loss.");
  }
  if (config.zero.stage == 0) {
    warnings.emplace_back(
        "--checkpoint_format deepspeed writes ZeRO stage 1 checkpoints; resume in DeepSpeed with stage 1 or 2.");
  }
}

io::DeepSpeedSettings deepspeed_settings(const RunConfig& config, int64_t step) {
  const int64_t ranks = config.train_batch_size / (config.micro_batch_size * config.gradient_accumulation_steps);
  const OptimizerConfig& optimizer = config.optimizer;
  return {.ranks = static_cast<int>(ranks),
          .optimizer = {.next_lr = config.lr(step + 1),
                        .beta1 = optimizer.beta1,
                        .beta2 = optimizer.beta2,
                        .eps = optimizer.eps,
                        .weight_decay = optimizer.weight_decay,
                        .bias_correction = optimizer.bias_correction,
                        .gradient_clipping = config.gradient_clipping},
          .sub_group_size = config.sub_group_size};
}

}  // namespace mpzero
