#include "io/deepspeed/descriptions.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "base/parameter_spec.hpp"
#include "io/torch_save/pickle_writer.hpp"

namespace mpzero::io {
namespace {

pickle::Entry ds_config(const TrainingProgress& progress) {
  return {"ds_config", pickle::json(progress.run_config_json.empty()
                                        ? nlohmann::json::object()
                                        : parse_user_json(progress.run_config_json, "the run's ds_config.json",
                                                          kConfigurationLimits))};
}

pickle::Entry ds_version() { return {"ds_version", pickle::text(kDeepSpeedVersion)}; }

// Second names of the embedding for a tied head and for the encoder and decoder of T5.
std::vector<std::pair<std::string, std::string>> aliases_of(std::span<const ParameterSpec> parameters) {
  const std::string& embedding = std::ranges::find_if(parameters, is_embedding, &ParameterSpec::name)->name;
  std::vector<std::pair<std::string, std::string>> aliases;
  if (embedding == kSharedEmbedding) {
    aliases = {{"encoder.embed_tokens.weight", embedding}, {"decoder.embed_tokens.weight", embedding}};
  }
  if (is_output_tied(parameters)) aliases.emplace_back(kOutputWeight, embedding);
  return aliases;
}

// State dict of the weights.
std::string module_of(const DeepSpeedLayout& layout, bool bf16) {
  const std::vector<ParameterSpec> parameters = layout.parameters();
  const bool sharded = layout.stage() == 3;
  int64_t total = 0;
  for (const ParameterSpec& parameter : parameters) total += parameter.numel();
  std::vector<pickle::Entry> weights;
  const auto add = [&](const std::string& name, const ParameterSpec& parameter) {
    weights.emplace_back(name,
                         pickle::tensor({.storage = "0",
                                         .type = bf16 ? pickle::ScalarType::kBFloat16 : pickle::ScalarType::kFloat32,
                                         .storage_numel = sharded ? 0 : total,
                                         .offset = sharded ? 0 : layout.flat_offset(parameter.name),
                                         .shape = sharded ? std::vector<int64_t>{0} : parameter.shape}));
  };
  for (const ParameterSpec& parameter : parameters) add(parameter.name, parameter);
  for (const auto& [alias, name] : aliases_of(parameters)) {
    add(alias, *std::ranges::find(parameters, name, &ParameterSpec::name));
  }
  return pickle::ordered_dict(weights);
}

// Returns a list with the result of `describe` for each parameter group.
template <typename Describe>
std::string of_groups(const DeepSpeedLayout& layout, const Describe& describe) {
  std::vector<std::string> groups;
  for (size_t g = 0; g < layout.groups().size(); ++g) groups.push_back(describe(g));
  return pickle::list(groups);
}

std::string param_shapes(const DeepSpeedLayout& layout) {
  return of_groups(layout, [&](size_t g) {
    std::vector<pickle::Entry> shapes;
    for (const ParameterSpec& parameter : layout.groups()[g].parameters) {
      shapes.emplace_back(parameter.name, pickle::size(parameter.shape));
    }
    return pickle::ordered_dict(shapes);
  });
}

std::string state(const DeepSpeedLayout& layout, size_t group, int rank, StateKind kind) {
  const int64_t numel = state_numel(layout, group, rank, kind);
  return pickle::tensor(
      {.storage = std::to_string(3 * group + static_cast<size_t>(kind)), .storage_numel = numel, .shape = {numel}});
}

std::string master_weights(const DeepSpeedLayout& layout, int rank) {
  return of_groups(layout, [&](size_t g) { return state(layout, g, rank, StateKind::kMaster); });
}

// Returns the result of torch.optim.Optimizer.state_dict() for one parameter group with flat tensors.
std::string torch_optimizer(const DeepSpeedLayout& layout, int rank, int64_t step,
                            const DeepSpeedOptimizer& optimizer) {
  std::vector<pickle::Entry> states;
  for (size_t g = 0; g < layout.groups().size(); ++g) {
    states.emplace_back(static_cast<int64_t>(g),
                        pickle::dict({{"step", pickle::integer(step)},
                                      {"exp_avg", state(layout, g, rank, StateKind::kExpAvg)},
                                      {"exp_avg_sq", state(layout, g, rank, StateKind::kExpAvgSq)}}));
  }
  const std::string group =
      pickle::dict({{"lr", pickle::number(optimizer.next_lr)},
                    {"betas", pickle::list({pickle::number(optimizer.beta1), pickle::number(optimizer.beta2)})},
                    {"eps", pickle::number(optimizer.eps)},
                    {"weight_decay", pickle::number(optimizer.weight_decay)},
                    {"bias_correction", pickle::boolean(optimizer.bias_correction)},
                    {"amsgrad", pickle::boolean(false)},
                    {"params", of_groups(layout, [](size_t g) { return pickle::integer(static_cast<int64_t>(g)); })}});
  return pickle::dict({{"state", pickle::dict(states)}, {"param_groups", pickle::list({group})}});
}

// Returns the position of each parameter's piece in the rank's partition, for ds_to_universal.py.
std::string slice_mappings(const DeepSpeedLayout& layout, int rank) {
  return of_groups(layout, [&](size_t g) {
    std::vector<pickle::Entry> slices;
    for (const ParameterSpec& parameter : layout.groups()[g].parameters) {
      layout.visit(parameter.name, 0, parameter.numel(), [&](const DeepSpeedLayout::Slice& slice) {
        if (slice.rank != rank) return;
        slices.emplace_back(parameter.name, pickle::object("deepspeed.utils.tensor_fragment", "fragment_address",
                                                           {{"numel", pickle::integer(slice.count)},
                                                            {"start", pickle::integer(slice.offset)}}));
      });
    }
    return pickle::ordered_dict(slices);
  });
}

void add_stage3_states(std::vector<pickle::Entry>& states, const DeepSpeedLayout& layout, int rank, int64_t step,
                       const DeepSpeedOptimizer& optimizer) {
  states.insert(states.end(), {{"partition_count", pickle::integer(layout.ranks())},
                               {"optimizer_state_dict", torch_optimizer(layout, rank, step, optimizer)},
                               {"fp32_flat_groups", master_weights(layout, rank)}});
}

void add_stage12_states(std::vector<pickle::Entry>& states, const DeepSpeedLayout& layout, int rank, int64_t step,
                        const DeepSpeedOptimizer& optimizer) {
  const auto padding = [&](size_t g) {
    return pickle::integer(layout.partition_numel(g) - layout.used_numel(g, rank));
  };
  const auto no_paddings = [&](size_t g) {
    return pickle::list(std::vector(layout.groups()[g].parameters.size(), pickle::integer(0)));
  };
  states.insert(states.end(),
                {{"clip_grad", pickle::number(optimizer.gradient_clipping)},
                 {"base_optimizer_state", torch_optimizer(layout, rank, step, optimizer)},
                 {"single_partition_of_fp32_groups", master_weights(layout, rank)},
                 {"group_paddings", of_groups(layout, padding)},
                 {"param_alignment_paddings", of_groups(layout, no_paddings)},
                 {"partition_count", of_groups(layout, [&](size_t) { return pickle::integer(layout.ranks()); })},
                 ds_version(),
                 {"param_slice_mappings", slice_mappings(layout, rank)}});
}

std::string client_state(const TrainingProgress& progress) {
  std::vector<pickle::Entry> state = {{"tokens_seen", pickle::integer(progress.tokens_seen)},
                                      {"windows_seen", pickle::integer(progress.sequences_seen)},
                                      // Stored as a string because an unsigned 64-bit value may exceed int64_t.
                                      {"seed", pickle::text(std::to_string(progress.seed))},
                                      {"data_order", pickle::text(progress.data_order)},
                                      {"lr", pickle::number(progress.lr)},
                                      {"model_config", pickle::text(progress.model_config_json)},
                                      {"ds_config", pickle::text(progress.run_config_json)}};
  if (!progress.settings_json.empty()) state.emplace_back("settings", pickle::text(progress.settings_json));
  return pickle::dict(state);
}

}  // namespace

int64_t state_numel(const DeepSpeedLayout& layout, size_t group, int rank, StateKind kind) {
  return kind == StateKind::kMaster ? layout.used_numel(group, rank) : layout.partition_numel(group);
}

std::string describe_model(const DeepSpeedLayout& layout, const TrainingProgress& progress,
                           const DeepSpeedSettings& settings) {
  std::vector<pickle::Entry> shared;
  for (const auto& [alias, name] : aliases_of(layout.parameters())) shared.emplace_back(alias, pickle::text(name));
  return pickle::dump(
      pickle::dict({{"module", module_of(layout, progress.dtype == "bf16")},
                    {"buffer_names", pickle::list({})},
                    {"optimizer", pickle::none()},
                    {"param_shapes", param_shapes(layout)},
                    {"frozen_param_shapes", pickle::ordered_dict({})},
                    {"frozen_param_fragments", pickle::ordered_dict({})},
                    {"shared_params", pickle::dict(shared)},
                    {"lr_scheduler", pickle::dict({{"last_batch_iteration", pickle::integer(progress.step - 1)}})},
                    {"data_sampler", pickle::none()},
                    {"random_ltd", pickle::none()},
                    {"skipped_steps", pickle::integer(0)},
                    {"global_steps", pickle::integer(progress.step)},
                    {"global_samples", pickle::integer(progress.sequences_seen)},
                    {"dp_world_size", pickle::integer(settings.ranks)},
                    {"mp_world_size", pickle::integer(1)},
                    ds_config(progress),
                    ds_version(),
                    {kClientStateKey, client_state(progress)}}));
}

std::string describe_optimizer(const DeepSpeedLayout& layout, int rank, const TrainingProgress& progress,
                               const DeepSpeedSettings& settings) {
  std::vector<pickle::Entry> states = {
      {"zero_stage", pickle::integer(layout.stage())},
      // Loss scaling is disabled, but DeepSpeed's stage 3 requires a LossScaler.
      {"loss_scaler", pickle::object("deepspeed.runtime.fp16.loss_scaler", "LossScaler",
                                     {{"cur_scale", pickle::number(1.0)}, {"dynamic", pickle::boolean(false)}})},
      {"dynamic_loss_scale", pickle::boolean(false)},
      {"overflow", pickle::boolean(false)}};
  const auto add_states = layout.stage() == 3 ? &add_stage3_states : &add_stage12_states;
  add_states(states, layout, rank, progress.step, settings.optimizer);
  return pickle::dump(
      pickle::dict({{"optimizer_state_dict", pickle::dict(states)}, ds_config(progress), ds_version()}));
}

bool is_of_save(const pickle::Value& state, int64_t global_samples) {
  return state.at("windows_seen").integer() == global_samples;
}

void read_client_state(const pickle::Value& state, TrainingProgress& progress) {
  progress.tokens_seen = state.at("tokens_seen").integer();
  progress.sequences_seen = state.at("windows_seen").integer();
  const pickle::Value seed = state.at("seed");
  const std::string& digits = seed.text();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), progress.seed);
  if (error != std::errc{} || end != digits.data() + digits.size()) seed.throw_unexpected("a number");
  progress.data_order = state.at("data_order").text();
  progress.lr = state.at("lr").number();
  progress.model_config_json = state.at("model_config").text();
  progress.run_config_json = state.at("ds_config").text();
  if (const auto settings = state.find("settings")) progress.settings_json = settings->text();
}

}  // namespace mpzero::io
