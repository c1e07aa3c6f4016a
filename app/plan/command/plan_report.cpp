#include "app/plan/command/plan_report.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/config/zero_options.hpp"
#include "app/plan/estimate/rates.hpp"
#include "base/words.hpp"
#include "model/architecture/config.hpp"

namespace mpzero::plan {
namespace {

std::string show_time(double seconds) {
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  return seconds < 120 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.1f} min", seconds / 60);
}

std::string row(const std::string& name, const std::string& value, const std::string& note = "") {
  return fmt::format("  {:<30}{:>12}{}", name, value, note.empty() ? "" : "  " + note);
}

// Returns std::nullopt if the length depends on epochs (a plan reads no data), or if the step's error is too large.
std::optional<RunLength> length_of(const PlanFacts& facts, const PlanEstimate& plan) {
  if (facts.tokens > 0) {
    return run_length(facts.machine, plan, std::ceil(facts.tokens / static_cast<double>(plan.tokens_per_step)));
  }
  const RunConfig& config = facts.setup.config;
  return run_length(facts.machine, plan, config.counts_epochs() ? 0 : static_cast<double>(config.max_steps));
}

// Returns the calibrated device, with ranks and threads for a CPU.
std::string measured_on(const Calibration& calibration, const PlanMachine& machine) {
  const CalibrationData& data = calibration.data();
  if (!machine.is_cpu()) return data.device;
  const bool same = data.host.threads == machine.threads && data.host.ranks == machine.gpus;
  return fmt::format("{}, {} of {}{}", data.device, counted(data.host.ranks, "rank"),
                     counted(data.host.threads, "thread"), same ? "" : ", scaled to this thread count (estimate)");
}

constexpr int64_t kLeastShown = (int64_t{1} << 30) / 200;  // bytes; smaller values print as 0.00 GiB

void add_memory(std::vector<std::string>& lines, const PlanFacts& facts, const PlanEstimate& plan) {
  const PlanEstimate::Memory& memory = plan.memory;
  const bool cpu = facts.machine.is_cpu();
  lines.push_back(fmt::format("Memory per {}: {}{}{}", cpu ? "rank" : "GPU", gibibytes(memory.total),
                              memory.of_gpu > 0 ? " of " + gibibytes(memory.of_gpu) : "",
                              memory.fits ? "" : ": the run does not fit"));
  const auto add = [&](const std::vector<PlannedMemory::Part>& parts, int64_t ranks) {
    for (const PlannedMemory::Part& part : parts) {
      if (part.bytes * ranks >= kLeastShown) lines.push_back(row(part.name, gibibytes(part.bytes * ranks), part.note));
    }
  };
  add(memory.device_parts(), 1);
  lines.push_back(row(cpu ? "program and libraries" : "CUDA and NCCL", gibibytes(memory.context), "typical"));
  if (cpu) lines.push_back(row("", "", "plus up to 1/8, cached by the allocator between steps"));
  if (memory.host > 0) {
    lines.push_back(fmt::format("Memory per host: {}{} for {}", gibibytes(memory.host),
                                memory.of_host > 0 ? " of " + gibibytes(memory.of_host) : "",
                                counted(facts.machine.gpus, "rank")));
    add(memory.host_parts(), facts.machine.gpus);
  }
  if (!memory.fits)
    lines.push_back(
        fmt::format("Does not fit: {}. To list configurations that fit, pass --compare.", memory.problem()));
}

// Adds a line about the effect of the host's speed on small kernels.
void add_host(std::vector<std::string>& lines, const Calibration& calibration, const PlanEstimate& plan) {
  const bool waits = plan.host_bound > 0.005, would_wait = plan.slow_host > 0.005;
  if (!waits && !would_wait) return;
  std::string line = fmt::format("  {} at {:.1f} us per kernel launch: ", waits ? "partly host-bound" : "device-bound",
                                 1e6 * calibration.data().launch_seconds);
  if (waits)
    line += fmt::format("a host CPU twice as fast would save {:.0f}% of the compute time", 100 * plan.host_bound);
  if (would_wait)
    line += fmt::format("{}a host CPU half as fast would add {:.0f}% to the compute time", waits ? ", " : "",
                        100 * plan.slow_host);
  lines.push_back(line + "; measure your host with `mpzero plan --calibrate`");
}

constexpr const char* kOfInstance = "estimated from the instance's data sheets";

std::string basis_of_host_adamw(const PlanFacts& facts) {
  if (facts.machine.host_bytes_per_second > 0) return kOfInstance;
  const HostEstimate host = host_estimate(*facts.calibration, facts.machine);
  if (host.bytes_per_second > 0) return "estimated from " + host.instance + "'s data sheets";
  if (!facts.calibration->shipped()) return "";
  return fmt::format("estimated from the calibrated host with {}",
                     counted(facts.calibration->data().host.threads, "thread"));
}

void add_step(std::vector<std::string>& lines, const PlanFacts& facts, const PlanEstimate& plan) {
  const SimulatedStep& step = plan.step;
  const bool cpu = facts.machine.is_cpu();
  const double clipped = facts.clipped_seconds.value_or(step.seconds);
  lines.push_back(fmt::format("Step: {} +/- {:.0f}%{}", show_time(step.seconds), 100 * plan.error,
                              std::abs(clipped - step.seconds) > 0.005 * step.seconds
                                  ? fmt::format("; {} if gradients are clipped in every step", show_time(clipped))
                                  : ""));
  const auto part = [&](const std::string& name, double seconds, const std::string& note = "") {
    if (seconds > 0) {
      lines.push_back(row(name, show_time(seconds),
                          fmt::format("{:>4.1f}%{}", 100 * seconds / step.seconds, note.empty() ? "" : "  " + note)));
    }
  };
  part("forward", step.split.forward);
  part("backward", step.split.backward);
  part("optimizer", step.split.optimizer, "exposed time");
  part("waiting for parameters", step.split.exposed_parameters);
  part("waiting for gradients", step.split.exposed_gradients);
  lines.emplace_back("Concurrent work:");
  part("matmuls", step.of(Work::kMatmuls));
  part("attention", step.of(Work::kAttention));
  part("other kernels", step.of(Work::kElementwise));
  // The GPU also computes the norms of parameters that the host updates.
  part(cpu ? "AdamW and norm" : "AdamW and norm on the GPU", step.of(Work::kOptimizer));
  if (cpu) part("LM head", step.head, "included in the first three");
  part("AdamW on the host", step.of(Work::kHostOptimizer), basis_of_host_adamw(facts));
  const char* const of_pcie = facts.machine.pcie_bytes_per_second > 0 ? kOfInstance : "";
  part("PCIe to the host", step.of(Work::kDown), of_pcie);
  part("PCIe to the GPU", step.of(Work::kUp), of_pcie);
  for (const auto& [name, time] : step.collectives) part(name, time.seconds, fmt::format("{} per step", time.calls));
  lines.push_back(fmt::format("Throughput: {:.0f} tokens/s/{}, {:.0f} in total{}", plan.tokens_per_second_per_gpu,
                              cpu ? "rank" : "GPU", plan.tokens_per_second_per_gpu * facts.machine.world_size(),
                              plan.mfu ? fmt::format(", MFU {:.1f}%", 100 * *plan.mfu) : ""));
  if (const auto length = length_of(facts, plan)) {
    lines.push_back(fmt::format(
        "Run length: {} of {} tokens: {}{}{}", counted(std::llround(length->steps), "step"), plan.tokens_per_step,
        length->hours < 1 ? fmt::format("{:.3g} minutes", 60 * length->hours) : hours_text(length->hours) + " hours",
        cpu ? "" : fmt::format(", {} GPU hours", hours_text(length->gpu_hours)),
        length->cost ? fmt::format(", costs {:.2f}", *length->cost) : ""));
  } else if (plan.error >= kVagueError) {
    lines.push_back(
        fmt::format("Run length unknown: the step time has an error of {:.0f}%; stop other programs and measure again "
                    "with `mpzero plan --calibrate FILE`",
                    100 * plan.error));
  } else {
    lines.push_back(fmt::format("Run length unknown: epochs need the dataset; pass --tokens. A step has {} tokens.",
                                plan.tokens_per_step));
  }
  lines.push_back("Bottleneck: " + plan.bottleneck);
}

}  // namespace

std::optional<RunLength> run_length(const PlanMachine& machine, const PlanEstimate& plan, double steps) {
  if (!(steps > 0) || plan.error >= kVagueError) return std::nullopt;
  const double hours = steps * plan.step.seconds / 3600;
  return RunLength{.steps = steps,
                   .hours = hours,
                   .gpu_hours = machine.is_cpu() ? 0 : hours * machine.world_size(),
                   .cost = machine.price ? std::optional(*machine.price * machine.nodes * hours) : std::nullopt};
}

std::string hours_text(double hours) { return fmt::format("{:.{}f}", hours, hours < 1 ? 3 : 1); }

std::vector<std::string> describe_plan(const PlanFacts& facts, const PlanEstimate& plan) {
  const RunConfig& config = facts.setup.config;
  const PlanMachine& machine = facts.machine;
  std::vector<std::string> lines = {
      fmt::format(
          "Plan: {}, {} parameters, on {} x {} ({}{})", config.model_type, plan.parameters, machine.nodes, machine.name,
          machine.is_cpu()
              ? fmt::format("{} of {}", counted(machine.world_size(), "rank"), counted(machine.threads, "thread"))
              : fmt::format("{} x {}", machine.world_size(), machine.gpu),
          machine.nodes == 1 ? ""
          : machine.efa      ? ", EFA"
                             : ", TCP"),
      fmt::format("  ZeRO-{}{}, {}, sequences of {} tokens, global batch {} = {} x {} x {}", config.zero.stage,
                  describe_levels(facts.setup.layout), config.dtype, config.seq_length, config.train_batch_size,
                  config.micro_batch_size, config.gradient_accumulation_steps, facts.setup.layout.data_parallel_size()),
      facts.calibration == nullptr
          ? "  kernel times: unknown, so only memory is estimated"
          : fmt::format("  kernel times: {}, {}", std::filesystem::path(facts.calibration->name()).filename().string(),
                        facts.calibration->data().source.starts_with("Not measured")
                            ? "not measured on this GPU"
                            : "measured on " + measured_on(*facts.calibration, machine))};
  if (config.zero.offload_optimizer) {
    lines.emplace_back(config.zero.offload_param ? "  on the host: optimizer, parameters" : "  on the host: optimizer");
  }
  if (!facts.nodes.empty()) lines.push_back("  " + facts.nodes);
  if (!facts.largest.empty()) lines.push_back("  " + facts.largest);
  if (facts.setup.layout.sequence_ranks > 1 && facts.calibration != nullptr) {
    lines.emplace_back("  step time: excludes the exchange of attention heads between ranks");
  }
  if (machine.nodes > 1) {
    const double gigabytes = machine.links.between_bytes_per_second / 1e9;
    lines.push_back(fmt::format("  network: {:.{}f} GB/s per host in collectives, {}{}", gigabytes,
                                gigabytes < 20 ? 1 : 0, machine.network_basis,
                                machine.network_basis.starts_with("an estimate")
                                    ? "; measure --network_rate with `mpzero doctor --bandwidth`"
                                    : ""));
  }
  if (plan.extrapolated > 0.005) {
    lines.push_back(fmt::format("  {:.0f}% of the kernel time is for operation sizes far from any measured size",
                                100 * plan.extrapolated));
  }
  if (facts.calibration != nullptr) add_host(lines, *facts.calibration, plan);
  add_memory(lines, facts, plan);
  if (plan.step.seconds > 0) add_step(lines, facts, plan);
  lines.push_back(fmt::format(
      "Checkpoint: {:.2f} GB{}{}", static_cast<double>(plan.checkpoint.bytes) / 1e9,
      plan.checkpoint.of_base > 0
          ? fmt::format(" with a random base model, {:.2f} GB with --init_from",
                        static_cast<double>(plan.checkpoint.bytes - plan.checkpoint.of_base) / 1e9)
          : "",
      plan.checkpoint.seconds
          ? fmt::format(", written in {}{}, asynchronously if a copy fits in host memory",
                        show_time(*plan.checkpoint.seconds),
                        plan.checkpoint.by_calibration ? " at the calibrated disk rate (--disk_rate overrides it)" : "")
          : std::string("; pass --disk_rate to estimate the write time")));
  return lines;
}

nlohmann::ordered_json plan_json(const PlanFacts& facts, const PlanEstimate& plan) {
  using Json = nlohmann::ordered_json;
  const RunConfig& config = facts.setup.config;
  const PlanMachine& machine = facts.machine;
  const PlanEstimate::Memory& memory = plan.memory;
  const SimulatedStep& step = plan.step;
  const auto optional = [](const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); };
  Json recompute;
  for (const model::Recompute level : model::kRecomputes) recompute[std::string(name(level))] = memory.levels[level];
  Json json = {
      {"format", "mpzero-plan"},
      {"version", 1},
      {"machine",
       {{"name", machine.name},
        {"gpu", machine.is_cpu() ? Json(nullptr) : Json(machine.gpu)},
        {"processor", machine.is_cpu() ? Json(machine.processor) : Json(nullptr)},
        {"threads", machine.is_cpu() ? Json(machine.threads) : Json(nullptr)},
        {"nodes", machine.nodes},
        {"gpus_per_node", machine.is_cpu() ? 0 : machine.gpus},
        {"ranks_per_node", machine.gpus},
        {"network", machine.efa ? "efa" : "socket"},
        {"network_rate", machine.nodes > 1 ? Json(machine.links.between_bytes_per_second / 1e9) : Json(nullptr)},
        {"network_basis", machine.nodes > 1 ? Json(machine.network_basis) : Json(nullptr)}}},
      {"model",
       {{"name", config.model_type}, {"parameters", plan.parameters}, {"layers", facts.setup.model.num_hidden_layers}}},
      {"run",
       {{"zero_stage", config.zero.stage},
        {"nodes_of_zero", facts.setup.layout.nodes},
        {"offload_optimizer", config.zero.offload_optimizer},
        {"offload_param", config.zero.offload_param},
        {"release_gradients", plan.releases_gradients},
        {"train_batch_size", config.train_batch_size},
        {"train_micro_batch_size_per_gpu", config.micro_batch_size},
        {"gradient_accumulation_steps", config.gradient_accumulation_steps},
        {"seq_length", config.seq_length},
        {"sequence_parallel_size", config.sequence_parallel_size},
        {"recompute", recompute}}},
      {"largest", facts.largest.empty() ? Json(nullptr) : Json(facts.largest)},
      {"calibration", facts.calibration == nullptr ? Json(nullptr)
                                                   : Json{{"name", facts.calibration->name()},
                                                          {"relative_error", plan.error},
                                                          {"extrapolated_share", plan.extrapolated},
                                                          {"host_bound_share", plan.host_bound},
                                                          {"slow_host_share", plan.slow_host}}},
      {"memory",
       {{"fits", memory.fits},
        {"problem", memory.fits ? "" : memory.problem()},
        {machine.is_cpu() ? "rank_bytes" : "gpu_bytes",
         {{"parameters", memory.states.parameters},
          {"gradients", memory.states.gradients},
          {"optimizer_states", memory.states.optimizer_states},
          {"units_in_flight", memory.states.units_in_flight},
          {"activations", memory.activations},
          {"fp8_weights", memory.cast_weights},
          {"workspace", memory.workspace},
          {"context", memory.context},
          {"total", memory.total},
          {"of", memory.of_gpu > 0 ? Json(memory.of_gpu) : Json(nullptr)}}},
        {"host_bytes",
         {{"optimizer_states", memory.states.host_optimizer_states * machine.gpus},
          {"parameters", memory.states.host_parameters * machine.gpus},
          {"gradients", memory.states.host_gradients * machine.gpus},
          {"in_transfer", memory.states.host_staging * machine.gpus},
          {"spare_states", memory.states.host_spares * machine.gpus},
          {"layer_inputs", memory.host_inputs * machine.gpus},
          {"attention_outputs", (memory.host_activations - memory.host_inputs) * machine.gpus},
          {"total", memory.host},
          {"of", memory.of_host > 0 ? Json(memory.of_host) : Json(nullptr)}}}}},
      {"checkpoint", {{"bytes", plan.checkpoint.bytes}, {"seconds", optional(plan.checkpoint.seconds)}}},
      {"step", nullptr}};
  if (step.seconds == 0) return json;
  Json collectives = Json::object();
  for (const auto& [name, time] : step.collectives) {
    collectives[name] = {{"seconds", time.seconds}, {"calls", time.calls}};
  }
  json["step"] = {{"seconds", step.seconds},
                  {"clipped_seconds", optional(facts.clipped_seconds)},
                  {"forward_seconds", step.split.forward},
                  {"backward_seconds", step.split.backward},
                  {"optimizer_seconds", step.split.optimizer},
                  {"exposed_parameters_seconds", step.split.exposed_parameters},
                  {"exposed_gradients_seconds", step.split.exposed_gradients},
                  {"data_seconds", step.split.data},
                  {"busy_seconds",
                   {{"matmuls", step.of(Work::kMatmuls)},
                    {"attention", step.of(Work::kAttention)},
                    {"elementwise", step.of(Work::kElementwise)},
                    {"head", step.head},
                    {"optimizer", step.of(Work::kOptimizer)},
                    {"host_optimizer", step.of(Work::kHostOptimizer)},
                    {"pcie_down", step.of(Work::kDown)},
                    {"pcie_up", step.of(Work::kUp)}}},
                  {"collectives", collectives}};
  const std::optional<RunLength> length = length_of(facts, plan);
  json["tokens_per_second_per_gpu"] = plan.tokens_per_second_per_gpu;
  json["mfu"] = optional(plan.mfu);
  json["length"] = length ? Json{{"steps", length->steps},
                                 {"hours", length->hours},
                                 {"gpu_hours", length->gpu_hours},
                                 {"cost", optional(length->cost)}}
                          : Json(nullptr);
  json["bottleneck"] = plan.bottleneck;
  return json;
}

}  // namespace mpzero::plan
