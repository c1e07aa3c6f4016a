// Engines that compress between virtual nodes. Oracles: their own bits, in a rerun and without overlap, the other
// ranks' parameters, and the exact engine.

#include <ATen/ATen.h>

#include "base/collectives.hpp"
#include "tests/parallel/compression_checks.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero::parallel {
namespace {

// Each way to compress.
const std::vector<Compression>& compressions() {
  static const std::vector<Compression> all{{.gradient_bits = 8, .weights = false, .seed = 1},
                                            {.gradient_bits = 4, .weights = false, .seed = 1},
                                            {.gradient_bits = 0, .weights = true, .seed = 1},
                                            {.gradient_bits = 8, .weights = true, .seed = 1}};
  return all;
}

// Calls `check` with runs of every stage, with and without accumulation, with states on the device and on the host.
template <typename Check>
void for_each_run(const Check& check) {
  const int ranks = mpi().world_size();
  for (const int size : node_sizes()) {
    VirtualNodes parameters(size), gradients(size);
    for (const Compression& compression : compressions()) {
      for (const int stage : {1, 2, 3}) {
        for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
          for (const int64_t micro_batches : {1, 2}) {
            for (const int host_threads : {0, 2}) {
              ToyRun run{.stage = stage, .samples = micro_batches * ranks, .steps = 4, .dtype = dtype};
              run.compression = compression;
              run.host_threads = host_threads;
              if (host_threads > 0) run.optimizer = Placement::kHost;
              INFO(ranks << " ranks, " << size << " a node, stage " << stage << ", " << c10::toString(dtype) << ", "
                         << micro_batches << " micro-batches, " << host_threads << " host threads, gradients in "
                         << compression.gradient_bits << " bits, weights " << compression.weights);
              check(run, parameters.levels(), gradients.levels());
            }
          }
        }
      }
    }
  }
}

void check_same(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  REQUIRE(one.size() == other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    INFO("tensor " << i << " of " << one.size());
    REQUIRE(same_bits(one[i], other[i]));
  }
}

// All parameters as a pass would see them.
std::vector<at::Tensor> gathered(ZeroEngine& engine) {
  std::vector<at::Tensor> all;
  for (size_t u = 0; u < toy_units().size(); ++u) {
    engine.parameters().plan({u});
    for (const at::Tensor& weight : engine.parameters().gather(u)) all.push_back(weight.clone());
    engine.parameters().release(u);
  }
  return all;
}

std::vector<at::Tensor> states_of(ZeroEngine& engine) {
  std::vector<at::Tensor> states;
  for (size_t u = 0; u < toy_units().size(); ++u) {
    for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      const std::span<const float> values = engine.read_state(u, kind);
      states.push_back(
          at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(values.size())}, at::kFloat).clone());
    }
  }
  return states;
}

std::vector<Carried> copies_of_carried(ZeroEngine& engine) {
  std::vector<Carried> all;
  for (size_t u = 0; u < toy_units().size(); ++u) {
    Carried carried = engine.carried(u);
    if (carried.gradient_residual.defined()) carried.gradient_residual = carried.gradient_residual.clone();
    if (carried.parameters.defined()) carried.parameters = carried.parameters.clone();
    all.push_back(std::move(carried));
  }
  return all;
}

ZeroEngine::StateReader reader_of(const std::vector<at::Tensor>& states) {
  return [&states](size_t unit, StateKind kind, int64_t, std::span<float> out) {
    const at::Tensor& state = states[3 * unit + static_cast<size_t>(kind)];
    REQUIRE(state.numel() == static_cast<int64_t>(out.size()));
    std::copy_n(state.const_data_ptr<float>(), out.size(), out.begin());
  };
}

// Requires that these tensors, the same number of them on each rank, have the same bits on all ranks.
void check_same_on_all_ranks(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<char>> bytes;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor flat = tensor.contiguous();
    const auto* const data = static_cast<const char*>(flat.const_data_ptr());
    bytes.emplace_back(data, data + flat.nbytes());
  }
  const auto all = all_gather(mpi(), bytes);
  for (const auto& others : all) REQUIRE(others == bytes);
}

}  // namespace

TEST_CASE("a repeated run, and a run without overlap, have the same bits") {
  for_each_run([](ToyRun run, const Levels& parameters, const Levels& gradients) {
    const std::vector<at::Tensor> one = outcome_of(run, at::kCPU, parameters, gradients, mpi());
    check_same(one, outcome_of(run, at::kCPU, parameters, gradients, mpi()));
    run.overlap = false;
    check_same(one, outcome_of(run, at::kCPU, parameters, gradients, mpi()));
  });
}

TEST_CASE("all ranks train with the same parameters") {
  for_each_run([](const ToyRun& run, const Levels& parameters, const Levels& gradients) {
    ZeroEngine engine = make_toy_engine(run, at::kCPU, parameters, gradients);
    engine.initialize(ToyWeights(), mpi());
    std::vector<at::Tensor> seen;
    train_toy(engine, run, at::kCPU, mpi().rank(), mpi().world_size(), 0, &seen);
    const std::vector<at::Tensor> last = gathered(engine);
    seen.insert(seen.end(), last.begin(), last.end());
    check_same_on_all_ranks(seen);
  });
}

TEST_CASE("a run resumed with carried state is bitwise equal to an uninterrupted run") {
  for_each_run([](const ToyRun& run, const Levels& parameters, const Levels& gradients) {
    ZeroEngine straight = make_toy_engine(run, at::kCPU, parameters, gradients);
    straight.initialize(ToyWeights(), mpi());
    ToyRun beginning = run;
    beginning.steps = 2;
    train_toy(straight, beginning, at::kCPU, mpi().rank(), mpi().world_size());
    REQUIRE(straight.carries());
    const std::vector<Carried> carried = copies_of_carried(straight);
    const std::vector<at::Tensor> states = states_of(straight);

    ZeroEngine resumed = make_toy_engine(run, at::kCPU, parameters, gradients);
    resumed.restore(reader_of(states), mpi(), carried);
    std::vector<at::Tensor> one, other;
    train_toy(straight, run, at::kCPU, mpi().rank(), mpi().world_size(), /*first_step=*/2, &one);
    train_toy(resumed, run, at::kCPU, mpi().rank(), mpi().world_size(), /*first_step=*/2, &other);
    check_same(one, other);
    check_same(states_of(straight), states_of(resumed));
    check_same(gathered(straight), gathered(resumed));
  });
}

TEST_CASE("without carried state, a run begins with equal parameters and no residuals") {
  for_each_run([](const ToyRun& run, const Levels& parameters, const Levels& gradients) {
    ZeroEngine engine = make_toy_engine(run, at::kCPU, parameters, gradients);
    engine.initialize(ToyWeights(), mpi());
    train_toy(engine, run, at::kCPU, mpi().rank(), mpi().world_size());
    const std::vector<at::Tensor> states = states_of(engine);
    engine.restore(reader_of(states), mpi());
    check_same_on_all_ranks(gathered(engine));
    for (size_t u = 0; u < toy_units().size(); ++u) {
      const Carried carried = engine.carried(u);
      if (carried.gradient_residual.defined()) CHECK(carried.gradient_residual.abs().max().item<double>() == 0);
      if (!carried.parameters.defined()) continue;
      // The masters themselves, rounded.
      const at::Tensor& master = states[3 * u];
      CHECK(same_bits(carried.parameters.narrow(0, 0, master.numel()), master.to(run.dtype)));
    }
  });
}

TEST_CASE("compressed runs stay close to the exact run") {
  for_each_run([](const ToyRun& run, const Levels& parameters, const Levels& gradients) {
    ToyRun exact = run;
    exact.compression = {};
    const auto masters = [&](const ToyRun& of) {
      ZeroEngine engine = make_toy_engine(of, at::kCPU, parameters, gradients);
      engine.initialize(ToyWeights(), mpi());
      train_toy(engine, of, at::kCPU, mpi().rank(), mpi().world_size());
      std::vector<at::Tensor> all;
      const std::vector<at::Tensor> states = states_of(engine);
      for (size_t u = 0; u < toy_units().size(); ++u) all.push_back(states[3 * u]);
      return at::cat(all).to(at::kDouble);
    };
    const double difference = (masters(run) - masters(exact)).abs().mean().item<double>();
    // AdamW moves a weight by up to kToyLr a step; gradients near 0 may get another sign.
    const double moved = kToyLr * static_cast<double>(run.steps);
    if (run.compression.gradient_bits == 0) {
      // Gradients do not depend on the parameters here.
      CHECK(difference == 0);
    } else {
      CHECK(difference > 0);
      CHECK(difference < moved * (run.compression.gradient_bits == 8 ? 0.05 : 0.3));
    }
  });
}

TEST_CASE("each update of an engine rounds with different random numbers") {
  VirtualNodes parameters(1), gradients(1);
  check_engine_rounding(at::kCPU, parameters.levels(), gradients.levels(), mpi());
}

TEST_CASE("non-finite gradients are detected on all ranks") {
  for_each_run([](ToyRun run, const Levels& parameters, const Levels& gradients) {
    run.steps = 1;
    run.factor = [](int64_t) { return std::numeric_limits<double>::infinity(); };
    ZeroEngine engine = make_toy_engine(run, at::kCPU, parameters, gradients);
    engine.initialize(ToyWeights(), mpi());
    const std::vector<double> norms = train_toy(engine, run, at::kCPU, mpi().rank(), mpi().world_size());
    CHECK(!std::isfinite(norms.front()));
  });
}

}  // namespace mpzero::parallel
