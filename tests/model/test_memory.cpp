// activation_bytes and workspace_bytes, against the memory that the passes use on the CPU.
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"
#include "tests/model/storages.hpp"

namespace mpzero::model {
namespace {

// The bytes of CPU tensors that this thread allocated and still holds during this object's lifetime, and their peak,
// in which products of FP8 do not count: the CPU widens their operands.
class MemoryWatch {
 public:
  MemoryWatch() : reporter_(std::make_shared<Reporter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, reporter_) {
    thread_local Reporter* current;
    current = reporter_.get();
    products_ =
        at::addThreadLocalCallback(at::RecordFunctionCallback(
                                       [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
                                         if (std::string_view(function.name()) == "mpzero::fp8_matmul")
                                           current->in_product = true;
                                         return nullptr;
                                       },
                                       [](const at::RecordFunction& function, at::ObserverContext*) {
                                         if (std::string_view(function.name()) == "mpzero::fp8_matmul")
                                           current->in_product = false;
                                       })
                                       .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
  }
  ~MemoryWatch() { at::removeCallback(products_); }
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;
  int64_t now() const { return reporter_->now; }
  // The peak since the last call.
  int64_t peak() { return std::exchange(reporter_->peak, reporter_->now); }

 private:
  struct Reporter final : c10::MemoryReportingInfoBase {
    int64_t now = 0, peak = 0;
    bool in_product = false;
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      now += bytes;
      if (!in_product) peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
  };

  std::shared_ptr<Reporter> reporter_;
  c10::DebugInfoGuard guard_;
  at::CallbackHandle products_{};
};

// The peak of temporaries in the head's and a layer's backward, without the kept activations, measured in a
// micro-batch.
int64_t measured_workspace(const Decoder& decoder, FlatModel& model, at::ScalarType type, int64_t batch, int64_t length,
                           Recompute recompute) {
  const ModelConfig& config = decoder.config();
  const at::Tensor tokens = at::randint(config.vocab_size, {batch, length}, at::kLong);
  const size_t head = decoder.head_unit();
  const bool tied = decoder.tied_head();
  Weights layer = model.weights[1];
  layer.layer = 0;
  // Creates the rotary tables, which are kept.
  decoder.layer_forward(layer, at::randn({batch, length, config.hidden_size}).to(type), nullptr);
  MemoryWatch watch;
  LayerActivations kept;
  const at::Tensor x =
      decoder.layer_forward(layer, at::randn({batch, length, config.hidden_size}).to(type), &kept, recompute);
  const int64_t kept_bytes = storage_bytes(kept.tensors());
  CHECK(watch.now() == kept_bytes + storage_bytes({x}));
  watch.peak();
  at::Tensor dy =
      decoder
          .head_forward_backward(model.weights[head], tied ? model.weights[0][0] : model.weights[head][1], x, tokens,
                                 1.0, model.gradients[head], tied ? model.gradients[0][0] : model.gradients[head][1])
          .dx;
  const int64_t head_peak = watch.peak();
  dy = decoder.layer_backward(layer, dy, kept, model.gradients[1]);
  return std::max(head_peak, watch.peak()) - kept_bytes;
}

class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = at::get_num_threads();
};

}  // namespace

// On one thread: what several threads allocate need not be there at the same time.
TEST_CASE("a micro-batch's memory, without kept activations, is about workspace_bytes") {
  const OneThread one;
  for (ModelConfig config : {small_qwen3(), small_llama(), small_qwen2()}) {
    config.hidden_size = 192;
    config.intermediate_size = 448;
    config.head_dim = 32;
    config.vocab_size = 800;
    // First the head needs the most, then the layer.
    for (const int64_t max_logits : {800 * 200, 800 * 16}) {
      const Decoder decoder(config, {.max_logits = max_logits});
      for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
        FlatModel model(decoder, at::TensorOptions().dtype(type), type);
        for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
          INFO(config.model_type << " " << type << " logits " << max_logits << " " << name(recompute));
          const int64_t measured = measured_workspace(decoder, model, type, 2, 100, recompute);
          const int64_t estimate = decoder.workspace_bytes(2, 100, at::kCPU, type, recompute);
          CHECK(static_cast<double>(estimate) == Approx(static_cast<double>(measured)).epsilon(0.1));
        }
      }
    }
  }
}

TEST_CASE("a micro-batch's memory in FP8 is about workspace_bytes") {
  const OneThread one;
  for (ModelConfig config : {small_qwen3(), small_llama()}) {
    config.hidden_size = 192;
    config.intermediate_size = 448;
    config.head_dim = 32;
    for (const fp8::Scaling scaling : {fp8::Scaling::kTensorwise, fp8::Scaling::kRowwise}) {
      for (const std::vector<std::string>& in_bf16 :
           std::vector<std::vector<std::string>>{{}, {"gate_proj"}, {"down_proj"}, {"mlp"}, {"self_attn"}}) {
        const Decoder decoder(
            config, {.max_logits = config.vocab_size * 16,
                     .fp8 = Fp8Options{
                         .recipe = {.scaling = scaling}, .filter_fqns = in_bf16, .kept_casts = KeptCasts::kNone}});
        FlatModel model(decoder, at::TensorOptions().dtype(at::kBFloat16), at::kBFloat16);
        for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
          INFO(config.model_type << " " << fp8::name(scaling) << " without " << (in_bf16.empty() ? "" : in_bf16.front())
                                 << " " << name(recompute));
          const int64_t measured = measured_workspace(decoder, model, at::kBFloat16, 2, 104, recompute);
          const int64_t estimate = decoder.workspace_bytes(2, 104, at::kCPU, at::kBFloat16, recompute);
          CHECK(static_cast<double>(estimate) == Approx(static_cast<double>(measured)).epsilon(0.1));
        }
      }
    }
  }
}

TEST_CASE("casts of weights take memory in the layers that keep them") {
  const ModelConfig config = small_qwen3();
  const auto with = [&](KeptCasts kept) {
    return Decoder(config, {.fp8 = Fp8Options{.recipe = {}, .filter_fqns = {}, .kept_casts = kept}});
  };
  const auto workspace = [](const Decoder& decoder) {
    return decoder.workspace_bytes(2, 104, at::kCPU, at::kBFloat16, Recompute::kNone);
  };
  const int64_t layers = config.num_hidden_layers;
  Decoder decoder = with(KeptCasts::kAsToldLater);
  const int64_t a_layer = decoder.kept_cast_bytes(1), none = workspace(decoder);
  CHECK(a_layer > 0);
  CHECK(decoder.kept_cast_bytes(layers) == layers * a_layer);
  CHECK(decoder.kept_casts() == 0);
  CHECK(none == workspace(with(KeptCasts::kNone)));
  CHECK(decoder.kept_casts_within(layers * a_layer) == layers);
  CHECK(decoder.kept_casts_within(2 * a_layer - 1) == 1);
  CHECK(decoder.kept_casts_within(-1) == 0);
  decoder.keep_casts(1);
  CHECK(workspace(decoder) == none + a_layer);
  decoder.keep_casts(layers);
  CHECK(workspace(decoder) == workspace(with(KeptCasts::kAll)));
  CHECK(with(KeptCasts::kAll).kept_casts_within(0) == layers);
  CHECK(with(KeptCasts::kNone).kept_casts_within(layers * a_layer) == 0);
  CHECK(Decoder(config).kept_casts_within(layers * a_layer) == 0);
}

TEST_CASE("a micro-batch needs no more than workspace_bytes on several threads") {
  ModelConfig config = small_qwen3();
  config.hidden_size = 192;
  config.intermediate_size = 448;
  config.head_dim = 32;
  config.vocab_size = 800;
  const Decoder decoder(config, {.max_logits = 800 * 200});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    FlatModel model(decoder, at::TensorOptions().dtype(type), type);
    const int64_t measured = measured_workspace(decoder, model, type, 2, 100, Recompute::kNone);
    CHECK(measured < 1.1 * static_cast<double>(decoder.workspace_bytes(2, 100, at::kCPU, type, Recompute::kNone)));
  }
}

TEST_CASE("a layer keeps as many bytes as activation_bytes says") {
  ModelConfig one_group = small_llama();
  one_group.num_key_value_heads = one_group.num_attention_heads;
  for (const ModelConfig& config : {small_qwen3(), small_llama(), small_qwen2(), one_group}) {
    const Decoder decoder(config);
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      FlatModel model(decoder, at::TensorOptions().dtype(type), type);
      for (const auto& [batch, length] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 13}, {3, 40}}) {
        int64_t more = 0;
        for (const Recompute recompute : {Recompute::kFull, Recompute::kSelective, Recompute::kNone}) {
          INFO(config.model_type << " " << type << " " << batch << "x" << length << " " << name(recompute));
          LayerActivations kept;
          decoder.layer_forward(model.weights[1], at::randn({batch, length, config.hidden_size}).to(type), &kept,
                                recompute);
          const int64_t bytes = decoder.activation_bytes(recompute, batch, length, at::kCPU, type);
          CHECK(storage_bytes(kept.tensors()) == bytes);
          CHECK(bytes > more);
          more = bytes;
        }
      }
    }
  }
}

TEST_CASE("levels of recomputation have names") {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    CHECK(recompute_of(name(recompute)) == recompute);
  }
  CHECK(name(Recompute::kSelective) == "selective");
  CHECK_FALSE(recompute_of("some").has_value());
}

}  // namespace mpzero::model
