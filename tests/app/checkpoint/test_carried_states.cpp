// Engines of a tiny model that compress between the ranks as nodes; what they carry goes through a checkpoint.

#include <ATen/ATen.h>

#include "app/checkpoint/carried_states.hpp"
#include "app/checkpoint/run_state.hpp"
#include "base/collectives.hpp"
#include "io/checkpoint/reader.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero {
namespace {

using parallel::mpi;
using parallel::toy_units;

// A checkpoint that holds what each rank says here, and nothing else.
class CarryingCheckpoint final : public io::StoredCheckpoint {
 public:
  explicit CarryingCheckpoint(std::shared_ptr<const io::CarriedState> state) : state_(std::move(state)) {}
  const std::filesystem::path& folder() const override { return folder_; }
  const io::RunRecord& run() const override { return run_; }
  const io::TrainingProgress& progress() const override { return progress_; }
  std::span<const ParameterSpec> parameters() const override { return {}; }
  void read(const std::string&, StateKind, int64_t, std::span<float>) const override {}
  std::optional<io::CarriedState> carried(int) const override { return state_ ? std::optional(*state_) : std::nullopt; }
  void verify_what_was_read(ProcessGroup&) const override {}
  void verify() const override {}

 private:
  std::filesystem::path folder_ = "checkpoints/model-2steps";
  io::RunRecord run_;
  io::TrainingProgress progress_;
  std::shared_ptr<const io::CarriedState> state_;
};

RunSetup setup_of(const parallel::Levels& levels) {
  RunSetup setup;
  setup.layout = levels.layout();
  return setup;
}

parallel::ToyRun toy_run(const parallel::Compression& compression) {
  parallel::ToyRun run{.stage = 2, .samples = mpi().world_size(), .steps = 2, .dtype = at::kBFloat16};
  run.compression = compression;
  return run;
}

const parallel::Compression kBoth{.gradient_bits = 8, .weights = true, .seed = 1};

}  // namespace

TEST_CASE("what is carried comes back bit for bit") {
  parallel::VirtualNodes parameters(1), gradients(1);
  const parallel::ToyRun run = toy_run(kBoth);
  parallel::ZeroEngine engine = parallel::make_toy_engine(run, at::kCPU, parameters.levels(), gradients.levels());
  engine.initialize(parallel::ToyWeights(), mpi());
  parallel::train_toy(engine, run, at::kCPU, mpi().rank(), mpi().world_size());
  const RunSetup setup = setup_of(parameters.levels());
  const auto state = copy_carried(setup, toy_units(), engine);
  if (mpi().world_size() == 1) {
    CHECK(state == nullptr);
    return;
  }
  REQUIRE(state != nullptr);
  CHECK(state->values.size() == 2 * toy_units().size());
  std::vector<std::string> warnings;
  const std::vector<parallel::Carried> read =
      read_carried(CarryingCheckpoint(state), setup, toy_units(), engine, mpi(), warnings);
  CHECK(warnings.empty());
  REQUIRE(read.size() == toy_units().size());
  for (size_t u = 0; u < read.size(); ++u) {
    const parallel::Carried now = engine.carried(u);
    CHECK(parallel::same_bits(read[u].gradient_residual, now.gradient_residual));
    CHECK(parallel::same_bits(read[u].parameters, now.parameters));
  }
}

TEST_CASE("what does not belong to the run is left out on all ranks, with a sentence") {
  if (mpi().world_size() == 1) return;
  parallel::VirtualNodes parameters(1), gradients(1);
  const auto engine_of = [&](const parallel::Compression& compression) {
    return parallel::make_toy_engine(toy_run(compression), at::kCPU, parameters.levels(), gradients.levels());
  };
  const RunSetup setup = setup_of(parameters.levels());
  parallel::ZeroEngine both = engine_of(kBoth);
  both.initialize(parallel::ToyWeights(), mpi());
  const auto state = copy_carried(setup, toy_units(), both);
  const auto sentence_of = [&](const RunSetup& of, parallel::ZeroEngine& engine,
                               const std::shared_ptr<const io::CarriedState>& stored) {
    std::vector<std::string> warnings;
    CHECK(read_carried(CarryingCheckpoint(stored), of, toy_units(), engine, mpi(), warnings).empty());
    return warnings.empty() ? std::string() : warnings.front();
  };
  using Catch::Contains;
  RunSetup other = setup;
  other.layout = {.nodes = 1, .ranks_per_node = mpi().world_size()};
  CHECK_THAT(sentence_of(other, both, state), Contains("checkpoints/model-2steps holds what compression between") &&
                                                  Contains("this run has other nodes, or compresses other values"));
  parallel::ZeroEngine exact = engine_of({});
  CHECK(copy_carried(setup, toy_units(), exact) == nullptr);
  CHECK_THAT(sentence_of(setup, exact, state), Contains("this run does not compress"));
  CHECK_THAT(sentence_of(setup, both, nullptr), Contains("holds nothing of the compression between nodes"));
  CHECK(sentence_of(setup, exact, nullptr).empty());
  // One rank's is missing.
  CHECK_THAT(sentence_of(setup, both, mpi().rank() == 0 ? state : nullptr), Contains("which is left out"));
  // Of a run that compressed gradients only, where this one needs both.
  parallel::ZeroEngine gradients_only = engine_of({.gradient_bits = 8, .weights = false, .seed = 1});
  const auto part = copy_carried(setup, toy_units(), gradients_only);
  CHECK_THAT(sentence_of(setup, both, part), Contains("compresses other values"));
  // And the other way round: what is needed is there.
  std::vector<std::string> warnings;
  CHECK(read_carried(CarryingCheckpoint(state), setup, toy_units(), gradients_only, mpi(), warnings).size() ==
        toy_units().size());
  CHECK(warnings.empty());
  RunSetup deepspeed = setup;
  deepspeed.config.deepspeed_format = true;
  CHECK(copy_carried(deepspeed, toy_units(), both) == nullptr);
}

}  // namespace mpzero
