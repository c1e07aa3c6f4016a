#include "app/plan/command/plan_candidate.hpp"

#include <fmt/format.h>

#include <optional>

#include "app/config/zero_options.hpp"
#include "app/flags/training_flags.hpp"
#include "app/gpu/gpu_models.hpp"
#include "app/plan/estimate/rates.hpp"
#include "io/ds_config/ds_config.hpp"

namespace mpzero::plan {
namespace {

using Json = nlohmann::ordered_json;

// Returns the `scheduler` section, or std::nullopt if a flag sets the schedule or the learning rate is constant.
std::optional<Json> scheduler_of(const RunConfig& config) {
  // Step counts derived from the run's length are "auto" if no flag sets the length.
  const bool open = config.counts_epochs() || config.origins.of("max_steps").kind == Origin::Kind::kDefault;
  const auto steps = [](int64_t count, bool follows) { return follows ? Json("auto") : Json(count); };
  const auto section = [&](const char* type, Json params, const auto& schedule) {
    params["warmup_num_steps"] = steps(schedule.warmup_num_steps, open && config.warmup_ratio.has_value());
    params["warmup_type"] = schedule.warmup_type == parallel::WarmupType::kLog ? "log" : "linear";
    if constexpr (requires { schedule.total_num_steps; }) {
      params["total_num_steps"] = steps(schedule.total_num_steps, open && config.schedule_ends_at_max_steps);
    }
    return Json{{"type", type}, {"params", std::move(params)}};
  };
  const parallel::LrSchedule::Variant& variant = config.schedule.variant();
  if (const auto* one = std::get_if<parallel::WarmupLr>(&variant)) {
    return section("WarmupLR", {{"warmup_min_lr", one->min_lr}, {"warmup_max_lr", one->max_lr}}, *one);
  }
  if (const auto* one = std::get_if<parallel::WarmupDecayLr>(&variant)) {
    return section("WarmupDecayLR", {{"warmup_min_lr", one->min_lr}, {"warmup_max_lr", one->max_lr}}, *one);
  }
  if (const auto* one = std::get_if<parallel::WarmupCosineLr>(&variant)) {
    return section("WarmupCosineLR",
                   {{"warmup_min_ratio", one->warmup_min_ratio}, {"cos_min_ratio", one->cos_min_ratio}}, *one);
  }
  return std::nullopt;
}

// Adds the training settings of the run, which come from flags, the file or defaults.
void add_training(Json& json, const RunConfig& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  Json& section = json["optimizer"];
  if (!section.is_object()) section = {{"type", "AdamW"}};
  Json& params = section["params"];
  if (!params.is_object()) params = Json::object();
  params["lr"] = optimizer.lr;
  params["betas"] = {optimizer.beta1, optimizer.beta2};
  params["eps"] = optimizer.eps;
  params["weight_decay"] = optimizer.weight_decay;
  json["gradient_clipping"] = config.gradient_clipping;
  json.erase("scheduler");
  if (const auto scheduler = scheduler_of(config)) json["scheduler"] = *scheduler;
}

// Returns the flags that conflict with a candidate.
std::vector<std::string> contradicting(const CommandLine& line, const PlanChoice& choice) {
  std::vector<std::string> flags;
  const auto add = [&](const char* flag, int64_t given, int64_t chosen) {
    if (line.gives(flag) && given != chosen) flags.push_back(fmt::format("--{} {}", line.name_of(flag), given));
  };
  add("train_batch_size", line.train_batch_size, choice.batch);
  add("train_micro_batch_size_per_gpu", line.micro_batch_size, choice.micro_batch);
  add("gradient_accumulation_steps", line.gradient_accumulation_steps, choice.accumulation);
  if (line.gradient_checkpointing) {
    flags.push_back(fmt::format("--{} {}", line.name_of("gradient_checkpointing"), *line.gradient_checkpointing));
  }
  return flags;
}

// Returns the user's ds_config.json with the keys of a candidate.
Json ds_config_of(const RunSetup& setup, const PlanMachine& machine, const PlanChoice& choice) {
  Json json = setup.config.ds_config_json.empty() ? Json{{"bf16", {{"enabled", setup.config.dtype == "bf16"}}}}
                                                  : Json::parse(setup.config.ds_config_json);
  add_training(json, setup.config);
  json["train_batch_size"] = choice.batch;
  json["train_micro_batch_size_per_gpu"] = choice.micro_batch;
  json["gradient_accumulation_steps"] = choice.accumulation;
  if (setup.config.fp8 != "none" || json.contains("fp8")) {
    json["fp8"]["enabled"] = setup.config.fp8 != "none";
    if (setup.config.fp8 != "none") json["fp8"]["recipe"] = setup.config.fp8;
  }
  // --recompute determines the placement of layer inputs.
  if (auto section = json.find("activation_checkpointing"); section != json.end() && section->is_object()) {
    section->erase("cpu_checkpointing");
  }
  Json& zero = json["zero_optimization"];
  if (!zero.is_object()) zero = Json::object();
  zero["stage"] = choice.stage;
  for (const char* key : {"offload_optimizer", "offload_param", "cpu_offload", "cpu_offload_param",
                          "zero_hpz_partition_size", "mics_shard_size"}) {
    zero.erase(key);
  }
  if (choice.offload_optimizer) zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (choice.offload_param) zero["offload_param"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (machine.nodes > 1 && choice.stage > 0)
    zero["mics_shard_size"] = choice.node_a_host ? machine.gpus : machine.world_size();
  return json;
}

}  // namespace

std::string hosts_of(const PlanMachine& machine) { return fmt::format("{} x {}", machine.nodes, machine.name); }

double seconds_of_token(const PlanCandidate& one) {
  return one.plan.step.seconds / static_cast<double>(one.plan.tokens_per_step);
}

PlanCandidate evaluate(const CommandLine& line, const RunSetup& base, const PlanMachine& machine,
                       const Calibration& calibration, const PlanAssumptions& assumptions, const PlanChoice& choice) {
  simulate_hardware(machine.gpu, machine.threads);
  CommandLine changed = line;
  changed.recompute = choice.recompute;
  PlanCandidate candidate{.machine = machine,
                          .ds_config = ds_config_of(base, machine, choice),
                          .contradicting = contradicting(line, choice),
                          .recompute = flag_named("recompute").show(changed),
                          .choice = choice};
  changed.gradient_checkpointing.reset();
  for (const char* flag : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    changed.given.erase(flag);
  }
  const io::DsConfig ds_config = io::parse_ds_config(candidate.ds_config.dump(2), "its ds_config.json");
  RunSetup setup =
      set_up_run(changed, find_init_from(changed), ds_config, machine.world_size(), DataFiles::kMayBeUnnamed);
  setup.layout = layout_of(setup, machine, &calibration, assumptions).layout;
  candidate.layout = setup.layout;
  candidate.plan = estimate_plan(setup, machine, &calibration, assumptions);
  candidate.clipped_seconds = clipped_seconds(setup, machine, &calibration, assumptions, candidate.plan);
  candidate.host_is_measured = !host_adamw_is_estimate(calibration, machine);
  return candidate;
}

}  // namespace mpzero::plan
