#include "parallel/comm/mpi_communicator.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero::parallel {
namespace {

// Of the first and the third unit some parameters, of the second all.
const std::vector<std::string> kFrozen = {"^a$", "c", "[ef]"};

void check_frozen(const ToyRun& run, const Levels& parameters, const Levels& gradients) {
  INFO("host threads " << run.host_threads << ", nodes " << parameters.layout().nodes);
  REQUIRE(make_toy_engine(run, at::kCPU, parameters, gradients).parts().parts().size() == 5);
  check_toy_run(run, at::kCPU, parameters, gradients, mpi());
  check_toy_resume(run, at::kCPU, parameters, gradients, mpi());
}

void check_all(const Levels& parameters, const Levels& gradients) {
  for (const int stage : stages_of(parameters)) {
    for (const int64_t micro_batches : {1, 3}) {
      ToyRun run{.stage = stage, .samples = micro_batches * mpi().world_size(), .frozen = kFrozen};
      run.limits = GatherLimits{};
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
