#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture/config.hpp"
#include "model/fp8/cast.hpp"
#include "model/fp8/recipe.hpp"
#include "model/kernels/cublas_lt.hpp"
#include "model/layer_casts.hpp"
#include "model/recompute.hpp"

namespace mpzero::model {

enum class OperationKind : uint8_t {
  kMatmul,
  kAttentionForward,
  kAttentionBackward,
  kRmsNormForward,
  kRmsNormBackward,
  kQkRopeForward,  // without norms
  kQkRopeBackward,
  kQkNormRopeForward,
  kQkNormRopeBackward,
  kSwigluForward,
  kSwigluBackward,
  kSwigluBackwardRecompute,
  kColumnSum,
  kRowSums,
  kCrossEntropy,
  kEmbeddingForward,
  kEmbeddingBackward,
  kZero,
  kFp8Cast,         // with a scale for all, from a largest magnitude that is known
  kFp8CastMaximum,  // the same, which finds that magnitude first
  kFp8CastRowwise,
  kFp8Transpose,  // of a weight's codes
  kCount
};
// "matmul", "rms_norm_forward", …
std::string_view name(OperationKind kind);
// Casts, and transposes of codes.
bool is_fp8_cast(OperationKind kind);
// The kind of a name; std::nullopt for other names.
std::optional<OperationKind> operation_of(std::string_view name);

struct AttentionShape {
  int64_t batch = 0, length = 0, heads = 0, key_value_heads = 0, head_dim = 0;
  auto operator<=>(const AttentionShape&) const = default;
};

// One kernel, matrix product or attention of a training step, with its sizes.
struct Operation {
  OperationKind kind = OperationKind::kMatmul;
  std::string_view name{};  // what it is for: "gate, up, weight gradient"
  int64_t calls = 1;
  at::ScalarType type = at::kBFloat16;  // of its operands

  MatmulShape matmul{};        // of kMatmul
  bool adds = false;           // the product is added to a matrix
  AttentionShape attention{};  // of attention, norms and rotations of heads
  // Of the others: the matrix [rows, columns] that it reads or, of an embedding's backward, the values that it adds;
  // kZero, what it fills.
  int64_t rows = 0, columns = 0;
  bool residual = false;                 // kRmsNormBackward: adds a gradient
  bool with_y = false;                   // kRmsNormBackward: recomputes the output
  std::vector<int64_t> sums{};           // kRowSums: the columns of each sum
  int64_t partials = 0;                  // kRowSums: rows of each
  int64_t vocabulary = 0;                // of embeddings: rows of the weight
  fp8::Forms forms = fp8::Forms::kBoth;  // that a cast to FP8 makes

  // Floating-point operations of one call; 0 for what only moves bytes. Causal attention counts half of the square.
  double flops() const;
  // The least number of bytes that one call reads and writes.
  double bytes() const;
};

// Kind and sizes, without name and calls: equal for what is the same work.
std::string describe(const Operation& operation);

// Which products of a layer read FP8, and what is cast for them.
struct Fp8Layer {
  fp8::Recipe recipe{};
  Fp8Products products{};
  // When weights are cast: not, since an earlier micro-batch has; in the forward, for the backward, too; or in each,
  // where each finds the maxima, the forward does, or an earlier micro-batch has. kCodes: not in the layer, which is
  // given the codes; its backward transposes them.
  enum class Weights : uint8_t { kKept, kFirstUse, kEachUse, kFirstMaxima, kKnownMaxima, kCodes };
  Weights weights = Weights::kKept;
  // Kernels that write what is cast find its largest magnitude meanwhile, as they do on GPUs.
  bool known_maxima = true;

  bool has(LayerProduct product) const { return products[static_cast<size_t>(product)]; }
};

// One micro-batch of one rank.
struct MicroBatchShape {
  int64_t sequences = 1, length = 1;
  at::ScalarType type = at::kBFloat16;           // of weights and activations
  at::ScalarType gradient_type = at::kBFloat16;  // of the weights' gradients
  bool accumulates = false;                      // adds to the gradients of an earlier micro-batch of the step
  std::optional<Fp8Layer> fp8 = {};              // of its layers
  int64_t tokens() const { return sequences * length; }
};

// What Decoder runs, in its order; tests/model/test_operations.cpp compares the lists with what ran. Left out is what
// takes a few microseconds a step: the mean of the losses, copies of a loss per token.
// `recompute`: what the forward saves.
std::vector<Operation> layer_forward_operations(const ModelConfig& config, const MicroBatchShape& shape,
                                                Recompute recompute = Recompute::kNone);
std::vector<Operation> layer_backward_operations(const ModelConfig& config, const MicroBatchShape& shape,
                                                 Recompute recompute);
// `chunk`: Decoder::tokens_per_chunk().
std::vector<Operation> head_operations(const ModelConfig& config, const MicroBatchShape& shape, int64_t chunk);
std::vector<Operation> embedding_forward_operations(const ModelConfig& config, const MicroBatchShape& shape);
std::vector<Operation> embedding_backward_operations(const ModelConfig& config, const MicroBatchShape& shape);

}  // namespace mpzero::model
