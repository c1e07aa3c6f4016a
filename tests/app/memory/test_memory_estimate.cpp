#include "app/memory/memory_estimate.hpp"
#include "base/device/simulated.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using enum model::Recompute;

MemoryEstimate estimate(const char* file, int world_size) {
  return {run(file, {"--seq_length=1024"}, world_size).config,
          model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_0_6b.json"),
          at::kCUDA,
          {.nodes = 1, .ranks_per_node = world_size}};
}

constexpr const char* kStage2 = R"({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}})";

TEST_CASE("ZeRO-2 shards AdamW's states over the ranks and replicates the parameters") {
  constexpr int64_t kParameters = 596'049'920;
  const MemoryEstimate alone = estimate(kStage2, 1), four = estimate(kStage2, 4);
  const parallel::MemoryUse one = alone.states_of(alone.scenario()), quarter = four.states_of(four.scenario());
  CHECK(one.optimizer_states == 12 * kParameters);
  // A shard is padded so that all ranks have as much.
  CHECK(quarter.optimizer_states >= 3 * kParameters);
  CHECK(quarter.optimizer_states < 3 * kParameters + (1 << 16));
  CHECK(quarter.parameters >= 2 * kParameters);
  CHECK(host_bytes(quarter) == 0);
}

TEST_CASE("a run needs its states plus the peak of its activations") {
  const MemoryEstimate estimated = estimate(kStage2, 1);
  const MemoryScenario now = estimated.scenario();
  const ActivationSizes sizes = estimated.activation_sizes(now.micro_batch_size);
  const LayerLevels all{{kNone, 28}};
  CHECK(estimated.need(now, all).device == device_bytes(estimated.states_of(now)) + activation_peak(all, sizes));
  CHECK(estimated.need(now).device < estimated.need(now, all).device);
  CHECK(estimated.leanest(Recomputation::kNone) == all);
  MemoryScenario smaller = now;
  smaller.micro_batch_size = 1;
  CHECK(estimated.need(smaller).device < estimated.need(now).device);
}

TEST_CASE("FP8 casts of weights are kept unless parameters are sharded or the file disables caching") {
  // Of the products of Qwen3-0.6B's 28 layers, in two forms of 8 bits.
  constexpr int64_t kCasts = int64_t{2} * 28 * (1024 * 4096 + 2048 * 1024 + 3 * 1024 * 3072);
  const auto scenario_of = [](const std::string& stage, const char* fp8) {
    return estimate(
        (R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "zero_optimization": {"stage": )" + stage +
         "}, \"fp8\": " + fp8 + "}")
            .c_str(),
        4);
  };
  const MemoryEstimate kept = scenario_of("2", R"({"cache_weights": true})");
  const MemoryScenario now = kept.scenario();
  CHECK(now.keeps_casts);
  MemoryScenario leaner = now;
  leaner.keeps_casts = false;
  // A layer's own casts take the place of those that are kept.
  const int64_t saved = kept.need(now).device - kept.need(leaner).device;
  CHECK(static_cast<double>(saved) <= 1.001 * static_cast<double>(kCasts));  // with their scales
  CHECK(saved > kCasts * 9 / 10);
  CHECK(kept.need(leaner).device == scenario_of("2", R"({"cache_weights": false})").need(leaner).device);

  MemoryScenario sharded = now;
  sharded.zero_stage = 3;
  CHECK(kept.need(sharded).device == scenario_of("3", "{}").need(scenario_of("3", "{}").scenario()).device);
  CHECK_FALSE(scenario_of("3", "{}").scenario().keeps_casts);
  CHECK_FALSE(scenario_of("2", "{}").scenario().keeps_casts);
  CHECK_FALSE(estimate(kStage2, 4).scenario().keeps_casts);
}

TEST_CASE("weights gathered in FP8 need less memory than weights cast after the gather") {
  // One layer's products of Qwen3-0.6B.
  constexpr int64_t kProducts = 1024 * 4096 + 2048 * 1024 + 3 * 1024 * 3072;
  const auto of = [](const std::string& recipe, const std::string& more = "") {
    const std::string file =
        R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3)" + more +
        R"(}, "fp8": {"recipe": ")" + recipe + R"("}})";
    return estimate(file.c_str(), 4);
  };
  const MemoryEstimate codes = of("tensorwise"), rows = of("rowwise");
  const auto in_flight = [](const MemoryEstimate& run) { return run.states_of(run.scenario()).units_in_flight; };
  CHECK(in_flight(codes) <= in_flight(rows) - 2 * kProducts);
  // A layer that recomputes all has both forms at a time, of which one is the codes.
  const auto workspace = [](const MemoryEstimate& run) {
    return run.activation_sizes(128).layers.front()[kFull].workspace;
  };
  const MemoryEstimate offloaded = of("tensorwise", R"(, "offload_param": {"device": "cpu"})");
  CHECK(static_cast<double>(workspace(offloaded) - workspace(codes)) == Approx(kProducts).epsilon(0.001));
  CHECK(in_flight(offloaded) == in_flight(of("rowwise", R"(, "offload_param": {"device": "cpu"})")));
}

TEST_CASE("changes that conflict with other settings are not suggested") {
  const auto scenario = [](const std::string& more) {
    return estimate(("{\"train_micro_batch_size_per_gpu\": 2, " + more + "}").c_str(), 4).scenario();
  };
  const MemoryScenario exact = scenario(R"("bf16": {"enabled": true})");
  CHECK((exact.may_offload_optimizer && exact.may_offload_param));
  const MemoryScenario weights = scenario(R"("zero_optimization": {"stage": 2, "zero_quantized_weights": true})");
  CHECK((weights.may_offload_optimizer && !weights.may_offload_param));
  const MemoryScenario gradients = scenario(R"("zero_optimization": {"stage": 2, "zero_quantized_gradients": true})");
  CHECK((gradients.may_offload_optimizer && gradients.may_offload_param));
  const MemoryScenario moments = scenario(R"("bf16": {"enabled": true, "bf16_optimizer_states": true})");
  CHECK((moments.may_offload_optimizer && moments.may_offload_param));
}

// The message of a run that is out of memory evaluates alternatives while other ranks wait in a collective.
TEST_CASE("suggestions are not simulated again for a different limit") {
  const auto file = GENERATE(
      R"({"train_micro_batch_size_per_gpu": 12, "bf16": {"enabled": true}, "zero_optimization": {"stage": 0}})",
      R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3, "zero_optimization": {"stage": 1}})",
      R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "fp8": {"cache_weights": true},
          "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})");
  const auto level = GENERATE("--recompute=none", "--recompute=auto");
  const RunConfig config = run(file, {"--seq_length=1024", level}, 4).config;
  for (const char* preset : {"qwen3_0_6b", "llama_3_8b", "mistral_7b"}) {
    CAPTURE(file, level, preset);
    const auto model =
        model::ModelConfig::from_file(std::string(MPZERO_SOURCE_DIR "/configs/models/") + preset + ".json");
    const MemoryEstimate estimated(config, model, at::kCUDA, {.nodes = 1, .ranks_per_node = 4});
    const auto changes = [&](int64_t device) {
      const MemoryNeed limit{.device = device, .host = int64_t{1} << 50};
      return changes_that_fit(
          estimated.scenario(), 4, limit,
          [&](const MemoryScenario& changed) { return estimated.need_within(limit, changed); }, 20);
    };
    CHECK(changes(0).empty());
    const plan::SimulatedDevice other({});  // a second simulated device throws
    CHECK_FALSE(changes(estimated.need(estimated.scenario()).device - 1).empty());
  }
}

TEST_CASE("layer inputs are offloaded on request, or by auto if the run does not fit otherwise") {
  constexpr int64_t kInput = int64_t{2} * 1024 * 1024 * 2;
  const MemoryEstimate estimated = estimate(
      R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})", 1);
  MemoryScenario host = estimated.scenario(), tiled = host;
  host.recompute = Recomputation::kHost;
  tiled.recompute = Recomputation::kTiled;
  CHECK(estimated.leanest(Recomputation::kHost) == LayerLevels{{kHost, 28}});
  CHECK(estimated.need(host).host - estimated.need(tiled).host == 26 * kInput);
  const MemoryNeed of_auto = estimated.need(estimated.scenario()), of_host = estimated.need(host);
  CHECK(of_host.device < of_auto.device);
  CHECK(of_auto.host == 0);
  const auto within = [&](int64_t device, int64_t on_host) {
    return estimated.need_within({.device = device, .host = on_host}, estimated.scenario());
  };
  CHECK(within(of_auto.device, 26 * kInput).device == of_auto.device);
  CHECK(within(of_auto.device - 1, 26 * kInput).device == of_host.device);
  CHECK(within(of_auto.device - 1, 26 * kInput).host == 26 * kInput);
  CHECK(within(of_auto.device - 1, 26 * kInput - 1).device == of_auto.device);
  // Nothing fits: the leanest.
  CHECK(within(of_host.device - 1, 26 * kInput).device == of_host.device);
}

TEST_CASE("gradients are released if the run does not fit otherwise, before layer inputs are offloaded") {
  const auto of = [](const std::string& release, int accumulation = 1) {
    return estimate(
        (R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "gradient_accumulation_steps": )" +
         std::to_string(accumulation) + R"(, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu")" +
         release + "}}}")
            .c_str(),
        1);
  };
  constexpr int64_t kUnlimited = int64_t{1} << 50;
  MemoryEstimate automatic = of("");
  const MemoryScenario kept = automatic.scenario();
  CHECK_FALSE(kept.release_gradients);
  MemoryScenario released = kept, offloaded = kept;
  released.release_gradients = true;
  offloaded.recompute = Recomputation::kHost;
  const MemoryNeed as_kept = automatic.need(kept, std::nullopt, 0),
                   as_released = automatic.need(released, std::nullopt, 0);
  // 26 of the 28 layers' gradients, which have 15.7M parameters each.
  CHECK(as_kept.device - as_released.device > 26 * 2 * int64_t{15'700'000});
  const parallel::MemoryUse use = automatic.states_of(released, 0);
  CHECK(use.host_gradients == automatic.states_of(kept, 0).gradients);
  CHECK(as_released.host == host_bytes(use));

  CHECK_FALSE(automatic.choose_release({.device = as_kept.device, .host = kUnlimited}));
  CHECK(automatic.need_within({.device = as_kept.device - 1, .host = as_released.host}, kept, 0).device ==
        as_released.device);
  CHECK(automatic.choose_release({.device = as_kept.device - 1, .host = as_released.host}));
  CHECK(automatic.scenario().release_gradients);
  // A run that does not fit on the host either keeps its gradients on the GPU.
  automatic = of("");
  CHECK_FALSE(automatic.choose_release({.device = as_kept.device - 1, .host = as_released.host - 1}));
  // Less device memory requires layer inputs in host memory, too.
  const MemoryNeed both = automatic.need_within({.device = as_released.device - 1, .host = kUnlimited}, kept, 0);
  CHECK(both.device < as_released.device);
  CHECK(both.host > as_released.host);
  CHECK(automatic.choose_release({.device = as_released.device - 1, .host = kUnlimited}));
  // If nothing fits, the gradients are released: the limit may include a margin that the run does not need.
  automatic = of("");
  CHECK(automatic.choose_release({.device = 1, .host = kUnlimited}));
  // Layer inputs alone are enough if the host has no memory for gradients.
  automatic = of("");
  const MemoryNeed inputs = automatic.need(offloaded, std::nullopt, 0);
  if (inputs.device < as_kept.device && inputs.host < as_released.host) {
    CHECK_FALSE(automatic.choose_release({.device = inputs.device, .host = inputs.host}));
    CHECK(automatic.need_within({.device = inputs.device, .host = inputs.host}, kept, 0).device == inputs.device);
  }

  const MemoryNeed small{.device = as_kept.device - 1, .host = kUnlimited},
      large{.device = kUnlimited, .host = kUnlimited};
  MemoryEstimate never = of(R"(, "release_gradients": false)"), always = of(R"(, "release_gradients": true)");
  MemoryEstimate open = of(R"(, "release_gradients": "auto")"), accumulated = of("", 2);
  CHECK_FALSE(never.choose_release(small));
  CHECK(always.choose_release(large));
  CHECK(open.choose_release(small));
  CHECK_FALSE(accumulated.choose_release(small));
}

TEST_CASE("a run releases gradients as preferred if it fits, and as configured in any case") {
  const auto of = [](const char* release) {
    return estimate((std::string(R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "release_gradients": )") +
                     release + "}}}")
                        .c_str(),
                    1);
  };
  constexpr int64_t kUnlimited = int64_t{1} << 50;
  MemoryEstimate automatic = of(R"("auto")");
  const MemoryScenario kept = automatic.scenario();
  MemoryScenario released = kept, offloaded = kept;
  released.release_gradients = true;
  offloaded.recompute = Recomputation::kHost;
  const MemoryNeed as_kept = automatic.need(kept, std::nullopt, 0),
                   as_released = automatic.need(released, std::nullopt, 0),
                   as_offloaded = automatic.need(offloaded, std::nullopt, 0);
  REQUIRE(as_offloaded.device < as_kept.device);
  const auto choose = [&](const MemoryNeed& limit, bool preferred) {
    MemoryEstimate estimated = of(R"("auto")");
    const bool chosen = estimated.choose_release(limit, preferred);
    CHECK(estimated.scenario().release_gradients == chosen);
    return chosen;
  };
  const MemoryNeed large{.device = as_kept.device, .host = kUnlimited},
      small{.device = as_kept.device - 1, .host = kUnlimited};
  for (const bool preferred : {false, true}) {
    CHECK(choose(large, preferred) == preferred);
    CHECK(choose(small, preferred) == preferred);
    CHECK_FALSE(of("false").choose_release(small, preferred));
    CHECK(of("true").choose_release(large, preferred));
  }
  CHECK_FALSE(choose({.device = as_kept.device, .host = as_released.host - 1}, true));
  CHECK(choose({.device = as_offloaded.device - 1, .host = kUnlimited}, false));
  // The host has memory for the gradients, but not for the activations.
  CHECK(choose({.device = as_kept.device - 1, .host = std::min(as_released.host, as_offloaded.host - 1)}, false) ==
        (as_released.host < as_offloaded.host));
}

TEST_CASE("advice to accumulate gradients removes release_gradients true, which a run refuses to combine") {
  const auto of = [](at::Device device, const std::string& release) {
    const RunConfig config = run(R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "release_gradients": )" +
                                     release + "}}}",
                                 {"--seq_length=1024"}, 1)
                                 .config;
    const auto model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_0_6b.json");
    const MemoryEstimate estimated(config, model, device, {.nodes = 1, .ranks_per_node = 1});
    constexpr int64_t kUnlimited = int64_t{1} << 50;
    const auto changes =
        changes_that_fit(estimated.scenario(), 1, {.device = kUnlimited, .host = kUnlimited},
                         [&](const MemoryScenario& changed) { return estimated.need(changed, std::nullopt, 0); });
    REQUIRE_FALSE(changes.empty());
    CHECK_THAT(changes.front().text, Catch::Contains("gradient_accumulation_steps 2"));
    return changes.front().text;
  };
  for (const at::Device device : {at::kCUDA, at::kCPU}) {
    CHECK_THAT(of(device, "true"), Catch::Contains("release_gradients auto"));
    CHECK_THAT(of(device, R"("auto")"), !Catch::Contains("release_gradients"));
  }
}

TEST_CASE("--deterministic counts a copy of the query gradients per group of multiprocessors") {
  const SimulatedTarget before = simulated_target();
  const auto workspace = [](const char* deterministic, int multiprocessors) {
    simulated_target().multiprocessors = multiprocessors;
    const RunConfig config = run(R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}})",
                                 {"--seq_length=8192", deterministic}, 1)
                                 .config;
    const auto model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_0_6b.json");
    const MemoryEstimate estimated(config, model, at::kCUDA, {.nodes = 1, .ranks_per_node = 1});
    return estimated.activation_sizes(1).layers.front()[kNone].workspace;
  };
  // FlashAttention: one fp32 copy [8192, 16 heads, 128] for each of ceil(multiprocessors / 16 heads) splits.
  constexpr int64_t kCopy = int64_t{8192} * 16 * 128 * 4;
  const auto copies = [](int64_t bytes) { return static_cast<double>(bytes) / kCopy; };
  // Partial sums also depend on the multiprocessors.
  CHECK(copies(workspace("--deterministic=true", 132) - workspace("--deterministic=true", 64)) ==
        Approx(5).epsilon(0.01));
  CHECK(workspace("--deterministic=false", 132) == workspace("--deterministic=false", 64));
  CHECK(workspace("--deterministic=true", 132) > workspace("--deterministic=false", 132) + 6 * kCopy);
  simulated_target() = before;
}

TEST_CASE("--recompute auto uses half of the free host memory to save time, and all of it if necessary") {
  ActivationSizes::Layer layer;
  layer[kNone] = {.kept = 100, .workspace = 0};
  layer[kSelective] = {.kept = 60, .workspace = 0};
  layer[kAttention] = {.kept = 50, .workspace = 50};
  layer[kFull] = {.kept = 1, .workspace = 50};
  layer[kTiled] = layer[kHost] = {.kept = 1, .workspace = 10};
  layer[kHostAttention] = {.kept = 2, .workspace = 10};
  ActivationSizes sizes{.layers = std::vector<ActivationSizes::Layer>(4, layer), .attention_share = 0.5};
  const auto levels = [&](int64_t room, int64_t on_host, const char* json = kStage2) {
    const auto read = model::ModelConfig::from_file(std::string(MPZERO_SOURCE_DIR) + "/configs/models/qwen3_0_6b.json");
    const parallel::ParallelLayout ranks{.nodes = 1, .ranks_per_node = 1};
    return MemoryEstimate(run(json, {}, 1).config, read, at::kCUDA, ranks).levels_within(sizes, room, on_host);
  };
  // The attention outputs and inputs of two layers stay on the GPU, those of the others need 4 bytes.
  CHECK(levels(14, 8) == LayerLevels{{kHostAttention, 4}});
  CHECK(levels(14, 7) == LayerLevels{{kHost, 1}, {kHostAttention, 3}});
  CHECK(levels(14, 3) == LayerLevels{{kTiled, 4}});
  CHECK(levels(12, 2) == LayerLevels{{kHost, 4}});
  // More host memory never leads to more recomputation.
  sizes.layers.resize(10, layer);
  for (int64_t room = 11; room < 40; ++room) {
    for (int64_t on_host = 0; on_host < 40; ++on_host) {
      const LayerLevels less = levels(room, on_host), more = levels(room, on_host + 1);
      CAPTURE(room, on_host, describe(less), describe(more));
      CHECK(more[kTiled] + more[kHost] + more[kFull] <= less[kTiled] + less[kHost] + less[kFull]);
    }
  }
  sizes.layers.resize(4);
  const int64_t unknown = std::numeric_limits<int64_t>::max() - 100;
  CHECK(levels(14, unknown) == LayerLevels{{kTiled, 4}});
  CHECK(levels(12, unknown) == LayerLevels{{kHost, 4}});
  constexpr const char* kPageable = R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2,
    "offload_optimizer": {"device": "cpu", "pin_memory": false}}})";
  CHECK(levels(14, 8, kPageable) == LayerLevels{{kTiled, 4}});
}

TEST_CASE("a level that the model does not support needs the memory of full recomputation") {
  const RunConfig config = run(kStage2, {"--seq_length=48", "--source_length=32"}, 1).config;
  const auto t5 = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/tests/model/fixtures/t5.json");
  const MemoryEstimate estimate(config, t5, at::kCUDA, {.nodes = 1, .ranks_per_node = 1});
  CHECK(estimate.leanest(Recomputation::kTiled) == estimate.leanest(Recomputation::kFull));
  CHECK(estimate.leanest(Recomputation::kHost) == estimate.leanest(Recomputation::kFull));
}

TEST_CASE("--recompute auto chooses among the levels that the model supports") {
  const auto levels = [](const char* model, const std::vector<std::string>& flags, const char* json = kStage2) {
    RunConfig config = run(json, flags, 1).config;
    auto read = model::ModelConfig::from_file(std::string(MPZERO_SOURCE_DIR) + model);
    if (config.lora.r) read.lora = LoraConfig{.r = 4, .alpha = 8, .targets = {"q_proj"}};
    return MemoryEstimate(config, read, at::kCUDA, {.nodes = 1, .ranks_per_node = 1}).activation_sizes(1).levels;
  };
  using Levels = std::vector<model::Recompute>;
  constexpr const char* kQwen3 = "/configs/models/qwen3_0_6b.json";
  CHECK(levels(kQwen3, {}) == Levels(model::kRecomputes.begin(), model::kRecomputes.end()));
  CHECK(levels("/tests/model/fixtures/t5.json", {"--seq_length=48", "--source_length=32"}) ==
        Levels{kNone, kSelective, kFull});
  CHECK(levels(kQwen3, {"--lora_r=4"}) == Levels{kNone, kSelective, kAttention, kFull, kHostAttention, kHost});
  CHECK(levels(kQwen3, {"--fp8=tensorwise"}, R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1})") ==
        Levels{kNone, kSelective, kAttention, kFull, kHostAttention, kHost});
}

TEST_CASE("copies over PCIe delay fast GPUs and FP8 matmuls more") {
  const SimulatedTarget before = simulated_target();
  const auto sizes = [](const std::vector<std::string>& flags, const char* zero = "") {
    const std::string json = R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1)" + std::string(zero);
    const auto model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_0_6b.json");
    return MemoryEstimate(run(json + "}", flags, 1).config, model, at::kCUDA, {.nodes = 1, .ranks_per_node = 1})
        .activation_sizes(1);
  };
  const ActivationSizes bf16 = sizes({}), fp8 = sizes({"--fp8=tensorwise"});
  // Attention, which stays in bf16, takes a larger share.
  CHECK(fp8.copy_passes > 1.5 * bf16.copy_passes);
  CHECK(fp8.copy_passes < 2 * bf16.copy_passes);
  CHECK(fp8.attention_share / bf16.attention_share == Approx(fp8.copy_passes / bf16.copy_passes));
  simulated_target().flops_per_byte *= 2;
  CHECK(sizes({}).copy_passes == Approx(2 * bf16.copy_passes));
  simulated_target() = before;
  CHECK(bf16.host_parameters == 0);
  // bf16, without padding.
  CHECK(sizes({}, R"(, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}})").host_parameters ==
        Approx(2 * 596'049'920).epsilon(1e-3));
}

TEST_CASE("the mean time of a layer weights FP8 and bf16 layers by their number") {
  const auto passes = [](const std::string& fp8) {
    const std::string json = R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1)";
    const auto model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_0_6b.json");
    return MemoryEstimate(run(json + fp8 + "}", {}, 1).config, model, at::kCUDA, {.nodes = 1, .ranks_per_node = 1})
        .activation_sizes(1)
        .copy_passes;
  };
  const double bf16 = passes(""), fp8 = passes(R"(, "fp8": {"enabled": true, "filter_fqns": []})");
  const double one_in_bf16 = passes(R"(, "fp8": {"enabled": true, "filter_fqns": ["layers.0"]})");
  CHECK(1 / one_in_bf16 == Approx(27.0 / 28 / fp8 + 1.0 / 28 / bf16));
}

TEST_CASE("the last layer of T5's encoder keeps the output that all layers of the decoder read") {
  const RunConfig config = run(kStage2, {"--seq_length=48", "--source_length=32"}, 1).config;
  auto t5 = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/tests/model/fixtures/t5.json");
  t5.t5->encoder_layers = 3;
  t5.num_hidden_layers += 1;
  const ActivationSizes sizes =
      MemoryEstimate(config, t5, at::kCPU, {.nodes = 1, .ranks_per_node = 1}).activation_sizes(1);
  // fp32 [32, H]: the output, and what the encoder's final norm saves, its input and rstd [32].
  CHECK(sizes.layers[2][kNone].kept - sizes.layers[1][kNone].kept == int64_t{32} * (2 * t5.hidden_size + 1) * 4);
}

TEST_CASE("GPUs without peer access need no buffer for received shards") {
  const auto in_flight = [](int world_size, int peer_gpus) {
    const MemoryEstimate estimated(run(kStage2, {"--seq_length=1024"}, world_size).config,
                                   model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_0_6b.json"),
                                   at::kCUDA, {.nodes = 1, .ranks_per_node = world_size}, peer_gpus);
    return estimated.states_of(estimated.scenario()).units_in_flight;
  };
  CHECK(in_flight(4, 4) > in_flight(4, 1));
  CHECK(in_flight(8, 4) == in_flight(8, 1));
}

TEST_CASE("on the CPU, layer inputs are not offloaded") {
  const RunConfig config = run(kStage2, {"--seq_length=1024", "--recompute=host"}, 1).config;
  const auto model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_0_6b.json");
  const MemoryEstimate cpu(config, model, at::kCPU, {.nodes = 1, .ranks_per_node = 1});
  CHECK(cpu.leanest(Recomputation::kHost) == LayerLevels{{kTiled, 28}});
  CHECK(cpu.leanest(Recomputation::kHostAttention) == LayerLevels{{kTiled, 28}});
  CHECK_FALSE(cpu.scenario().may_offload_activations);
  CHECK(cpu.need(cpu.scenario()).host == 0);
}

}  // namespace
}  // namespace mpzero
