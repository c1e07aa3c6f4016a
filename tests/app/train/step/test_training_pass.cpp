#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "app/config/zero_options.hpp"
#include "app/memory/memory_estimate.hpp"
#include "app/simulation/simulated_backend.hpp"
#include "app/simulation/simulated_timeline.hpp"
#include "app/train/step/training_pass.hpp"
#include "base/error.hpp"
#include "base/process_group.hpp"
#include "model/initializer.hpp"
#include "model/kernels/cublas_lt.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/app/simulation/memory_watch.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero {
namespace {

using enum model::Recompute;

// What the CPU allocates at most during a micro-batch, after one that has allocated what stays.
int64_t measured_peak(const RunConfig& config, const model::ModelConfig& model,
                      const std::vector<model::Recompute>& recompute) {
  plan::MemoryWatch watch;
  const std::unique_ptr<model::Decoder> decoder = model::make_model(model);
  parallel::HostTimeline timeline;
  parallel::MeasuredCommunicator parameters(std::make_unique<parallel::LocalCommunicator>(), timeline);
  parallel::MeasuredCommunicator gradients(std::make_unique<parallel::LocalCommunicator>(), timeline);
  StepTimer timer(timeline, parameters, gradients);
  parallel::ZeroEngine engine(decoder->units(), zero_options(config, at::kCPU), parameters, gradients);
  SingleProcess alone;
  engine.initialize(model::RandomInitializer(1, model), alone);
  TrainingPass pass(*decoder, engine, timer, 1);
  pass.recompute(recompute, config.micro_batch_size, config.seq_length);
  const auto tokens = [&](int64_t length) {
    return at::randint(2, model.vocab_size, {config.micro_batch_size, length}, at::kLong);
  };
  const int64_t length = config.seq_length - config.source_length;
  model::Batch batch{.tokens = tokens(length), .targets = tokens(length)};
  if (model.t5) batch.source = tokens(config.source_length);
  int64_t peak = 0;
  for (int64_t step = 0; step < 2; ++step) {
    engine.begin_step(1e-3, step + 1);
    const int64_t before = watch.now();
    watch.take_peak();
    const at::Tensor loss = pass.train(batch, 1.0, /*last_of_step=*/true);
    peak = watch.take_peak() - before;
    engine.measure(loss, 1);
    engine.update(1e-3, step + 1);
    engine.summary();
  }
  return peak;
}

auto all_at(model::Recompute recompute) {
  return [recompute](int64_t layers) { return std::vector(static_cast<size_t>(layers), recompute); };
}

// What three steps of two micro-batches compute: losses, norms, and all states. `levels`: those of a number of layers.
std::vector<double> trained(const model::ModelConfig& model, const model::DecoderOptions& options,
                            const std::function<std::vector<model::Recompute>(int64_t)>& levels) {
  const std::unique_ptr<model::Decoder> decoder = model::make_model(model, options);
  parallel::HostTimeline timeline;
  parallel::MeasuredCommunicator parameters(std::make_unique<parallel::LocalCommunicator>(), timeline);
  parallel::MeasuredCommunicator gradients(std::make_unique<parallel::LocalCommunicator>(), timeline);
  StepTimer timer(timeline, parameters, gradients);
  parallel::ZeroEngine engine(decoder->units(),
                              {.stage = 3, .gradient_accumulation_steps = 2, .limits = {}, .adamw = {}}, parameters,
                              gradients);
  SingleProcess alone;
  engine.initialize(model::RandomInitializer(1, model), alone);
  TrainingPass pass(*decoder, engine, timer, 2);
  pass.recompute(levels(model.num_hidden_layers), 2, 70);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const auto tokens = [&](int64_t length) {
    return at::randint(0, model.vocab_size, {2, length}, generator, at::TensorOptions().dtype(at::kLong));
  };
  std::vector<double> found;
  for (int64_t step = 1; step <= 3; ++step) {
    engine.begin_step(1e-2, step);
    at::Tensor loss = pass.train({.tokens = tokens(70), .targets = tokens(70)}, 0.5, /*last_of_step=*/false);
    found.push_back(pass.validate({.tokens = tokens(60), .targets = tokens(60)}).item<double>());
    loss = loss + pass.train({.tokens = tokens(70), .targets = tokens(70)}, 0.5, /*last_of_step=*/true);
    engine.measure(loss, 2);
    engine.update(1e-2, step);
    const parallel::StepSummary summary = engine.summary();
    found.insert(found.end(), {summary.loss, summary.grad_norm});
  }
  for (size_t unit = 0; unit < engine.parts().parts().size(); ++unit) {
    for (const StateKind kind : states_of(engine.parts().parts()[unit])) {
      const auto values = engine.read_state(unit, kind);
      found.insert(found.end(), values.begin(), values.end());
    }
  }
  return found;
}

}  // namespace

// Oracle: the CPU's allocator.
TEST_CASE("a micro-batch uses the planned memory") {
  const plan::OneThread one;
  const RunConfig config = run(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1,
                                   "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})",
                               {"--seq_length=256"}, 1)
                               .config;
  for (model::ModelConfig model : {model::small_qwen3(), model::small_llama()}) {
    model.hidden_size = 128;
    model.intermediate_size = 320;
    model.head_dim = 32;
    model.num_hidden_layers = 3;
    // First a layer takes most memory, then the head.
    for (const int64_t vocab_size : {64, 1500}) {
      model.vocab_size = vocab_size;
      const MemoryEstimate estimate(config, model, at::kCPU, {.nodes = 1, .ranks_per_node = 1});
      const ActivationSizes sizes = estimate.activation_sizes(config.micro_batch_size);
      for (const LayerLevels& levels : {LayerLevels{{kHost, 3}}, LayerLevels{{kHostAttention, 3}},
                                        LayerLevels{{kFull, 3}}, LayerLevels{{kNone, 3}}}) {
        CAPTURE(model.model_type, vocab_size, describe(levels));
        CHECK(measured_peak(config, model, by_layer(levels)) == Approx(activation_peak(levels, sizes)).epsilon(0.02));
      }
    }
  }
}

// Oracle: the CPU's allocator. All decoder layers read the encoder's output.
TEST_CASE("a micro-batch of an encoder-decoder model uses the planned memory") {
  const plan::OneThread one;
  const auto model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/assets/tiny_t5/config.json");
  for (const int64_t source : {64, 448}) {
    RunConfig config = run(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1,
                               "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})",
                           {"--seq_length=512", "--source_length=" + std::to_string(source)}, 1)
                           .config;
    const MemoryEstimate estimate(config, model, at::kCPU, {.nodes = 1, .ranks_per_node = 1});
    const ActivationSizes sizes = estimate.activation_sizes(config.micro_batch_size);
    for (const LayerLevels& levels : {LayerLevels{{kFull, 4}}, LayerLevels{{kNone, 4}}}) {
      CAPTURE(source, describe(levels));
      CHECK(measured_peak(config, model, by_layer(levels)) == Approx(activation_peak(levels, sizes)).epsilon(0.02));
    }
  }
}

TEST_CASE("training with offloaded activations is bitwise equal to training without offload") {
  const plan::OneThread one;
  model::ModelConfig adapted = model::small_qwen3();
  adapted.lora = LoraConfig{.r = 4, .alpha = 8, .targets = {"gate_proj", "down_proj"}};
  for (auto [model, options] : {std::pair(model::small_qwen3(), model::DecoderOptions{.mlp_tile = 16}),
                                {model::small_olmo2(), {.mlp_tile = 16}},
                                {adapted, {.mlp_tile = 16}},
                                {model::small_llama(), {.mlp_tile = 16, .fp8 = model::Fp8Options()}}}) {
    for (const int64_t layers : {1, 2, 3, 5}) {
      model.num_hidden_layers = layers;
      CAPTURE(model.model_type, layers);
      const std::vector<double> tiled = trained(model, options, all_at(kTiled));
      CHECK(tiled.size() > 1000);
      CHECK(trained(model, options, all_at(kHost)) == tiled);
      CHECK(trained(model, options, all_at(kHostAttention)) == tiled);
      CHECK(trained(model, options, [](int64_t layers) {
              return by_layer({{kHost, layers / 2}, {kHostAttention, layers - layers / 2}});
            }) == tiled);
    }
  }
}

// Oracle: what the simulated device allocates.
TEST_CASE("on a GPU, offloaded activations use the planned memory") {
  const RunConfig config = run(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
                                   "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})",
                               {"--seq_length=131072"}, 1)
                               .config;
  const auto model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/llama_3_8b.json");
  const MemoryEstimate estimate(config, model, at::kCUDA, {.nodes = 1, .ranks_per_node = 1});
  const ActivationSizes sizes = estimate.activation_sizes(1);
  const auto peak = [&](const LayerLevels& levels) {
    const plan::SimulatedDevice device({});
    const std::unique_ptr<model::Decoder> decoder = model::make_model(model);
    plan::SimulatedTimeline timeline;
    parallel::MeasuredCommunicator parameters(std::make_unique<parallel::LocalCommunicator>(), timeline);
    parallel::MeasuredCommunicator gradients(std::make_unique<parallel::LocalCommunicator>(), timeline);
    StepTimer timer(timeline, parameters, gradients);
    parallel::ZeroOptions options = zero_options(config, at::kCUDA);
    options.device = plan::SimulatedDevice::device();
    parallel::ZeroEngine engine(decoder->units(), options, parameters, gradients);
    TrainingPass pass(*decoder, engine, timer, 1);
    pass.recompute(by_layer(levels), 1, config.seq_length);
    const auto tokens = [&] {
      return at::zeros({1, config.seq_length},
                       at::TensorOptions().dtype(at::kLong).device(plan::SimulatedDevice::device()));
    };
    int64_t most = 0;
    for (int64_t step = 0; step < 2; ++step) {
      engine.begin_step(1e-3, step + 1);
      const int64_t before = plan::simulated_memory().now();
      plan::simulated_memory().take_peak();
      const at::Tensor loss = pass.train({.tokens = tokens(), .targets = tokens()}, 1.0, /*last_of_step=*/true);
      most = plan::simulated_memory().take_peak() - before;
      engine.measure(loss, 1);
      engine.update(1e-3, step + 1);
      engine.summary();
    }
    return most;
  };
  const LayerLevels tiled{{kTiled, 32}}, host{{kHost, 32}}, attention{{kHostAttention, 32}};
  const LayerLevels mixed{{kHost, 20}, {kHostAttention, 12}};
  for (const LayerLevels& levels : {host, attention, mixed}) {
    CAPTURE(describe(levels));
    // The simulated device has no handle of cuBLAS.
    const int64_t planned = activation_peak(levels, sizes) - model::LtMatmul::kHandleBytes;
    CHECK(static_cast<double>(peak(levels)) == Approx(planned).epsilon(1e-3));
  }
  constexpr int64_t kInput = int64_t{131072} * 4096 * 2;
  CHECK(peak(tiled) - peak(host) == 30 * kInput);
  CHECK(host_activations(host, sizes) == 30 * kInput);
  CHECK(host_activations(tiled, sizes) == 0);
  // Attention's output has the input's size, and 32 heads have a log-sum-exp for each token.
  constexpr int64_t kAttention = kInput + int64_t{131072} * 32 * 4;
  CHECK(host_activations(attention, sizes) == Approx(30 * (kInput + kAttention)).epsilon(1e-6));
  CHECK(host_inputs(attention, sizes) == 30 * kInput);
  CHECK(host_activations(mixed, sizes) == Approx(30 * kInput + 10 * kAttention).epsilon(1e-6));
  CHECK(host_inputs(mixed, sizes) == 30 * kInput);
}

// The kernel pads its log-sum-exps to multiples of 32 tokens, and HostActivations fails if its buffers are too small.
TEST_CASE("on a GPU, host memory for log-sum-exps of fp32 attention is allocated") {
  const plan::SimulatedDevice device({});
  model::ModelConfig model = model::small_llama();
  model.num_hidden_layers = 3;
  model.head_dim = 8;
  const model::Decoder decoder(model);
  plan::SimulatedTimeline timeline;
  parallel::MeasuredCommunicator parameters(std::make_unique<parallel::LocalCommunicator>(), timeline);
  parallel::MeasuredCommunicator gradients(std::make_unique<parallel::LocalCommunicator>(), timeline);
  StepTimer timer(timeline, parameters, gradients);
  parallel::ZeroEngine engine(decoder.units(),
                              {.stage = 3,
                               .device = plan::SimulatedDevice::device(),
                               .dtype = at::kFloat,
                               .communication_dtype = at::kFloat,
                               .limits = {},
                               .adamw = {}},
                              parameters, gradients);
  TrainingPass pass(decoder, engine, timer, 1);
  pass.recompute(by_layer({{kHostAttention, model.num_hidden_layers}}), 1, 33);
  const at::Tensor tokens =
      at::zeros({1, 33}, at::TensorOptions().dtype(at::kLong).device(plan::SimulatedDevice::device()));
  engine.begin_step(1e-3, 1);
  // Memory is planned for micro-batches of one size.
  for (const int64_t other : {32, 34}) {
    const at::Tensor wrong = at::zeros({1, other}, tokens.options());
    CHECK_THROWS_AS(pass.train({.tokens = wrong, .targets = wrong}, 1.0, /*last_of_step=*/true), Failure);
  }
  CHECK(pass.train({.tokens = tokens, .targets = tokens}, 1.0, /*last_of_step=*/true).defined());
}

}  // namespace mpzero
