// Oracle: schedules of a few units, drawn by hand. Forward: embedding 1 ms, two layers 10 ms each; head 5 ms; backward:
// layers 20 ms each, embedding 2 ms; 68 ms in all.

#include "app/plan/simulation/simulated_run.hpp"
#include "tests/app/plan/simulation/small_run.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

namespace {

// Each collective takes 3 ms, whatever its size.
SimulatedRun two_ranks(int stage) {
  SimulatedRun run = small_run();
  run.options.stage = stage;
  run.ranks = {.hosts = 1, .per_host = 2};
  run.layout = {.nodes = 1, .ranks_per_node = 2};
  run.links = {.within_bytes_per_second = 1e30, .start_seconds = 3e-3};
  return run;
}

SimulatedRun offloaded(int64_t spare_bytes) {
  SimulatedRun run = small_run();
  run.options.optimizer_placement = parallel::Placement::kHost;
  run.options.host_update.extra_bytes = spare_bytes;
  run.host_adamw = [](int64_t) { return 7e-3; };
  return run;
}

}  // namespace

TEST_CASE("a single rank computes without waiting") {
  const SimulatedStep step = simulate(small_run());
  CHECK(step.seconds == Approx(0.068));
  CHECK(step.split.forward == Approx(0.021));
  CHECK(step.split.backward == Approx(0.047));
  CHECK(step.of(Work::kMatmuls) == Approx(0.068));
  CHECK(step.split.exposed_communication() == Approx(0.0).margin(1e-12));
}

TEST_CASE("recomputation takes additional time") {
  SimulatedRun run = small_run();
  run.recompute = {model::Recompute::kFull, model::Recompute::kSelective};
  CHECK(simulate(run).seconds == Approx(0.068 + 0.010 + 0.002));
}

TEST_CASE("layer inputs cross PCIe concurrently with the layers") {
  SimulatedRun run = small_run();
  run.model.num_hidden_layers = 4;
  run.recompute.assign(4, model::Recompute::kHost);
  run.times.layer_backward[model::Recompute::kHost] = {.matmuls = 0.030};
  const auto with = [&](double down, double up) {
    // Of the inputs [1, 8, 64] in bf16, and of nothing else.
    constexpr int64_t kBytes = int64_t{8} * 64 * 2;
    run.costs.down = [down](int64_t bytes) { return bytes == kBytes ? down : 0; };
    run.costs.up = [up](int64_t bytes) { return bytes == kBytes ? up : 0; };
    return simulate(run);
  };
  // Of four inputs two.
  const SimulatedStep hidden = with(0.008, 0.009);
  CHECK(hidden.seconds == Approx(0.001 + 4 * 0.010 + 0.005 + 4 * 0.030 + 0.002));
  CHECK(hidden.of(Work::kDown) == Approx(2 * 0.008));
  CHECK(hidden.of(Work::kUp) == Approx(2 * 0.009));
  // The copies end 25 and 50 ms after the embedding, and layers 2 and 3 begin then.
  CHECK(with(0.025, 0.009).seconds == Approx(0.001 + 0.050 + 0.010 + 0.005 + 4 * 0.030 + 0.002));
  // Those to the device take 10 ms longer than a layer.
  CHECK(with(0.008, 0.040).seconds == Approx(hidden.seconds + 2 * 0.010));
}

TEST_CASE("attention outputs and their log-sum-exps cross PCIe concurrently with the layers") {
  SimulatedRun run = small_run();
  run.model.num_hidden_layers = 4;
  run.recompute.assign(4, model::Recompute::kHostAttention);
  run.times.layer_backward[model::Recompute::kHostAttention] = {.matmuls = 0.025};
  // Of the outputs [1, 8, heads, D] in bf16, and of nothing else.
  run.model.head_dim = 48;
  const int64_t outputs = 8 * run.model.query_size() * 2, sums = 8 * run.model.num_attention_heads * 4;
  const auto with = [&](double down, double up) {
    run.costs.down = [=](int64_t bytes) { return bytes == outputs ? down : bytes == sums ? down / 10 : 0; };
    run.costs.up = [=](int64_t bytes) { return bytes == outputs ? up : bytes == sums ? up / 10 : 0; };
    return simulate(run);
  };
  const SimulatedStep hidden = with(0.008, 0.009);
  CHECK(hidden.seconds == Approx(0.001 + 4 * 0.010 + 0.005 + 4 * 0.025 + 0.002));
  CHECK(hidden.of(Work::kDown) == Approx(2 * 0.0088));
  CHECK(hidden.of(Work::kUp) == Approx(2 * 0.0099));
  // Those to the device take 13.5 ms longer than a layer.
  CHECK(with(0.008, 0.035).seconds == Approx(hidden.seconds + 2 * 0.0135));
}

TEST_CASE("micro-batches run one after another") {
  SimulatedRun run = small_run();
  run.options.gradient_accumulation_steps = 3;
  CHECK(simulate(run).seconds == Approx(3 * 0.068));
}

namespace {

SimulatedStep simulate_all(SimulatedRun run) {
  run.every_micro_batch = true;
  return simulate(run);
}

// The step of `micro_batches`, extended and simulated in full, is the same.
void check_extension(SimulatedRun run, int64_t micro_batches) {
  run.options.gradient_accumulation_steps = micro_batches;
  const SimulatedStep whole = simulate_all(run), step = simulate(run);
  CAPTURE(micro_batches, run.options.stage, run.options.overlap);
  CHECK(whole.simulated_micro_batches == micro_batches);
  const auto same = [&](double a, double b) { CHECK(a == Approx(b).epsilon(1e-9).margin(1e-9)); };
  same(step.seconds, whole.seconds);
  same(step.split.forward, whole.split.forward);
  same(step.split.backward, whole.split.backward);
  same(step.split.optimizer, whole.split.optimizer);
  same(step.split.exposed_parameters, whole.split.exposed_parameters);
  same(step.split.exposed_gradients, whole.split.exposed_gradients);
  same(step.split.data, whole.split.data);
  same(step.split.total(), step.seconds);
  same(step.head, whole.head);
  for (size_t work = 0; work < kWorks; ++work) same(step.busy[work], whole.busy[work]);
  REQUIRE(step.collectives.size() == whole.collectives.size());
  for (const auto& [name, time] : whole.collectives) {
    CAPTURE(name);
    CHECK(step.collectives.at(name).calls == time.calls);
    same(step.collectives.at(name).seconds, time.seconds);
  }
  CHECK(device_bytes(step.memory) == device_bytes(whole.memory));
  CHECK(step.simulated_micro_batches < micro_batches);
}

// Six layers, links and kernels that take time by their bytes, and a host that queues slowly enough to matter.
SimulatedRun with_bytes(int stage, double link_rate) {
  SimulatedRun run = small_run();
  run.options.stage = stage;
  run.model.num_hidden_layers = 6;
  run.recompute.assign(6, model::Recompute::kNone);
  run.recompute.front() = model::Recompute::kFull;
  run.ranks = {.hosts = 2, .per_host = 4};
  run.layout = {.nodes = 1, .ranks_per_node = 8};
  run.links = {.within_bytes_per_second = 4 * link_rate,
               .within_hop_seconds = 1e-5,
               .between_bytes_per_second = link_rate,
               .between_hop_seconds = 1e-4,
               .start_seconds = 1e-4};
  run.costs = {.memory = [](int64_t bytes) { return 1e-6 + static_cast<double>(bytes) * 1e-9; },
               .down = [](int64_t bytes) { return 1e-5 + static_cast<double>(bytes) * 3e-8; },
               .up = [](int64_t bytes) { return 1e-5 + static_cast<double>(bytes) * 3e-8; },
               .adamw = [](int64_t bytes) { return static_cast<double>(bytes) * 4e-10; },
               .squares = [](int64_t bytes) { return static_cast<double>(bytes) * 5e-10; },
               .launch = 1e-5,
               .call = 4e-6,
               .memory_bytes_per_second = 1e9};
  run.host_adamw = [](int64_t parameters) { return static_cast<double>(parameters) * 1e-6; };
  return run;
}

// Of gathers that neither keep nor gather much ahead.
constexpr parallel::GatherLimits kLittle{.prefetch_bucket_size = 40'000,
                                         .param_persistence_threshold = 100,
                                         .max_live_parameters = 150'000,
                                         .max_reuse_distance = 100'000};

}  // namespace

TEST_CASE("extrapolating many micro-batches from a few matches simulating all of them") {
  // Links that hide behind computing, that take about as long, and that hold it up.
  for (const double rate : {1e9, 1e7, 2e6}) {
    CAPTURE(rate);
    for (const bool overlap : {true, false}) {
      for (int stage = 0; stage <= 3; ++stage) {
        SimulatedRun run = with_bytes(stage, rate);
        run.options.overlap = overlap;
        check_extension(run, 45);
        if (stage == 0) continue;
        run.layout = {.nodes = 2, .ranks_per_node = 4};
        check_extension(run, 46);
      }
    }
    // Units that are gathered repeatedly.
    for (const int64_t live : {90'000, 150'000, 200'000}) {
      CAPTURE(live);
      SimulatedRun run = with_bytes(3, rate);
      run.options.limits.gather = kLittle;
      run.options.limits.gather.max_live_parameters = live;
      check_extension(run, 41);
    }
  }
  // States and parameters on the host.
  for (const int64_t spare_bytes : {int64_t{0}, int64_t{1} << 40}) {
    for (const double ratio : {1.0, 0.5}) {
      CAPTURE(spare_bytes, ratio);
      SimulatedRun run = with_bytes(3, 1e8);
      // A step begins while the host still updates, which may take it a mark of the timeline more or less.
      run.costs.call = 0;
      run.options.optimizer_placement = parallel::Placement::kHost;
      run.options.optimizer_host_ratio = ratio;
      run.options.host_update.extra_bytes = spare_bytes;
      check_extension(run, 43);
      run.options.parameter_placement = parallel::Placement::kHost;
      run.options.limits.gather = kLittle;
      check_extension(run, 44);
    }
  }
  for (const int stage : {0, 2, 3}) {
    SimulatedRun run = with_bytes(stage, 1e8);
    run.recompute.assign(6, model::Recompute::kHost);
    check_extension(run, 43);
    for (const bool beside : {false, true}) {
      CAPTURE(beside);
      SimulatedRun on_cpus = with_bytes(stage, 1e7);
      on_cpus.costs.host = SharedCores::Options{.moves_beside = beside, .share = 0.7};
      check_extension(on_cpus, 37);
    }
  }
}

TEST_CASE("planning a thousand micro-batches takes about as much work as planning eight") {
  for (int stage = 0; stage <= 3; ++stage) {
    SimulatedRun run = with_bytes(stage, 1e8);
    run.options.gradient_accumulation_steps = 8;
    const int64_t of_eight = simulate(run).simulated_micro_batches;
    run.options.gradient_accumulation_steps = 1024;
    const int64_t of_thousand = simulate(run).simulated_micro_batches;
    CAPTURE(stage, of_eight, of_thousand);
    CHECK(of_eight == 8);
    CHECK(of_thousand <= 2 * of_eight);
  }
}

TEST_CASE("ZeRO-2 overlaps reductions with the backward pass and gathers with the forward pass") {
  const SimulatedStep step = simulate(two_ranks(2));
  // From the norm on: the embedding's gather ends at 3, layer 0's at 6 (2 after the embedding's forward), the others'
  // in time. The layers' and the head's sums run during backward; layer 0's ends 1 ms after the embedding's backward,
  // the embedding's 3 ms later. Then the all-reduce.
  CHECK(step.seconds == Approx(0.068 + 0.003 + 0.002 + 0.001 + 0.003 + 0.003));
  CHECK(step.split.exposed_parameters == Approx(0.005));
  CHECK(step.split.exposed_gradients == Approx(0.007));
  CHECK(step.collectives.at("all-gather").calls == 4);
  CHECK(step.collectives.at("reduce-scatter").calls == 4);
  CHECK(step.collectives.at("all-reduce").seconds == Approx(0.003));
}

TEST_CASE("a different order in the engine gives a different plan") {
  SimulatedRun run = two_ranks(2);
  run.options.overlap = false;
  // Nothing runs during the nine collectives.
  CHECK(simulate(run).seconds == Approx(0.068 + 9 * 0.003));
}

TEST_CASE("ZeRO-3 gathers released units again for the backward pass") {
  SimulatedRun run = two_ranks(3);
  run.options.limits.gather = {
      .prefetch_bucket_size = 0, .param_persistence_threshold = 0, .max_live_parameters = 0, .max_reuse_distance = 0};
  const SimulatedStep step = simulate(run);
  // Embedding, layers and head in forward, layers in backward; the last layer stays for the unit after the head.
  CHECK(step.collectives.at("all-gather").calls >= 5);
  CHECK(step.seconds > simulate(two_ranks(2)).seconds);
}

// The matrices of both layers.
class LayersInCodes final : public parallel::WeightCodec {
 public:
  explicit LayersInCodes(const model::ModelConfig& model) : units_(model::model_units(model)) {}
  std::vector<parallel::CodedRange> ranges(size_t unit) const override {
    if (unit == 0 || unit + 1 == units_.size()) return {};
    std::vector<parallel::CodedRange> ranges;
    int64_t begin = 0;
    for (const ParameterSpec& parameter : units_[unit].parameters) {
      if (parameter.shape.size() == 2) ranges.push_back({.begin = begin, .count = parameter.numel()});
      begin += parameter.numel();
    }
    return ranges;
  }
  at::ScalarType type() const override { return at::kFloat8_e4m3fn; }
  // The simulation does not compute.
  void raise_maximum(const at::Tensor&, const at::Tensor&) const override { FAIL("computes"); }
  void scales_out(const at::Tensor&, const at::Tensor&) const override { FAIL("computes"); }
  void encode_out(const at::Tensor&, const at::Tensor&, const at::Tensor&) const override { FAIL("computes"); }

 private:
  std::vector<UnitSpec> units_;
};

TEST_CASE("ZeRO-3 gathers the next unit during compute if both units may be live") {
  SimulatedRun run = two_ranks(3);
  run.options.limits.gather = {
      .prefetch_bucket_size = 0, .param_persistence_threshold = 0, .max_live_parameters = 0, .max_reuse_distance = 0};
  const SimulatedStep alone = simulate(run);
  run.options.limits.gather.max_live_parameters = 1'000'000;
  const SimulatedStep ahead = simulate(run);
  // As many gathers, of which those of layers hide behind the unit before.
  CHECK(ahead.collectives.at("all-gather").calls == alone.collectives.at("all-gather").calls);
  CHECK(ahead.split.exposed_parameters < 0.6 * alone.split.exposed_parameters);
  CHECK(ahead.seconds < alone.seconds - 0.005);
}

TEST_CASE("gathers of FP8 weights transfer fewer bytes, and the casts before them take time") {
  SimulatedRun run = two_ranks(3);
  run.options.limits.gather = {
      .prefetch_bucket_size = 0, .param_persistence_threshold = 0, .max_live_parameters = 0, .max_reuse_distance = 0};
  run.links = {.within_bytes_per_second = 1e6, .start_seconds = 0};
  run.costs.memory = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-9; };
  const SimulatedStep in_bf16 = simulate(run);
  run.options.codec = std::make_shared<const LayersInCodes>(run.model);
  const SimulatedStep in_codes = simulate(run);
  const auto &before = in_bf16.collectives.at("all-gather"), &after = in_codes.collectives.at("all-gather");
  // A layer has 41,088 elements, two norms of 64 of them, both with the first rank: a message of 128 elements from each
  // rank with each gather. Maxima of 7 matrices from two ranks, once for each layer.
  const int64_t gathers = after.calls - before.calls - 2;
  REQUIRE(gathers >= 3);
  const double saved = static_cast<double>(gathers) * (2 * 41'088 - 41'088 - 2 * 2 * 128) - 2.0 * 2 * 7 * 4;
  // Each rank gets the other's half.
  CHECK(before.seconds - after.seconds == Approx(saved / 2 / 1e6));
  CHECK(in_codes.memory.units_in_flight < in_bf16.memory.units_in_flight);
  // Each gather encodes the rank's half, which reads two bytes and writes one, and copies norms, twice; new values are
  // read for their maxima.
  const double half = 41'088.0 / 2 - 128;
  const double cast = static_cast<double>(gathers) * (3 * half + 2 * 4 * 128) + 2 * 2 * half;
  CHECK(in_codes.of(Work::kElementwise) - in_bf16.of(Work::kElementwise) == Approx(cast * 1e-9).epsilon(0.01));
}

TEST_CASE("the next forward pass follows the host's updates unit by unit") {
  // The norm is known at 68. Updates end at 7, 14, 21 and 28 after it; the embedding waits 7, layer 0 another 6.
  const SimulatedStep step = simulate(offloaded(0));
  CHECK(step.seconds == Approx(0.068 + 0.007 + 0.006));
  CHECK(step.of(Work::kHostOptimizer) == Approx(4 * 0.007));
}

TEST_CASE("with several nodes, the next forward pass also follows the host's updates unit by unit") {
  // Eight units, each gathered where it is used. Collectives take no time, so that a wait for more than the unit's own
  // update would show.
  SimulatedRun run = offloaded(0);
  run.options.stage = 3;
  run.options.limits.gather = {
      .prefetch_bucket_size = 0, .param_persistence_threshold = 0, .max_live_parameters = 0, .max_reuse_distance = 0};
  run.model.num_hidden_layers = 6;
  run.recompute.assign(6, model::Recompute::kNone);
  run.links = {.within_bytes_per_second = 1e30, .between_bytes_per_second = 1e30};
  run.ranks = {.hosts = 2, .per_host = 2};
  // From the norm on the host updates a unit in 12: the head's, the last, ends at 8 x 12, when all before it have been
  // through forward. Then the head's 5, and backward: six layers of 20, the embedding's 2. The collectives start in
  // less than 1 in all.
  run.host_adamw = [](int64_t) { return 12e-3; };
  for (const parallel::ParallelLayout layout :
       {parallel::ParallelLayout{.nodes = 1, .ranks_per_node = 4}, {.nodes = 2, .ranks_per_node = 2}}) {
    CAPTURE(layout.nodes);
    run.layout = layout;
    CHECK(simulate(run).seconds == Approx(0.096 + 0.005 + 0.120 + 0.002).margin(1e-3));
  }
}

TEST_CASE("updates before the norm is known overlap with the backward pass") {
  // Gradients arrive at 26, 46, 66 and 68: updates end at 33, 53, 73 and 80, of which the next forward waits for the
  // last, the embedding's.
  CHECK(simulate(offloaded(int64_t{1} << 40)).seconds == Approx(0.080));
}

TEST_CASE("each of the two levels has its own collectives") {
  SimulatedRun run = two_ranks(2);
  run.ranks = {.hosts = 2, .per_host = 2};
  run.layout = {.nodes = 2, .ranks_per_node = 2};
  run.links.between_bytes_per_second = 1e30;
  const SimulatedStep step = simulate(run);
  CHECK(step.collectives.contains("all-gather between nodes"));
  CHECK(step.collectives.contains("reduce-scatter between nodes"));
  CHECK(step.seconds > simulate(two_ranks(2)).seconds);
}

TEST_CASE("slowdown factors increase only the corresponding times") {
  SimulatedRun run = two_ranks(2);
  const double before = simulate(run).seconds;
  run.network_factor = 2;
  const double slow_network = simulate(run).seconds;
  CHECK(slow_network > before);
  run.straggler_factor = 1.5;
  CHECK(simulate(run).seconds > slow_network + 0.9 * 0.034);
}

TEST_CASE("a faster link never makes a step slower, and more bytes never make a step faster") {
  double last = 1e9;
  for (const double rate : {1e6, 1e7, 1e8, 1e9, 1e12}) {
    SimulatedRun run = two_ranks(3);
    run.links.within_bytes_per_second = rate;
    const double seconds = simulate(run).seconds;
    CHECK(seconds <= last + 1e-9);
    last = seconds;
  }
}

namespace {

SimulatedRun two_ranks_on_cpus(int stage, const SharedCores::Options& cores) {
  SimulatedRun run = two_ranks(stage);
  run.costs.host = cores;
  return run;
}

}  // namespace

TEST_CASE("a CPU computes in program order, and collectives on the same thread do not overlap") {
  const SimulatedStep step = simulate(two_ranks_on_cpus(2, {.moves_beside = false}));
  // Four gathers, four sums and the all-reduce of the norm.
  CHECK(step.seconds == Approx(0.068 + 9 * 0.003));
  CHECK(step.split.exposed_communication() == Approx(9 * 0.003));
  CHECK(step.split.forward == Approx(0.021));
  CHECK(step.split.backward == Approx(0.047));
  CHECK(step.of(Work::kMatmuls) == Approx(0.068));
  CHECK(step.head == Approx(0.005));
  CHECK(step.collectives.at("all-gather").seconds == Approx(4 * 0.003));
}

TEST_CASE("concurrent collectives on a CPU overlap as far as cores are available") {
  const double in_order = simulate(two_ranks_on_cpus(2, {.moves_beside = false})).seconds;
  // Without a core of their own they take from computing what they hide.
  CHECK(simulate(two_ranks_on_cpus(2, {.moves_beside = true, .share = 0.5})).seconds == Approx(in_order));
  // With one they hide as on a GPU.
  const double own_core = simulate(two_ranks_on_cpus(2, {.moves_beside = true, .share = 1})).seconds;
  CHECK(own_core == Approx(simulate(two_ranks(2)).seconds));
  const double most = simulate(two_ranks_on_cpus(2, {.moves_beside = true, .share = 0.8})).seconds;
  CHECK(most > own_core);
  CHECK(most < in_order);
}

TEST_CASE("measured collectives replace the network model within a host") {
  SimulatedRun run = two_ranks_on_cpus(2, {.moves_beside = false});
  run.within_host = [](Collective collective, int64_t bytes, at::ScalarType type) {
    CHECK(bytes > 0);
    CHECK((type == at::kBFloat16 || type == at::kDouble || type == at::kFloat));
    return collective == Collective::kReduceScatter ? 0.010 : 0.001;
  };
  CHECK(simulate(run).seconds == Approx(0.068 + 4 * 0.001 + 4 * 0.010 + 0.001));
}
