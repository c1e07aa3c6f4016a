#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/simulation/simulated_device.hpp"
#include "model/decoder.hpp"
#include "model/operation/operation.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::plan {

// When a layer's weights are cast to FP8. kKept: not at all, since an earlier micro-batch's casts are kept. kFirstUse:
// in the forward, and kept for the backward. The others cast in each pass; kEachUse finds the largest magnitudes in
// each pass, kFirstMaxima in the forward, kKnownMaxima in an earlier micro-batch. kCodes: not in the layer, whose
// weights arrive quantized; its backward transposes them.
enum class WeightCasts : uint8_t { kKept, kFirstUse, kEachUse, kFirstMaxima, kKnownMaxima, kCodes };

// One micro-batch of one rank.
struct MicroBatchShape {
  int64_t sequences = 1, length = 1;             // of whole sequences
  int sequence_ranks = 1;                        // ranks that share the sequences
  int64_t source_length = 0;                     // part of the length that an encoder reads
  int64_t documents = 0;                         // packed per sequence; 0: no document mask
  bool loss_mask = false;                        // targets have weights
  at::ScalarType type = at::kBFloat16;           // of weights and activations
  at::ScalarType gradient_type = at::kBFloat16;  // of the weights' gradients
  bool accumulates = false;                      // adds to the gradients of an earlier micro-batch of the step
  std::optional<model::Fp8Options> fp8 = {};
  WeightCasts casts = WeightCasts::kEachUse;
  int64_t mlp_tile = model::DecoderOptions().mlp_tile;  // see there
  int64_t layer = 0;                                    // layers may differ in their FP8 matmuls
  std::vector<std::string> frozen = {};                 // see parallel::UnitParts
  int64_t tokens() const { return sequences * length / sequence_ranks; }
  bool operator==(const MicroBatchShape&) const = default;
};

// Operations and memory of one call of a unit on the simulated device.
struct UnitCall {
  std::vector<model::Operation> operations;
  int64_t kept = 0;  // bytes left allocated
  int64_t peak = 0;  // peak bytes above those at its start

  int64_t launches() const { return static_cast<int64_t>(operations.size()); }
};

// Layers that do the same work: equal FP8 matmuls, frozen parameters and `more`.
struct LayerKind {
  model::Fp8Products products{};
  std::vector<bool> trainable;  // by parameter
  std::pair<bool, bool> more;
  model::T5Layer place{};       // in a T5
  std::vector<int64_t> layers;  // ascending
};
std::vector<LayerKind> layer_kinds(
    const model::Decoder& decoder, const std::vector<std::string>& frozen,
    const std::function<std::pair<bool, bool>(int64_t layer)>& more = [](int64_t) { return std::pair(false, false); });

// Runs the units of a model on a simulated device and records their operations and memory. There must be no other
// simulated device while it exists.
class UnitRecorder {
 public:
  // A real device, with which tests compare the simulated one.
  struct RealDevice {
    at::Device device;
    std::function<int64_t()> live_bytes;  // of its tensors
    std::function<int64_t()> peak_bytes;  // peak since the last call
  };
  // `target`: the type of device to simulate. `max_logits`: see DecoderOptions.
  UnitRecorder(const model::ModelConfig& config, const MicroBatchShape& shape, at::Device target,
               int64_t max_logits = 0, const std::optional<RealDevice>& real = {});

  UnitCall embedding_forward();
  UnitCall embedding_backward();
  // Forward and backward.
  UnitCall head();
  struct Layer {
    // forward.kept includes the layer's input and output.
    UnitCall forward, backward;
    int64_t casts = 0;  // bytes of FP8 weights kept across micro-batches
  };
  Layer layer(model::Recompute recompute);
  // Bytes of the layer's output, a tensor [B, T, H].
  int64_t hidden_bytes() const;

 private:
  // Views of one flat buffer, as in a step.
  std::vector<at::Tensor> weights_of(size_t unit) const;
  std::vector<model::Gradient> gradients_of(size_t unit) const;
  std::vector<at::Tensor> codes_of_layer(at::Tensor& scales) const;
  bool in_encoder() const { return place_ && !place_->decoder; }
  at::Tensor hidden(bool of_source = false) const;
  at::Tensor tokens(bool of_source = false) const;
  model::Batch batch() const;
  // Shape [sequences, length]; with packed documents, one sequence of all tokens.
  std::vector<int64_t> rows(bool of_source) const;
  // Inputs of the shape's layer, hidden states first.
  model::Values inputs() const;
  template <typename Run>
  UnitCall record(const Run& run) const;

  MicroBatchShape shape_;
  std::optional<SimulatedDevice> simulated_;
  RealDevice device_;
  at::TensorOptions options_;
  std::unique_ptr<model::Decoder> model_;
  model::Decoder& decoder_ = *model_;
  std::optional<model::T5Layer> place_;  // of the shape's layer
  std::shared_ptr<const model::Documents> documents_;
  std::unique_ptr<parallel::Communicator> peers_;
  std::shared_ptr<const SequenceExchange> ranks_;
};

// Records of the shape's units; of layers, one for each recomputation level.
struct UnitRecord {
  UnitCall embedding_forward, embedding_backward, head;
  std::array<UnitRecorder::Layer, model::kRecomputes.size()> layers;
  int64_t hidden_bytes = 0;
  const UnitRecorder::Layer& layer(model::Recompute recompute) const { return layers[static_cast<size_t>(recompute)]; }
};

// Recorded once per process for each model, shape and target: a comparison plans many runs with the same micro-batch.
std::shared_ptr<const UnitRecord> unit_record(const model::ModelConfig& config, const MicroBatchShape& shape,
                                              at::Device target);

}  // namespace mpzero::plan
