// Gradients that are copied to pinned host memory during backward: the same bits as on the GPU, in less of its memory.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>
#include <vector>

#include "app/simulation/planned_states.hpp"
#include "app/train/step/training_pass.hpp"
#include "base/process_group.hpp"
#include "model/initializer.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero {
namespace {

const at::Device kDevice(at::kCUDA, 0);

int64_t peak_of_allocator() {
  const auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[aggregate].peak;
}

struct Released {
  std::vector<double> found;  // losses, norms and all states
  int64_t peak = 0;           // of the last step
  parallel::MemoryUse use, planned;
};

parallel::ZeroOptions options_with(bool release, double clip, bool parameters_on_host) {
  return {.stage = 3,
          .device = kDevice,
          .optimizer_placement = parallel::Placement::kHost,
          .host_update = {.threads = 4, .cores = {}, .extra_bytes = {}},
          .release_gradients = release,
          .parameter_placement = parameters_on_host ? parallel::Placement::kHost : parallel::Placement::kDevice,
          .limits = {},
          .adamw = {},
          .gradient_clipping = clip};
}

void append_states(parallel::ZeroEngine& engine, std::vector<double>& found) {
  for (size_t unit = 0; unit < engine.parts().parts().size(); ++unit) {
    for (const StateKind kind : states_of(engine.parts().parts()[unit])) {
      const auto values = engine.read_state(unit, kind);
      found.insert(found.end(), values.begin(), values.end());
    }
  }
}

// Six steps of one micro-batch.
Released released_run(model::ModelConfig model, bool release, double clip, bool parameters_on_host) {
  model.hidden_size = 512;
  model.intermediate_size = 1536;
  model.num_attention_heads = 8;
  model.num_key_value_heads = 4;
  model.head_dim = 64;
  model.num_hidden_layers = 16;
  const std::unique_ptr<model::Decoder> decoder = model::make_model(model, {});
  const std::unique_ptr<parallel::Timeline> timeline = parallel::make_timeline(kDevice);
  parallel::MeasuredCommunicator parameters(std::make_unique<parallel::LocalCommunicator>(), *timeline);
  parallel::MeasuredCommunicator gradients(std::make_unique<parallel::LocalCommunicator>(), *timeline);
  StepTimer timer(*timeline, parameters, gradients);
  const parallel::ZeroOptions options = options_with(release, clip, parameters_on_host);
  parallel::ZeroEngine engine(decoder->units(), options, parameters, gradients);
  SingleProcess alone;
  engine.initialize(model::RandomInitializer(1, model), alone);
  TrainingPass pass(*decoder, engine, timer, 1);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const auto tokens = [&] {
    return at::randint(0, model.vocab_size, {2, 256}, generator, at::TensorOptions().dtype(at::kLong)).to(kDevice);
  };
  Released result;
  for (int64_t step = 1; step <= 6; ++step) {
    c10::cuda::CUDACachingAllocator::resetPeakStats(0);
    engine.begin_step(1e-2, step);
    // Only every other step exceeds a medium limit.
    const double scale = step % 2 == 0 ? 1 : 1e-4;
    engine.measure(pass.train({.tokens = tokens(), .targets = tokens()}, scale, /*last_of_step=*/true), 1);
    engine.update(1e-2, step);
    const parallel::StepSummary summary = engine.summary();
    result.found.insert(result.found.end(), {summary.loss, summary.grad_norm});
    result.peak = peak_of_allocator();
  }
  append_states(engine, result.found);
  result.use = engine.memory_use();
  result.planned =
      plan::planned_states(decoder->units(), options, {.nodes = 1, .ranks_per_node = 1}, decoder->training_order(1));
  return result;
}

}  // namespace

TEST_CASE("steps with released gradients are bitwise equal to steps without and use the planned memory") {
  if (!has_gpu()) return;
  const Deterministic deterministic(true);
  for (const model::ModelConfig& model : {model::small_qwen3(), model::small_llama()}) {
    for (const double clip : {0.0, 1e-9, 1e-2, 1e6}) {
      for (const bool parameters_on_host : {false, true}) {
        CAPTURE(model.model_type, clip, parameters_on_host);
        const Released kept = released_run(model, false, clip, parameters_on_host);
        const Released released = released_run(model, true, clip, parameters_on_host);
        CHECK(released.found == kept.found);
        // Norms of the first two steps, after their losses.
        if (clip == 1e-2) CHECK((kept.found[1] < clip && kept.found[3] > clip));
        CHECK(released.use.host_gradients > 0);
        CHECK(released.use.gradients < kept.use.gradients / 2);
        for (const Released* each : {&kept, &released}) {
          CHECK(each->planned.gradients == each->use.gradients);
          CHECK(each->planned.host_gradients == each->use.host_gradients);
        }
        const auto saved = static_cast<double>(kept.use.gradients - released.use.gradients);
        CHECK(static_cast<double>(kept.peak - released.peak) == Approx(saved).epsilon(0.02));
      }
    }
  }
}

}  // namespace mpzero
