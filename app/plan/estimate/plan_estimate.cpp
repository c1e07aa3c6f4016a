#include "app/plan/estimate/plan_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/config/zero_options.hpp"
#include "app/fp8/weight_codec.hpp"
#include "app/gpu/gpu_models.hpp"
#include "app/log/bottleneck.hpp"
#include "app/memory/layout_choice.hpp"
#include "app/memory/memory_limit.hpp"
#include "app/plan/estimate/plan_error.hpp"
#include "app/plan/estimate/rates.hpp"
#include "base/error.hpp"
#include "base/words.hpp"
#include "model/architecture/config.hpp"
#include "model/decoder.hpp"
#include "parallel/zero/unit_parts.hpp"

namespace mpzero::plan {
namespace {

MemoryRoom room_of(const PlanMachine& machine) {
  return memory_room({.gpu = machine.is_cpu() ? std::nullopt : std::optional(machine.gpu_bytes),
                      .host = machine.host_bytes,
                      .ranks = machine.gpus,
                      .context = machine.world_size() == 1 ? kContextAlone : kUsualContext});
}

// Doubles the number of hosts, and so the global batch, until the run fits without other changes.
std::optional<MemoryChange> more_hosts(const RunSetup& setup, const MemoryEstimate& estimate,
                                       const PlanMachine& machine) {
  constexpr int kMost = 1024;
  const int64_t now = estimate.need(estimate.scenario()).device;
  PlanMachine more = machine;
  while ((more.nodes *= 2) <= kMost * machine.nodes) {
    const MemoryEstimate there(
        setup.config, setup.model, machine.device(),
        {.nodes = 1, .ranks_per_node = more.world_size(), .sequence_ranks = setup.layout.sequence_ranks},
        machine.peer_gpus());
    const MemoryNeed limit = room_of(more).limit();
    const MemoryNeed need = there.need_within(limit, there.scenario());
    if (need.device > limit.device || need.host > limit.host) continue;
    return MemoryChange{.scenario = estimate.scenario(),
                        .text = fmt::format("--nodes {}, which multiplies the global batch by {}", more.nodes,
                                            more.nodes / machine.nodes),
                        .saves = now - need.device};
  }
  return std::nullopt;
}

// Plans memory as RunMemory does. `extra`: see MemoryEstimate::host_extra_bytes().
PlanEstimate::Memory plan_memory(const RunSetup& setup, const PlanMachine& machine, MemoryEstimate& estimate,
                                 std::optional<int64_t> extra) {
  const MemoryRoom room = room_of(machine);
  const parallel::MemoryUse states = estimate.states_of(estimate.scenario(), extra);
  const ActivationSizes sizes = estimate.activation_sizes(setup.config.micro_batch_size);
  PlanEstimate::Memory memory{estimate.plan(states, room.limit())};
  memory.context = machine.is_cpu() ? kProcessAlone : room.context;
  memory.of_gpu = machine.is_cpu() ? machine.host_bytes / machine.gpus : machine.gpu_bytes;
  memory.of_host = machine.host_bytes;
  const MemoryNeed need = memory.need();
  memory.fits = need.device <= room.available.device && need.host <= room.available.host;
  memory.beyond_margin = std::max<int64_t>(0, need.device - room.limit().device);
  memory.needs_host = memory.host_activations > 0 && setup.config.recompute == Recomputation::kAuto &&
                      !cheapest_levels(sizes, room.limit().device - device_bytes(states));
  // The search for changes takes longer than the rest of a plan.
  if (!memory.fits || memory.beyond_margin > 0) {
    memory.problem = [=, planned = PlannedMemory(memory)] {
      return estimate.problem(planned, room, more_hosts(setup, estimate, machine));
    };
  }
  return memory;
}

void add_up(PlanEstimate::Memory& memory, const PlanMachine& machine) {
  memory.total = memory.need().device + memory.context;
  memory.host = (machine.is_cpu() ? memory.total : memory.need().host) * machine.gpus;
}

// Returns the times of the parts of a micro-batch.
std::vector<Seconds> parts_of(const SimulatedRun& run) {
  std::vector<Seconds> parts = {run.times.embedding_forward, run.times.embedding_backward, run.times.head};
  for (const model::Recompute level : run.recompute) {
    parts.push_back(run.times.layer_forward[level]);
    parts.push_back(run.times.layer_backward[level]);
  }
  return parts;
}

// Returns the extrapolated share of a micro-batch's kernel time.
double extrapolated_share(const std::vector<Seconds>& parts) {
  Seconds sum;
  for (const Seconds& part : parts) sum += part;
  return sum.on_device() > 0 ? sum.extrapolated / sum.on_device() : 0;
}

// Returns the relative change of a micro-batch's time if the host's launch times are multiplied by `times_as_long`.
double host_share(const std::vector<Seconds>& parts, double times_as_long) {
  double total = 0, changed = 0;
  for (const Seconds& part : parts) {
    total += part.total();
    changed += std::abs(part.total() - std::max(part.on_device(), part.launch_bound * times_as_long));
  }
  return total > 0 ? changed / total : 0;
}

std::string what_holds_up(const PlanEstimate& plan, const RunSetup& setup, const PlanMachine& machine) {
  const RunConfig& config = setup.config;
  const SimulatedStep& step = plan.step;
  const int64_t spare = plan.memory.of_gpu - plan.memory.total;
  const auto advice = bottleneck({step.split}, {.on_gpu = !machine.is_cpu(),
                                                .world_size = machine.world_size(),
                                                .stage_2_bytes = stage_2_bytes(setup),
                                                .offloads_optimizer = config.zero.offload_optimizer,
                                                .new_file_keys = new_file_keys(config),
                                                .micro_batch_tokens = config.micro_batch_tokens(),
                                                .spare_bytes = std::max<int64_t>(0, spare),
                                                .host_states_bytes = plan.memory.states.host_optimizer_states,
                                                .mfu = plan.mfu,
                                                .throttled = ""});
  if (advice) return *advice;
  struct Share {
    const char* what;
    double seconds;
  };
  // Reported separately, because a smaller vocabulary reduces the matmuls of the head.
  const bool head = machine.is_cpu() && step.head > 0.5 * step.seconds;
  const auto shares = {
      Share{head ? "the LM head's matmuls" : "matmuls", head ? step.head : step.of(Work::kMatmuls)},
      Share{"attention", step.of(Work::kAttention)}, Share{"other kernels", step.of(Work::kElementwise)},
      Share{"the optimizer", step.split.optimizer}, Share{"communication", step.split.exposed_communication()}};
  const Share most = std::max(shares, [](const Share& a, const Share& b) { return a.seconds < b.seconds; });
  return fmt::format("compute: {}, {:.0f}% of each step", most.what, 100 * most.seconds / step.seconds);
}

}  // namespace

std::optional<double> clipped_seconds(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                                      PlanAssumptions assumptions, const PlanEstimate& plan) {
  if (plan.step.memory.host_spares == 0 || setup.config.gradient_clipping == 0) return std::nullopt;
  assumptions.after_clipped_step = true;
  RunSetup chosen = setup;
  chosen.config.zero.release_gradients = plan.releases_gradients;
  return estimate_plan(chosen, machine, calibration, assumptions).step.seconds;
}

LayoutChoice layout_of(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                       const PlanAssumptions& assumptions) {
  const auto predict = [&](const parallel::ParallelLayout& layout) {
    RunSetup with_layout = setup;
    with_layout.layout = layout;
    return estimate_plan(with_layout, machine, calibration, assumptions).predicted();
  };
  RunSetup on_machine = setup;
  on_machine.peer_gpus = machine.peer_gpus();
  return choose_layout(on_machine, machine.device(), {.world_size = machine.world_size(), .per_host = machine.gpus},
                       room_of(machine).limit(), calibration != nullptr ? PredictStep(predict) : PredictStep());
}

namespace {

// Estimates a run. By default, memory alone determines whether the run releases gradients.
PlanEstimate estimate_by_memory(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                                const PlanAssumptions& assumptions) {
  const RunConfig& config = setup.config;
  MemoryEstimate estimate(config, setup.model, machine.device(), setup.layout, machine.peer_gpus());
  const MemoryNeed limit = room_of(machine).limit();
  const bool releases = estimate.choose_release(limit);
  const std::optional<int64_t> extra = estimate.host_extra_bytes(limit);
  PlanEstimate plan{.parameters = model::num_parameters(setup.model),
                    .tokens_per_step = config.train_batch_size * config.seq_length,
                    .releases_gradients = releases,
                    .memory = plan_memory(setup, machine, estimate, extra),
                    .step = {},
                    .mfu = std::nullopt,
                    .checkpoint = {},
                    .bottleneck = ""};
  const parallel::UnitParts units(model::model_units(setup.model), config.freeze_parameters);
  for (UnitSpec unit : units.parts()) {
    // A checkpoint of adapters refers to the base of --init_from, but contains a random base.
    unit.in_base = setup.model.lora && !unit.trainable() && !config.init_from.empty();
    // States are stored in fp32, regardless of their dtype in memory.
    const int64_t bytes = unit.numel() * static_cast<int64_t>(states_of(unit).size() * sizeof(float));
    plan.checkpoint.bytes += bytes;
    if (setup.model.lora && !unit.trainable()) plan.checkpoint.of_base += bytes;
  }
  const double known_rate = calibration != nullptr ? calibration->data().host.disk_write_bytes_per_second : 0;
  const double disk = assumptions.disk_rate ? *assumptions.disk_rate * 1e9 : known_rate;
  plan.checkpoint.by_calibration = disk > 0 && !assumptions.disk_rate;
  if (disk > 0) plan.checkpoint.seconds = static_cast<double>(plan.checkpoint.bytes) / (disk * machine.nodes);
  add_up(plan.memory, machine);
  if (!plan.memory.fits || calibration == nullptr) return plan;

  SimulatedRun run{.model = setup.model,
                   .options = zero_options(config, machine.device()),
                   .layout = setup.layout,
                   .ranks = {.hosts = machine.nodes, .per_host = machine.gpus},
                   .micro_batch = config.micro_batch_size,
                   .seq_length = config.length_on_rank(),
                   .recompute = by_layer(plan.memory.levels),
                   .gather_limits_automatic = config.zero.gather_limits_automatic,
                   .times = times_of_units(*calibration, setup, machine, plan.memory.kept_casts),
                   .costs = {},
                   .host_adamw = {},
                   .links = machine.links,
                   .straggler_factor = assumptions.straggler_factor,
                   .network_factor = assumptions.network_factor};
  run.options.codec = weight_codec(config.fp8_options, setup.model);
  run.options.release_gradients = releases;
  set_rates(run, *calibration, machine);
  // Without spare states, no update starts before the norm is known.
  run.options.host_update.extra_bytes = assumptions.after_clipped_step ? 0 : extra;
  // Offload does not apply to a CPU.
  if (machine.is_cpu())
    run.options.optimizer_placement = run.options.parameter_placement = parallel::Placement::kDevice;
  int64_t spare = std::max<int64_t>(0, limit.device - plan.memory.need().device);
  if (config.zero.offload_ratio_automatic && !machine.is_cpu()) {
    plan.host_ratio = smallest_host_ratio(plan.memory.states, releases ? 0 : spare);
    run.options.optimizer_host_ratio = plan.host_ratio;
    RunSetup moved = setup;
    moved.config.zero.offload_optimizer_ratio = plan.host_ratio;
    const MemoryEstimate after(moved.config, setup.model, machine.device(), setup.layout, machine.peer_gpus());
    spare = std::max<int64_t>(
        0, spare - (after.states_of(after.scenario(), extra).optimizer_states - plan.memory.states.optimizer_states));
  }
  run.memory_for_parameters = machine.is_cpu() ? 0 : spare;
  if (machine.is_cpu()) run.gather_limits_automatic = false;
  plan.step = simulate(run);
  if (!machine.is_cpu()) plan.memory.states = plan.step.memory;
  add_up(plan.memory, machine);
  const bool host_is_estimate =
      config.zero.offload_optimizer && !machine.is_cpu() && host_adamw_is_estimate(*calibration, machine);
  const bool measured_network = machine.nodes == 1 && has_collectives(*calibration, machine);
  const std::vector<Seconds> parts = parts_of(run);
  plan.extrapolated = extrapolated_share(parts);
  plan.host_bound = machine.is_cpu() ? 0 : host_share(parts, 0.5);
  plan.slow_host = machine.is_cpu() || !calibration->shipped() ? 0 : host_share(parts, 2);
  plan.error = error_of_step(
      plan.step.split, {.kernels = error_of_kernels(relative_error(*calibration, machine, config), plan.extrapolated),
                        .host_bound = std::max(plan.host_bound, plan.slow_host),
                        .communication = measured_network ? 0 : machine.network_error,
                        .host_optimizer = host_is_estimate ? kErrorOfEstimate : 0});
  const double tokens = static_cast<double>(plan.tokens_per_step) / machine.world_size();
  plan.tokens_per_second_per_gpu = tokens / plan.step.seconds;
  if (const auto peak = dense_bf16_flops(machine.gpu); peak && config.dtype == "bf16") {
    plan.mfu = tokens * training_flops_per_token(config, setup.model, config.seq_length) / *peak / plan.step.seconds;
  }
  plan.bottleneck = what_holds_up(plan, setup, machine);
  return plan;
}

}  // namespace

PlanEstimate estimate_plan(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                           const PlanAssumptions& assumptions) {
  constexpr double kLeastGain = 0.02;  // from releasing gradients, which requires more host memory
  const auto with_release = [&](bool release) {
    RunSetup chosen = setup;
    chosen.config.zero.release_gradients = release;
    return estimate_by_memory(chosen, machine, calibration, assumptions);
  };
  const auto fits = [](const PlanEstimate& plan) { return plan.memory.fits && plan.memory.beyond_margin == 0; };
  if (calibration != nullptr && !machine.is_cpu() && setup.config.may_release_gradients()) {
    const PlanEstimate kept = with_release(false);
    if (fits(kept)) {
      const PlanEstimate released = with_release(true);
      return fits(released) && released.step.seconds * (1 + kLeastGain) < kept.step.seconds ? released : kept;
    }
  }
  return estimate_by_memory(setup, machine, calibration, assumptions);
}

}  // namespace mpzero::plan
