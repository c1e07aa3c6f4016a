#include <ATen/ops/randint.h>

#include <filesystem>
#include <memory>

#include "app/config/zero_options.hpp"
#include "app/memory/memory_estimate.hpp"
#include "app/train/step/training_pass.hpp"
#include "base/process_group.hpp"
#include "model/initializer.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/app/simulation/memory_watch.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero {
namespace {

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
  pass.recompute(recompute);
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

}  // namespace

// Oracle: the CPU's allocator.
TEST_CASE("a micro-batch takes the memory that is planned") {
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
      for (const LayerLevels& levels : {LayerLevels{.full = 3}, LayerLevels{.none = 3}}) {
        CAPTURE(model.model_type, vocab_size, levels.full);
        CHECK(measured_peak(config, model, by_layer(levels)) == Approx(activation_peak(levels, sizes)).epsilon(0.02));
      }
    }
  }
}

}  // namespace mpzero
