#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string_view>
#include <thread>

#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/zero/flat_unit.hpp"
#include "parallel/zero/zero_engine.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/adamw_oracle.hpp"
#include "tests/parallel/same_bits.hpp"

namespace mpzero::parallel {

// A toy "model" of three units whose gradients are given by a formula, so that only the engine is tested.
inline const std::vector<UnitSpec>& toy_units() {
  static const std::vector<UnitSpec> units{
      {.name = "first", .parameters = {{"a", {5, 7}}, {"b", {13}}}},
      {.name = "second", .parameters = {{"c", {1001}}}},
      {.name = "third", .parameters = {{"d", {3, 3}}, {"e", {1}}, {"f", {2, 40}}}}};
  return units;
}

class ToyWeights final : public ParameterSource {
 public:
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = std::sin(static_cast<float>(parameter.name[0]) + static_cast<float>(begin + static_cast<int64_t>(i)));
    }
  }
};

inline at::Tensor toy_weights(const UnitSpec& unit) {
  at::Tensor flat = at::zeros({unit.numel()});
  int64_t offset = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    ToyWeights().read(parameter, 0, {flat.data_ptr<float>() + offset, static_cast<size_t>(parameter.numel())});
    offset += parameter.numel();
  }
  return flat;
}

// Returns the gradient of sample `sample` (counted over ranks and micro-batches) in step `step`. Values are multiples
// of 1/64 below 2, so that sums over a few samples are exact in bf16 and fp32.
inline at::Tensor toy_gradient(const UnitSpec& unit, int64_t step, int64_t sample) {
  const at::Tensor i = at::arange(unit.numel(), at::kLong);
  return ((i * 7 + sample * 11 + step * 5 + unit.parameters.front().name[0]).remainder(31) - 15).to(at::kFloat) / 64;
}

struct ToyRun {
  int stage = 2;
  int64_t samples = 4;  // per step, over all ranks
  int64_t steps = 3;
  Placement optimizer = Placement::kDevice;
  Placement parameters = Placement::kDevice;
  double host_ratio = 1.0;
  at::ScalarType dtype = at::kFloat;
  at::ScalarType moments = at::kFloat;
  double clip = 0.5;
  std::vector<std::string> no_decay = {};
  std::vector<std::string> frozen = {};
  Compression compression = {};
  bool overlap = true;
  int host_threads = 0;                             // HostUpdateOptions::threads
  std::optional<int64_t> extra_bytes = {};          // HostUpdateOptions::extra_bytes
  bool release_gradients = false;                   // ZeroOptions::release_gradients
  int64_t move_to_device = 0;                       // ParameterStore::move_to_device()
  std::function<double(int64_t step)> factor = {};  // factor applied to the step's gradients; empty: 1
  std::function<void()> delay = {};                 // called after each unit's backward pass; may be empty
  // By default, each unit is released after each use.
  GatherLimits limits{
      .prefetch_bucket_size = 0, .param_persistence_threshold = 0, .max_live_parameters = 0, .max_reuse_distance = 0};
};

inline const AdamWOptions& toy_adamw() {
  static const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  return options;
}
constexpr double kToyLr = 1e-2;

// Returns the bytes that move_to_device() needs for the smallest unit. Shards are padded, so the number grows with the
// number of shard groups.
inline int64_t smallest_move(const Levels& levels, at::ScalarType dtype) {
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const UnitSpec& unit : toy_units()) {
    const FlatLayout layout(unit.numel(), levels.layout().ranks(), levels.layout().nodes);
    smallest = std::min(smallest, layout.node_shard_numel());
  }
  return smallest * static_cast<int64_t>(at::elementSize(dtype));
}

// Returns the ZeRO stages that the layout supports.
inline std::vector<int> stages_of(const Levels& levels) {
  return levels.has_nodes() ? std::vector<int>{1, 2, 3} : std::vector<int>{0, 1, 2, 3};
}

inline ZeroEngine make_toy_engine(const ToyRun& run, at::Device device, const Levels& parameters,
                                  const Levels& gradients) {
  ZeroOptions options{.stage = run.stage,
                      .device = device,
                      .dtype = run.dtype,
                      .communication_dtype = run.dtype,
                      .moment_dtype = run.moments,
                      .gradient_accumulation_steps = run.samples / parameters.layout().ranks(),
                      .optimizer_placement = run.optimizer,
                      .optimizer_host_ratio = run.host_ratio,
                      .host_update = {.threads = run.host_threads, .cores = {}, .extra_bytes = run.extra_bytes},
                      .release_gradients = run.release_gradients,
                      .parameter_placement = run.parameters,
                      .pin_memory = device.is_cuda(),
                      .overlap = run.overlap,
                      .compression = run.compression,
                      .limits = {.gather = run.limits},
                      .adamw = toy_adamw(),
                      .gradient_clipping = run.clip};
  // Set separately, because gcc 12 would report their cleanup after an exception as a use of uninitialized memory.
  options.no_decay = run.no_decay;
  options.frozen = run.frozen;
  return {toy_units(), options, parameters, gradients};
}

// Runs the training loop with `toy_gradient` instead of a model. Returns the gradient norms. `weights_seen` receives
// all weights in the order in which they were gathered.
inline std::vector<double> train_toy(ZeroEngine& engine, const ToyRun& run, at::Device device, int rank, int world_size,
                                     int64_t first_step = 0, std::vector<at::Tensor>* weights_seen = nullptr) {
  std::vector<double> norms;
  const int64_t micro_batches = run.samples / world_size;
  const std::vector<UnitSpec>& parts = engine.parts().parts();
  const std::vector<size_t> forward = engine.parts().uses({0, 1, 2}), backward = engine.parts().uses({2, 1, 0});
  std::vector<size_t> order;
  for (int64_t a = 0; a < micro_batches; ++a) {
    order.insert(order.end(), forward.begin(), forward.end());
    order.insert(order.end(), backward.begin(), backward.end());
  }
  const auto use = [&](size_t u) {
    const std::span<const at::Tensor> weights = engine.parameters().gather(u);
    REQUIRE(weights.size() == parts[u].parameters.size());
    if (weights_seen != nullptr) {
      for (const at::Tensor& weight : weights) weights_seen->push_back(weight.clone());
    }
    engine.parameters().release(u);
  };
  if (run.move_to_device > 0) {
    const int64_t taken = engine.parameters().move_to_device(run.move_to_device);
    const bool offloaded = run.parameters == Placement::kHost && device.is_cuda();
    REQUIRE((offloaded ? taken > 0 && taken <= run.move_to_device : taken == 0));
    CHECK(engine.memory_use().parameters >= taken);
  }
  engine.parameters().plan(order);
  for (int64_t step = first_step; step < run.steps; ++step) {
    engine.begin_step(kToyLr, step + 1);
    const double factor = run.factor ? run.factor(step) : 1.0;
    for (int64_t a = 0; a < micro_batches; ++a) {
      engine.gradients().begin_micro_batch(a + 1 == micro_batches);
      for (const size_t u : forward) use(u);
      for (const size_t u : backward) {
        use(u);
        const at::Tensor flat = (toy_gradient(parts[u], step, a * world_size + rank) * factor).to(device);
        const GradientViews destination = engine.gradients().gradients(u);
        const std::vector<at::Tensor> pieces = parameter_views(flat, parts[u]);
        REQUIRE(destination.views.size() == (parts[u].trainable() ? pieces.size() : 0));
        for (size_t p = 0; p < destination.views.size(); ++p) {
          destination.accumulate ? destination.views[p].add_(pieces[p]) : destination.views[p].copy_(pieces[p]);
        }
        engine.gradients().reduce(u);
        if (run.delay) run.delay();
      }
    }
    engine.parameters().plan(order);
    // Some steps also sum additional figures.
    std::vector<double> figures;
    if (step % 2 == 0) figures = {static_cast<double>(rank + 1), 0.5, static_cast<double>(step)};
    engine.measure(at::scalar_tensor(static_cast<double>(micro_batches * (rank + 1)), device),
                   static_cast<double>(run.samples), figures);
    engine.update(kToyLr, step + 1);
    const StepSummary summary = engine.summary();
    REQUIRE(summary.loss == Approx((world_size + 1) / 2.0));
    REQUIRE(summary.figures.size() == figures.size());
    if (!figures.empty()) {
      REQUIRE(summary.figures[0] == world_size * (world_size + 1) / 2.0);
      REQUIRE(summary.figures[1] == 0.5 * world_size);
      REQUIRE(summary.figures[2] == static_cast<double>(step * world_size));
    }
    norms.push_back(summary.grad_norm);
  }
  return norms;
}

// Returns all weights of a part, flattened.
inline at::Tensor gathered(ZeroEngine& engine, size_t part) {
  std::vector<at::Tensor> flat;
  engine.parameters().plan({part});
  for (const at::Tensor& view : engine.parameters().gather(part)) flat.push_back(view.flatten());
  const at::Tensor all = at::cat(flat).cpu();
  engine.parameters().release(part);
  return all;
}

// Compares a run with a serial fp64 run over the trainable parameters: norms, the master weights and moments of this
// rank's shards, and the gathered parameters. Frozen parameters must keep their bits.
inline void check_toy_run(const ToyRun& run, at::Device device, const Levels& parameters, const Levels& gradients,
                          ProcessGroup& group) {
  INFO("stage " << run.stage << ", " << group.world_size() << " ranks, samples " << run.samples << ", dtype "
                << c10::toString(run.dtype) << ", optimizer on host " << (run.optimizer == Placement::kHost)
                << ", parameters on host " << (run.parameters == Placement::kHost));
  ZeroEngine engine = make_toy_engine(run, device, parameters, gradients);
  engine.initialize(ToyWeights(), group);
  const std::vector<double> norms = train_toy(engine, run, device, group.rank(), group.world_size());

  const std::vector<UnitSpec>& parts = engine.parts().parts();
  std::vector<AdamWOracle> oracle;
  for (const UnitSpec& part : parts) oracle.emplace_back(toy_weights(part));
  for (int64_t step = 0; step < run.steps; ++step) {
    std::vector<at::Tensor> sums;
    double squares = 0;
    for (const UnitSpec& part : parts) {
      at::Tensor sum = at::zeros({part.numel()}, at::kDouble);
      for (int64_t sample = 0; part.trainable() && sample < run.samples; ++sample) {
        sum += toy_gradient(part, step, sample);
      }
      squares += sum.pow(2).sum().item<double>();
      sums.push_back(sum);
    }
    const double norm = std::sqrt(squares);
    REQUIRE(norms[static_cast<size_t>(step)] == Approx(norm).epsilon(1e-6));
    const double coefficient = std::max(1.0, (norm + 1e-6) / run.clip);
    for (size_t u = 0; u < sums.size(); ++u) oracle[u].update(sums[u] / coefficient, toy_adamw(), kToyLr);
  }

  for (size_t u = 0; u < parts.size(); ++u) {
    const at::Tensor weights = gathered(engine, u);
    if (!parts[u].trainable()) {
      REQUIRE(same_bits(weights, toy_weights(parts[u]).to(run.dtype)));
      continue;
    }
    const ZeroEngine::Shard mine = engine.shard(u);
    const auto compare = [&](StateKind kind, const at::Tensor& expected) {
      const std::span<const float> values = engine.read_state(u, kind);
      REQUIRE(static_cast<int64_t>(values.size()) == mine.count);
      const at::Tensor actual = at::from_blob(const_cast<float*>(values.data()), {mine.count}, at::kFloat);
      REQUIRE(at::allclose(actual.to(at::kDouble), expected.narrow(0, mine.begin, mine.count), 1e-5, 1e-6));
    };
    compare(StateKind::kMaster, oracle[u].weights);
    compare(StateKind::kExpAvg, oracle[u].m);
    compare(StateKind::kExpAvgSq, oracle[u].v);
    const double tolerance = run.dtype == at::kFloat ? 1e-5 : 1.0 / 256;
    REQUIRE(at::allclose(weights.to(at::kDouble), oracle[u].weights, tolerance, 1e-6));
  }
}

// Stops after two of three steps, passes the state to an engine with a different stage, and continues. If the
// arithmetic is the same, the result must be bitwise equal to the result of a run without a stop.
inline void check_toy_resume(const ToyRun& run, at::Device device, const Levels& parameters, const Levels& gradients,
                             ProcessGroup& group) {
  ZeroEngine straight = make_toy_engine(run, device, parameters, gradients);
  straight.initialize(ToyWeights(), group);
  train_toy(straight, run, device, group.rank(), group.world_size());

  ToyRun beginning = run;
  beginning.steps = 2;
  ZeroEngine stopped = make_toy_engine(beginning, device, parameters, gradients);
  stopped.initialize(ToyWeights(), group);
  train_toy(stopped, beginning, device, group.rank(), group.world_size());
  ZeroEngine resumed = make_toy_engine(run, device, parameters, gradients);
  resumed.restore(
      [&](size_t unit, StateKind kind, int64_t begin, std::span<float> out) {
        REQUIRE(begin == stopped.shard(unit).begin);
        const std::span<const float> values = stopped.read_state(unit, kind);
        std::copy(values.begin(), values.end(), out.begin());
      },
      group);
  train_toy(resumed, run, device, group.rank(), group.world_size(), /*first_step=*/2);
  for (size_t u = 0; u < straight.parts().parts().size(); ++u) {
    REQUIRE(same_bits(gathered(straight, u), gathered(resumed, u)));
    for (const StateKind kind : states_of(straight.parts().parts()[u])) {
      const std::span<const float> one = straight.read_state(u, kind);
      const std::span<const float> other = resumed.read_state(u, kind);
      REQUIRE(std::equal(one.begin(), one.end(), other.begin(), other.end()));
    }
  }
}

// Returns the results of a run: all gathered weights in order, then this rank's states.
inline std::vector<at::Tensor> outcome_of(const ToyRun& run, at::Device device, const Levels& parameters,
                                          const Levels& gradients, ProcessGroup& group) {
  ZeroEngine engine = make_toy_engine(run, device, parameters, gradients);
  engine.initialize(ToyWeights(), group);
  std::vector<at::Tensor> outcome;
  train_toy(engine, run, device, group.rank(), group.world_size(), 0, &outcome);
  for (size_t u = 0; u < toy_units().size(); ++u) {
    for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      const std::span<const float> values = engine.read_state(u, kind);
      outcome.push_back(
          at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(values.size())}, at::kFloat).clone());
    }
  }
  return outcome;
}

// Checks that states on the host, updated by concurrent threads and before the norm is known, are bitwise equal to
// serial updates: with and without clipping, with right and wrong expectations, and with a norm that is not finite.
inline void check_host_overlap(at::Device device, const Levels& parameters, const Levels& gradients,
                               ProcessGroup& group) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  // With factors below 0.01, the toy's norm stays below the limit of 0.5.
  const std::vector<std::pair<const char*, std::vector<double>>> norms{
      {"never clipped", {0.005}},
      {"always clipped", {1}},
      {"alternating", {0.005, 0.005, 1}},
      {"not finite while unclipped", {0.005, 0.004, nan, 0.005, 0.003, infinity}},
      {"not finite while clipped", {1, nan, 2, infinity}}};
  std::minstd_rand random(static_cast<unsigned>(1 + group.rank()));
  for (const int stage : stages_of(parameters)) {
    for (const auto& [name, factors] : norms) {
      for (const double clip : {0.5, 0.0}) {
        const auto compare = [&](ToyRun run) {
          run.optimizer = Placement::kHost;
          run.steps = 7;
          run.clip = clip;
          const auto& cycle = factors;
          run.factor = [&cycle](int64_t step) { return cycle[static_cast<size_t>(step) % cycle.size()]; };
          run.overlap = false;
          const std::vector<at::Tensor> serial = outcome_of(run, device, parameters, gradients, group);
          run.overlap = true;
          run.delay = [&] { std::this_thread::sleep_for(std::chrono::microseconds(random() % 400)); };
          const std::vector<at::Tensor> overlapped = outcome_of(run, device, parameters, gradients, group);
          INFO("stage " << stage << ", " << name << ", clip " << clip << ", samples " << run.samples << ", ratio "
                        << run.host_ratio << ", threads " << run.host_threads << ", offload_param "
                        << (run.parameters == Placement::kHost));
          REQUIRE(serial.size() == overlapped.size());
          for (size_t i = 0; i < serial.size(); ++i) {
            INFO("tensor " << i << " of " << serial.size());
            REQUIRE(same_bits(serial[i], overlapped[i]));
          }
        };
        const int64_t ranks = group.world_size();
        compare({.stage = stage, .samples = ranks, .dtype = at::kBFloat16, .host_threads = 1});
        compare({.stage = stage, .samples = 2 * ranks, .dtype = at::kBFloat16, .host_threads = 2});
        compare({.stage = stage, .samples = ranks, .dtype = at::kFloat, .host_threads = 3, .extra_bytes = 1 << 20});
        compare({.stage = stage, .samples = ranks, .host_threads = 2, .extra_bytes = 0});
        compare({.stage = stage, .samples = ranks, .host_ratio = 0.5, .host_threads = 2});
        compare({.stage = stage, .samples = ranks, .moments = at::kBFloat16, .host_threads = 2});
        compare({.stage = stage, .samples = ranks, .no_decay = {"b", "d"}, .host_threads = 2});
        if (stage < 3) continue;
        ToyRun run{.stage = stage, .samples = ranks, .parameters = Placement::kHost, .dtype = at::kBFloat16};
        run.host_threads = 2;
        compare(run);
        run.limits = GatherLimits{};
        compare(run);
      }
    }
  }
}

// Checks that results with released gradients are bitwise equal to results with gradients on the device, with no, some
// and all steps clipped.
inline void check_gradient_release(at::Device device, const Levels& parameters, const Levels& gradients,
                                   ProcessGroup& group) {
  const std::vector<std::pair<const char*, std::vector<double>>> norms{
      {"never clipped", {0.005}},
      {"always clipped", {1}},
      {"alternating", {0.005, 0.005, 1}},
      {"not finite", {0.005, std::numeric_limits<double>::quiet_NaN(), 1, std::numeric_limits<double>::infinity()}}};
  std::minstd_rand random(static_cast<unsigned>(1 + group.rank()));
  for (const int stage : stages_of(parameters)) {
    for (const auto& [name, factors] : norms) {
      const auto compare = [&](ToyRun run) {
        run.stage = stage;
        run.samples = group.world_size();
        run.optimizer = Placement::kHost;
        run.host_threads = 2;
        run.steps = 7;
        const auto& cycle = factors;
        run.factor = [&cycle](int64_t step) { return cycle[static_cast<size_t>(step) % cycle.size()]; };
        const std::vector<at::Tensor> kept = outcome_of(run, device, parameters, gradients, group);
        run.release_gradients = true;
        run.delay = [&] { std::this_thread::sleep_for(std::chrono::microseconds(random() % 400)); };
        const std::vector<at::Tensor> released = outcome_of(run, device, parameters, gradients, group);
        INFO("stage " << stage << ", " << name << ", ratio " << run.host_ratio << ", overlap " << run.overlap
                      << ", dtype " << c10::toString(run.dtype));
        REQUIRE(kept.size() == released.size());
        for (size_t i = 0; i < kept.size(); ++i) {
          INFO("tensor " << i << " of " << kept.size());
          REQUIRE(same_bits(kept[i], released[i]));
        }
      };
      compare({.dtype = at::kBFloat16});
      compare({.dtype = at::kBFloat16, .extra_bytes = 0});
      compare({.dtype = at::kFloat, .clip = 0});
      compare({.host_ratio = 0.5, .dtype = at::kBFloat16});
      compare({.moments = at::kBFloat16, .overlap = false});
      // A compressed gradient that is not finite leaves residuals that are not finite, and the run ends.
      if (parameters.has_nodes() && std::string_view(name) != "not finite")
        compare({.dtype = at::kBFloat16, .compression = {.gradient_bits = 8, .weights = true}});
      if (stage == 3) compare({.parameters = Placement::kHost, .dtype = at::kBFloat16});
    }
  }
}

// Returns the states and norms of a single rank whose units all have `numel` parameters, so that released gradients
// share memory.
inline std::vector<at::Tensor> outcome_of_equal_units(at::Device device, int64_t numel, bool release, double clip) {
  std::vector<UnitSpec> units;
  for (const char* name : {"a", "b", "c", "d", "e", "f"})
    units.push_back({.name = name, .parameters = {{name, {numel}}}});
  LocalCommunicator parameters, gradients;
  ZeroEngine engine(units,
                    {.stage = 3,
                     .device = device,
                     .optimizer_placement = Placement::kHost,
                     .host_update = {.threads = 2, .cores = {}, .extra_bytes = {}},
                     .release_gradients = release,
                     .pin_memory = device.is_cuda(),
                     .limits = {},
                     .adamw = toy_adamw(),
                     .gradient_clipping = clip},
                    parameters, gradients);
  CHECK(engine.memory_use().gradients == (release ? 2 : 6) * FlatLayout(numel, 1).padded_numel() * 2);
  CHECK(engine.memory_use().host_gradients == (release ? 6 : 0) * FlatLayout(numel, 1).padded_numel() * 2);
  SingleProcess alone;
  engine.initialize(ToyWeights(), alone);
  const at::Tensor values = at::arange(numel, at::TensorOptions().dtype(at::kFloat).device(device)).sin_();
  std::vector<at::Tensor> outcome;
  for (int64_t step = 1; step <= 6; ++step) {
    engine.begin_step(kToyLr, step);
    engine.gradients().begin_micro_batch(true);
    for (size_t u = 0; u < units.size(); ++u) {
      engine.parameters().gather(u);
      engine.parameters().release(u);
    }
    for (size_t u = units.size(); u-- > 0;) {
      engine.gradients().gradients(u).views.front().copy_(values).mul_(static_cast<double>(step) /
                                                                       static_cast<double>(u + 1));
      engine.gradients().reduce(u);
    }
    engine.measure(at::scalar_tensor(1.0, device), 1);
    engine.update(kToyLr, step);
    outcome.push_back(at::scalar_tensor(engine.summary().grad_norm, at::kDouble));
  }
  for (size_t u = 0; u < units.size(); ++u) {
    for (const StateKind kind : kStateKinds) outcome.push_back(engine.state(u, kind).clone());
  }
  return outcome;
}

// Checks that results are bitwise equal whether units share the memory of released gradients or have separate memory.
inline void check_shared_gradients(at::Device device, int64_t numel) {
  // The norm grows with each step. About half of the steps are clipped with the second limit.
  for (const double clip : {0.0, 4 * std::sqrt(static_cast<double>(numel)), 1e-3, 1e9}) {
    CAPTURE(clip);
    const std::vector<at::Tensor> kept = outcome_of_equal_units(device, numel, false, clip);
    const std::vector<at::Tensor> released = outcome_of_equal_units(device, numel, true, clip);
    for (size_t i = 0; i < kept.size(); ++i) {
      INFO("tensor " << i << " of " << kept.size());
      REQUIRE(same_bits(kept[i], released[i]));
    }
  }
}

// Checks every stage, with and without accumulation, with states on the device, on the host, and on both.
inline void check_engine(at::Device device, const Levels& parameters, const Levels& gradients, ProcessGroup& group) {
  for (const int stage : stages_of(parameters)) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t micro_batches : {1, 3}) {
        ToyRun run{.stage = stage, .samples = micro_batches * group.world_size(), .dtype = dtype};
        check_toy_run(run, device, parameters, gradients, group);
        run.optimizer = Placement::kHost;
        check_toy_run(run, device, parameters, gradients, group);
        run.host_ratio = 0.5;
        check_toy_run(run, device, parameters, gradients, group);
        run.overlap = false;
        check_toy_run(run, device, parameters, gradients, group);
        run.overlap = true;
        run.host_threads = 2;
        check_toy_run(run, device, parameters, gradients, group);
        run.host_threads = 0;
        if (stage < 3) continue;
        run.limits = GatherLimits{};  // these limits keep all units gathered
        check_toy_run(run, device, parameters, gradients, group);
        run.limits.param_persistence_threshold = 60;  // keeps the smallest unit, and releases the others when necessary
        run.limits.max_live_parameters = 1200;
        check_toy_run(run, device, parameters, gradients, group);
        run.parameters = Placement::kHost;
        check_toy_run(run, device, parameters, gradients, group);
        for (const int64_t bytes : {smallest_move(parameters, dtype), int64_t{1} << 20}) {  // moves one unit, or all
          run.move_to_device = bytes;
          check_toy_run(run, device, parameters, gradients, group);
        }
        run.move_to_device = 0;
        run.host_ratio = 1.0;
        check_toy_run(run, device, parameters, gradients, group);
        check_toy_resume(run, device, parameters, gradients, group);
      }
    }
    check_toy_resume({.stage = stage, .samples = 2 * group.world_size()}, device, parameters, gradients, group);
  }
}

}  // namespace mpzero::parallel
