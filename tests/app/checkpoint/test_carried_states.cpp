// Engines of a tiny model that compress between the ranks as nodes; what they carry goes through a checkpoint.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "app/checkpoint/carried_states.hpp"
#include "app/checkpoint/run_state.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"
#include "io/checkpoint/reader.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "tests/catch.hpp"
#include "tests/io/stub_checkpoint.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero {
namespace {

using parallel::mpi;
using parallel::toy_units;

// What a rank's file holds.
struct Contents {
  io::CarriedState state;
  std::vector<std::vector<std::byte>> bytes;
};

std::shared_ptr<Contents> contents_of(const std::shared_ptr<const io::CarriedState>& state) {
  auto contents = std::make_shared<Contents>(Contents{*state, {}});
  for (size_t i = 0; i < state->values.size(); ++i) {
    const std::span<const std::byte> bytes = state->fetch(i);
    contents->bytes.emplace_back(bytes.begin(), bytes.end());
  }
  return contents;
}

// A checkpoint that holds what each rank says here, and nothing else.
class CarryingCheckpoint final : public io::testing::StubCheckpoint {
 public:
  // `holders`: ranks that have a file, by the manifest. `contents`: of this rank's; null: it has none. `damage`: why it
  // cannot be read.
  CarryingCheckpoint(int64_t holders, std::shared_ptr<const Contents> contents, std::string damage = "")
      : holders_(holders), contents_(std::move(contents)), damage_(std::move(damage)) {}
  int64_t carrying_ranks() const override { return holders_; }
  std::optional<io::StoredCarried> carried(int, std::span<const io::CarriedValues> wanted) const override {
    if (!damage_.empty()) throw Damaged(damage_);
    if (!contents_) return std::nullopt;
    const io::CarriedState& state = contents_->state;
    io::StoredCarried stored{.nodes = state.nodes, .ranks_per_node = state.ranks_per_node, .values = {}};
    for (const io::CarriedValues& values : wanted) {
      const auto found = std::ranges::find_if(state.values, [&](const io::CarriedValues& other) {
        return other.unit == values.unit && other.name == values.name && other.shape == values.shape &&
               other.is_bf16 == values.is_bf16;
      });
      stored.values.emplace_back();
      if (found != state.values.end()) {
        stored.values.back() = contents_->bytes[static_cast<size_t>(found - state.values.begin())];
      }
    }
    return stored;
  }

 private:
  int64_t holders_;
  std::shared_ptr<const Contents> contents_;
  std::string damage_;
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
const parallel::Compression kGradients{.gradient_bits = 8, .weights = false, .seed = 1};
const parallel::Compression kWeights{.gradient_bits = 0, .weights = true, .seed = 1};

// The ranks as nodes, with an engine that has trained.
struct Run {
  explicit Run(const parallel::Compression& compression)
      : engine(parallel::make_toy_engine(toy_run(compression), at::kCPU, parameters.levels(), gradients.levels())),
        setup(setup_of(parameters.levels())) {
    engine.initialize(parallel::ToyWeights(), mpi());
    parallel::train_toy(engine, toy_run(compression), at::kCPU, mpi().rank(), mpi().world_size());
  }

  std::shared_ptr<Contents> saved() { return contents_of(carried_now(setup, toy_units(), engine)); }

  parallel::VirtualNodes parameters{1}, gradients{1};
  parallel::ZeroEngine engine;
  RunSetup setup;
};

// What all ranks take from such a checkpoint, which must be the same: of which kinds, and with which sentences.
struct Taken {
  bool gradients = false;
  bool parameters = false;
  std::vector<std::string> warnings;
};

Taken take(const CarryingCheckpoint& checkpoint, Run& run, const RunSetup& setup) {
  Taken taken;
  const std::vector<parallel::Carried> carried =
      read_carried(checkpoint, setup, toy_units(), run.engine, mpi(), taken.warnings);
  for (const parallel::Carried& of_unit : carried) {
    CHECK(of_unit.gradient_residual.defined() == carried[0].gradient_residual.defined());
    CHECK(of_unit.parameters.defined() == carried[0].parameters.defined());
    taken.gradients = of_unit.gradient_residual.defined();
    taken.parameters = of_unit.parameters.defined();
  }
  const auto of_rank = std::tuple(taken.gradients, taken.parameters, taken.warnings);
  for (const auto& other : all_gather(mpi(), of_rank)) CHECK(other == of_rank);
  return taken;
}

Taken take(const CarryingCheckpoint& checkpoint, Run& run) { return take(checkpoint, run, run.setup); }

void drop(Contents& contents, const std::string& name) {
  for (size_t i = contents.bytes.size(); i-- > 0;) {
    if (contents.state.values[i].name != name) continue;
    contents.state.values.erase(contents.state.values.begin() + static_cast<int64_t>(i));
    contents.bytes.erase(contents.bytes.begin() + static_cast<int64_t>(i));
  }
}

bool is_last_rank() { return mpi().rank() + 1 == mpi().world_size(); }

}  // namespace

using Catch::Contains;

TEST_CASE("carried state is restored bit for bit") {
  Run run(kBoth);
  const int ranks = mpi().world_size();
  if (ranks == 1) {
    CHECK(carried_now(run.setup, toy_units(), run.engine) == nullptr);
    return;
  }
  const auto saved = run.saved();
  CHECK(saved->state.values.size() == 2 * toy_units().size());
  std::vector<std::string> warnings;
  const std::vector<parallel::Carried> read =
      read_carried(CarryingCheckpoint(ranks, saved), run.setup, toy_units(), run.engine, mpi(), warnings);
  CHECK(warnings.empty());
  REQUIRE(read.size() == toy_units().size());
  for (size_t u = 0; u < read.size(); ++u) {
    const parallel::Carried now = run.engine.carried(u);
    CHECK(parallel::same_bits(read[u].gradient_residual, now.gradient_residual));
    CHECK(parallel::same_bits(read[u].parameters, now.parameters));
  }
  RunSetup deepspeed = run.setup;
  deepspeed.config.deepspeed_format = true;
  CHECK(carried_now(deepspeed, toy_units(), run.engine) == nullptr);
  CHECK_FALSE(saves_carried(deepspeed, run.engine));
}

TEST_CASE("a snapshot contains the carried state at its start, in the order of a save") {
  Run run(kBoth);
  if (mpi().world_size() == 1) return;
  StateSnapshot snapshot(run.engine, std::vector<bool>(toy_units().size(), true), saves_carried(run.setup, run.engine),
                         at::kCPU, 2);
  const auto expected = run.saved();
  snapshot.begin();
  const auto copied = contents_of(carried_in(snapshot, run.setup, toy_units(), run.engine));
  CHECK((copied->bytes == expected->bytes));
  // By so much the plan of host memory is more than for the states alone.
  const StateSnapshot states(run.engine, std::vector<bool>(toy_units().size(), true), /*carried=*/false, at::kCPU, 2);
  CHECK(snapshot.bytes() >= states.bytes() + copied->state.bytes());
  snapshot.release();
}

TEST_CASE("gradient residuals and parameters are restored independently") {
  if (mpi().world_size() == 1) return;
  const int ranks = mpi().world_size();
  Run both(kBoth), gradients(kGradients), weights(kWeights);
  const auto of_both = both.saved(), of_gradients = gradients.saved(), of_weights = weights.saved();

  Taken taken = take({ranks, of_gradients}, both);
  CHECK((taken.gradients && !taken.parameters));
  REQUIRE(taken.warnings.size() == 1);
  CHECK_THAT(taken.warnings.front(), Contains("tiny-5steps") && Contains("error feedback of parameters"));
  taken = take({ranks, of_weights}, both);
  CHECK((!taken.gradients && taken.parameters));
  REQUIRE(taken.warnings.size() == 1);
  CHECK_THAT(taken.warnings.front(), Contains("error feedback of gradients"));
  // What the run does not need is not missed.
  for (Run* const run : {&gradients, &weights}) {
    taken = take({ranks, of_both}, *run);
    CHECK((taken.gradients == (run == &gradients) && taken.parameters == (run == &weights)));
    CHECK(taken.warnings.empty());
  }
  taken = take({ranks, of_weights}, gradients);
  CHECK((!taken.gradients && !taken.parameters));
  CHECK(taken.warnings.size() == 1);
}

TEST_CASE("if one rank's file lacks state, no rank restores that state") {
  if (mpi().world_size() == 1) return;
  const int ranks = mpi().world_size();
  Run run(kBoth);
  const auto check = [&](const CarryingCheckpoint& checkpoint, bool gradients, bool parameters, size_t warnings) {
    const Taken taken = take(checkpoint, run);
    CHECK((taken.gradients == gradients && taken.parameters == parameters));
    CHECK(taken.warnings.size() == warnings);
  };
  for (const bool lacks_gradients : {false, true}) {
    const auto contents = run.saved();
    if (is_last_rank()) drop(*contents, lacks_gradients ? "gradient_residual" : "parameters");
    check({ranks, contents}, !lacks_gradients, lacks_gradients, 1);
  }
  check({ranks, is_last_rank() ? nullptr : run.saved()}, false, false, 2);
  // As from two manifests.
  check({is_last_rank() ? 0 : ranks, is_last_rank() ? nullptr : run.saved()}, false, false, 1);
}

TEST_CASE("a damaged file stops all ranks of a run that needs it, and no other run") {
  if (mpi().world_size() == 1) return;
  const int ranks = mpi().world_size();
  const std::string damage = is_last_rank() ? "carried_states.h5 is damaged: the checksum" : "";
  Run run(kBoth), exact({});
  std::vector<std::string> warnings;
  const CarryingCheckpoint damaged(ranks, run.saved(), damage);
  bool is_damaged = false;
  try {
    read_carried(damaged, run.setup, toy_units(), run.engine, mpi(), warnings);
  } catch (const Damaged& error) {
    is_damaged = true;
    CHECK(error.scope() == ErrorScope::kAllRanks);
    CHECK_THAT(error.what(), Contains("carried_states.h5 is damaged"));
  }
  CHECK(is_damaged);

  const auto goes_on = [&](Run& of, const RunSetup& setup, const CarryingCheckpoint& checkpoint) {
    const Taken taken = take(checkpoint, of, setup);
    CHECK((!taken.gradients && !taken.parameters));
    REQUIRE(taken.warnings.size() == 1);
    CHECK_THAT(taken.warnings.front(), Contains("discarded"));
    return taken.warnings.front();
  };
  goes_on(exact, exact.setup, damaged);
  RunSetup other = run.setup;
  other.layout = {.nodes = 1, .ranks_per_node = ranks};
  CHECK_THAT(goes_on(run, other, damaged),
             Contains(fmt::format("has {} shard groups", ranks)) && Contains("run has 1"));
  goes_on(run, run.setup, {ranks + 1, nullptr, damage});
}

TEST_CASE("carried state of a different run is discarded with a message") {
  const int ranks = mpi().world_size();
  if (ranks == 1) return;
  Run run(kBoth), exact({});
  const auto saved = run.saved();
  const auto sentence_of = [&](Run& of, const CarryingCheckpoint& checkpoint) {
    const Taken taken = take(checkpoint, of);
    CHECK((!taken.gradients && !taken.parameters));
    return taken.warnings.empty() ? std::string() : taken.warnings.front();
  };
  CHECK_THAT(sentence_of(exact, {ranks, saved}),
             Contains("checkpoints/tiny-5steps") && Contains("does not use compression"));
  const std::string gradients = "error feedback of gradients", parameters = "error feedback of parameters";
  const auto sentence_with = [&](const char* settings) {
    CarryingCheckpoint checkpoint(ranks, saved);
    checkpoint.made.settings_json = settings;
    return sentence_of(exact, checkpoint);
  };
  CHECK_THAT(sentence_with(R"({"zero_quantized_gradients": "int8", "zero_quantized_weights": "int8"})"),
             Contains(gradients) && Contains(parameters));
  CHECK_THAT(sentence_with(R"({"zero_quantized_gradients": "none", "zero_quantized_weights": "int8"})"),
             Contains(parameters) && !Contains("gradients"));
  CHECK_THAT(sentence_of(run, {2 * ranks, saved}), Contains("has 4 ranks, but this run has 2"));
  CHECK_THAT(sentence_of(run, {0, nullptr}), Contains("no compression state"));
  CHECK(sentence_of(exact, {0, nullptr}).empty());
}

}  // namespace mpzero
