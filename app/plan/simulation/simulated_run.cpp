#include "app/plan/simulation/simulated_run.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <vector>

#include "app/plan/simulation/simulated_decoder.hpp"
#include "app/simulation/simulated_communicator.hpp"
#include "app/simulation/simulated_host_updater.hpp"
#include "app/simulation/simulated_timeline.hpp"
#include "app/train/communicators/level_communicators.hpp"
#include "app/train/step/optimizer_step.hpp"
#include "app/train/step/training_pass.hpp"

namespace mpzero::plan {
namespace {

// Steps before the steady state. The first step gathers on first use, and the second step follows the first update.
constexpr int64_t kStepsBefore = 3;
constexpr double kAnyRate = 1e-4;
// Number of lots (groups of micro-batches) in the shortest step used for extrapolation. The first lots use parameters
// gathered since the update, and the last lot waits for all reductions.
constexpr int64_t kLotsBefore = 3;
// Relative tolerance for rounding errors between lots.
constexpr double kSteady = 1e-6;

// Links of a run, which must outlive the communicators.
struct SharedLinks {
  BusyLink within, between;
};

// Scales the measured times to a different number of ranks by the bytes that each rank receives.
CollectiveSeconds measured(const SimulatedRun& run, const Group& group) {
  if (!run.within_host || group.hosts > 1) return {};
  const auto others = [](int ranks) { return static_cast<double>(ranks - 1) / ranks; };
  const double share = others(group.per_host) / others(run.ranks.per_host);
  return [&run, share](Collective collective, int64_t bytes, at::ScalarType type) {
    return share > 0 ? run.within_host(collective, static_cast<int64_t>(share * static_cast<double>(bytes)), type) : 0;
  };
}

std::unique_ptr<parallel::Communicator> communicator(const SimulatedRun& run, const Group& group, int rings,
                                                     bool between_nodes, SharedLinks& links) {
  return std::make_unique<SimulatedCommunicator>(SimulatedCommunicator::Options{.group = group,
                                                                                .links = run.links,
                                                                                .rings = rings,
                                                                                .slowdown = run.network_factor,
                                                                                .seconds = measured(run, group),
                                                                                .between_nodes = between_nodes},
                                                 group.hosts > 1 ? links.between : links.within);
}

LevelCommunicators communicators(const SimulatedRun& run, parallel::Timeline& timeline, SharedLinks& links) {
  const parallel::ParallelLayout& layout = run.layout;
  const bool several_hosts = run.ranks.hosts > 1;
  if (layout.nodes == 1) {
    return {layout, several_hosts, communicator(run, run.ranks, 1, /*between_nodes=*/false, links), nullptr, timeline};
  }
  const int per_host = run.ranks.per_host, per_node = layout.ranks_per_node;
  const bool node_in_host = per_node <= per_host;
  // Ranks of a shard group, and ranks with the same index in all shard groups. All ranks of a host share the network.
  const Group node = node_in_host ? Group{.hosts = 1, .per_host = per_node}
                                  : Group{.hosts = per_node / per_host, .per_host = per_host};
  const Group places = node_in_host ? Group{.hosts = run.ranks.hosts, .per_host = per_host / per_node}
                                    : Group{.hosts = layout.nodes, .per_host = 1};
  return {layout, several_hosts, communicator(run, node, 1, /*between_nodes=*/false, links),
          communicator(run, places, node_in_host ? per_node : per_host, /*between_nodes=*/true, links), timeline};
}

void count(SimulatedStep& step, const SimulatedDevice::Record& record) {
  const double seconds = record.end - record.begin;
  if (std::string_view(record.name) == kHeadUnit) step.head += seconds;
  step.busy[static_cast<size_t>(record.work)] += seconds;
  if (record.work != Work::kCollective) return;
  SimulatedStep::CollectiveTime& time = step.collectives[record.name];
  time.seconds += seconds;
  ++time.calls;
}

// Simulates every micro-batch of a step.
SimulatedStep simulate_each(const SimulatedRun& run, int64_t micro_batches) {
  SimulatedDevice device(run.costs);
  SimulatedTimeline timeline;
  SharedLinks links;
  LevelCommunicators of_parameters = communicators(run, timeline, links);
  LevelCommunicators of_gradients = communicators(run, timeline, links);
  StepTimer timer(timeline, of_parameters, of_gradients);
  const SimulatedDecoder decoder(run.model, run.times, run.straggler_factor);

  parallel::ZeroOptions options = run.options;
  options.device = SimulatedDevice::device();
  options.gradient_accumulation_steps = micro_batches;
  options.host_update.make = [&](const std::vector<parallel::OptimizerShard*>& shards,
                                 const parallel::HostUpdater::Options& of_host) {
    return std::make_unique<SimulatedHostUpdater>(shards, of_host, run.host_adamw);
  };
  parallel::ZeroEngine engine(decoder.units(), options, of_parameters.levels(), of_gradients.levels());
  engine.parameters().measure_waits(timeline);
  TrainingPass pass(decoder, engine, timer, micro_batches);
  pass.recompute(run.recompute, run.micro_batch, run.seq_length);
  const int64_t moved = engine.parameters().move_to_device(run.memory_for_parameters);
  if (run.gather_limits_automatic) engine.parameters().use_memory(run.memory_for_parameters - moved);

  // The data loader has prefetched the tokens.
  const at::Tensor read = at::empty({run.micro_batch, run.seq_length}, at::kLong);
  const auto tokens = [&] { return read.to(SimulatedDevice::device(), /*non_blocking=*/false, /*copy=*/true); };
  SimulatedStep step;
  for (int64_t update = 1; update <= kStepsBefore + 1; ++update) {
    const double began = device.host_now();
    if (update == kStepsBefore + 1) device.forget_records();
    run_optimizer_step(
        engine, pass, timer,
        {.device = SimulatedDevice::device(),
         .lr = kAnyRate,
         .update = update,
         .micro_batches = micro_batches,
         .loss_weight = [&] { return static_cast<double>(micro_batches * run.layout.data_parallel_size()); },
         .next = [&] { return model::Batch{.tokens = tokens(), .targets = tokens()}; },
         .before_update = [] {},
         .figures = [] { return std::vector<double>(2, 0.0); }});
    step.split = timer.finish_step();
    step.seconds = device.host_now() - began;
  }
  for (const SimulatedDevice::Record& record : device.records()) count(step, record);
  step.memory = engine.memory_use();
  step.simulated_micro_batches = micro_batches;
  return step;
}

// Returns the times that grow with the number of micro-batches, in a fixed order.
std::vector<double*> times_of(SimulatedStep& step) {
  StepSplit& split = step.split;
  std::vector<double*> times = {&step.seconds,
                                &split.data,
                                &split.forward,
                                &split.backward,
                                &split.optimizer,
                                &split.exposed_parameters,
                                &split.exposed_gradients,
                                &step.head};
  for (double& time : step.busy) times.push_back(&time);
  for (auto& [name, time] : step.collectives) times.push_back(&time.seconds);
  return times;
}

// Extrapolates `last` by `more` lots. `last` has one more lot than `before`.
SimulatedStep extended(SimulatedStep before, SimulatedStep last, int64_t more) {
  const std::vector<double*> from = times_of(before), to = times_of(last);
  for (size_t i = 0; i < to.size(); ++i) *to[i] += static_cast<double>(more) * (*to[i] - *from[i]);
  for (auto& [name, time] : last.collectives) time.calls += more * (time.calls - before.collectives.at(name).calls);
  return last;
}

bool has_same_collectives(const SimulatedStep& a, const SimulatedStep& b) {
  return std::ranges::equal(
      a.collectives, b.collectives, {}, [](const auto& one) { return one.first; },
      [](const auto& one) { return one.first; });
}

// Returns true if extrapolating from `first` and `before` predicts `last`.
bool is_steady(const SimulatedStep& first, const SimulatedStep& before, SimulatedStep last) {
  if (!has_same_collectives(first, before) || !has_same_collectives(before, last)) return false;
  if (device_bytes(before.memory) != device_bytes(last.memory)) return false;
  SimulatedStep predicted = extended(first, before, 1);
  const double near = kSteady * (last.seconds - before.seconds);
  const std::vector<double*> expected = times_of(predicted), found = times_of(last);
  for (size_t i = 0; i < found.size(); ++i) {
    if (!(std::abs(*found[i] - *expected[i]) <= near)) return false;
  }
  return std::ranges::all_of(
      last.collectives, [&](const auto& one) { return one.second.calls == predicted.collectives.at(one.first).calls; });
}

}  // namespace

SimulatedStep simulate(const SimulatedRun& run) {
  const int64_t wanted = run.options.gradient_accumulation_steps;
  if (run.every_micro_batch) return simulate_each(run, wanted);
  int64_t simulated = 0;
  // Simulate three shorter steps that differ by one lot. If each lot adds the same time, extrapolate to the requested
  // number of micro-batches. Otherwise, try larger lots.
  for (int64_t lot = 1;; lot *= 2) {
    const int64_t least = kLotsBefore * lot + wanted % lot;
    // Simulating three steps would not be faster than simulating the full step.
    if (3 * (least + lot) >= wanted) break;
    const SimulatedStep first = simulate_each(run, least), before = simulate_each(run, least + lot);
    const SimulatedStep last = simulate_each(run, least + 2 * lot);
    simulated += 3 * (least + lot);
    if (!is_steady(first, before, last)) continue;
    SimulatedStep step = extended(before, last, (wanted - least) / lot - 2);
    step.simulated_micro_batches = simulated;
    return step;
  }
  SimulatedStep step = simulate_each(run, wanted);
  step.simulated_micro_batches += simulated;
  return step;
}

}  // namespace mpzero::plan
