#include "app/config/settings_table.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <variant>

#include "app/flags/training_flags.hpp"
#include "app/lora/lora_settings.hpp"
#include "app/schedule/lr_schedule_record.hpp"
#include "base/words.hpp"

namespace mpzero {
namespace {

using nlohmann::ordered_json;

struct Row {
  std::string name;
  std::string value;
  std::string origin;
  ordered_json record = ordered_json::object();  // see settings_record()
};

std::string describe(const Origin& origin) {
  switch (origin.kind) {
    case Origin::Kind::kDefault:
      return origin.name.empty() ? "default" : fmt::format("default ({})", origin.name);
    case Origin::Kind::kDeepSpeedDefault:
      return fmt::format("DeepSpeed's default ({})", origin.name);
    case Origin::Kind::kFile:
      return "file: " + origin.name;
    case Origin::Kind::kFlag:
      return "flag: --" + origin.name;
    case Origin::Kind::kComputed:
      return "from " + origin.name;
  }
  return "";
}

// With --epochs alone, there is no limit until apply_epochs().
std::string show_steps(int64_t steps) {
  return steps == std::numeric_limits<int64_t>::max() ? "unknown (--train_data is missing)" : fmt::to_string(steps);
}

std::string kind_of(const parallel::ConstantLr& schedule) {
  return fmt::format("{}, lr {}", schedule_name(schedule), schedule.value);
}

std::string kind_of(const parallel::WarmupLr& schedule) {
  return fmt::format("{} ({}), lr {} to {}", schedule_name(schedule), warmup_name(schedule.warmup_type),
                     schedule.min_lr, schedule.max_lr);
}

std::string kind_of(const parallel::WarmupDecayLr& schedule) {
  return fmt::format("{} ({}), lr {} to {} to {}", schedule_name(schedule), warmup_name(schedule.warmup_type),
                     schedule.min_lr, schedule.max_lr, schedule.min_lr);
}

std::string kind_of(const parallel::WarmupCosineLr& schedule) {
  return fmt::format("{} ({}), lr {:.6g} to {} to {:.6g}", schedule_name(schedule), warmup_name(schedule.warmup_type),
                     schedule.peak_lr * schedule.warmup_min_ratio, schedule.peak_lr,
                     schedule.peak_lr * schedule.cos_min_ratio);
}

std::string kind_of(const parallel::TrainerLr& schedule) {
  const std::string warmup = schedule.warmup_num_steps > 0 ? "0 to " : "";
  const char* end = schedule.decay == parallel::TrainerDecay::kConstant ? "" : " to 0";
  if (schedule.decay == parallel::TrainerDecay::kAtTheEnd) {
    return fmt::format("{}, lr {}{} to 0 in the last {}", schedule_name(schedule), warmup, schedule.peak_lr,
                       counted(schedule.num_decay_steps, "step"));
  }
  if (schedule.decay == parallel::TrainerDecay::kInSteps) {
    return fmt::format("{}, lr {}{}, times {} every {}", schedule_name(schedule), warmup, schedule.peak_lr,
                       schedule.gamma,
                       schedule.num_decay_steps > 0 ? counted(schedule.num_decay_steps, "step") : "epoch");
  }
  return fmt::format("{}, lr {}{}{}", schedule_name(schedule), warmup, schedule.peak_lr, end);
}

// Adds the section's flags that have a row in the table.
void add_flags(const RunConfig& config, Recorded::Section section, std::vector<Row>& rows) {
  for (const FlagGroup& group : training_flags()) {
    for (const Flag& flag : group.flags) {
      if (!flag.recorded || flag.recorded->label.empty() || flag.recorded->section != section) continue;
      Row row{flag.recorded->label, flag.show(config), describe(config.origins.of(flag.name))};
      if (flag.name == "max_steps") row.value = show_steps(config.max_steps);
      if (!flag.recorded->key.empty()) row.record[flag.recorded->key] = flag.to_json(config);
      rows.push_back(row);
    }
  }
}

void add_optimizer(const RunConfig& config, std::vector<Row>& rows) {
  const OptimizerConfig& optimizer = config.optimizer;
  rows.push_back({"optimizer", "AdamW", describe(config.origins.optimizer), {{"optimizer", "AdamW"}}});
  add_flags(config, Recorded::Section::kOptimizer, rows);
  const bool all = optimizer.no_decay.empty();
  const std::string decayed = all ? "all parameters" : fmt::format("all but {}", fmt::join(optimizer.no_decay, ", "));
  rows.push_back({"weight decay",
                  fmt::format("{} on {}", optimizer.weight_decay, decayed),
                  describe(config.origins.of("weight_decay")),
                  {{"weight_decay", optimizer.weight_decay},
                   {"no_decay", all ? ordered_json()
                                    : ordered_json(std::set(optimizer.no_decay.begin(), optimizer.no_decay.end()))},
                   {"bias_correction", optimizer.bias_correction}}});
  if (!config.freeze_parameters.empty()) {
    rows.push_back({"frozen",
                    fmt::format("{}", fmt::join(config.freeze_parameters, ", ")),
                    describe(config.origins.of("freeze_parameters")),
                    {{kOnlyWhereAsked[3], config.freeze_parameters}}});
  }
  if (!optimizer.bias_correction) rows.push_back({"bias correction", "off", "file: optimizer.params.bias_correction"});
}

// Returns the step at which a resumed run reaches the end of the checkpoint's schedule; std::nullopt if the run uses
// another schedule.
std::optional<int64_t> end_of_resumed(const RunConfig& config) {
  const auto& schedule = config.resumed_schedule;
  if (!schedule || schedule->clock() || !schedule->held_from()) return std::nullopt;
  return static_cast<int64_t>(*schedule->held_from());
}

void add_schedule(const RunConfig& config, std::vector<Row>& rows) {
  const Origins& origins = config.origins;
  const std::optional<int64_t> resumed_end = end_of_resumed(config);
  std::visit(
      [&](const auto& schedule) {
        rows.push_back({"schedule", kind_of(schedule), describe(origins.schedule), schedule_parameters(schedule)});
        if constexpr (requires { schedule.warmup_num_steps; }) {
          rows.push_back({"warm-up steps", fmt::format("{}", schedule.warmup_num_steps), describe(origins.warmup)});
        }
        if constexpr (requires { schedule.total_num_steps; }) {
          const int64_t end = config.schedule_ends_at_max_steps ? config.max_steps : schedule.total_num_steps;
          rows.push_back({"schedule end", "step " + show_steps(resumed_end.value_or(end)),
                          resumed_end ? "checkpoint" : describe(origins.schedule_end)});
        }
      },
      config.schedule.variant());
  add_flags(config, Recorded::Section::kSchedule, rows);
}

int64_t ranks_of(const RunConfig& config) {
  return config.train_batch_size / (config.micro_batch_size * config.gradient_accumulation_steps);
}

void add_batch(const RunConfig& config, std::vector<Row>& rows) {
  const Origins& origins = config.origins;
  const std::string clipping =
      config.gradient_clipping > 0 ? fmt::format("norm {}", config.gradient_clipping) : std::string("off");
  rows.push_back(
      {"clipping", clipping, describe(origins.of("grad_clip")), {{"gradient_clipping", config.gradient_clipping}}});
  add_flags(config, Recorded::Section::kBatch, rows);
  rows.push_back({"seed", fmt::format("{}", config.seed), describe(origins.of("seed"))});
  rows.push_back({"global batch",
                  fmt::format("{} = {} x {} x {}", config.train_batch_size, config.micro_batch_size,
                              config.gradient_accumulation_steps, counted(ranks_of(config), "rank")),
                  describe(origins.of("train_batch_size")),
                  {{"train_batch_size", config.train_batch_size}}});
}

void add_types(const RunConfig& config, std::vector<Row>& rows) {
  const Origins& origins = config.origins;
  rows.push_back({"weights",
                  config.dtype + (config.dtype == "fp32" ? "" : ", master copy in fp32"),
                  describe(origins.of("bf16")),
                  {{"dtype", config.dtype}}});
  const auto add = [&](const char* name, const char* key, const std::string& type, const Origin& origin) {
    rows.push_back({name, type, describe(origin), {{key, type}}});
  };
  add("communication", "communication_data_type", config.communication_dtype, origins.communication_dtype);
  add("accumulation dtype", "grad_accum_dtype", config.accumulation_dtype, origins.accumulation_dtype);
  add("AdamW moments", "optimizer_states_dtype", config.moment_dtype, origins.moment_dtype);
}

// Adds only a row, since validation_sequences is already recorded as a flag. describe_validation() reports the files'
// sizes.
void add_validation(const RunConfig& config, std::vector<Row>& rows) {
  if (config.validation_data.empty()) return;
  const int64_t sequences = config.validation_sequences;
  const std::string length = sequences == 0 ? "all" : fmt::format("at most {}", sequences);
  rows.push_back({"validation sequences", length + (config.validation_data.size() > 1 ? " of each set" : ""),
                  describe(config.origins.of("validation_sequences"))});
}

// Recorded only if enabled, so that records of other runs do not change.
void add_compression(const RunConfig& config, int nodes, std::vector<Row>& rows) {
  const auto add = [&](const char* name, std::string key, const std::string& type) {
    const std::string value = nodes > 1 ? type : "not compressed: one shard group";
    const Origin origin{Origin::Kind::kFile, "zero_optimization." + key};
    rows.push_back({name, value, describe(origin), {{std::move(key), type}}});
  };
  const int64_t bits = config.zero.quantized_gradient_bits;
  if (bits > 0) add("gradients between nodes", kOnlyWhereAsked[0], fmt::format("int{}", bits));
  if (config.zero.quantized_weights) add("parameters between nodes", kOnlyWhereAsked[1], "int8");
}

// Recorded only if enabled.
void add_fp8(const RunConfig& config, bool adapters, std::vector<Row>& rows) {
  if (!config.fp8_options) return;
  const model::Fp8Options& options = *config.fp8_options;
  const bool hybrid = options.recipe.gradients == model::fp8::Format::kE5m2;
  std::string value = fmt::format("{} {}", config.fp8, hybrid ? "hybrid" : "e4m3");
  using model::fp8::FastAccumulation;
  if (options.recipe.fast_accumulation != FastAccumulation::kForward) {
    const bool all = options.recipe.fast_accumulation == FastAccumulation::kAll;
    value += fmt::format(", fast accumulation {}", all ? "all" : "none");
  }
  if (!options.filter_fqns.empty()) value += fmt::format(" without {}", fmt::join(options.filter_fqns, " "));
  std::string shown = value;
  if (config.zero.stage == 3) {
    // Rowwise scaling requires different FP8 weights in forward and backward, and offloaded weights are gathered as
    // stored in host memory. See also weight_codec().
    const bool in_codes =
        options.recipe.scaling == model::fp8::Scaling::kTensorwise && !config.zero.offload_param && !adapters;
    shown += in_codes ? ", weights gathered in FP8 within a shard group" : ", weights gathered in bf16";
  }
  rows.push_back({"FP8 matmuls", shown, describe(config.origins.of("fp8")), {{kOnlyWhereAsked[2], value}}});
}

// Recorded only if enabled.
void add_base(const RunConfig& config, std::vector<Row>& rows) {
  if (!config.lora.coded()) return;
  const bool nf4 = config.lora.load_in_4bit;
  rows.push_back({"base weights",
                  nf4 ? "NF4, double quantization" : "int8",
                  describe(config.origins.of(nf4 ? "load_in_4bit" : "load_in_8bit")),
                  {{kOnlyWhereAsked[4], nf4 ? "nf4" : "int8"}}});
}

std::string show_offload(const RunSetup& setup) {
  const ZeroConfig& zero = setup.config.zero;
  std::vector<std::string> parts;
  if (zero.offload_optimizer) {
    std::string share;
    if (setup.host_ratio) {
      share = fmt::format(" ({:.4f} of the parameters)", *setup.host_ratio);
    } else if (zero.offload_ratio_automatic) {
      share = " (ratio auto)";
    } else if (zero.offload_optimizer_ratio < 1) {
      share = fmt::format(" ({} of the parameters)", zero.offload_optimizer_ratio);
    }
    parts.push_back("optimizer" + share);
  }
  if (zero.offload_param) parts.emplace_back("parameters");
  return parts.empty() ? "none" : fmt::to_string(fmt::join(parts, ", "));
}

void add_layout(const RunSetup& setup, std::vector<Row>& rows) {
  const RunConfig& config = setup.config;
  const auto of_file = [&](const std::string& key) {
    return config.ds_config_path.empty() ? describe(Origin{}) : describe({Origin::Kind::kFile, key});
  };
  const int64_t ranks = ranks_of(config);
  rows.push_back({"device", setup.device, describe(config.origins.of("device"))});
  rows.push_back({"ranks", fmt::format("{} on {}", ranks, counted(setup.hosts, "host")),
                  config.world_size ? describe(config.origins.of("world_size")) : "from the launcher"});
  const std::string& key = config.zero.ranks_per_node_key;
  rows.push_back({"shard group", counted(setup.layout.ranks_per_node, "rank"),
                  key.empty() ? describe(Origin{}) : describe({Origin::Kind::kFile, key})});
  if (config.sequence_parallel_size > 1) {
    rows.push_back({"sequences", fmt::format("split over {} ranks", config.sequence_parallel_size),
                    of_file("sequence_parallel_size")});
  }
  rows.push_back({"ZeRO stage", fmt::to_string(config.zero.stage), describe(config.origins.zero_stage)});
  std::vector<std::string> offloads;
  if (config.zero.offload_optimizer) offloads.emplace_back("offload_optimizer");
  if (config.zero.offload_param) offloads.emplace_back("offload_param");
  rows.push_back({"offload", show_offload(setup),
                  offloads.empty() ? describe(Origin{})
                                   : of_file(fmt::format("zero_optimization.{}", fmt::join(offloads, ", ")))});
  // On the CPU, all activations are in host memory.
  const bool on_cpu = setup.device == "cpu" && offloads_activations(config.recompute);
  const std::string level = on_cpu ? "tiled on the CPU" : setup.recompute;
  const std::string chosen = level.empty() ? "" : fmt::format(" ({})", level);
  rows.push_back(
      {"recomputation", flag_named("recompute").show(config) + chosen, describe(config.origins.of("recompute"))});
}

std::vector<Row> rows_of(const RunConfig& config, int nodes, bool adapters) {
  std::vector<Row> rows;
  add_optimizer(config, rows);
  add_schedule(config, rows);
  add_batch(config, rows);
  add_validation(config, rows);
  add_types(config, rows);
  add_fp8(config, adapters, rows);
  add_base(config, rows);
  add_compression(config, nodes, rows);
  return rows;
}

std::vector<Row> rows_of(const RunSetup& setup) {
  std::vector<Row> rows = rows_of(setup.config, setup.layout.nodes, setup.model.lora.has_value());
  if (const auto& lora = setup.model.lora) {
    const std::string dropout = lora->dropout > 0 ? fmt::format(", dropout {}", lora->dropout) : "";
    rows.push_back({"adapters", describe_lora(*lora) + dropout,
                    setup.config.lora.r ? describe(setup.config.origins.of("lora_r")) : "the adapters of --init_from"});
  }
  add_layout(setup, rows);
  return rows;
}

}  // namespace

std::vector<std::string> settings_table(const RunSetup& setup) {
  const RunConfig& config = setup.config;
  const std::vector<Row> rows = rows_of(setup);
  // Keeps most lines within 80 columns. Longer values shift the origin to the right.
  constexpr size_t kValueWidth = 24;
  size_t name_width = 0;
  for (const Row& row : rows) name_width = std::max(name_width, row.name.size());
  std::vector<std::string> lines{
      "Settings" + (config.ds_config_path.empty() ? std::string() : fmt::format(" (file: {})", config.ds_config_path))};
  for (const Row& row : rows) {
    lines.push_back(fmt::format("  {:<{}}  {:<{}}  {}", row.name, name_width, row.value, kValueWidth, row.origin));
  }
  if (!config.replaced.empty()) {
    lines.push_back(
        fmt::format("  {} is overridden by flags: {}", config.ds_config_path, fmt::join(config.replaced, ", ")));
  }
  return lines;
}

std::vector<std::array<std::string, 3>> settings_rows(const RunSetup& setup) {
  std::vector<std::array<std::string, 3>> rows;
  for (Row& row : rows_of(setup)) rows.push_back({std::move(row.name), std::move(row.value), std::move(row.origin)});
  return rows;
}

nlohmann::ordered_json settings_record(const RunConfig& config) {
  ordered_json record = ordered_json::object();
  for (const Row& row : rows_of(config, /*nodes=*/1, /*adapters=*/false)) record.update(row.record);
  if (config.epoch_batch > 0 && config.epoch_batch != config.train_batch_size) record[kEpochBatch] = config.epoch_batch;
  // A resumed run may have changed the schedule.
  if (config.resumed_schedule) record[kScheduleInForce] = schedule_record(*config.resumed_schedule);
  for (const FlagGroup& group : training_flags()) {
    for (const Flag& flag : group.flags) {
      if (flag.recorded && flag.recorded->label.empty()) record[flag.recorded->key] = flag.to_json(config);
    }
  }
  return record;
}

ordered_json layout_record(const RunSetup& setup) {
  const RunConfig& config = setup.config;
  const ZeroConfig& zero = config.zero;
  ordered_json record = {{"device", setup.device},
                         {"ranks", ranks_of(config)},
                         {"hosts", setup.hosts},
                         {"shard_group", setup.layout.ranks_per_node},
                         {"train_micro_batch_size_per_gpu", config.micro_batch_size},
                         {"gradient_accumulation_steps", config.gradient_accumulation_steps},
                         {"zero_stage", zero.stage},
                         {"offload_optimizer", zero.offload_optimizer ? "cpu" : "none"}};
  if (zero.offload_optimizer) {
    if (setup.host_ratio) {
      record["offload_optimizer_ratio"] = *setup.host_ratio;
    } else if (!zero.offload_ratio_automatic) {
      record["offload_optimizer_ratio"] = zero.offload_optimizer_ratio;
    }
  }
  record["offload_param"] = zero.offload_param ? "cpu" : "none";
  if (config.recompute != Recomputation::kAuto) {
    record["recompute"] = flag_named("recompute").show(config);
  } else if (!setup.recompute.empty()) {
    record["recompute"] = setup.recompute;
  }
  return record;
}

}  // namespace mpzero
