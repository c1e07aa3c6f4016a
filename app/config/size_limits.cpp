#include "app/config/size_limits.hpp"

#include <algorithm>
#include <limits>
#include <variant>

#include "base/error.hpp"
#include "io/data/data_loader.hpp"

namespace mpzero {
namespace {

// cuBLAS and cuDNN use 32-bit row counts.
constexpr int64_t kMaxMicroBatchTokens = std::numeric_limits<int32_t>::max();
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
  if (config.micro_batch_size > kMaxMicroBatchTokens / (config.seq_length / config.sequence_parallel_size)) {
    throw_user_error(
        "{}: train_micro_batch_size_per_gpu {} x --seq_length {} exceeds the maximum of {} tokens per micro-batch; "
        "reduce one of the two.",
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
        "{}: train_batch_size {} x --seq_length {} exceeds the maximum of 2^53 tokens per step; reduce one of the two.",
        where, config.train_batch_size, config.seq_length);
  }
}

double least_activation_bytes(const RunConfig& config, const model::ModelConfig& model) {
  const auto tokens = static_cast<double>(config.micro_batch_tokens());
  const double inputs = static_cast<double>(model.num_hidden_layers) * static_cast<double>(model.hidden_size);
  const double projections = static_cast<double>(model.query_size()) +
                             2.0 * static_cast<double>(model.key_value_size()) +
                             2.0 * static_cast<double>(model.intermediate_size);
  return tokens * (inputs + projections) * (config.dtype == "bf16" ? 2.0 : 4.0);
}

double loader_bytes(const RunConfig& config) {
  const auto tokens = static_cast<double>(config.micro_batch_tokens());
  constexpr double kBytesPerToken = 16;  // input and target, int64
  return tokens * kBytesPerToken * static_cast<double>(io::LoaderOptions{}.read_ahead + 1);
}

}  // namespace mpzero
