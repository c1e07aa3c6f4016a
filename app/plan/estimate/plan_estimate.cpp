#include "app/plan/estimate/plan_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/config/zero_options.hpp"
#include "app/fp8/weight_codec.hpp"
#include "app/gpu/gpu_models.hpp"
#include "app/log/bottleneck.hpp"
#include "app/memory/layout_choice.hpp"
#include "app/memory/memory_estimate.hpp"
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

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

int64_t context_of(const PlanMachine& machine) {
  if (machine.is_cpu()) return kProcessAlone;
  return machine.world_size() == 1 ? kContextAlone : kUsualContext;
}

int64_t host_limit(const PlanMachine& machine) {
  return machine.host_bytes > 0 ? within_host_margin(machine.host_bytes) / machine.gpus : kUnlimited;
}

// Returns the memory available for states and activations of a rank.
int64_t available(const PlanMachine& machine) {
  if (!machine.is_cpu()) return machine.gpu_bytes - context_of(machine);
  if (machine.host_bytes == 0) return kUnlimited;
  return tensors_within(host_limit(machine));
}

const char* memory_name(const PlanMachine& machine) { return machine.is_cpu() ? "memory per rank" : "GPU memory"; }

// Returns the memory that a plan may use per rank.
MemoryNeed limit_of(const PlanMachine& machine) {
  const int64_t room = available(machine);
  return {.device = room - (machine.is_cpu() ? 0 : memory_margin(room)), .host = host_limit(machine)};
}

// Returns the levels of a run with these states.
LayerLevels levels_beside(const parallel::MemoryUse& states, const ActivationSizes& sizes,
                          const MemoryEstimate& estimate, const PlanMachine& machine) {
  const int64_t on_host =
      estimate.may_offload_activations() ? std::max<int64_t>(0, host_limit(machine) - host_bytes(states)) : 0;
  return estimate.levels_within(sizes, limit_of(machine).device - device_bytes(states), on_host);
}

// Returns the memory for updates before the norm is known; see RunMemory::host_extra_bytes().
std::optional<int64_t> host_extra_bytes(const MemoryEstimate& estimate, int64_t micro_batch_size,
                                        const PlanMachine& machine) {
  const parallel::MemoryUse least = estimate.states_of(estimate.scenario(), 0);
  const ActivationSizes sizes = estimate.activation_sizes(micro_batch_size);
  const int64_t activations = host_activations(levels_beside(least, sizes, estimate, machine), sizes);
  const int64_t left =
      host_limit(machine) == kUnlimited ? kUnlimited : host_limit(machine) - host_bytes(least) - activations;
  if (host_bytes(estimate.states_of(estimate.scenario())) - host_bytes(least) <= left) return std::nullopt;
  return std::max<int64_t>(0, left);
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
    const MemoryNeed limit = limit_of(more);
    const MemoryNeed need = there.need_within(limit, there.scenario());
    if (need.device > limit.device || need.host > limit.host) continue;
    return MemoryChange{.scenario = estimate.scenario(),
                        .text = fmt::format("--nodes {}, which multiplies the global batch by {}", more.nodes,
                                            more.nodes / machine.nodes),
                        .saves = now - need.device};
  }
  return std::nullopt;
}

std::string memory_problem(const RunSetup& setup, const MemoryEstimate& estimate, const PlanMachine& machine,
                           const MemoryNeed& need) {
  const bool device = need.device > available(machine) || need.host <= host_limit(machine);
  const MemoryNeed limit = limit_of(machine);
  std::vector<MemoryChange> changes =
      changes_that_fit(estimate.scenario(), machine.world_size(), limit,
                       [&](const MemoryScenario& changed) { return estimate.need_within(limit, changed); });
  const std::optional<MemoryChange> hosts = more_hosts(setup, estimate, machine);
  const auto on_host = [&](int64_t bytes) {
    const auto [needed, given] = compared_sizes(bytes * machine.gpus, host_limit(machine) * machine.gpus);
    return fmt::format("a host needs {} of memory for {}, but {} is available", needed, counted(machine.gpus, "rank"),
                       given);
  };
  if (device) {
    if (changes.size() < 2 && hosts) changes.push_back(*hosts);
    const std::string remedy = describe_changes(changes);
    // With more host memory, the run might offload more.
    const MemoryNeed offloaded =
        estimate.need_within({.device = limit.device, .host = kUnlimited}, estimate.scenario(), 0);
    if (offloaded.device <= limit.device && offloaded.host > limit.host) {
      return fmt::format("to fit in GPU memory, {}; {}", on_host(offloaded.host), remedy);
    }
    if (need.device <= available(machine)) {
      return fmt::format("the run leaves {} MiB of GPU memory free, {} MiB less than the required margin",
                         (available(machine) - need.device) >> 20,
                         std::max<int64_t>(1, (need.device - limit.device) >> 20));
    }
    // As in the report, GPU memory includes the context.
    const int64_t context = machine.is_cpu() ? 0 : context_of(machine);
    const auto [needed, given] = compared_sizes(need.device + context, available(machine) + context);
    return fmt::format("the run needs {} of {}, but {} is available; {}", needed, memory_name(machine), given, remedy);
  }
  const bool by_activations = host_bytes(estimate.states_of(estimate.scenario(), 0)) <= host_limit(machine);
  const std::string remedy =
      by_activations
          ? (setup.config.recompute == Recomputation::kHostAttention
                 ? "shorten the sequences, or pass --recompute host, which recomputes attention"
                 : fmt::format("shorten the sequences, or pass --recompute full{}, which keeps layer inputs on the "
                               "GPU",
                               yields_for(setup.config, {"recompute"})))
          : fmt::format("{} to shard the states, or {}", hosts ? "use " + hosts->text + "," : "use more hosts",
                        ratio_remedy(setup.config));
  return fmt::format("{}; {}", on_host(need.host), remedy);
}

// Plans memory as RunMemory does.
PlanEstimate::Memory plan_memory(const RunSetup& setup, const PlanMachine& machine, MemoryEstimate& estimate,
                                 std::optional<int64_t> extra) {
  const RunConfig& config = setup.config;
  const ActivationSizes sizes = estimate.activation_sizes(config.micro_batch_size);
  PlanEstimate::Memory memory{.states = estimate.states_of(estimate.scenario(), extra),
                              .levels = {},
                              .context = context_of(machine),
                              .of_gpu = machine.is_cpu() ? machine.host_bytes / machine.gpus : machine.gpu_bytes,
                              .of_host = machine.host_bytes,
                              .problem = {}};
  const int64_t room = limit_of(machine).device - device_bytes(memory.states);
  memory.levels = levels_beside(memory.states, sizes, estimate, machine);
  const int64_t states = host_bytes(estimate.states_of(estimate.scenario(), 0));
  const MemoryNeed need{.device = device_bytes(memory.states) + activation_peak(memory.levels, sizes),
                        .host = states + host_activations(memory.levels, sizes)};
  memory.fits = need.device <= available(machine) && need.host <= host_limit(machine);
  memory.beyond_margin = std::max<int64_t>(0, need.device - limit_of(machine).device);
  // The search for changes takes longer than the rest of a plan.
  if (!memory.fits || memory.beyond_margin > 0) {
    memory.problem = [setup, machine, estimate, need] { return memory_problem(setup, estimate, machine, need); };
  }
  const int64_t left = room - activation_peak(memory.levels, sizes);
  estimate.keep_casts(estimate.kept_casts_within(machine.is_cpu() ? kUnlimited : left));
  memory.kept_casts = estimate.kept_casts();
  memory.cast_weights = estimate.cast_bytes(memory.kept_casts);
  const ActivationSizes with_casts = estimate.activation_sizes(config.micro_batch_size);
  memory.activations = kept_activations(memory.levels, with_casts);
  memory.host_activations = host_activations(memory.levels, with_casts);
  memory.host_inputs = host_inputs(memory.levels, with_casts);
  memory.needs_host =
      memory.host_activations > 0 && config.recompute == Recomputation::kAuto && !cheapest_levels(sizes, room);
  memory.workspace = activation_peak(memory.levels, with_casts) - memory.activations - memory.cast_weights;
  return memory;
}

void add_up(PlanEstimate::Memory& memory, const PlanMachine& machine) {
  memory.total =
      device_bytes(memory.states) + memory.activations + memory.cast_weights + memory.workspace + memory.context;
  memory.host = (machine.is_cpu() ? memory.total : host_bytes(memory.states) + memory.host_activations) * machine.gpus;
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
                                                .has_file = !config.ds_config_path.empty(),
                                                .bf16 = config.dtype == "bf16",
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
                       limit_of(machine), calibration != nullptr ? PredictStep(predict) : PredictStep());
}

namespace {

// Estimates a run. By default, memory alone determines whether the run releases gradients.
PlanEstimate estimate_by_memory(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                                const PlanAssumptions& assumptions) {
  const RunConfig& config = setup.config;
  MemoryEstimate estimate(config, setup.model, machine.device(), setup.layout, machine.peer_gpus());
  const bool releases = estimate.choose_release(limit_of(machine));
  const std::optional<int64_t> extra = host_extra_bytes(estimate, config.micro_batch_size, machine);
  PlanEstimate plan{.parameters = model::num_parameters(setup.model),
                    .tokens_per_step = config.train_batch_size * config.seq_length,
                    .micro_batch = config.micro_batch_size,
                    .accumulation = config.gradient_accumulation_steps,
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
  const double known_rate = calibration != nullptr ? disk_bytes_per_second(*calibration) : 0;
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
                   .within_host = {},
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
  int64_t spare = std::max<int64_t>(0, limit_of(machine).device - (plan.memory.total - plan.memory.context));
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
