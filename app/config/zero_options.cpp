#include "app/config/zero_options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "base/error.hpp"
#include "base/words.hpp"
#include "model/architecture/architectures.hpp"
#include "model/architecture/layer_layout.hpp"
#include "parallel/optimizer/decay_ranges.hpp"

namespace mpzero {
namespace {

at::ScalarType as_scalar_type(const std::string& name) { return name == "fp32" ? at::kFloat : at::kBFloat16; }

std::map<int, int> ranks_by_host(const std::vector<int>& host_of) {
  std::map<int, int> ranks;
  for (const int host : host_of) ++ranks[host];
  return ranks;
}

parallel::WeightCodes codes_of(const LoraSettings& lora) {
  if (lora.load_in_4bit) return parallel::WeightCodes::kNf4;
  return lora.load_in_8bit ? parallel::WeightCodes::kInt8 : parallel::WeightCodes::kNone;
}

using model::LayerRole;

bool matches(std::vector<UnitSpec> units, const std::string& pattern) {
  for (UnitSpec& unit : units) {
    for (ParameterSpec& parameter : unit.parameters) parameter.trainable = true;
  }
  try {
    return parallel::UnitParts(units, {pattern}).units() != units;
  } catch (const std::runtime_error& error) {
    throw_user_error(
        "--freeze_parameters {} is not a valid regular expression (ECMAScript): {}; if the expression contains a "
        "comma, set it as \"freeze\" in ds_config.json",
        pattern, error.what());
  }
}

// Throws UserError if only some weights of a fused matmul are frozen: see model::LayerLayout.
void check_groups(const UnitSpec& layer, const model::LayerLayout& layout) {
  static const std::vector<std::vector<LayerRole>> kGroups = {
      {LayerRole::kQuery, LayerRole::kKey, LayerRole::kValue},
      {LayerRole::kQueryBias, LayerRole::kKeyBias, LayerRole::kValueBias},
      {LayerRole::kGate, LayerRole::kUp}};
  for (const std::vector<LayerRole>& group : kGroups) {
    if (!layout.has(group.front())) continue;
    const ParameterSpec& first = layer.parameters[layout[group.front()]];
    for (const LayerRole role : group) {
      if (!layout.has(role)) continue;
      const ParameterSpec& other = layer.parameters[layout[role]];
      if (other.trainable == first.trainable) continue;
      throw_user_error("--freeze_parameters: {} and {} are fused into one matmul; freeze both or neither", first.name,
                       other.name);
    }
  }
}

}  // namespace

parallel::ZeroOptions zero_options(const RunConfig& config, at::Device device) {
  const auto placement = [](bool offload) {
    return offload ? parallel::Placement::kHost : parallel::Placement::kDevice;
  };
  return {.stage = config.zero.stage,
          .device = device,
          .dtype = as_scalar_type(config.dtype),
          .communication_dtype = as_scalar_type(config.communication_dtype),
          .accumulation_dtype = as_scalar_type(config.accumulation_dtype),
          .moment_dtype = as_scalar_type(config.moment_dtype),
          .gradient_accumulation_steps = config.gradient_accumulation_steps,
          .optimizer_placement = placement(config.zero.offload_optimizer),
          .optimizer_host_ratio = config.zero.offload_optimizer_ratio,
          .release_gradients = config.zero.release_gradients.value_or(false),
          .parameter_placement = placement(config.zero.offload_param),
          .pin_memory = config.zero.pin_memory,
          .overlap = config.zero.overlap_comm,
          .compression = {.gradient_bits = static_cast<int>(config.zero.quantized_gradient_bits),
                          .weights = config.zero.quantized_weights,
                          .seed = config.seed},
          .codes = codes_of(config.lora),
          .limits = config.zero.limits,
          .adamw = {.beta1 = config.optimizer.beta1,
                    .beta2 = config.optimizer.beta2,
                    .eps = config.optimizer.eps,
                    .weight_decay = config.optimizer.weight_decay,
                    .bias_correction = config.optimizer.bias_correction},
          .no_decay = config.optimizer.no_decay,
          .frozen = config.freeze_parameters,
          .gradient_clipping = config.gradient_clipping};
}

std::string new_file_keys(const RunConfig& config) {
  if (!config.ds_config_path.empty()) return "";
  std::string keys = R"("train_micro_batch_size_per_gpu": "auto")";
  if (config.dtype == "bf16") keys += R"(, "bf16": {"enabled": true})";
  // With a file, the learning rate is constant by default.
  if (config.origins.schedule.kind == Origin::Kind::kDefault) {
    keys += R"(, "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": "auto", "cos_min_ratio": 0}})";
  }
  return keys;
}

std::string minimal_ds_config(const std::string& keys, const std::vector<std::string>& zero) {
  return fmt::format(R"({{{}, "zero_optimization": {{{}}}}})", keys, fmt::join(zero, ", "));
}

std::string ratio_remedy(const RunConfig& config) {
  return "keep some of the optimizer states on the GPUs with " +
         (config.ds_config_path.empty()
              ? "--deepspeed_config FILE, where FILE contains " +
                    minimal_ds_config(new_file_keys(config),
                                      {R"("stage": 2)", R"("offload_optimizer": {"device": "cpu", "ratio": 0.5})"})
              : R"("ratio" in offload_optimizer)");
}

int RankPlacement::hosts() const {
  return per_host ? world_size / *per_host : static_cast<int>(std::set<int>(host_of.begin(), host_of.end()).size());
}

RankPlacement placement_of(const std::vector<int>& host_of) {
  const int world_size = static_cast<int>(host_of.size());
  const int size = ranks_by_host(host_of).at(host_of.front());
  bool even = world_size % size == 0;
  std::set<int> seen;
  for (int rank = 0; rank < world_size && even; ++rank) {
    const int host = host_of[static_cast<size_t>(rank)];
    even = rank % size == 0 ? seen.insert(host).second : host == host_of[static_cast<size_t>(rank) - 1];
  }
  if (even) return {.world_size = world_size, .per_host = size};
  return {.world_size = world_size, .per_host = std::nullopt, .host_of = host_of};
}

std::string describe_unevenness(const RankPlacement& ranks) {
  if (ranks.per_host) return "";
  const std::map<int, int> counts = ranks_by_host(ranks.host_of);
  const auto [fewest, most] = std::minmax_element(counts.begin(), counts.end(),
                                                  [](const auto& a, const auto& b) { return a.second < b.second; });
  if (fewest->second != most->second) {
    return fmt::format("hosts have {} to {} ranks; start the same number on each host", fewest->second, most->second);
  }
  return "the ranks of a host are not consecutive; start them host by host (mpirun --map-by slot, srun "
         "--distribution=block)";
}

bool has_nodes_across_hosts(const parallel::ParallelLayout& layout, const RankPlacement& ranks) {
  if (layout.nodes == 1) return false;
  for (int rank = 0; rank < ranks.world_size; ++rank) {
    if (ranks.host(rank) != ranks.host(rank - rank % layout.ranks_per_node)) return true;
  }
  return false;
}

parallel::ParallelLayout parallel_layout(const RunConfig& config, const RankPlacement& ranks) {
  int64_t size = config.zero.ranks_per_node.value_or(kRanksOfHost);
  if (size == kRanksOfHost) size = ranks.per_host.value_or(kOneLevel);
  if (size == kOneLevel) size = ranks.world_size;
  if (ranks.world_size % size != 0) {
    throw_user_error("{}: {} is {}, which does not divide the run's {}; use a divisor or \"auto\"",
                     config.ds_config_path, config.zero.ranks_per_node_key, size, counted(ranks.world_size, "rank"));
  }
  return {.nodes = static_cast<int>(ranks.world_size / size),
          .ranks_per_node = static_cast<int>(size),
          .sequence_ranks = static_cast<int>(config.sequence_parallel_size)};
}

std::string describe_compression(const RunConfig& config) {
  std::vector<std::string> parts;
  if (config.zero.quantized_gradient_bits > 0) {
    parts.push_back(fmt::format("{}-bit gradients", config.zero.quantized_gradient_bits));
  }
  if (config.zero.quantized_weights) parts.emplace_back("8-bit parameters");
  return fmt::to_string(fmt::join(parts, " and "));
}

std::string describe_levels(const parallel::ParallelLayout& layout) {
  std::string text;
  if (layout.nodes > 1)
    text = fmt::format(" over {} shard groups of {}", layout.nodes, counted(layout.ranks_per_node, "rank"));
  if (layout.sequence_ranks > 1) text += fmt::format(", sequences split over {} ranks", layout.sequence_ranks);
  return text;
}

void check_no_decay(const RunConfig& config, const model::ModelConfig& model, std::vector<std::string>& warnings) {
  const std::vector<std::string>& patterns = config.optimizer.no_decay;
  if (patterns.empty()) return;
  const parallel::UnitParts parts(model::model_units(model), config.freeze_parameters);
  std::vector<std::string> unused, frozen;
  for (const std::string& pattern : patterns) {
    bool matches = false, is_trained = false;
    for (const UnitSpec& unit : parts.units()) {
      for (const ParameterSpec& parameter : unit.parameters) {
        if (!parallel::matches_any(parameter.name, {pattern})) continue;
        matches = true;
        is_trained = is_trained || parameter.trainable;
      }
    }
    if (!is_trained) (matches ? frozen : unused).push_back(pattern);
  }
  if (unused.size() == patterns.size()) {
    throw_user_error(
        "--no_decay {} matches no parameter of the model; use substrings of Hugging Face names, e.g. norm,bias.",
        fmt::join(patterns, ","));
  }
  if (!unused.empty()) {
    warnings.push_back(fmt::format("--no_decay {} matches no parameter of the model.", fmt::join(unused, ",")));
  }
  if (!frozen.empty()) {
    warnings.push_back(fmt::format("--no_decay {} matches only frozen parameters, which AdamW does not update.",
                                   fmt::join(frozen, ",")));
  }
}

double training_flops_per_token(const RunConfig& config, const model::ModelConfig& model, int64_t seq_length) {
  const parallel::UnitParts parts(model::model_units(model), config.freeze_parameters);
  return model::flops_per_token(model, seq_length, config.source_length, parts.units());
}

void check_coded_base(const RunConfig& config, bool begins) {
  const char* const flag = config.lora.load_in_4bit ? "--load_in_4bit" : "--load_in_8bit";
  if (config.zero.quantized_weights) {
    throw_user_error(
        "{}: zero_optimization.zero_quantized_weights does not support {}, which already quantizes weights; remove one "
        "of the two",
        config.ds_config_path, flag);
  }
  if (begins && config.init_from.empty()) {
    throw_user_error("{} requires a pretrained base model; pass the model as --init_from", flag);
  }
}

void check_frozen_parameters(const RunConfig& config, const model::ModelConfig& model, const std::string& source) {
  const std::vector<std::string>& patterns = config.freeze_parameters;
  if (patterns.empty()) return;
  const std::vector<UnitSpec> units = model::model_units(model);
  for (const std::string& pattern : patterns) {
    if (matches(units, pattern)) continue;
    throw_user_error(
        "--freeze_parameters {} matches no parameter of the model; use a regular expression for Hugging Face parameter "
        "names, e.g. embed_tokens or layers\\.[0-7]\\.",
        pattern);
  }
  const parallel::UnitParts parts(units, patterns);
  if (std::ranges::none_of(parts.units(), &UnitSpec::trainable)) {
    throw_user_error("--freeze_parameters {} freezes all parameters; leave some trainable", fmt::join(patterns, ","));
  }
  if (model.t5) {
    for (size_t u = 0; u < units.size(); ++u) {
      if (parts.of(u).size() == 1) continue;
      throw_user_error("--freeze_parameters freezes some parameters of {} but not {}; freeze whole T5 blocks",
                       units[u].name, parts.parts()[u].parameters.front().name);
    }
    return;
  }
  const model::LayerLayout layout(model::find_architecture(model.model_type, source).layer_parameters(model));
  for (size_t u = 0; u < units.size(); ++u) {
    if (u > 0 && u + 1 < units.size()) check_groups(parts.units()[u], layout);
    if (config.fp8_options && parts.of(u).size() > 1) {
      throw_user_error("--freeze_parameters freezes some parameters of {} but not {}; with FP8, freeze whole layers",
                       units[u].name, parts.parts()[u].parameters.front().name);
    }
  }
}

}  // namespace mpzero
