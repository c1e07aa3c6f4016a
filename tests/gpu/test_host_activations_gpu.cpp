// Layer inputs and attention outputs in pinned host memory on a GPU: the same bits as on the device, in less of its
// memory.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "app/train/step/training_pass.hpp"
#include "base/process_group.hpp"
#include "model/initializer.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero {
namespace {

const at::Device kGpu(at::kCUDA, 0);

int64_t allocated_peak() {
  const auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[aggregate].peak;
}

struct Trained {
  std::vector<double> found;  // losses, norms and all states
  int64_t peak = 0;           // of the last step
};

constexpr int64_t kTokens = 4096, kHidden = 512, kLayers = 8;

// Three steps of two micro-batches.
Trained trained(model::ModelConfig model, const model::DecoderOptions& options,
                const std::vector<model::Recompute>& levels, bool documents = false) {
  model.hidden_size = kHidden;
  model.intermediate_size = 768;
  model.num_attention_heads = 8;
  model.num_key_value_heads = 4;
  model.head_dim = 64;
  model.num_hidden_layers = kLayers;
  const std::unique_ptr<model::Decoder> decoder = model::make_model(model, options);
  const std::unique_ptr<parallel::Timeline> timeline = parallel::make_timeline(kGpu);
  parallel::MeasuredCommunicator parameters(std::make_unique<parallel::LocalCommunicator>(), *timeline);
  parallel::MeasuredCommunicator gradients(std::make_unique<parallel::LocalCommunicator>(), *timeline);
  StepTimer timer(*timeline, parameters, gradients);
  parallel::ZeroEngine engine(decoder->units(),
                              {.stage = 3, .device = kGpu, .gradient_accumulation_steps = 2, .limits = {}, .adamw = {}},
                              parameters, gradients);
  SingleProcess alone;
  engine.initialize(model::RandomInitializer(1, model), alone);
  TrainingPass pass(*decoder, engine, timer, 2);
  pass.recompute(levels, 2, kTokens / 2);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const auto tokens = [&] {
    const auto type = at::TensorOptions().dtype(at::kLong);
    return at::randint(0, model.vocab_size, {2, kTokens / 2}, generator, type).to(kGpu);
  };
  const auto batch = [&] {
    model::Batch made{.tokens = tokens(), .targets = tokens()};
    if (!documents) return made;
    // A packed sequence, of documents of uneven lengths.
    made.tokens = made.tokens.view({1, kTokens});
    made.targets = made.targets.view({1, kTokens});
    made.documents = model::documents_on(kGpu, {0, 700, 701, 2048, 3333, kTokens}, kTokens / 2);
    return made;
  };
  Trained result;
  for (int64_t step = 1; step <= 3; ++step) {
    c10::cuda::CUDACachingAllocator::resetPeakStats(0);
    engine.begin_step(1e-2, step);
    at::Tensor loss = pass.train(batch(), 0.5, /*last_of_step=*/false);
    loss = loss + pass.train(batch(), 0.5, /*last_of_step=*/true);
    engine.measure(loss, 2);
    engine.update(1e-2, step);
    const parallel::StepSummary summary = engine.summary();
    result.found.insert(result.found.end(), {summary.loss, summary.grad_norm});
    result.peak = allocated_peak();
  }
  for (size_t unit = 0; unit < engine.parts().parts().size(); ++unit) {
    for (const StateKind kind : states_of(engine.parts().parts()[unit])) {
      const auto values = engine.read_state(unit, kind);
      result.found.insert(result.found.end(), values.begin(), values.end());
    }
  }
  return result;
}

std::vector<model::Recompute> all_at(model::Recompute recompute) { return std::vector(size_t{kLayers}, recompute); }

}  // namespace

TEST_CASE("activations are restored bit for bit from host memory on the GPU") {
  if (!has_gpu()) return;
  constexpr int64_t kNumel = int64_t{1} << 22;
  HostActivations activations(kGpu, 6, 2 * kNumel, /*pinned=*/true);
  CHECK(activations.bytes() == 4 * 2 * kNumel);
  const auto options = at::TensorOptions().device(kGpu).dtype(at::kBFloat16);
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    std::vector<at::Tensor> expected;
    for (int layer = 0; layer < 6; ++layer) {
      const at::Tensor x = at::randn({kNumel - 8 * layer}, options);
      expected.push_back(x.to(at::kCPU));
      activations.put(x.clone());
      // Memory of inputs that are on the host is used by others.
      for (int kernel = 0; kernel < 4; ++kernel) at::full({kNumel}, 7, options);
    }
    for (int layer = 6; layer-- > 0;) {
      const at::Tensor x = activations.take();
      for (int kernel = 0; kernel < 4; ++kernel) at::full({kNumel}, 9, options);
      INFO(micro_batch << " " << layer);
      CHECK(model::bitwise_equal(x.to(at::kCPU), expected[static_cast<size_t>(layer)]));
    }
  }
}

TEST_CASE("three steps with offloaded activations are bitwise equal to steps without and use less memory") {
  if (!has_gpu()) return;
  const Deterministic deterministic(true);
  model::ModelConfig adapted = model::small_qwen3();
  adapted.lora = LoraConfig{.r = 4, .alpha = 8, .targets = {"gate_proj", "down_proj"}};
  for (const auto& [model, options] : {std::pair(model::small_qwen3(), model::DecoderOptions{.mlp_tile = 1024}),
                                       {model::small_llama(), {.mlp_tile = 1024}},
                                       {adapted, {}}}) {
    INFO(model.model_type);
    const Trained tiled = trained(model, options, all_at(model::Recompute::kTiled));
    const Trained host = trained(model, options, all_at(model::Recompute::kHost));
    const Trained attention = trained(model, options, all_at(model::Recompute::kHostAttention));
    std::vector<model::Recompute> mixed = all_at(model::Recompute::kHost);
    std::fill(mixed.begin() + 3, mixed.end(), model::Recompute::kHostAttention);
    CHECK(tiled.found.size() > 1000);
    CHECK(host.found == tiled.found);
    CHECK(attention.found == tiled.found);
    CHECK(trained(model, options, mixed).found == tiled.found);
    CHECK(trained(model, options, all_at(model::Recompute::kHostAttention), /*documents=*/true).found ==
          trained(model, options, all_at(model::Recompute::kTiled), /*documents=*/true).found);
    // All inputs but two.
    constexpr int64_t kInputs = (kLayers - 2) * kTokens * kHidden * 2;
    CHECK(static_cast<double>(tiled.peak - host.peak) == Approx(static_cast<double>(kInputs)).epsilon(0.05));
    // At most the attention outputs of two layers, of the inputs' size, and their log-sum-exps.
    CHECK(attention.peak - host.peak < 2 * (kTokens * kHidden * 2 + kTokens * 8 * 4) + (int64_t{1} << 20));
  }
}

}  // namespace mpzero
