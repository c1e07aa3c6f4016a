// The simulated device against the CPU: the same operations, and the memory that tensors really take there.
#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/app/simulation/compared_units.hpp"
#include "tests/app/simulation/memory_watch.hpp"
#include "tests/app/simulation/unscoped_operators.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::plan {
namespace {

using model::Fp8Options;
using model::ModelConfig;
using model::Operation;
using model::Recompute;

// Large enough that activations, not small sums, decide the peak.
ModelConfig wide(ModelConfig config) {
  config.hidden_size = 192;
  config.intermediate_size = 448;
  config.head_dim = 32;
  config.vocab_size = 800;
  return config;
}

constexpr double kTolerance = 0.02;

}  // namespace

TEST_CASE("records the operations and the memory of the CPU") {
  const OneThread one;
  MemoryWatch watch;
  for (const ModelConfig& config : model::small_models()) {
    for (const bool accumulates : {false, true}) {
      for (const auto& [type, gradient_type] :
           std::vector<std::pair<at::ScalarType, at::ScalarType>>{{at::kDouble, at::kDouble},
                                                                  {at::kFloat, at::kFloat},
                                                                  {at::kBFloat16, at::kBFloat16},
                                                                  {at::kBFloat16, at::kFloat}}) {
        // First the head needs the most memory, then the layer.
        for (const int64_t max_logits : {800 * 200, 800 * 16}) {
          if (max_logits == 800 * 200 && config.model_type != model::small_models().front().model_type) continue;
          INFO(config.model_type << " " << type << ", gradients in " << gradient_type << ", accumulates " << accumulates
                                 << ", logits " << max_logits);
          const MicroBatchShape shape{.sequences = 2,
                                      .length = 100,
                                      .type = type,
                                      .gradient_type = gradient_type,
                                      .accumulates = accumulates,
                                      .mlp_tile = 64};
          CHECK(differences(wide(config), shape, watch.cpu(), max_logits, kTolerance) == std::vector<std::string>());
        }
      }
    }
  }
}

TEST_CASE("records the operations and the memory of packed documents with weighted losses") {
  const OneThread one;
  MemoryWatch watch;
  for (const ModelConfig& config : model::small_models()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      INFO(config.model_type << " " << type);
      const MicroBatchShape shape{
          .sequences = 2, .length = 100, .documents = 3, .loss_mask = true, .type = type, .gradient_type = type};
      CHECK(differences(wide(config), shape, watch.cpu(), 800 * 16, kTolerance) == std::vector<std::string>());
    }
  }
}

TEST_CASE("records the operations and the memory of ranks that share sequences") {
  const OneThread one;
  MemoryWatch watch;
  for (const ModelConfig& config : model::small_models()) {
    for (const int64_t documents : {0, 3}) {
      INFO(config.model_type << ", documents " << documents);
      const MicroBatchShape shape{.sequences = 2,
                                  .length = 120,
                                  .sequence_ranks = 2,
                                  .documents = documents,
                                  .type = at::kBFloat16,
                                  .gradient_type = at::kFloat,
                                  .mlp_tile = 64};
      CHECK(differences(wide(config), shape, watch.cpu(), 800 * 16, kTolerance) == std::vector<std::string>());
    }
  }
}

TEST_CASE("records the operations and the memory of each kind of T5 layer") {
  const OneThread one;
  MemoryWatch watch;
  const std::filesystem::path fixtures = std::filesystem::path(MPZERO_SOURCE_DIR) / "tests/model/fixtures";
  for (const auto& [name, dropout] :
       {std::pair("t5.json", 0.0), std::pair("t5_v1_1.json", 0.0), std::pair("t5.json", 0.1)}) {
    ModelConfig config = wide(ModelConfig::from_file(fixtures / name));
    config.t5->dropout_rate = dropout;
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      INFO(name << ", layer " << layer);
      const MicroBatchShape shape{.sequences = 2,
                                  .length = 164,
                                  .source_length = 100,
                                  .type = at::kFloat,
                                  .gradient_type = at::kFloat,
                                  .layer = layer};
      CHECK(differences(config, shape, watch.cpu(), 800 * 16, kTolerance) == std::vector<std::string>());
    }
  }
}

TEST_CASE("the deterministic mode is that of the last micro-batch, even if its record is cached") {
  for (const bool deterministic : {true, false, true}) {
    unit_record(model::small_qwen3(), {.length = 16, .deterministic = deterministic}, at::kCPU);
    CHECK(at::globalContext().deterministicAlgorithms() == deterministic);
  }
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

TEST_CASE("records the operations and the memory of adapters") {
  const OneThread one;
  MemoryWatch watch;
  for (ModelConfig config : model::small_models()) {
    config.lora = LoraConfig{.r = 32, .alpha = 16, .targets = model::lora_targets(config, "a test")};
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      INFO(config.model_type << " " << type);
      const MicroBatchShape shape{.sequences = 2, .length = 100, .type = type, .gradient_type = type};
      CHECK(differences(wide(config), shape, watch.cpu(), 800 * 16, kTolerance) == std::vector<std::string>());
    }
  }
}

TEST_CASE("records the FP8 operations and the memory of the CPU") {
  using enum WeightCasts;
  using model::fp8::FastAccumulation, model::fp8::Scaling;
  const OneThread one;
  MemoryWatch watch;
  const std::vector<Fp8Options> all{
      {},
      {.recipe = {.scaling = Scaling::kRowwise, .gradients = model::fp8::Format::kE4m3}, .filter_fqns = {}},
      {.recipe = {.fast_accumulation = FastAccumulation::kAll}, .filter_fqns = {"mlp"}},
      {.recipe = {.fast_accumulation = FastAccumulation::kNone}, .filter_fqns = {"self_attn", "down_proj"}}};
  size_t models = 0;
  for (const ModelConfig& config : model::small_models()) {
    for (size_t i = 0; i < all.size(); ++i) {
      // One model has all options, the others one each.
      if (models > 0 && i != models % all.size()) continue;
      for (const WeightCasts casts : {kKept, kFirstUse, kEachUse, kFirstMaxima, kKnownMaxima, kCodes}) {
        const bool by_tensor = all[i].recipe.scaling == Scaling::kTensorwise;
        if (casts == kCodes && !by_tensor) continue;
        INFO(config.model_type << ", options " << i << ", casts " << static_cast<int>(casts));
        const MicroBatchShape shape{.sequences = 2, .length = 104, .fp8 = all[i], .casts = casts};
        CHECK(differences(wide(config), shape, watch.cpu(), 800 * 16, kTolerance) == std::vector<std::string>());
      }
    }
    ++models;
  }
}

TEST_CASE("measured calls run the recorded operations, and accumulate in every second run") {
  std::vector<ModelConfig> models = model::small_models();
  models.push_back(ModelConfig::from_file(MPZERO_SOURCE_DIR "/tests/model/fixtures/t5.json"));
  for (const ModelConfig& config : models) {
    for (const bool fp8 : {false, true}) {
      if (fp8 && config.t5) continue;
      MicroBatchShape shape{.sequences = 2,
                            .length = 48,
                            .source_length = config.t5 ? 32 : 0,
                            .gradient_type = at::kFloat,
                            .fp8 = fp8 ? std::optional(Fp8Options{.recipe = {}, .filter_fqns = {}}) : std::nullopt,
                            .casts = WeightCasts::kFirstUse};
      INFO(config.model_type << ", FP8 " << fp8);
      using Calls = std::vector<std::vector<std::string>>;
      const auto texts = [](const std::vector<Operation>& operations) {
        std::vector<std::string> all;
        for (const Operation& operation : operations) all.push_back(describe(operation));
        return all;
      };
      const auto all_units = [](UnitRecorder& recorder) {
        std::vector<UnitCall> calls{recorder.embedding_forward(), recorder.embedding_backward(), recorder.head()};
        for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective}) {
          UnitRecorder::Layer layer = recorder.layer(recompute);
          calls.push_back(std::move(layer.forward));
          calls.push_back(std::move(layer.backward));
        }
        return calls;
      };
      const auto recorded = [&](bool accumulates) {
        shape.accumulates = accumulates;
        UnitRecorder recorder(config, shape, at::kCPU);
        Calls calls;
        for (const UnitCall& call : all_units(recorder)) calls.push_back(texts(call.operations));
        return calls;
      };
      const Calls first = recorded(false), later = recorded(true);
      Calls runs[4];
      UnitRecorder measured(config, shape, at::kCPU, /*max_logits=*/0,
                            UnitRecorder::RealDevice{.device = at::kCPU, .measure = [&](const auto& run) {
                                                       for (Calls& calls : runs) {
                                                         model::OperationRecorder recorder;
                                                         run();
                                                         calls.push_back(texts(recorder.seen));
                                                       }
                                                     }});
      all_units(measured);
      CHECK(runs[0] == later);
      CHECK(runs[1] == first);
      CHECK(runs[2] == later);
      CHECK(runs[3] == first);
    }
  }
}

TEST_CASE("the recorded FLOPs match the FLOPs per token") {
  // The oracle is flops_per_token(), which counts weights; attention's backward is 2.5 times its forward here, twice
  // there.
  ModelConfig adapted = model::small_qwen3();
  adapted.lora = LoraConfig{.r = 4, .alpha = 8, .targets = {"q_proj", "v_proj", "gate_proj", "down_proj"}};
  std::vector<ModelConfig> models = model::small_models();
  models.push_back(adapted);
  for (const ModelConfig& config : models) {
    double products = 0, forward_attention = 0, backward_attention = 0;
    const auto add = [&](const UnitCall& call, double times) {
      for (const Operation& o : call.operations) {
        (o.matmul                             ? products
         : o.name == model::kAttentionForward ? forward_attention
                                              : backward_attention) += times * o.flops;
      }
    };
    UnitRecorder recorder(config, {.sequences = 3, .length = 16}, at::kCUDA, 7 * config.vocab_size);
    const auto layers = static_cast<double>(config.num_hidden_layers);
    const UnitRecorder::Layer layer = recorder.layer(Recompute::kNone);
    add(layer.forward, layers);
    add(layer.backward, layers);
    add(recorder.head(), 1);
    CHECK(backward_attention == Approx(2.5 * forward_attention));
    CHECK(products + 3 * forward_attention == Approx(48 * flops_per_token(config, 16)));
  }
}

TEST_CASE("operators outside of scopes, which a plan ignores, move less than 0.5% of a step's bytes") {
  ModelConfig adapted = model::small_llama(),
              t5 = ModelConfig::from_file(MPZERO_SOURCE_DIR "/tests/model/fixtures/t5_v1_1.json");
  adapted.lora = LoraConfig{.r = 16, .alpha = 32, .targets = model::lora_targets(adapted, "a test"), .dropout = 0.1};
  t5.t5->dropout_rate = 0.1;
  struct Run {
    std::string name;
    ModelConfig config;
    MicroBatchShape shape{};
  };
  std::vector<Run> runs{{"adapters", adapted}, {"T5", t5, {.source_length = 1000}}};
  for (const ModelConfig& config : model::small_models()) runs.push_back({config.model_type, config});
  const auto fp8 = [](model::fp8::Scaling scaling) {
    return Fp8Options{.recipe = {.scaling = scaling, .gradients = model::fp8::Format::kE4m3}, .filter_fqns = {}};
  };
  for (const ModelConfig& config : {model::small_qwen3(), model::small_olmo2()}) {
    runs.push_back({"FP8", config, {.fp8 = fp8(model::fp8::Scaling::kTensorwise)}});
    runs.push_back({"FP8 by row", config, {.fp8 = fp8(model::fp8::Scaling::kRowwise)}});
    runs.push_back({"FP8 codes", config, {.fp8 = fp8(model::fp8::Scaling::kTensorwise), .casts = WeightCasts::kCodes}});
    runs.push_back({"sequence ranks, documents", config, {.sequence_ranks = 2, .documents = 4, .loss_mask = true}});
    runs.push_back({"accumulation in fp32", config, {.gradient_type = at::kFloat, .accumulates = true}});
  }
  for (auto& [name, config, shape] : runs) {
    config = wide(config);
    config.hidden_size = 1024;
    config.intermediate_size = 2816;
    config.head_dim = 64;
    shape.sequences = 2;
    shape.length = 2048;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kTiled}) {
      for (const at::Device target : {at::kCUDA, at::kCPU}) {
        UnscopedOperators outside;
        UnitRecorder recorder(config, shape, target);
        double scoped = 0;
        const auto add = [&](const UnitCall& call) {
          for (const Operation& operation : call.operations) scoped += operation.bytes;
        };
        const UnitRecorder::Layer layer = recorder.layer(recompute);
        for (const UnitCall& call : {layer.forward, layer.backward, recorder.embedding_forward(),
                                     recorder.embedding_backward(), recorder.head()}) {
          add(call);
        }
        std::string list;
        double bytes = 0;
        for (const auto& [operation, moved] : outside.bytes) {
          list += fmt::format("{} {:.3f}%, ", operation, 100 * moved / scoped);
          bytes += moved;
        }
        INFO(config.model_type << ", " << name << ", recompute " << static_cast<int>(recompute) << ", " << target
                               << ": " << list);
        CHECK(bytes < 0.005 * scoped);
        CHECK_FALSE(outside.bytes.contains("aten::cat"));
      }
    }
  }
}

TEST_CASE("an operation with several kernels counts its launches") {
  const ModelConfig t5 = ModelConfig::from_file(MPZERO_SOURCE_DIR "/tests/model/fixtures/t5.json");
  UnitRecorder recorder(t5, {.sequences = 2, .length = 164, .source_length = 100}, at::kCUDA);
  const UnitCall forward = recorder.layer(Recompute::kNone).forward;
  double launches = 0;
  for (const Operation& operation : forward.operations) launches += operation.launches;
  CHECK(launches > static_cast<double>(forward.operations.size()));
  CHECK(forward.launches() == launches);
}

TEST_CASE("bytes match hand-computed values") {
  const ModelConfig config = model::small_qwen3();  // hidden 28, inner 44, 6 and 2 heads of 10
  UnitRecorder recorder(config, {.sequences = 2, .length = 5, .gradient_type = at::kFloat, .accumulates = true},
                        at::kCUDA);
  const UnitRecorder::Layer layer = recorder.layer(Recompute::kSelective);
  const auto bytes = [](const UnitCall& call, std::string_view name) {
    std::vector<double> all;
    for (const Operation& o : call.operations) {
      if (o.name == name) all.push_back(o.bytes);
    }
    return all;
  };
  CHECK(bytes(layer.forward, "rms_norm_forward") == std::vector<double>(2, 2 * 2 * 10 * 28));
  CHECK(bytes(layer.forward, "swiglu_forward") == std::vector<double>{2 * 3 * 10 * 44});
  CHECK(bytes(layer.backward, "swiglu_backward_recompute") == std::vector<double>{2 * 6 * 10 * 44});
  // dy, x, the residual's gradient in; dx and y out.
  CHECK(bytes(layer.backward, "rms_norm_backward") == std::vector<double>(2, 2 * 5 * 10 * 28));
  CHECK(bytes(layer.forward, model::kMatmul).front() == 2 * (10 * 28 + 28 * 100 + 10 * 100));
  CHECK(bytes(layer.backward, model::kMatmul)[1] == 2 * (10 * 28 + 10 * 44) + 4 * 2 * 28 * 44);
  CHECK(bytes(layer.forward, "qk_norm_rope_forward") == std::vector<double>{2 * 2 * 10 * 80});
}

TEST_CASE("full recomputation runs all matmuls of the forward pass except the last, whose result is not read") {
  // Norms of the output and adapters read the last one's result or its input.
  ModelConfig adapted = model::small_qwen3();
  adapted.lora = LoraConfig{.r = 4, .alpha = 8, .targets = {"down_proj"}};
  for (const auto& [config, recomputed] :
       {std::pair(model::small_qwen3(), 3), {model::small_llama(), 3}, {model::small_olmo2(), 4}, {adapted, 6}}) {
    CAPTURE(config.model_type, recomputed);
    UnitRecorder recorder(config, {.sequences = 2, .length = 40}, at::kCUDA);
    const auto products = [&](Recompute recompute) {
      const std::vector<Operation> all = recorder.layer(recompute).backward.operations;
      return std::ranges::count(all, model::kMatmul, &Operation::name);
    };
    CHECK(products(Recompute::kFull) - products(Recompute::kNone) == recomputed);
  }
}

TEST_CASE("tiles compute as much as full recomputation, with a workspace almost independent of the tokens") {
  const auto recorded = [](const ModelConfig& config, Recompute recompute, int64_t length) {
    return UnitRecorder(config, {.sequences = 2, .length = length, .mlp_tile = 64}, at::kCUDA).layer(recompute);
  };
  const auto flops = [](const UnitRecorder::Layer& layer) {
    double sum = 0;
    for (const UnitCall* call : {&layer.forward, &layer.backward}) {
      for (const Operation& o : call->operations) sum += o.flops;
    }
    return sum;
  };
  for (ModelConfig config : {wide(model::small_qwen3()), wide(model::small_olmo2())}) {
    CAPTURE(config.model_type);
    config.intermediate_size = 16 * config.hidden_size;
    const auto full = recorded(config, Recompute::kFull, 1000), tiled = recorded(config, Recompute::kTiled, 1000);
    CHECK(flops(tiled) == Approx(flops(full)));
    CHECK(tiled.forward.kept == full.forward.kept);
    // SwiGLU's input in bf16, and more, is saved.
    const int64_t of_mlp = 2 * 1000 * 2 * 2 * config.intermediate_size;
    CHECK(full.backward.peak - tiled.backward.peak > of_mlp);
    CHECK(full.forward.peak - tiled.forward.peak > of_mlp);
    const UnitRecorder::Layer longer = recorded(config, Recompute::kTiled, 2000);
    CHECK(longer.backward.peak - tiled.backward.peak < of_mlp / 2);
  }
}

TEST_CASE("sequence-parallel ranks divide all work except attention's keys and values equally") {
  const ModelConfig config = wide(model::small_qwen3());
  const auto flops = [&](int sequence_ranks) {
    double sum = 0;
    const MicroBatchShape shape{.sequences = 2, .length = 64, .sequence_ranks = sequence_ranks};
    const UnitRecorder::Layer layer = UnitRecorder(config, shape, at::kCUDA).layer(Recompute::kNone);
    for (const UnitCall* call : {&layer.forward, &layer.backward}) {
      for (const Operation& o : call->operations) sum += o.flops;
    }
    return sum;
  };
  CHECK(flops(2) == Approx(flops(1) / 2));
}

TEST_CASE("each recompute level keeps less, and cached casts take memory") {
  const ModelConfig config = model::small_qwen3();
  int64_t more = 0;
  UnitRecorder recorder(config, {.sequences = 2, .length = 40}, at::kCUDA);
  for (const Recompute recompute : {Recompute::kFull, Recompute::kAttention, Recompute::kSelective, Recompute::kNone}) {
    const int64_t kept = recorder.layer(recompute).forward.kept;
    CHECK(kept > more);
    more = kept;
  }
  CHECK(recorder.layer(Recompute::kFull).forward.kept == 2 * recorder.hidden_bytes());
  CHECK(recorder.layer(Recompute::kHostAttention).forward.kept == recorder.layer(Recompute::kAttention).forward.kept);
}

}  // namespace mpzero::plan
