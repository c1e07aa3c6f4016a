#include "app/config/model_limits.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <variant>

#include "app/flags/training_flags.hpp"
#include "base/error.hpp"
#include "base/words.hpp"
#include "io/data/data_loader.hpp"
#include "model/architecture/architectures.hpp"
#include "model/fp8/layer_product.hpp"
#include "model/layer_activations.hpp"

namespace mpzero {
namespace {

// Memory estimates simulate each tile of a micro-batch (DecoderOptions::mlp_tile), which takes seconds for larger ones.
constexpr int64_t kMaxMicroBatchTokens = int64_t{1} << 26;
// Largest integer that a JSON number (double) represents exactly.
constexpr int64_t kMaxStepTokens = int64_t{1} << 53;
// Limits the list of planned all-gathers in an optimizer step to 128 MiB.
constexpr int64_t kMaxPlannedUses = int64_t{1} << 24;

}  // namespace

void check_seq_length(const RunConfig& config, const model::ModelConfig& model) {
  if (model.sliding_window && config.seq_length > *model.sliding_window) {
    throw_user_error(
        "--seq_length {} exceeds the model's sliding_window {}, which is not supported; reduce --seq_length, or set "
        "sliding_window to null in config.json for full attention",
        config.seq_length, *model.sliding_window);
  }
  const auto* dynamic = model.rope_scaling ? std::get_if<model::DynamicRopeScaling>(&*model.rope_scaling) : nullptr;
  const double factor = dynamic ? std::max(1.0, dynamic->factor) : 1.0;
  if (static_cast<double>(config.seq_length) > factor * static_cast<double>(model.max_position_embeddings)) {
    throw_user_error(
        "--seq_length {}{} exceeds the model's max_position_embeddings {}{}; reduce --seq_length or raise "
        "--max_position_embeddings",
        config.seq_length, config.origins.of("seq_length").kind == Origin::Kind::kDefault ? " (the default)" : "",
        model.max_position_embeddings, dynamic ? fmt::format(" times the rope scaling factor {}", factor) : "");
  }
}

void check_sizes(const RunConfig& config, const model::ModelConfig& model, const std::string& where) {
  if (config.micro_batch_size > kMaxMicroBatchTokens / config.length_on_rank()) {
    throw_user_error(
        "{}: train_micro_batch_size_per_gpu {} x --seq_length {} exceeds the maximum of {} tokens per micro-batch; "
        "reduce either value.",
        where, config.micro_batch_size, config.seq_length, kMaxMicroBatchTokens);
  }
  const int64_t uses = 2 * model.num_hidden_layers + 3;
  if (config.gradient_accumulation_steps > kMaxPlannedUses / uses) {
    throw_user_error(
        "{}: gradient_accumulation_steps {} exceeds the maximum of {} micro-batches per step for {} layers; reduce "
        "gradient_accumulation_steps.",
        where, config.gradient_accumulation_steps, kMaxPlannedUses / uses, model.num_hidden_layers);
  }
  if (config.train_batch_size > kMaxStepTokens / config.seq_length) {
    throw_user_error(
        "{}: train_batch_size {} x --seq_length {} exceeds the maximum of 2^53 tokens per step; reduce either value.",
        where, config.train_batch_size, config.seq_length);
  }
}

void check_fp8_products(const RunConfig& config, const model::ModelConfig& model, const std::string& where,
                        std::vector<std::string>& warnings) {
  constexpr int64_t kMultiple = 16;  // required for the sizes of Hopper's FP8 matmuls
  if (!config.fp8_options) return;
  const std::vector<UnitSpec> units = model::model_units(model);
  const model::LayerLayout layout(model::find_architecture(model.model_type, where).layer_parameters(model));
  const std::vector<UnitSpec> layers(units.begin() + 1, units.end() - 1);
  std::set<std::string> odd;
  bool is_any = false;
  for (const model::Fp8Products& products : model::fp8_products(*config.fp8_options, layers, layout, where)) {
    for (const model::LayerProduct product : model::kLayerProducts) {
      if (!products[static_cast<size_t>(product)]) continue;
      is_any = true;
      int64_t rows = 0, columns = 0;
      for (const model::LayerRole role : model::roles_of(product, layout)) {
        const std::vector<int64_t>& shape = layers.front().parameters[layout[role]].shape;
        rows += shape[0];
        columns = shape[1];
      }
      if (rows % kMultiple != 0 || columns % kMultiple != 0) {
        odd.insert(fmt::format("{} [{}, {}]", name(product), rows, columns));
      }
    }
  }
  if (!is_any) {
    warnings.push_back(fmt::format("{}: fp8.filter_fqns excludes all matmuls, so FP8 has no effect.", where));
  } else if (!odd.empty()) {
    warnings.push_back(
        fmt::format("{}: FP8 on GPUs requires sizes that are multiples of {}. The operands of {} are rounded to FP8 "
                    "and multiplied in bf16, which is slower than bf16 alone; add these matmuls to fp8.filter_fqns.",
                    where, kMultiple, fmt::join(odd, ", ")));
  }
}

void check_recompute(const RunConfig& config, const model::ModelConfig& model) {
  if (config.recompute == Recomputation::kAuto) return;
  const bool fp8 = config.fp8_options.has_value();
  const std::vector<model::Recompute> levels = model::recompute_levels(model, fp8);
  if (std::ranges::find(levels, static_cast<model::Recompute>(config.recompute)) != levels.end()) return;
  const Origin& origin = config.origins.of("recompute");
  throw_user_error("{} does not support {}; use --recompute full{}",
                   origin.kind == Origin::Kind::kFile ? config.ds_config_path + ": " + origin.name + " true"
                                                      : "--recompute " + flag_named("recompute").show(config),
                   model.t5 ? "T5 (--model_type t5)"
                   : fp8    ? "--fp8 (fp8.enabled)"
                            : "adapters (--lora_r)",
                   yields_for(config, {"recompute"}));
}

void check_sequence_ranks(int64_t size, const std::string& where, int world_size, const model::ModelConfig& model) {
  const auto refuse = [&](const std::string& why) {
    throw_user_error("{}: sequence_parallel_size {} {}", where, size, why);
  };
  if (size == 1) return;
  if (model.t5) refuse("does not support T5 (--model_type t5); remove the key");
  if (world_size % size != 0)
    refuse(fmt::format("does not divide the run's {}; use a divisor", counted(world_size, "rank")));
  if (model.num_attention_heads % size != 0) {
    refuse(fmt::format("does not divide the model's num_attention_heads {}; use a divisor", model.num_attention_heads));
  }
}

void check_split_sequences(const RunConfig& config, const std::string& where, const model::ModelConfig& model) {
  const int64_t size = config.sequence_parallel_size;
  if (config.seq_length % size != 0) {
    throw_user_error("{}: sequence_parallel_size {} does not divide --seq_length {}; change either value", where, size,
                     config.seq_length);
  }
  if (size > 1 && model.lora && model.lora->dropout > 0) {
    throw_user_error("{}: sequence_parallel_size {} does not support dropout (--lora_dropout {}); set the dropout to 0",
                     where, size, model.lora->dropout);
  }
}

double loader_bytes(const RunConfig& config) {
  const auto tokens = static_cast<double>(config.micro_batch_tokens());
  constexpr double kBytesPerToken = 16;  // input and target, int64
  return tokens * kBytesPerToken * static_cast<double>(io::LoaderOptions{}.read_ahead + 1);
}

}  // namespace mpzero
