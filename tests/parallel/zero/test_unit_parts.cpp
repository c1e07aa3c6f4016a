// Oracle: AdamW in fp64 over the trainable parameters alone, and the first values of the others.

#include <algorithm>
#include <map>

#include "parallel/comm/mpi_communicator.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero::parallel {
namespace {

// Of the first and the third unit some parameters, of the second all.
const std::vector<std::string> kFrozen = {"^a$", "c", "[ef]"};
const std::string kTrained = "bd";

at::Tensor values_of(const ParameterSpec& parameter) {
  at::Tensor values = at::zeros({parameter.numel()});
  ToyWeights().read(parameter, 0, {values.data_ptr<float>(), static_cast<size_t>(values.numel())});
  return values;
}

// Multiples of 1/64, as of toy_gradient().
at::Tensor gradient_of(const ParameterSpec& parameter, int64_t step, int64_t sample) {
  return toy_gradient({.name = "", .parameters = {parameter}}, step, sample);
}

struct FrozenRun {
  int stage = 2;
  int64_t micro_batches = 1;
  Placement optimizer = Placement::kDevice;
  int host_threads = 0;
  at::ScalarType dtype = at::kFloat;
  GatherLimits limits{};
};

ZeroOptions options_of(const FrozenRun& run) {
  ZeroOptions options{.stage = run.stage,
                      .dtype = run.dtype,
                      .communication_dtype = run.dtype,
                      .gradient_accumulation_steps = run.micro_batches,
                      .optimizer_placement = run.optimizer,
                      .host_update = {.threads = run.host_threads, .cores = {}, .extra_bytes = {}},
                      .pin_memory = false,
                      .limits = {.gather = run.limits},
                      .adamw = toy_adamw(),
                      .gradient_clipping = 0.5};
  options.frozen = kFrozen;
  return options;
}

std::map<std::string, at::Tensor> gathered(ZeroEngine& engine) {
  std::map<std::string, at::Tensor> all;
  const std::vector<UnitSpec>& parts = engine.parts().parts();
  for (size_t u = 0; u < parts.size(); ++u) {
    engine.parameters().plan({u});
    const std::span<const at::Tensor> views = engine.parameters().gather(u);
    REQUIRE(views.size() == parts[u].parameters.size());
    for (size_t p = 0; p < views.size(); ++p) all[parts[u].parameters[p].name] = views[p].flatten().clone();
    engine.parameters().release(u);
  }
  return all;
}

std::vector<double> train(ZeroEngine& engine, const FrozenRun& run, int64_t first_step, int64_t steps) {
  const std::vector<UnitSpec>& parts = engine.parts().parts();
  std::vector<size_t> forward{0, 1, 2}, order;
  for (int64_t a = 0; a < run.micro_batches; ++a) {
    order.insert(order.end(), forward.begin(), forward.end());
    order.insert(order.end(), forward.rbegin(), forward.rend());
  }
  order = engine.parts().uses(order);
  engine.parameters().plan(order);
  std::vector<double> norms;
  for (int64_t step = first_step; step < first_step + steps; ++step) {
    engine.begin_step(kToyLr, step + 1);
    size_t used = 0;
    for (int64_t a = 0; a < run.micro_batches; ++a) {
      engine.gradients().begin_micro_batch(a + 1 == run.micro_batches);
      for (size_t i = 0; i < order.size() / static_cast<size_t>(run.micro_batches); ++i) {
        const size_t u = order[used++];
        engine.parameters().gather(u);
        engine.parameters().release(u);
        if (i < order.size() / static_cast<size_t>(run.micro_batches) / 2) continue;
        const GradientViews destination = engine.gradients().gradients(u);
        REQUIRE(destination.views.size() == (parts[u].trainable() ? parts[u].parameters.size() : 0));
        for (size_t p = 0; p < destination.views.size(); ++p) {
          const ParameterSpec& parameter = parts[u].parameters[p];
          const at::Tensor gradient =
              gradient_of(parameter, step, a * mpi().world_size() + mpi().rank()).view(parameter.shape);
          destination.accumulate ? destination.views[p].add_(gradient) : destination.views[p].copy_(gradient);
        }
        engine.gradients().reduce(u);
      }
    }
    engine.parameters().plan(order);
    engine.measure(at::zeros({}), 1);
    engine.update(kToyLr, step + 1);
    norms.push_back(engine.summary().grad_norm);
  }
  return norms;
}

void check_frozen(const FrozenRun& run, const Levels& parameters, const Levels& gradients) {
  INFO("stage " << run.stage << ", micro-batches " << run.micro_batches << ", " << c10::toString(run.dtype)
                << ", host threads " << run.host_threads << ", nodes " << parameters.layout().nodes);
  constexpr int64_t kSteps = 3;
  ZeroEngine engine(toy_units(), options_of(run), parameters, gradients);
  REQUIRE(engine.parts().parts().size() == 5);
  engine.initialize(ToyWeights(), mpi());
  const std::map<std::string, at::Tensor> before = gathered(engine);
  const std::vector<double> norms = train(engine, run, 0, kSteps);
  const std::map<std::string, at::Tensor> after = gathered(engine);

  std::map<std::string, AdamWOracle> oracle;
  std::map<std::string, ParameterSpec> specs;
  for (const UnitSpec& unit : toy_units()) {
    for (const ParameterSpec& parameter : unit.parameters) {
      specs[parameter.name] = parameter;
      if (kTrained.find(parameter.name) != std::string::npos) {
        oracle.emplace(parameter.name, values_of(parameter));
      } else {
        CHECK(same_bits(before.at(parameter.name), values_of(parameter).to(run.dtype)));
        CHECK(same_bits(after.at(parameter.name), before.at(parameter.name)));
      }
    }
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    std::map<std::string, at::Tensor> sums;
    double squares = 0;
    for (const auto& [name, weight] : oracle) {
      at::Tensor sum = at::zeros({specs.at(name).numel()}, at::kDouble);
      for (int64_t s = 0; s < run.micro_batches * mpi().world_size(); ++s) sum += gradient_of(specs.at(name), step, s);
      squares += sum.pow(2).sum().item<double>();
      sums[name] = sum;
    }
    CHECK(norms[static_cast<size_t>(step)] == Approx(std::sqrt(squares)).epsilon(1e-6));
    const double coefficient = std::max(1.0, (std::sqrt(squares) + 1e-6) / 0.5);
    for (auto& [name, weight] : oracle) weight.update(sums[name] / coefficient, toy_adamw(), kToyLr);
  }
  const double tolerance = run.dtype == at::kFloat ? 1e-5 : 1.0 / 256;
  for (const auto& [name, weight] : oracle) {
    CHECK(at::allclose(after.at(name).to(at::kDouble), weight.weights, tolerance, 1e-6));
  }

  // Its states, in an engine that was stopped after a step.
  ZeroEngine stopped(toy_units(), options_of(run), parameters, gradients);
  stopped.initialize(ToyWeights(), mpi());
  train(stopped, run, 0, 1);
  ZeroEngine resumed(toy_units(), options_of(run), parameters, gradients);
  resumed.restore(
      [&](size_t unit, StateKind kind, int64_t, std::span<float> out) {
        const std::span<const float> values = stopped.read_state(unit, kind);
        REQUIRE(values.size() == out.size());
        std::copy(values.begin(), values.end(), out.begin());
      },
      mpi());
  train(resumed, run, 1, kSteps - 1);
  for (const auto& [name, values] : gathered(resumed)) CHECK(same_bits(values, after.at(name)));
}

void check_all(const Levels& parameters, const Levels& gradients) {
  for (const int stage : stages_of(parameters)) {
    for (const int64_t micro_batches : {1, 3}) {
      FrozenRun run{.stage = stage, .micro_batches = micro_batches};
      check_frozen(run, parameters, gradients);
      run.optimizer = Placement::kHost;
      run.host_threads = 2;
      run.dtype = at::kBFloat16;
      check_frozen(run, parameters, gradients);
      run.limits = {.prefetch_bucket_size = 0,
                    .param_persistence_threshold = 0,
                    .max_live_parameters = 0,
                    .max_reuse_distance = 0};
      check_frozen(run, parameters, gradients);
    }
  }
}

}  // namespace

TEST_CASE("frozen parameters keep their bits, and the others are trained as if frozen ones were constants") {
  MpiCommunicator parameters(mpi()), gradients(mpi());
  check_all(parameters, gradients);
}

TEST_CASE("frozen parameters keep their bits with several nodes") {
  for (const int size : node_sizes()) {
    VirtualNodes parameters(size), gradients(size);
    check_all(parameters.levels(), gradients.levels());
  }
}

TEST_CASE("a unit with frozen and trainable parameters has two parts, in the order of its parameters") {
  const UnitParts parts(toy_units(), kFrozen);
  const auto names = [&](size_t part) {
    std::string all = parts.parts()[part].name;
    for (const ParameterSpec& parameter : parts.parts()[part].parameters) all += " " + parameter.name;
    return all;
  };
  REQUIRE(parts.parts().size() == 5);
  CHECK(names(0) == "first b");
  CHECK(names(1) == "second c");
  CHECK(names(2) == "third d");
  CHECK(names(3) == "first.frozen a");
  CHECK(names(4) == "third.frozen e f");
  CHECK_FALSE(parts.parts()[1].trainable());
  CHECK(parts.uses({0, 1, 2, 1}) == std::vector<size_t>{0, 3, 1, 2, 4, 1});
  CHECK((UnitParts(toy_units(), {}).parts() == toy_units()));
}

TEST_CASE("frozen matrices of a unit with trainable parameters form a quantized part") {
  const std::vector<UnitSpec> units{{"layer", {{"norm", {4}, false}, {"q", {4, 4}, false}, {"a", {2, 4}}}},
                                    {"head", {{"output", {8, 4}, false}}}};
  const UnitParts parts(units, {}, /*coded=*/true);
  REQUIRE(parts.parts().size() == 4);
  CHECK(parts.of(0) == std::vector<size_t>{0, 2, 3});
  CHECK(parts.of(1) == std::vector<size_t>{1});
  CHECK(parts.parts()[2].name == "layer.frozen");
  CHECK(parts.parts()[3].name == "layer.coded");
  CHECK((parts.parts()[3].parameters == std::vector<ParameterSpec>{units[0].parameters[1]}));
  CHECK(parts.positions(0) == std::vector<size_t>{2});
  CHECK(parts.positions(1) == std::vector<size_t>{0});
  CHECK(parts.positions(2) == std::vector<size_t>{0});
  CHECK(parts.positions(3) == std::vector<size_t>{1});
  for (size_t part = 0; part < 4; ++part) CHECK(parts.parts()[part].coded == (part == 3));
}

}  // namespace mpzero::parallel
