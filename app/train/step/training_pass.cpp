#include "app/train/step/training_pass.hpp"

#include <ATen/ops/from_blob.h>

#include <optional>
#include <span>
#include <utility>

#include "parallel/trace/profile_range.hpp"

namespace mpzero {
namespace {

using parallel::ProfileRange;

// `trainable` and `frozen` of a unit's parameters, in the unit's order.
std::vector<at::Tensor> in_order(const UnitSpec& unit, std::span<const at::Tensor> trainable,
                                 std::span<const at::Tensor> frozen) {
  std::vector<at::Tensor> all;
  for (const ParameterSpec& parameter : unit.parameters) {
    std::span<const at::Tensor>& part = parameter.trainable ? trainable : frozen;
    all.push_back(part.front());
    part = part.subspan(1);
  }
  return all;
}

// Gathers a unit's parameters for the lifetime of this object.
class Gathered {
 public:
  Gathered(parallel::ZeroEngine& engine, size_t unit)
      : store_(engine.parameters()),
        unit_(unit),
        frozen_part_(engine.parts().frozen_part(unit)),
        weights_(store_.gather(unit)) {
    if (!frozen_part_) return;
    both_ = in_order(engine.parts().units()[unit], weights_, store_.gather(*frozen_part_));
    weights_ = model::Weights(std::span<const at::Tensor>(both_));
  }
  // A decoder layer's.
  Gathered(parallel::ZeroEngine& engine, const model::Decoder& decoder, int64_t layer)
      : Gathered(engine, decoder.layer_unit(layer)) {
    weights_.layer = layer;
    weights_.version = store_.version(unit_);
    weights_.scales = store_.scales(unit_);
  }
  ~Gathered() {
    if (frozen_part_) store_.release(*frozen_part_);
    store_.release(unit_);
  }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;

  model::Weights weights() const { return weights_; }

 private:
  parallel::ParameterStore& store_;
  size_t unit_;
  std::optional<size_t> frozen_part_;
  model::Weights weights_;
  std::vector<at::Tensor> both_;  // of a unit with a frozen part
};

std::vector<model::Gradient> gradients_of(parallel::ZeroEngine& engine, size_t unit) {
  const parallel::GradientViews destination = engine.gradients().gradients(unit);
  const std::vector<ParameterSpec>& parameters = engine.parts().units()[unit].parameters;
  std::vector<model::Gradient> gradients;
  gradients.reserve(parameters.size());
  auto view = destination.views.begin();
  for (const ParameterSpec& parameter : parameters) {
    gradients.push_back(parameter.trainable ? model::Gradient(*view++, /*empty=*/!destination.accumulate)
                                            : model::Gradient::unwanted(parameter.shape));
  }
  return gradients;
}

}  // namespace

model::Batch batch_on(at::Device device, const io::MicroBatch& batch, int64_t seq_length) {
  const bool packed = !batch.document_ends.empty();
  const auto copy = [&](const auto& values, at::ScalarType type) {
    const int64_t length = packed ? std::ssize(values) : seq_length, sequences = std::ssize(values) / length;
    // from_blob wants a mutable pointer; the copy that to() makes is the only reader.
    void* const data = const_cast<void*>(static_cast<const void*>(values.data()));
    return at::from_blob(data, {sequences, length}, type).to(device, /*non_blocking=*/false, /*copy=*/true);
  };
  model::Batch copied{.tokens = copy(batch.tokens, at::kLong), .targets = copy(batch.targets, at::kLong)};
  if (!batch.loss_mask.empty()) copied.loss_mask = copy(batch.loss_mask, at::kFloat);
  if (packed) {
    std::vector<int32_t> ends{0};
    ends.insert(ends.end(), batch.document_ends.begin(), batch.document_ends.end());
    copied.documents = model::documents_on(device, std::move(ends), seq_length);
  }
  return copied;
}

TrainingPass::TrainingPass(const model::Decoder& decoder, parallel::ZeroEngine& engine, StepTimer& timer,
                           int64_t micro_batches)
    : decoder_(decoder),
      engine_(engine),
      gradients_(engine.gradients()),
      timer_(timer),
      micro_batches_(micro_batches),
      recompute_(static_cast<size_t>(decoder.config().num_hidden_layers), model::Recompute::kNone),
      activations_(static_cast<size_t>(decoder.config().num_hidden_layers)) {
  plan(decoder_.training_order(micro_batches_));
}

void TrainingPass::plan(const std::vector<size_t>& units) { engine_.parameters().plan(engine_.parts().uses(units)); }

at::Tensor TrainingPass::forward_layers(const model::Batch& batch, Mode mode) {
  const int64_t layers = decoder_.config().num_hidden_layers;
  at::Tensor x;
  {
    const Gathered embedding(engine_, decoder_.embedding_unit());
    const ProfileRange range("forward", name(decoder_.embedding_unit()));
    x = decoder_.embed_forward(embedding.weights(), batch.tokens);
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    const Gathered weights(engine_, decoder_, layer);
    const ProfileRange range("forward", name(decoder_.layer_unit(layer)));
    model::LayerActivations* saved = mode == Mode::kTrain ? &activations_[static_cast<size_t>(layer)] : nullptr;
    x = decoder_.layer_forward(weights.weights(), x, saved, recompute_[static_cast<size_t>(layer)],
                               {.documents = batch.documents});
  }
  return x;
}

at::Tensor TrainingPass::train(const model::Batch& batch, double loss_scale, bool last_of_step) {
  const size_t embedding_unit = decoder_.embedding_unit();
  const size_t head_unit = decoder_.head_unit();
  gradients_.begin_micro_batch(last_of_step);
  timer_.enter(Phase::kForward);
  const at::Tensor x = forward_layers(batch, Mode::kTrain);
  timer_.enter(Phase::kBackward);

  std::vector<model::Gradient> embedding_gradients = gradients_of(engine_, embedding_unit);
  model::Decoder::HeadResult head;
  {
    const Gathered head_weights(engine_, head_unit);
    std::vector<model::Gradient> head_gradients = gradients_of(engine_, head_unit);
    if (decoder_.tied_head()) {
      const Gathered embedding(engine_, embedding_unit);
      const ProfileRange range("forward and backward", name(head_unit));
      head = decoder_.head_forward_backward(head_weights.weights(), embedding.weights().front(), x, batch.targets,
                                            loss_scale, head_gradients, embedding_gradients.front(), batch.loss_mask);
    } else {
      const ProfileRange range("forward and backward", name(head_unit));
      head = decoder_.head_forward_backward(head_weights.weights(), head_weights.weights().back(), x, batch.targets,
                                            loss_scale, head_gradients, head_gradients.back(), batch.loss_mask);
    }
  }
  gradients_.reduce(head_unit);

  at::Tensor dy = std::move(head.dx);
  for (int64_t layer = decoder_.config().num_hidden_layers - 1; layer >= 0; --layer) {
    const size_t unit = decoder_.layer_unit(layer);
    {
      const Gathered weights(engine_, decoder_, layer);
      std::vector<model::Gradient> layer_gradients = gradients_of(engine_, unit);
      const ProfileRange range("backward", name(unit));
      dy = decoder_.layer_backward(weights.weights(), dy, activations_[static_cast<size_t>(layer)], layer_gradients);
    }
    gradients_.reduce(unit);
  }
  {
    const ProfileRange range("backward", name(embedding_unit));
    decoder_.embed_backward(dy, batch.tokens, embedding_gradients);
  }
  gradients_.reduce(embedding_unit);
  if (last_of_step) plan(decoder_.training_order(micro_batches_));
  return head.loss;
}

at::Tensor TrainingPass::validate(const model::Batch& batch) {
  plan(decoder_.forward_order());
  const at::Tensor x = forward_layers(batch, Mode::kValidate);
  at::Tensor loss;
  {
    const Gathered head(engine_, decoder_.head_unit());
    if (decoder_.tied_head()) {
      const Gathered embedding(engine_, decoder_.embedding_unit());
      loss = decoder_.head_loss(head.weights(), embedding.weights().front(), x, batch.targets, batch.loss_mask);
    } else {
      loss = decoder_.head_loss(head.weights(), head.weights().back(), x, batch.targets, batch.loss_mask);
    }
  }
  plan(decoder_.training_order(micro_batches_));
  return loss;
}

}  // namespace mpzero
