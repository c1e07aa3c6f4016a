#include "app/simulation/unit_record.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <mutex>

#include "app/simulation/simulated_backend.hpp"
#include "model/architecture/architectures.hpp"
#include "model/fp8/layer_product.hpp"
#include "parallel/comm/head_exchange.hpp"
#include "parallel/zero/flat_unit.hpp"
#include "parallel/zero/unit_parts.hpp"

namespace mpzero::plan {
namespace {

// Peers that return the values that this rank sends. HeadExchange calls only all_to_all().
class Peers final : public parallel::LocalCommunicator {
 public:
  explicit Peers(int world_size) : world_size_(world_size) {}
  int world_size() const override { return world_size_; }

 private:
  int world_size_;
};

}  // namespace

std::vector<std::vector<int64_t>> layer_kinds(const model::Decoder& decoder, const std::vector<std::string>& frozen,
                                              const std::function<std::pair<bool, bool>(int64_t layer)>& more) {
  const parallel::UnitParts parts(decoder.units(), frozen);
  const std::vector<model::Fp8Products>& products = decoder.fp8_products();
  const auto is_same = [&](int64_t one, int64_t other) {
    const auto unit = [&](int64_t layer) -> const UnitSpec& { return parts.units()[decoder.layer_unit(layer)]; };
    return model::same_layers(decoder.config(), one, other) && more(one) == more(other) &&
           std::ranges::equal(unit(one).parameters, unit(other).parameters, {}, &ParameterSpec::trainable,
                              &ParameterSpec::trainable) &&
           (products.empty() || products[static_cast<size_t>(one)] == products[static_cast<size_t>(other)]);
  };
  std::vector<std::vector<int64_t>> kinds;
  for (int64_t layer = 0; layer < decoder.config().num_hidden_layers; ++layer) {
    const auto kind = std::ranges::find_if(kinds, [&](const auto& layers) { return is_same(layers.front(), layer); });
    (kind == kinds.end() ? kinds.emplace_back() : *kind).push_back(layer);
  }
  return kinds;
}

UnitRecorder::UnitRecorder(const model::ModelConfig& config, const MicroBatchShape& shape, at::Device target,
                           int64_t max_logits, const std::optional<RealDevice>& real)
    : shape_(shape),
      device_(real.value_or(RealDevice{SimulatedDevice::device(), [] { return simulated_memory().now(); },
                                       [] { return simulated_memory().take_peak(); }})),
      options_(at::TensorOptions().dtype(shape.type).device(device_.device)),
      model_(model::make_model(config, {.max_logits = max_logits, .mlp_tile = shape.mlp_tile, .fp8 = shape.fp8})) {
  if (config.t5) place_ = model::t5_layer(config, shape.layer);
  at::globalContext().setDeterministicAlgorithms(shape.deterministic, /*warn_only=*/false);
  if (!real) simulated_.emplace(SimulatedDevice::Costs(), target.type());
  if (shape.sequence_ranks > 1) {
    peers_ = std::make_unique<Peers>(shape.sequence_ranks);
    ranks_ = std::make_shared<parallel::HeadExchange>(*peers_);
  }
  if (shape.documents == 0) return;
  std::vector<int32_t> ends{0};
  for (int64_t i = 1; i <= shape.sequences * shape.documents; ++i) {
    ends.push_back(static_cast<int32_t>(i * shape.length / shape.documents));
  }
  documents_ = model::documents_on(device_.device, std::move(ends), shape.length);
}

std::vector<at::Tensor> UnitRecorder::weights_of(size_t unit) const {
  const UnitSpec& spec = decoder_.units()[unit];
  std::vector<at::Tensor> weights = parallel::parameter_views(random(at::empty({spec.numel()}, options_), 0.02), spec);
  if (device_.measure) {
    for (at::Tensor& weight : weights) {
      if (weight.dim() == 1) weight.fill_(1.0);
    }
  }
  return weights;
}

void UnitRecorder::set_gradients(at::ScalarType type, bool accumulates) {
  shape_.gradient_type = type;
  shape_.accumulates = accumulates;
}

std::vector<model::Gradient> UnitRecorder::gradients_for_run(std::vector<model::Gradient> gradients) {
  if (device_.measure && shape_.accumulates && runs_ % 2 == 1) {
    for (model::Gradient& gradient : gradients) gradient.reset();
  }
  return gradients;
}

at::Tensor UnitRecorder::random(at::Tensor x, double deviation) const {
  if (!device_.measure) return x;
  // Large tensors repeat values, because drawing all values takes longer than a run on a CPU.
  constexpr int64_t kDrawn = 1'000'003;
  const at::Tensor flat = x.view({-1});
  const at::Tensor drawn = at::empty({std::min(kDrawn, flat.numel())}, x.options()).normal_(0.0, deviation);
  for (int64_t begin = 0; begin < flat.numel(); begin += drawn.numel()) {
    const int64_t count = std::min(drawn.numel(), flat.numel() - begin);
    flat.narrow(0, begin, count).copy_(drawn.narrow(0, 0, count));
  }
  return x;
}

std::vector<model::Gradient> UnitRecorder::gradients_of(size_t unit) const {
  const UnitSpec& spec = decoder_.units()[unit];
  const at::Tensor flat = random(at::empty({spec.numel()}, options_.dtype(shape_.gradient_type)));
  std::vector<model::Gradient> gradients;
  const std::vector<at::Tensor> all = parallel::parameter_views(flat, spec);
  const parallel::UnitParts parts({spec}, shape_.frozen);
  for (size_t i = 0; i < all.size(); ++i) {
    const ParameterSpec& parameter = parts.units().front().parameters[i];
    gradients.push_back(parameter.trainable ? model::Gradient(all[i], /*empty=*/!shape_.accumulates)
                                            : model::Gradient::unwanted(parameter.shape));
  }
  return gradients;
}

std::vector<at::Tensor> UnitRecorder::codes_of_layer(at::Tensor& scales) const {
  constexpr int64_t kScalesApart = 64;  // number of fp32 values, as in CodedGather
  std::vector<at::Tensor> weights = weights_of(decoder_.layer_unit(shape_.layer));
  const model::LayerLayout layout(model::find_architecture(decoder_.config().model_type, "model configuration")
                                      .layer_parameters(decoder_.config()));
  const model::Fp8Products& products = decoder_.fp8_products()[static_cast<size_t>(shape_.layer)];
  int64_t coded = 0;
  for (const model::LayerProduct product : model::kLayerProducts) {
    if (!products[static_cast<size_t>(product)]) continue;
    ++coded;
    const std::vector<model::LayerRole> roles = roles_of(product, layout);
    int64_t rows = 0, row = 0;
    for (const model::LayerRole role : roles) rows += weights[layout[role]].size(0);
    const at::Tensor whole = at::empty({rows, weights[layout[roles.front()]].size(1)},
                                       options_.dtype(model::fp8::scalar_type(model::fp8::Format::kE4m3)));
    if (device_.measure) whole.copy_(random(at::empty(whole.sizes(), options_)));
    for (const model::LayerRole role : roles) {
      at::Tensor& weight = weights[layout[role]];
      const int64_t own = weight.size(0);
      weight = whole.narrow(0, row, own);
      row += own;
    }
  }
  scales = at::empty({2, coded, kScalesApart}, options_.dtype(at::kFloat));
  if (device_.measure) scales.fill_(0.02);
  scales = scales.select(2, 0);
  return weights;
}

std::vector<int64_t> UnitRecorder::rows(bool of_source) const {
  const int64_t length =
      (of_source ? shape_.source_length : shape_.length - shape_.source_length) / shape_.sequence_ranks;
  return documents_ ? std::vector<int64_t>{1, shape_.sequences * length}
                    : std::vector<int64_t>{shape_.sequences, length};
}

at::Tensor UnitRecorder::hidden(bool of_source) const {
  std::vector<int64_t> sizes = rows(of_source);
  sizes.push_back(decoder_.config().hidden_size);
  return random(at::empty(sizes, options_));
}

at::Tensor UnitRecorder::tokens(bool of_source) const {
  const at::Tensor made = at::zeros(rows(of_source), options_.dtype(at::kLong));
  return device_.measure ? made.random_(0, decoder_.config().vocab_size) : made;
}

model::Batch UnitRecorder::batch() const {
  return {.tokens = tokens(),
          .targets = {},
          .documents = documents_,
          .source = place_ ? tokens(/*of_source=*/true) : at::Tensor(),
          .ranks = ranks_,
          .dropout = model::DropoutSeed()};
}

model::Values UnitRecorder::inputs() const {
  model::Values made{hidden(in_encoder())};
  if (!place_) return made;
  const model::ModelConfig& config = decoder_.config();
  if (!place_->first) made.push_back(random(at::empty({config.t5->buckets, config.num_attention_heads}, options_)));
  if (place_->decoder) made.push_back(hidden(/*of_source=*/true));
  return made;
}

int64_t UnitRecorder::hidden_bytes() const {
  const int64_t before = device_.live_bytes();
  const at::Tensor made = hidden(in_encoder());
  return device_.live_bytes() - before;
}

template <typename Run>
UnitCall UnitRecorder::record(const Run& run) {
  UnitCall call;
  const int64_t before = device_.live_bytes();
  device_.peak_bytes();
  runs_ = 0;
  if (device_.measure) {
    device_.measure([&] {
      run();
      ++runs_;
    });
  } else {
    model::OperationRecorder recorder;
    run();
    call.operations = std::move(recorder.seen);
  }
  call.peak = device_.peak_bytes() - before;
  call.kept = device_.live_bytes() - before;
  return call;
}

UnitCall UnitRecorder::embedding_forward() {
  const std::vector<at::Tensor> weights = weights_of(decoder_.embedding_unit());
  const model::Batch inputs = batch();
  model::Values x;
  return record([&] { x = decoder_.embed(weights, inputs); });
}

UnitCall UnitRecorder::embedding_backward() {
  const std::vector<model::Gradient> gradients = gradients_of(decoder_.embedding_unit());
  const model::Batch inputs = batch();
  const model::Values dy = place_ ? model::Values{hidden(/*of_source=*/true), hidden()} : model::Values{hidden()};
  return record([&] {
    std::vector<model::Gradient> own = gradients_for_run(gradients);
    // A tied head has already written to this gradient.
    if (decoder_.tied_head() && own.front().wanted())
      own.front() = model::Gradient(own.front().view(), /*empty=*/false);
    decoder_.add_embedding_gradient(dy, inputs, own);
  });
}

UnitCall UnitRecorder::head() {
  const bool tied = decoder_.tied_head();
  const size_t unit = decoder_.head_unit(), of_output = tied ? decoder_.embedding_unit() : unit;
  const std::vector<at::Tensor> weights = weights_of(unit), output = weights_of(of_output);
  std::vector<model::Gradient> gradients = gradients_of(unit), output_gradients = gradients_of(of_output);
  const at::Tensor targets = tokens(), x = hidden();
  const at::Tensor weights_of_losses =
      shape_.loss_mask ? at::ones(rows(false), options_.dtype(at::kFloat)) : at::Tensor();
  const model::Dropout dropout = decoder_.head_dropout(batch());
  model::Decoder::HeadResult result;
  return record([&] {
    std::vector<model::Gradient> own = gradients_for_run(gradients), own_output = gradients_for_run(output_gradients);
    result = decoder_.head_forward_backward(weights, output.back(), x, targets, 1.0, own, own_output.back(),
                                            weights_of_losses, dropout);
  });
}

UnitRecorder::Layer UnitRecorder::layer(model::Recompute recompute) {
  using enum WeightCasts;
  at::Tensor scales;
  const bool in_codes = shape_.fp8 && shape_.casts == kCodes;
  const std::vector<at::Tensor> tensors =
      in_codes ? codes_of_layer(scales) : weights_of(decoder_.layer_unit(shape_.layer));
  std::vector<model::Gradient> gradients = gradients_of(decoder_.layer_unit(shape_.layer));
  model::Weights weights(tensors);
  weights.layer = shape_.layer;
  weights.scales = scales;
  const bool keeps = shape_.casts == kKept || shape_.casts == kFirstUse;
  decoder_.keep_casts(keeps ? decoder_.config().num_hidden_layers : 0);
  model::Values x = inputs();
  const model::Batch read = batch();
  const auto forward = [&](model::LayerActivations* saved) {
    return decoder_.run_layer(weights, x, saved, recompute, read);
  };
  Layer made;
  // The first call creates the rotary tables. Casts and amax values are kept for one version of the weights.
  forward(nullptr);
  const int64_t before = device_.live_bytes();
  if (shape_.casts != kEachUse && !in_codes) {
    weights.version = 0;
    forward(nullptr);
    made.casts = device_.live_bytes() - before;
  }
  const bool casts_again = shape_.casts == kFirstUse || shape_.casts == kFirstMaxima;
  model::LayerActivations activations;
  model::Values y;
  made.forward = record([&] {
    if (casts_again) ++*weights.version;
    y = forward(&activations);
  });
  made.forward.kept += hidden_bytes();
  x.clear();
  model::Values dy{hidden(in_encoder())};
  if (place_ && place_->first) dy.emplace_back();
  model::Values dx;
  // The backward pass frees activations.
  const model::LayerActivations again = device_.measure ? activations : model::LayerActivations();
  made.backward = record([&] {
    // In T5's decoder, the gradient of the encoder's output stays allocated.
    const at::Tensor waiting = place_ && place_->decoder ? hidden(/*of_source=*/true) : at::Tensor();
    if (device_.measure) activations = again;
    std::vector<model::Gradient> own = gradients_for_run(gradients);
    dx = decoder_.run_layer_backward(weights, dy, activations, own);
  });
  return made;
}

std::shared_ptr<const UnitRecord> unit_record(const model::ModelConfig& config, const MicroBatchShape& shape,
                                              at::Device target) {
  struct Kept {
    model::ModelConfig config;
    MicroBatchShape shape;
    SimulatedTarget target;
    std::shared_ptr<const UnitRecord> record;
  };
  static std::mutex mutex;
  static std::vector<Kept> kept;
  const std::lock_guard lock(mutex);
  // Set the mode even if the record is cached, because simulations of the micro-batch also read the mode.
  at::globalContext().setDeterministicAlgorithms(shape.deterministic, /*warn_only=*/false);
  SimulatedTarget hardware = simulated_target();
  hardware.type = target.type();
  for (const Kept& one : kept) {
    if (one.target == hardware && one.shape == shape && one.config == config) return one.record;
  }
  UnitRecorder recorder(config, shape, target);
  const auto record = std::make_shared<UnitRecord>();
  record->hidden_bytes = recorder.hidden_bytes();
  record->embedding_forward = recorder.embedding_forward();
  record->embedding_backward = recorder.embedding_backward();
  record->head = recorder.head();
  for (const model::Recompute recompute : model::recompute_levels(config, shape.fp8.has_value())) {
    record->layers[recompute] = recorder.layer(recompute);
  }
  kept.push_back({config, shape, hardware, record});
  return record;
}

}  // namespace mpzero::plan
