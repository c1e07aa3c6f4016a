#include "app/settings_table.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <variant>

namespace mpzero {
namespace {

struct Row {
  std::string name;
  std::string value;
  std::string origin;
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

const char* name_of(parallel::WarmupType type) { return type == parallel::WarmupType::kLinear ? "linear" : "log"; }

const char* name_of(const parallel::TrainerLr& schedule) {
  switch (schedule.decay) {
    case parallel::TrainerDecay::kLinear:
      return "linear";
    case parallel::TrainerDecay::kCosine:
      return "cosine";
    case parallel::TrainerDecay::kConstant:
      return schedule.warmup_num_steps > 0 ? "constant_with_warmup" : "constant";
  }
  return "";
}

// The kind of the schedule and the rates that it runs through.
std::string kind_of(const parallel::ConstantLr& schedule) { return fmt::format("constant, lr {}", schedule.value); }

std::string kind_of(const parallel::WarmupLr& schedule) {
  return fmt::format("WarmupLR ({}), lr {} to {}", name_of(schedule.warmup_type), schedule.min_lr, schedule.max_lr);
}

std::string kind_of(const parallel::WarmupDecayLr& schedule) {
  return fmt::format("WarmupDecayLR ({}), lr {} to {} to {}", name_of(schedule.warmup_type), schedule.min_lr,
                     schedule.max_lr, schedule.min_lr);
}

std::string kind_of(const parallel::WarmupCosineLr& schedule) {
  return fmt::format("WarmupCosineLR ({}), lr {} to {} to {}", name_of(schedule.warmup_type),
                     schedule.peak_lr * schedule.warmup_min_ratio, schedule.peak_lr,
                     schedule.peak_lr * schedule.cos_min_ratio);
}

std::string kind_of(const parallel::TrainerLr& schedule) {
  const std::string warmup = schedule.warmup_num_steps > 0 ? "0 to " : "";
  const char* end = schedule.decay == parallel::TrainerDecay::kConstant ? "" : " to 0";
  return fmt::format("{}, lr {}{}{}", name_of(schedule), warmup, schedule.peak_lr, end);
}

void add_optimizer(const RunConfig& config, std::vector<Row>& rows) {
  const OptimizerConfig& optimizer = config.optimizer;
  const Origins& origins = config.origins;
  rows.push_back({"optimizer", "AdamW", describe(origins.optimizer)});
  rows.push_back({"learning rate", fmt::format("{}", optimizer.lr), describe(origins.lr)});
  rows.push_back({"beta1", fmt::format("{}", optimizer.beta1), describe(origins.beta1)});
  rows.push_back({"beta2", fmt::format("{}", optimizer.beta2), describe(origins.beta2)});
  rows.push_back({"eps", fmt::format("{}", optimizer.eps), describe(origins.eps)});
  const std::string decayed =
      optimizer.no_decay.empty() ? "all parameters" : fmt::format("all but {}", fmt::join(optimizer.no_decay, ", "));
  rows.push_back(
      {"weight decay", fmt::format("{}, of {}", optimizer.weight_decay, decayed), describe(origins.weight_decay)});
  if (!optimizer.bias_correction) rows.push_back({"bias correction", "off", "file: optimizer.params.bias_correction"});
}

void add_schedule(const RunConfig& config, std::vector<Row>& rows) {
  const Origins& origins = config.origins;
  std::visit(
      [&](const auto& schedule) {
        rows.push_back({"schedule", kind_of(schedule), describe(origins.schedule)});
        if constexpr (requires { schedule.warmup_num_steps; }) {
          rows.push_back({"warm-up steps", fmt::format("{}", schedule.warmup_num_steps), describe(origins.warmup)});
        }
        if constexpr (requires { schedule.total_num_steps; }) {
          rows.push_back(
              {"schedule's end", fmt::format("step {}", schedule.total_num_steps), describe(origins.schedule_end)});
        }
      },
      config.schedule.variant());
  rows.push_back({"steps", fmt::format("{}", config.max_steps), describe(origins.max_steps)});
}

void add_batch(const RunConfig& config, int world_size, std::vector<Row>& rows) {
  const Origins& origins = config.origins;
  const std::string clipping =
      config.gradient_clipping > 0 ? fmt::format("norm {}", config.gradient_clipping) : std::string("off");
  rows.push_back({"clipping", clipping, describe(origins.gradient_clipping)});
  rows.push_back({"micro-batch", fmt::format("{}", config.micro_batch_size), describe(origins.micro_batch)});
  rows.push_back(
      {"accumulation", fmt::format("{}", config.gradient_accumulation_steps), describe(origins.accumulation)});
  rows.push_back({"global batch",
                  fmt::format("{} = {} x {} x {} ranks", config.train_batch_size, config.micro_batch_size,
                              config.gradient_accumulation_steps, world_size),
                  describe(origins.train_batch)});
}

void add_types(const RunConfig& config, std::vector<Row>& rows) {
  const Origins& origins = config.origins;
  rows.push_back(
      {"weights", config.dtype + (config.dtype == "fp32" ? "" : ", master copy in fp32"), describe(origins.dtype)});
  rows.push_back({"communication", config.communication_dtype, describe(origins.communication_dtype)});
  rows.push_back({"accumulation in", config.accumulation_dtype, describe(origins.accumulation_dtype)});
  rows.push_back({"AdamW's moments", config.moment_dtype, describe(origins.moment_dtype)});
}

}  // namespace

std::vector<std::string> settings_table(const RunConfig& config, int world_size) {
  std::vector<Row> rows;
  add_optimizer(config, rows);
  add_schedule(config, rows);
  add_batch(config, world_size, rows);
  add_types(config, rows);
  size_t name_width = 0, value_width = 0;
  for (const Row& row : rows) {
    name_width = std::max(name_width, row.name.size());
    value_width = std::max(value_width, row.value.size());
  }
  std::vector<std::string> lines{
      "Settings" + (config.ds_config_path.empty() ? std::string() : fmt::format(" (file: {})", config.ds_config_path))};
  for (const Row& row : rows) {
    lines.push_back(fmt::format("  {:<{}}  {:<{}}  {}", row.name, name_width, row.value, value_width, row.origin));
  }
  return lines;
}

}  // namespace mpzero
