#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"
#include "model/architecture/config.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/gradient.hpp"
#include "model/kernels/dropout.hpp"
#include "model/layer_activations.hpp"
#include "model/layer_casts.hpp"

namespace mpzero::model {

struct Layer;
class LayerAdapters;
class Matmuls;
class RopeTable;

// Attention of rotated queries [B, T, heads, D] over keys and values [B, T, kv_heads, D].
using Attend = std::function<AttentionOutput(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

// Weights of a unit in the order of its UnitSpec, as adjacent views of the unit's flat buffer. The decoder computes
// queries, keys and values in one matmul, and gate and up in one matmul. Throws Failure if the views that one matmul
// reads are not adjacent.
struct Weights : std::span<const at::Tensor> {
  using std::span<const at::Tensor>::span;
  // NOLINTNEXTLINE(google-explicit-constructor): implicit by design.
  Weights(std::span<const at::Tensor> tensors) : span(tensors) {}

  // `layer`: the layer's index, required with FP8, dropout or layers without RoPE. `version`: enables caching of FP8
  // casts. The caller must change `version` whenever the weights change, and must not move the weights while `version`
  // stays the same.
  std::optional<int64_t> layer = {};
  std::optional<uint64_t> version = {};
  // Scales of a layer whose FP8 weights are already quantized to e4m3: fp32 [2, FP8 matmuls] in the order of
  // LayerProduct. Row 0 contains the amax of each weight before the cast, and row 1 the dequantization scale.
  at::Tensor scales = {};
};
// Gradient buffers of a unit's weights, in the order of the weights. If the buffers of weights that share a matmul are
// adjacent, one matmul computes all their gradients; otherwise each gradient needs a separate matmul.
using Gradients = std::span<Gradient>;

struct DecoderOptions {
  // Maximum number of logits that head_loss and head_forward_backward allocate at a time; 0 selects 5 * 2^28 on a GPU
  // (2.5 GiB in bf16) and 2^27 on a CPU.
  int64_t max_logits = 0;
  // Maximum number of tokens, over all sequences, in an MLP tile; see model::runs_tiles().
  int64_t mlp_tile = 8192;
  // Enables FP8 layers. Weights and activations are bf16.
  std::optional<Fp8Options> fp8 = {};
};

// Micro-batch of B sequences of T tokens on one device. Without loss_mask, all targets have weight 1. If `documents` is
// null, each sequence is one document.
struct Batch {
  at::Tensor tokens;          // [B, T] int64; the decoder's input in an encoder-decoder model
  at::Tensor targets;         // [B, T] int64
  at::Tensor loss_mask = {};  // [B, T] fp32: loss weight of each target
  // Documents packed into one sequence; requires B = 1.
  std::shared_ptr<const Documents> documents = nullptr;
  at::Tensor source = {};  // [B, S] int64: the encoder's input, padded at the end
  // Exchange for sequence parallelism. If `ranks` is not null, tokens, targets and loss_mask contain this rank's part
  // of the sequences.
  std::shared_ptr<const SequenceExchange> ranks = nullptr;
  // Seed of the dropout masks in training; unset in validation and generation.
  std::optional<DropoutSeed> dropout = {};
};

// Tensors that one unit passes to the next units, or the gradients of these tensors.
using Values = std::vector<at::Tensor>;
// Indices of the values that a layer reads and writes. If several layers read a value, the gradients from these layers
// are summed.
struct LayerValues {
  std::vector<size_t> inputs, outputs;
};

// Language model that runs one unit at a time: the embedding, each layer, and the head. Layers and the values that they
// exchange form a graph; for a decoder-only model, the graph is a chain. The caller owns the weights and the gradient
// buffers. B: micro-batch size, T: sequence length, H: hidden size, V: vocabulary size. Weights and activations have
// one dtype (fp64, fp32 or bf16) and device. Decoder does not use autograd: tensors must not require gradients. Results
// are bitwise reproducible on the CPU, and on the GPU under at::globalContext().setDeterministicAlgorithms; otherwise,
// GPU matmuls are tuned at the first use of each shape.
class Decoder {
 public:
  explicit Decoder(ModelConfig config, DecoderOptions options = {});
  virtual ~Decoder() = default;

  const ModelConfig& config() const { return config_; }

  // Returns the units in the order of the forward pass: the embedding, the layers and the head. With a tied head, the
  // head's unit contains only the final norm, and the logits use the embedding's weight.
  const std::vector<UnitSpec>& units() const { return units_; }
  size_t embedding_unit() const { return 0; }
  size_t layer_unit(int64_t layer) const { return static_cast<size_t>(layer) + 1; }
  size_t head_unit() const { return units_.size() - 1; }
  bool tied_head() const { return config_.tie_word_embeddings; }
  // Returns the order in which a forward pass uses the units' weights. training_order() returns the order for all
  // passes of a step. The embedding's backward pass does not need weights, and the head's forward and backward passes
  // run together.
  std::vector<size_t> forward_order() const;
  std::vector<size_t> training_order(int64_t micro_batches) const;

  // Returns the inputs and outputs of each layer, in forward order. embed() writes the first values, and the head reads
  // the first output of the last layer. The backward pass runs in reverse order.
  virtual std::vector<LayerValues> graph() const;
  virtual Values embed(Weights embedding, const Batch& batch) const;
  virtual void add_embedding_gradient(const Values& d_values, const Batch& batch, Gradients embedding) const;
  // Returns the dropout applied to the final norm's output.
  virtual Dropout head_dropout(const Batch&) const { return {}; }
  // Runs a layer's forward or backward pass on the values of graph(). The gradient of an output that no layer reads is
  // an undefined tensor.
  virtual Values run_layer(Weights layer, const Values& inputs, LayerActivations* activations, Recompute recompute,
                           const Batch& batch) const;
  virtual Values run_layer_backward(Weights layer, const Values& d_outputs, LayerActivations& activations,
                                    Gradients gradients) const;

  // Returns the embeddings [B, T, H] of tokens [B, T] int64, in the dtype of the weights.
  at::Tensor embed_forward(Weights embedding, const at::Tensor& tokens) const;
  // Adds the embedding weight's gradient to `embedding`, for the gradient dy [B, T, H] of embed_forward's result.
  void embed_backward(const at::Tensor& dy, const at::Tensor& tokens, Gradients embedding) const;

  // Returns the layer's output [B, T, H] for x [B, T, H]. `activations` receives the tensors that `recompute` keeps;
  // layer_backward recomputes the rest. If `activations` is null, no tensors are kept (validation). Layers of one model
  // may use different Recompute levels. Packed documents in `mask` require B = 1.
  at::Tensor layer_forward(Weights layer, const at::Tensor& x, LayerActivations* activations,
                           Recompute recompute = Recompute::kNone, const AttentionMask& mask = {},
                           const std::optional<DropoutSeed>& dropout = {}) const;
  // Returns dx [B, T, H] for dy [B, T, H] and frees `activations`.
  at::Tensor layer_backward(Weights layer, const at::Tensor& dy, LayerActivations& activations,
                            Gradients gradients) const;

  // Returns the output [1, T, H] for x [1, T, H] that follows `begin` tokens of a sequence of at most `capacity`
  // tokens. `attend` reads and extends the layer's KV cache.
  at::Tensor layer_cached(Weights layer, const at::Tensor& x, int64_t begin, int64_t capacity,
                          const Attend& attend) const;
  // Returns the logits [B * T, V] for x [B, T, H], the last layer's output.
  virtual at::Tensor logits(Weights head, const at::Tensor& embedding, const at::Tensor& x) const;

  // Returns the sum of weight * cross-entropy over all B * T targets, divided by B * T, in fp64 on the device of x.
  // `output_weight` [V, H] is head[1], or the embedding's weight if the head is tied. `targets`: [B, T] int64.
  // `loss_mask`: loss weights, see Batch.
  at::Tensor head_loss(Weights head, const at::Tensor& output_weight, const at::Tensor& x, const at::Tensor& targets,
                       const at::Tensor& loss_mask = {}) const;

  struct HeadResult {
    at::Tensor loss;  // result of head_loss() in fp32 (fp64 for fp64 inputs), not scaled
    at::Tensor dx;    // [B, T, H], gradient of loss * loss_scale
  };
  // Computes the loss and the gradients of loss * loss_scale in one call. Processes the tokens in chunks to avoid
  // allocating an fp32 tensor [B * T, V]. `head_gradients`: gradients of the head's unit. `output_weight_gradient` is
  // head_gradients[1], or the embedding's gradient if the head is tied.
  virtual HeadResult head_forward_backward(Weights head, const at::Tensor& output_weight, const at::Tensor& x,
                                           const at::Tensor& targets, double loss_scale, Gradients head_gradients,
                                           Gradient& output_weight_gradient, const at::Tensor& loss_mask = {},
                                           const Dropout& dropout = {}) const;

  // Returns, for each layer, which matmuls run in FP8. Returns an empty vector if FP8 is disabled.
  const std::vector<Fp8Products>& fp8_products() const { return fp8_; }

  // Sets the number of leading layers that cache the casts of their weights, for KeptCasts::kAsToldLater.
  void keep_casts(int64_t layers) { kept_casts_ = layers; }
  int64_t kept_casts() const { return kept_casts_; }
  // Returns the name of the matmul's first weight without ".weight", for Fp8Options::filter_fqns.
  std::string weight_name(int64_t layer, LayerProduct product) const;

  // Returns the sampler of FP8 casts, or null if FP8 is disabled.
  CastWatch* cast_watch() const { return cast_watch_.get(); }

  // Returns the number of tokens that head_loss and head_forward_backward process at a time, out of `tokens`.
  int64_t tokens_per_chunk(int64_t tokens, at::Device device) const;

  Matmuls& matmuls() const { return *matmuls_; }

 private:
  ModelConfig config_;
  DecoderOptions options_;
  std::vector<UnitSpec> units_;
  std::optional<LayerLayout> layout_;  // absent for T5
  bool rotates(const Weights& layer) const;
  LayerCasts casts(const Weights& layer) const;
  // Returns a layer's inputs and settings, except RoPE. `forms`: forms of FP8 weights that the matmuls read.
  Layer layer_of(const Weights& weights, const Dropout& dropout, fp8::Forms forms) const;
  // Returns the number of tokens per MLP tile at the level `recompute`, or 0 without tiling.
  int64_t tile_of(Recompute recompute, int64_t tokens) const;
  LayerAdapters adapters(const Weights& layer, const Dropout& dropout) const;
  std::optional<LoraLayout> lora_;
  std::vector<Fp8Products> fp8_;
  int64_t kept_casts_ = 0;
  std::shared_ptr<Matmuls> matmuls_;
  std::shared_ptr<CastWeights> cast_weights_;
  std::shared_ptr<CastWatch> cast_watch_;
  std::shared_ptr<RopeTable> rope_;
};

// Returns true if layers `one` and `other` perform the same operations. The comparison ignores FP8 and frozen
// parameters.
bool same_layers(const ModelConfig& config, int64_t one, int64_t other);

// Creates the model class for the architecture in `config`.
std::unique_ptr<Decoder> make_model(ModelConfig config, DecoderOptions options = {});

}  // namespace mpzero::model
