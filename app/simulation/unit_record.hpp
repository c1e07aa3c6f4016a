#pragma once

#include <ATen/core/Tensor.h>

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

// When a layer casts its weights to FP8:
// - kKept: never, because the casts of an earlier micro-batch are kept
// - kFirstUse: in the forward pass, and kept for the backward pass
// - kEachUse: in each pass, with amax values computed in each pass
// - kFirstMaxima: in each pass, with amax values computed in the forward pass
// - kKnownMaxima: in each pass, with amax values of an earlier micro-batch
// - kCodes: never, because weights are gathered in FP8; the backward pass transposes them
enum class WeightCasts : uint8_t { kKept, kFirstUse, kEachUse, kFirstMaxima, kKnownMaxima, kCodes };

// Shape and dtypes of one micro-batch on one rank.
struct MicroBatchShape {
  int64_t sequences = 1, length = 1;             // number and full length of sequences
  int sequence_ranks = 1;                        // sequence-parallel ranks
  int64_t source_length = 0;                     // part of `length` that an encoder reads
  int64_t documents = 0;                         // documents per packed sequence; 0: no document mask
  bool loss_mask = false;                        // true: targets are weighted
  at::ScalarType type = at::kBFloat16;           // dtype of weights and activations
  at::ScalarType gradient_type = at::kBFloat16;  // dtype of weight gradients
  bool accumulates = false;                      // adds to the gradients of an earlier micro-batch of the step
  std::optional<model::Fp8Options> fp8 = {};
  WeightCasts casts = WeightCasts::kEachUse;
  int64_t mlp_tile = model::DecoderOptions().mlp_tile;  // see DecoderOptions
  int64_t layer = 0;                                    // index, since layers may differ in their FP8 matmuls
  bool deterministic = false;                           // as with at::globalContext().setDeterministicAlgorithms()
  std::vector<std::string> frozen = {};                 // frozen parameters, see parallel::UnitParts
  int64_t tokens() const { return sequences * length / sequence_ranks; }
  bool operator==(const MicroBatchShape&) const = default;
};

// Operations and memory of one call to a unit on the simulated device.
struct UnitCall {
  std::vector<model::Operation> operations;
  int64_t kept = 0;  // bytes still allocated after the call
  int64_t peak = 0;  // peak bytes above the bytes at the start

  double launches() const {
    double sum = 0;
    for (const model::Operation& operation : operations) sum += operation.launches;
    return sum;
  }
};

// Groups layers that perform the same work: layers with equal FP8 matmuls, frozen parameters and results of `more`, for
// which model::same_layers() is true. The layers of each group are in ascending order.
std::vector<std::vector<int64_t>> layer_kinds(
    const model::Decoder& decoder, const std::vector<std::string>& frozen,
    const std::function<std::pair<bool, bool>(int64_t layer)>& more = [](int64_t) { return std::pair(false, false); });

// Runs the units of a model on a simulated device and records their operations and memory. No other simulated device
// may exist at the same time. Sets the process's deterministic mode to that of the shape.
class UnitRecorder {
 public:
  // A real device that calibrations measure, and that tests compare with the simulated device.
  struct RealDevice {
    at::Device device;
    std::function<int64_t()> live_bytes = [] { return int64_t{0}; };  // bytes of live tensors
    std::function<int64_t()> peak_bytes = [] { return int64_t{0}; };  // peak bytes since the last call
    // If set, called after the tensors have been filled with random values, with a function that runs a unit's call and
    // may be called repeatedly. If the micro-batch accumulates gradients, its runs alternate with runs of a first
    // micro-batch, because matmuls are tuned for both.
    std::function<void(const std::function<void()>& run)> measure{};
  };
  // `target`: the device to simulate, CPU or CUDA. `max_logits`: see DecoderOptions.
  UnitRecorder(const model::ModelConfig& config, const MicroBatchShape& shape, at::Device target,
               int64_t max_logits = 0, const std::optional<RealDevice>& real = {});

  UnitCall embedding_forward();
  UnitCall embedding_backward();
  // Runs the forward and backward pass of the LM head with the loss.
  UnitCall head();
  struct Layer {
    // forward.kept includes the layer's input and output.
    UnitCall forward, backward;
    int64_t casts = 0;  // bytes of FP8 weights kept across micro-batches
  };
  Layer layer(model::Recompute recompute);
  // Sets the dtype of the gradients, and whether the next calls accumulate into them.
  void set_gradients(at::ScalarType type, bool accumulates);
  // Returns the bytes of the layer's output, shape [B, T, H].
  int64_t hidden_bytes() const;

 private:
  // Return views of one flat buffer, as in training.
  std::vector<at::Tensor> weights_of(size_t unit) const;
  std::vector<model::Gradient> gradients_of(size_t unit) const;
  std::vector<at::Tensor> codes_of_layer(at::Tensor& scales) const;
  // Returns `gradients` for the next run of a call, reset if that run simulates a first micro-batch.
  std::vector<model::Gradient> gradients_for_run(std::vector<model::Gradient> gradients);
  // Fills tensors with random values if calls are measured.
  at::Tensor random(at::Tensor x, double deviation = 1) const;
  bool in_encoder() const { return place_ && !place_->decoder; }
  at::Tensor hidden(bool of_source = false) const;
  at::Tensor tokens(bool of_source = false) const;
  model::Batch batch() const;
  // Returns the shape [sequences, length], or [1, sequences * length] for packed documents.
  std::vector<int64_t> rows(bool of_source) const;
  // Returns the inputs of layer `shape_.layer`, hidden states first.
  model::Values inputs() const;
  template <typename Run>
  UnitCall record(const Run& run);

  MicroBatchShape shape_;
  std::optional<SimulatedDevice> simulated_;
  RealDevice device_;
  at::TensorOptions options_;
  std::unique_ptr<model::Decoder> model_;
  model::Decoder& decoder_ = *model_;
  std::optional<model::T5Layer> place_;  // position of layer `shape_.layer`
  std::shared_ptr<const model::Documents> documents_;
  std::unique_ptr<parallel::Communicator> peers_;
  std::shared_ptr<const SequenceExchange> ranks_;
  int runs_ = 0;  // of the current call
};

// Records of all units of a model. `layers`: by recompute level; empty for levels that the model does not support.
struct UnitRecord {
  UnitCall embedding_forward, embedding_backward, head;
  model::ByLevel<UnitRecorder::Layer> layers;
  int64_t hidden_bytes = 0;
};

// Returns the record of a micro-batch. Records are cached per model, shape and SimulatedTarget until the process exits.
std::shared_ptr<const UnitRecord> unit_record(const model::ModelConfig& config, const MicroBatchShape& shape,
                                              at::Device target);

}  // namespace mpzero::plan
