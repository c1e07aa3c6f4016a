#include <algorithm>
#include <utility>

#include "base/collectives.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "tests/parallel/collective_checks.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero::parallel {

TEST_CASE("every ZeRO stage matches a serial fp64 run") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  check_engine(at::kCPU, parameters, gradients, mpi());
}

TEST_CASE("every ZeRO stage on several nodes matches a serial fp64 run") {
  for (const int size : node_sizes()) {
    VirtualNodes parameters(size), gradients(size);
    check_engine(at::kCPU, parameters.levels(), gradients.levels(), mpi());
  }
}

TEST_CASE("host updates do not change results with several nodes") {
  for (const int size : node_sizes()) {
    VirtualNodes parameters(size), gradients(size);
    check_host_overlap(at::kCPU, parameters.levels(), gradients.levels(), mpi());
  }
}

TEST_CASE("the shards of all ranks cover a unit, for any number of nodes") {
  for (const int size : node_sizes()) {
    VirtualNodes parameters(size), gradients(size);
    const ZeroEngine engine =
        make_toy_engine({.stage = 2, .samples = mpi().world_size()}, at::kCPU, parameters.levels(), gradients.levels());
    for (size_t u = 0; u < toy_units().size(); ++u) {
      const ZeroEngine::Shard mine = engine.shard(u);
      std::vector<std::pair<int64_t, int64_t>> all = all_gather(mpi(), std::pair(mine.begin, mine.count));
      std::sort(all.begin(), all.end());
      int64_t end = 0;
      for (const auto& [begin, count] : all) {
        if (count == 0) continue;
        CHECK(begin == end);
        end = begin + count;
      }
      CHECK(end == toy_units()[u].numel());
    }
  }
}

TEST_CASE("all ranks get bitwise equal sums, added in node order") {
  for (const int size : node_sizes()) {
    VirtualNodes parameters(size), gradients(size);
    ZeroEngine engine =
        make_toy_engine({.stage = 2, .samples = mpi().world_size()}, at::kCPU, parameters.levels(), gradients.levels());
    // 2^-53 is lost in 1, unless more of them come first: another order has other bits.
    const auto value = [](int rank) { return rank == 0 ? 1.0 : 0x1p-53; };
    at::Tensor sum = at::scalar_tensor(value(mpi().rank()), at::kDouble);
    engine.sum_over_ranks(sum);
    double expected = 0;
    for (int node = 0; node < mpi().world_size() / size; ++node) {
      double of_node = 0;
      for (int place = 0; place < size; ++place) of_node += value(node * size + place);
      expected += of_node;
    }
    CHECK(sum.item<double>() == expected);
    const std::vector<double> all = all_gather(mpi(), sum.item<double>());
    CHECK(std::all_of(all.begin(), all.end(), [&](double other) { return other == all.front(); }));
  }
}

TEST_CASE("results do not change if host updates run concurrently and before the norm is known") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  check_host_overlap(at::kCPU, parameters, gradients, mpi());
}

TEST_CASE("released gradients do not change results, even if units share their memory") {
  check_shared_gradients(at::kCPU, 5000);
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  check_gradient_release(at::kCPU, parameters, gradients, mpi());
  for (const int size : node_sizes()) {
    VirtualNodes nodes(size), gradient_nodes(size);
    check_gradient_release(at::kCPU, nodes.levels(), gradient_nodes.levels(), mpi());
  }
}

TEST_CASE("a trained engine that is initialized again trains like a new one") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  for (const auto placement : {Placement::kDevice, Placement::kHost}) {
    ToyRun run{.stage = 3, .samples = mpi().world_size(), .steps = 2, .optimizer = placement};
    run.host_threads = placement == Placement::kHost ? 2 : 0;
    ZeroEngine engine = make_toy_engine(run, at::kCPU, parameters, gradients);
    engine.initialize(ToyWeights(), mpi());
    const std::vector<double> norms = train_toy(engine, run, at::kCPU, mpi().rank(), mpi().world_size());
    const auto moments_are_zero = [&] {
      const auto is_zero = [&](size_t unit, StateKind kind) {
        return std::ranges::all_of(engine.read_state(unit, kind), [](float value) { return value == 0; });
      };
      bool all = true;
      for (size_t u = 0; u < toy_units().size(); ++u) {
        all = all && is_zero(u, StateKind::kExpAvg) && is_zero(u, StateKind::kExpAvgSq);
      }
      return all;
    };
    CHECK(!moments_are_zero());
    engine.initialize(ToyWeights(), mpi());
    CHECK(moments_are_zero());
    CHECK(train_toy(engine, run, at::kCPU, mpi().rank(), mpi().world_size()) == norms);
  }
}

// Oracle: stage 0, where each rank has all states.
TEST_CASE("bf16 moments have the same bits at every ZeRO stage, on the host, and after a resume") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  ToyRun run{.stage = 0, .samples = 2 * mpi().world_size(), .steps = 5, .moments = at::kBFloat16, .clip = 0};
  ZeroEngine whole = make_toy_engine(run, at::kCPU, parameters, gradients);
  whole.initialize(ToyWeights(), mpi());
  train_toy(whole, run, at::kCPU, mpi().rank(), mpi().world_size());
  for (const int stage : {1, 2, 3}) {
    for (const int host_threads : {0, 3}) {
      CAPTURE(stage, host_threads);
      run.stage = stage;
      run.host_threads = host_threads;
      run.optimizer = host_threads > 0 ? Placement::kHost : Placement::kDevice;
      ZeroEngine engine = make_toy_engine(run, at::kCPU, parameters, gradients);
      engine.initialize(ToyWeights(), mpi());
      train_toy(engine, run, at::kCPU, mpi().rank(), mpi().world_size());
      for (size_t u = 0; u < toy_units().size(); ++u) {
        const ZeroEngine::Shard mine = engine.shard(u);
        for (const StateKind kind : kStateKinds) {
          const std::span<const float> all = whole.read_state(u, kind);
          const std::span<const float> shard = engine.read_state(u, kind);
          REQUIRE(std::equal(shard.begin(), shard.end(), all.begin() + mine.begin));
        }
      }
      check_toy_resume(run, at::kCPU, parameters, gradients, mpi());
    }
  }
}

TEST_CASE("states move from the host to the device between two steps") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  for (const double ratio : {0.9, 0.5, 0.0}) {
    for (const int stage : {0, 2, 3}) {
      INFO("ratio " << ratio << ", stage " << stage);
      ToyRun run{.stage = stage, .samples = mpi().world_size(), .optimizer = Placement::kHost};
      run.host_threads = 2;
      ZeroEngine straight = make_toy_engine(run, at::kCPU, parameters, gradients);
      straight.initialize(ToyWeights(), mpi());
      train_toy(straight, run, at::kCPU, mpi().rank(), mpi().world_size());

      ZeroEngine moved = make_toy_engine(run, at::kCPU, parameters, gradients);
      moved.initialize(ToyWeights(), mpi());
      ToyRun beginning = run;
      beginning.steps = 1;
      train_toy(moved, beginning, at::kCPU, mpi().rank(), mpi().world_size());
      moved.set_host_ratio(ratio);
      train_toy(moved, run, at::kCPU, mpi().rank(), mpi().world_size(), /*first_step=*/1);
      for (size_t u = 0; u < toy_units().size(); ++u) {
        for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
          const std::span<const float> one = straight.read_state(u, kind);
          const std::span<const float> other = moved.read_state(u, kind);
          REQUIRE(std::equal(one.begin(), one.end(), other.begin(), other.end()));
        }
      }
    }
  }
}

TEST_CASE("the host keeps the units beyond the device's fraction") {
  // 48, 1001 and 90 parameters.
  CHECK(units_on_host(toy_units(), 1.0) == std::vector<bool>{true, true, true});
  CHECK(units_on_host(toy_units(), 0.0) == std::vector<bool>{false, false, false});
  CHECK(units_on_host(toy_units(), 0.95) == std::vector<bool>{false, true, true});
  CHECK(units_on_host(toy_units(), 0.87) == std::vector<bool>{false, true, false});
  CHECK(units_on_host(toy_units(), 0.05) == std::vector<bool>{false, false, true});
}

TEST_CASE("states of a large unit are read in parts, which bounds the additional memory") {
  struct Positions final : ParameterSource {
    void read(const ParameterSpec&, int64_t begin, std::span<float> out) const override {
      largest = std::max(largest, out.size());
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<float>((begin + static_cast<int64_t>(i)) % 9'999'991);
    }
    mutable size_t largest = 0;
  };
  const int64_t numel = int64_t{mpi().world_size()} * ((17 << 20) + 3);
  const std::vector<UnitSpec> units{{.name = "large", .parameters = {{.name = "w", .shape = {numel}}}}};
  MpiCommunicator parameters(mpi()), gradients(mpi());
  ZeroOptions options;
  options.stage = 3;
  ZeroEngine engine(units, options, parameters, gradients);
  const Positions source;
  engine.initialize(source, mpi());
  CHECK(source.largest * sizeof(float) <= size_t{64} << 20);
  const ZeroEngine::Shard mine = engine.shard(0);
  const std::span<const float> read = engine.read_state(0, StateKind::kMaster);
  REQUIRE(std::ssize(read) == mine.count);
  int64_t different = 0;
  for (int64_t i = 0; i < mine.count; ++i) {
    different += read[static_cast<size_t>(i)] != static_cast<float>((mine.begin + i) % 9'999'991);
  }
  CHECK(different == 0);
}

TEST_CASE("a single rank needs no MPI") {
  if (mpi().world_size() > 1) return;
  LocalCommunicator parameters;
  LocalCommunicator gradients;
  check_collectives(gradients, at::kCPU);
  check_engine(at::kCPU, parameters, gradients, mpi());
}

TEST_CASE("disabled clipping does not change gradients") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  ToyRun run{.samples = 2 * mpi().world_size()};
  run.clip = 1e9;  // off, for the oracle
  check_toy_run(run, at::kCPU, parameters, gradients, mpi());
}

}  // namespace mpzero::parallel
