#include "app/train/step/training_pass.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <ranges>
#include <set>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "model/kernels/attention.hpp"
#include "parallel/trace/profile_range.hpp"

namespace mpzero {
namespace {

using parallel::ProfileRange;

// Gathers a unit's parameters for the lifetime of this object.
class Gathered {
 public:
  Gathered(parallel::ZeroEngine& engine, size_t unit)
      : store_(engine.parameters()), unit_(unit), parts_(engine.parts().of(unit)), weights_(store_.gather(unit)) {
    if (parts_.size() == 1) return;
    all_.resize(engine.parts().units()[unit].parameters.size());
    for (const size_t part : parts_) {
      std::span<const at::Tensor> tensors = weights_;
      if (part != unit) tensors = store_.gather(part);
      const std::vector<size_t>& positions = engine.parts().positions(part);
      for (size_t i = 0; i < positions.size(); ++i) all_[positions[i]] = tensors[i];
    }
    weights_ = model::Weights(std::span<const at::Tensor>(all_));
  }
  // Gathers the parameters of a decoder layer.
  Gathered(parallel::ZeroEngine& engine, const model::Decoder& decoder, int64_t layer)
      : Gathered(engine, decoder.layer_unit(layer)) {
    weights_.layer = layer;
    weights_.version = store_.version(parts_.back());
    weights_.scales = store_.scales(unit_);
  }
  ~Gathered() {
    for (const size_t part : std::views::reverse(parts_)) store_.release(part);
  }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;

  model::Weights weights() const { return weights_; }

 private:
  parallel::ParameterStore& store_;
  size_t unit_;
  const std::vector<size_t>& parts_;
  model::Weights weights_;
  std::vector<at::Tensor> all_;  // parameters of a unit with several parts
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

model::Batch batch_on(at::Device device, const io::MicroBatch& batch, int64_t seq_length,
                      std::shared_ptr<const SequenceExchange> ranks) {
  const bool packed = !batch.document_ends.empty();
  const auto copy = [&](const auto& values, at::ScalarType type) {
    const int64_t sequences = packed ? 1 : batch.sequences, length = std::ssize(values) / sequences;
    // from_blob requires a mutable pointer, but only the copy in to() reads it.
    void* const data = const_cast<void*>(static_cast<const void*>(values.data()));
    return at::from_blob(data, {sequences, length}, type).to(device, /*non_blocking=*/false, /*copy=*/true);
  };
  model::Batch copied{.tokens = copy(batch.tokens, at::kLong), .targets = copy(batch.targets, at::kLong)};
  if (!batch.loss_mask.empty()) copied.loss_mask = copy(batch.loss_mask, at::kFloat);
  if (!batch.source.empty()) copied.source = copy(batch.source, at::kLong);
  if (packed) {
    std::vector<int32_t> ends{0};
    ends.insert(ends.end(), batch.document_ends.begin(), batch.document_ends.end());
    copied.documents = model::documents_on(device, std::move(ends), seq_length);
  }
  copied.ranks = std::move(ranks);
  return copied;
}

TrainingPass::TrainingPass(const model::Decoder& decoder, parallel::ZeroEngine& engine, StepTimer& timer,
                           int64_t micro_batches, std::function<void()> moved_on)
    : decoder_(decoder),
      engine_(engine),
      gradients_(engine.gradients()),
      timer_(timer),
      micro_batches_(micro_batches),
      moved_on_(moved_on ? std::move(moved_on) : [] {}),
      graph_(decoder.graph()),
      last_reads_(graph_.size()),
      recompute_(graph_.size(), model::Recompute::kNone),
      activations_(graph_.size()) {
  std::set<size_t> read_later;
  for (size_t layer = graph_.size(); layer-- > 0;) {
    for (const size_t value : graph_[layer].inputs) {
      if (read_later.insert(value).second) last_reads_[layer].push_back(value);
    }
    for (const size_t value : graph_[layer].outputs) num_values_ = std::max(num_values_, value + 1);
  }
  plan(decoder_.training_order(micro_batches_));
}

void TrainingPass::recompute(std::vector<model::Recompute> levels, int64_t sequences, int64_t length) {
  recompute_ = std::move(levels);
  planned_tokens_ = sequences * length;
  const auto allocate = [&](std::optional<HostActivations>& stack, auto layers, int64_t bytes) {
    stack.reset();
    if (layers > 0) stack.emplace(engine_.device(), static_cast<size_t>(layers), bytes, engine_.pins_memory());
  };
  const model::ModelConfig& config = decoder_.config();
  const int64_t element = static_cast<int64_t>(c10::elementSize(engine_.dtype()));
  const auto attended = std::ranges::count(recompute_, model::Recompute::kHostAttention);
  allocate(inputs_, std::ranges::count_if(recompute_, model::keeps_on_host),
           sequences * length * config.hidden_size * element);
  allocate(attended_, attended, sequences * length * config.query_size() * element);
  // Kernels for packed documents do not save more than this kernel.
  const model::AttentionKernel kernel =
      model::choose_attention_kernel(engine_.device(), engine_.dtype(), config.head_dim);
  allocate(log_sums_, attended, model::attention_saved_bytes(kernel, sequences, config.num_attention_heads, length));
}

void TrainingPass::plan(const std::vector<size_t>& units) { engine_.parameters().plan(engine_.parts().uses(units)); }

at::Tensor TrainingPass::forward_layers(const model::Batch& batch, Mode mode) {
  model::Values values;
  {
    const Gathered embedding(engine_, decoder_.embedding_unit());
    const ProfileRange range("forward", name(decoder_.embedding_unit()));
    values = decoder_.embed(embedding.weights(), batch);
    values.resize(num_values_);
  }
  for (size_t layer = 0; layer < graph_.size(); ++layer) {
    moved_on_();
    const Gathered weights(engine_, decoder_, static_cast<int64_t>(layer));
    const ProfileRange range("forward", name(decoder_.layer_unit(static_cast<int64_t>(layer))));
    model::LayerActivations* saved = mode == Mode::kTrain ? &activations_[layer] : nullptr;
    model::Values inputs;
    for (const size_t value : graph_[layer].inputs) inputs.push_back(values[value]);
    const bool on_host = saved != nullptr && model::keeps_on_host(recompute_[layer]);
    if (on_host) inputs_->put(inputs.front());
    model::Values outputs = decoder_.run_layer(weights.weights(), inputs, saved, recompute_[layer], batch);
    if (on_host) offload(*saved);
    for (const size_t value : last_reads_[layer]) values[value].reset();
    for (size_t i = 0; i < outputs.size(); ++i) values[graph_[layer].outputs[i]] = std::move(outputs[i]);
  }
  return values[graph_.back().outputs.front()];
}

void TrainingPass::offload(model::LayerActivations& saved) {
  saved.x.reset();
  if (saved.recompute != model::Recompute::kHostAttention) return;
  model::AttentionOutput& attended = saved.attended;
  attended_->put(std::exchange(attended.out, {}));
  // Offload only the first tensor: kernels that run once per document save tensors for each document.
  if (!attended.saved.empty()) log_sums_->put(std::exchange(attended.saved.front(), {}));
}

void TrainingPass::fetch(model::LayerActivations& saved) {
  saved.x = inputs_->take();
  if (saved.recompute != model::Recompute::kHostAttention) return;
  saved.attended.out = attended_->take();
  if (!saved.attended.saved.empty()) saved.attended.saved.front() = log_sums_->take();
}

at::Tensor TrainingPass::train(const model::Batch& batch, double loss_scale, bool last_of_step) {
  const int64_t tokens = batch.tokens.numel() + (batch.source.defined() ? batch.source.numel() : 0);
  if (planned_tokens_ && tokens != *planned_tokens_) {
    throw_failure("a micro-batch has {} tokens, but memory is planned for {}", tokens, *planned_tokens_);
  }
  const size_t embedding_unit = decoder_.embedding_unit();
  const size_t head_unit = decoder_.head_unit();
  gradients_.begin_micro_batch(last_of_step);
  timer_.enter(Phase::kForward);
  at::Tensor x = forward_layers(batch, Mode::kTrain);
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
                                            loss_scale, head_gradients, embedding_gradients.front(), batch.loss_mask,
                                            decoder_.head_dropout(batch));
    } else {
      const ProfileRange range("forward and backward", name(head_unit));
      head = decoder_.head_forward_backward(head_weights.weights(), head_weights.weights().back(), x, batch.targets,
                                            loss_scale, head_gradients, head_gradients.back(), batch.loss_mask,
                                            decoder_.head_dropout(batch));
    }
  }
  x.reset();
  gradients_.reduce(head_unit);

  const model::Values d_embedded = backward_layers(std::move(head.dx));
  {
    const ProfileRange range("backward", name(embedding_unit));
    decoder_.add_embedding_gradient(d_embedded, batch, embedding_gradients);
  }
  gradients_.reduce(embedding_unit);
  if (last_of_step) plan(decoder_.training_order(micro_batches_));
  return head.loss;
}

model::Values TrainingPass::backward_layers(at::Tensor d_head) {
  model::Values d_values(num_values_);
  d_values[graph_.back().outputs.front()] = std::move(d_head);
  for (size_t layer = graph_.size(); layer-- > 0;) {
    moved_on_();
    const size_t unit = decoder_.layer_unit(static_cast<int64_t>(layer));
    {
      const Gathered weights(engine_, decoder_, static_cast<int64_t>(layer));
      std::vector<model::Gradient> layer_gradients = gradients_of(engine_, unit);
      const ProfileRange range("backward", name(unit));
      model::Values d_outputs;
      for (const size_t value : graph_[layer].outputs) d_outputs.push_back(std::exchange(d_values[value], {}));
      if (model::keeps_on_host(recompute_[layer])) fetch(activations_[layer]);
      model::Values d_inputs =
          decoder_.run_layer_backward(weights.weights(), d_outputs, activations_[layer], layer_gradients);
      for (size_t i = 0; i < d_inputs.size(); ++i) {
        at::Tensor& sum = d_values[graph_[layer].inputs[i]];
        if (sum.defined()) {
          sum.add_(d_inputs[i]);
        } else {
          sum = std::move(d_inputs[i]);
        }
      }
    }
    gradients_.reduce(unit);
  }
  return d_values;
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
