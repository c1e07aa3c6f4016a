#include "io/deepspeed/descriptions.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "base/parameter_names.hpp"
#include "io/deepspeed/client_state.hpp"
#include "io/torch_save/pickle_writer.hpp"

namespace mpzero::io {
namespace {

void write_ds_config(pickle::Writer& out, const TrainingProgress& progress) {
  out.text("ds_config");
  out.json(progress.run_config_json.empty()
               ? nlohmann::json::object()
               : parse_user_json(progress.run_config_json, "the ds_config.json of the run", kConfigurationLimits));
}

// The weights by name. A tied head is a second name of the embedding.
void write_module(pickle::Writer& out, const DeepSpeedLayout& layout, bool bf16) {
  const std::vector<ParameterSpec> parameters = layout.parameters();
  const bool sharded = layout.stage() == 3;
  int64_t total = 0;
  for (const ParameterSpec& parameter : parameters) total += parameter.numel();
  const auto write = [&](const std::string& name, const ParameterSpec& parameter) {
    pickle::Tensor tensor{.storage = "0",
                          .type = bf16 ? pickle::ScalarType::kBFloat16 : pickle::ScalarType::kFloat32,
                          .storage_numel = total,
                          .offset = 0,
                          .shape = parameter.shape};
    if (sharded) {
      tensor.storage_numel = 0;
      tensor.shape = {0};
    } else {
      tensor.offset = layout.flat_offset(parameter.name);
    }
    out.text(name);
    out.tensor(tensor);
  };
  out.begin_ordered_dict();
  for (const ParameterSpec& parameter : parameters) write(parameter.name, parameter);
  if (is_output_tied(parameters)) {
    write(kOutputWeight, *std::find_if(parameters.begin(), parameters.end(), [](const ParameterSpec& parameter) {
            return parameter.name == kEmbeddingWeight;
          }));
  }
  out.end_dict();
}

void write_param_shapes(pickle::Writer& out, const DeepSpeedLayout& layout) {
  out.begin_list();
  for (const DeepSpeedLayout::Group& group : layout.groups()) {
    out.begin_ordered_dict();
    for (const ParameterSpec& parameter : group.parameters) {
      out.text(parameter.name);
      out.size(parameter.shape);
    }
    out.end_dict();
  }
  out.end_list();
}

void write_state(pickle::Writer& out, const DeepSpeedLayout& layout, size_t group, int rank, StateKind kind) {
  const int64_t numel = state_numel(layout, group, rank, kind);
  out.tensor(
      {.storage = std::to_string(3 * group + static_cast<size_t>(kind)), .storage_numel = numel, .shape = {numel}});
}

// The result of torch's Optimizer.state_dict(): one parameter group with one flat tensor per group.
void write_torch_optimizer(pickle::Writer& out, const DeepSpeedLayout& layout, int rank, int64_t step,
                           const DeepSpeedOptimizer& optimizer) {
  out.begin_dict();
  out.text("state");
  out.begin_dict();
  for (size_t g = 0; g < layout.groups().size(); ++g) {
    out.integer(static_cast<int64_t>(g));
    out.begin_dict();
    out.text("step");
    out.integer(step);
    out.text("exp_avg");
    write_state(out, layout, g, rank, StateKind::kExpAvg);
    out.text("exp_avg_sq");
    write_state(out, layout, g, rank, StateKind::kExpAvgSq);
    out.end_dict();
  }
  out.end_dict();
  out.text("param_groups");
  out.begin_list();
  out.begin_dict();
  out.text("lr");
  out.number(optimizer.next_lr);
  out.text("betas");
  out.begin_list();
  out.number(optimizer.beta1);
  out.number(optimizer.beta2);
  out.end_list();
  out.text("eps");
  out.number(optimizer.eps);
  out.text("weight_decay");
  out.number(optimizer.weight_decay);
  out.text("bias_correction");
  out.boolean(optimizer.bias_correction);
  out.text("amsgrad");
  out.boolean(false);
  out.text("params");
  out.begin_list();
  for (size_t g = 0; g < layout.groups().size(); ++g) out.integer(static_cast<int64_t>(g));
  out.end_list();
  out.end_dict();
  out.end_list();
  out.end_dict();
}

// Loss scaling is off, but stage 3 of DeepSpeed requires its object.
void write_loss_scaler(pickle::Writer& out) {
  out.text("loss_scaler");
  out.begin_object("deepspeed.runtime.fp16.loss_scaler", "LossScaler");
  out.text("cur_scale");
  out.number(1.0);
  out.text("dynamic");
  out.boolean(false);
  out.end_object();
  out.text("dynamic_loss_scale");
  out.boolean(false);
  out.text("overflow");
  out.boolean(false);
}

// Where each piece of each parameter is in the rank's partition. ds_to_universal.py reads it.
void write_slice_mappings(pickle::Writer& out, const DeepSpeedLayout& layout, int rank) {
  out.begin_list();
  for (const DeepSpeedLayout::Group& group : layout.groups()) {
    out.begin_ordered_dict();
    for (const ParameterSpec& parameter : group.parameters) {
      layout.visit(parameter.name, 0, parameter.numel(), [&](const DeepSpeedLayout::Slice& slice) {
        if (slice.rank != rank) return;
        out.text(parameter.name);
        out.begin_object("deepspeed.utils.tensor_fragment", "fragment_address");
        out.text("numel");
        out.integer(slice.count);
        out.text("start");
        out.integer(slice.offset);
        out.end_object();
      });
    }
    out.end_dict();
  }
  out.end_list();
}

void write_stage3_states(pickle::Writer& out, const DeepSpeedLayout& layout, int rank, int64_t step,
                         const DeepSpeedOptimizer& optimizer) {
  out.text("partition_count");
  out.integer(layout.ranks());
  out.text("optimizer_state_dict");
  write_torch_optimizer(out, layout, rank, step, optimizer);
  out.text("fp32_flat_groups");
  out.begin_list();
  for (size_t g = 0; g < layout.groups().size(); ++g) write_state(out, layout, g, rank, StateKind::kMaster);
  out.end_list();
}

void write_stage12_states(pickle::Writer& out, const DeepSpeedLayout& layout, int rank, int64_t step,
                          const DeepSpeedOptimizer& optimizer) {
  out.text("clip_grad");
  out.number(optimizer.gradient_clipping);
  out.text("base_optimizer_state");
  write_torch_optimizer(out, layout, rank, step, optimizer);
  out.text("single_partition_of_fp32_groups");
  out.begin_list();
  for (size_t g = 0; g < layout.groups().size(); ++g) write_state(out, layout, g, rank, StateKind::kMaster);
  out.end_list();
  const auto write_per_group = [&](const char* key, const auto& write) {
    out.text(key);
    out.begin_list();
    for (size_t g = 0; g < layout.groups().size(); ++g) write(g);
    out.end_list();
  };
  write_per_group("group_paddings",
                  [&](size_t g) { out.integer(layout.partition_numel(g) - layout.used_numel(g, rank)); });
  write_per_group("param_alignment_paddings", [&](size_t g) {
    out.begin_list();
    for (size_t i = 0; i < layout.groups()[g].parameters.size(); ++i) out.integer(0);
    out.end_list();
  });
  write_per_group("partition_count", [&](size_t) { out.integer(layout.ranks()); });
  out.text("ds_version");
  out.text(kDeepSpeedVersion);
  out.text("param_slice_mappings");
  write_slice_mappings(out, layout, rank);
}

}  // namespace

int64_t state_numel(const DeepSpeedLayout& layout, size_t group, int rank, StateKind kind) {
  return kind == StateKind::kMaster ? layout.used_numel(group, rank) : layout.partition_numel(group);
}

std::string describe_model(const DeepSpeedLayout& layout, const TrainingProgress& progress,
                           const DeepSpeedSettings& settings) {
  pickle::Writer out;
  out.begin_dict();
  out.text("module");
  write_module(out, layout, progress.dtype == "bf16");
  out.text("buffer_names");
  out.begin_list();
  out.end_list();
  out.text("optimizer");
  out.none();
  out.text("param_shapes");
  write_param_shapes(out, layout);
  for (const char* key : {"frozen_param_shapes", "frozen_param_fragments"}) {
    out.text(key);
    out.begin_ordered_dict();
    out.end_dict();
  }
  out.text("shared_params");
  out.begin_dict();
  if (is_output_tied(layout.parameters())) {
    out.text(kOutputWeight);
    out.text(kEmbeddingWeight);
  }
  out.end_dict();
  out.text("lr_scheduler");
  out.begin_dict();
  out.text("last_batch_iteration");
  out.integer(progress.step - 1);
  out.end_dict();
  for (const char* key : {"data_sampler", "random_ltd"}) {
    out.text(key);
    out.none();
  }
  const auto write_integer = [&](const char* key, int64_t value) {
    out.text(key);
    out.integer(value);
  };
  write_integer("skipped_steps", 0);
  write_integer("global_steps", progress.step);
  write_integer("global_samples", progress.sequences_seen);
  write_integer("dp_world_size", settings.ranks);
  write_integer("mp_world_size", 1);
  write_ds_config(out, progress);
  out.text("ds_version");
  out.text(kDeepSpeedVersion);
  out.text(kClientStateKey);
  write_client_state(out, progress);
  out.end_dict();
  return out.finish();
}

std::string describe_optimizer(const DeepSpeedLayout& layout, int rank, const TrainingProgress& progress,
                               const DeepSpeedSettings& settings) {
  pickle::Writer out;
  out.begin_dict();
  out.text("optimizer_state_dict");
  out.begin_dict();
  out.text("zero_stage");
  out.integer(layout.stage());
  write_loss_scaler(out);
  if (layout.stage() == 3)
    write_stage3_states(out, layout, rank, progress.step, settings.optimizer);
  else
    write_stage12_states(out, layout, rank, progress.step, settings.optimizer);
  out.end_dict();
  write_ds_config(out, progress);
  out.text("ds_version");
  out.text(kDeepSpeedVersion);
  out.end_dict();
  return out.finish();
}

}  // namespace mpzero::io
