#include "model/operations.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "model/architecture/architectures.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/kernels/accumulate_type.hpp"

namespace mpzero::model {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(OperationKind::kCount)> kNames{
    "matmul",
    "attention_forward",
    "attention_backward",
    "rms_norm_forward",
    "rms_norm_backward",
    "qk_rope_forward",
    "qk_rope_backward",
    "qk_norm_rope_forward",
    "qk_norm_rope_backward",
    "swiglu_forward",
    "swiglu_backward",
    "swiglu_backward_recompute",
    "column_sum",
    "row_sums",
    "cross_entropy",
    "embedding_forward",
    "embedding_backward",
    "zero",
    "fp8_cast",
    "fp8_cast_maximum",
    "fp8_cast_rowwise",
    "fp8_transpose",
};

// The kernels leave two partial sums for each of the 132 multiprocessors of an H100 or H200. Fewer on smaller GPUs; the
// sums take little more than their launch.
constexpr int64_t kPartials = 264;

double size_of(at::ScalarType type) { return static_cast<double>(c10::elementSize(type)); }

double product(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

// Elements of `heads` heads.
double head_elements(const AttentionShape& s, int64_t heads) {
  return product(s.batch * s.length, heads) * static_cast<double>(s.head_dim);
}

const char* short_name(at::ScalarType type) {
  return type == at::kBFloat16        ? "bf16"
         : type == at::kFloat         ? "fp32"
         : type == at::kFloat8_e4m3fn ? "e4m3"
         : type == at::kFloat8_e5m2   ? "e5m2"
                                      : "fp64";
}

const char* name_of(fp8::Forms forms) {
  return forms == fp8::Forms::kBoth ? "both" : forms == fp8::Forms::kRows ? "rows" : "columns";
}

// Makes the operations of a model's units for one micro-batch.
class Builder {
 public:
  Builder(const ModelConfig& config, const MicroBatchShape& shape)
      : config_(config),
        shape_(shape),
        layout_(find_architecture(config.model_type, "model configuration").layer_parameters(config)),
        hidden_(config.hidden_size),
        inner_(config.intermediate_size),
        query_(config.query_size()),
        packed_(config.query_size() + 2 * config.key_value_size()) {}

  void layer_forward(Recompute recompute) {
    using enum LayerProduct;
    if (shape_.fp8 && shape_.fp8->weights == Fp8Layer::Weights::kCodes) {
      if (recomputes_) transpose_weights();
    } else if (shape_.fp8 && shape_.fp8->weights != Fp8Layer::Weights::kKept) {
      const bool first = shape_.fp8->weights == Fp8Layer::Weights::kFirstUse;
      const bool known = shape_.fp8->weights == Fp8Layer::Weights::kKnownMaxima ||
                         (recomputes_ && shape_.fp8->weights == Fp8Layer::Weights::kFirstMaxima);
      cast_weights(first || recomputes_ ? fp8::Forms::kBoth : fp8::Forms::kRows,
                   known ? Maximum::kKept : Maximum::kFound);
    }
    const fp8::Forms inputs = recompute == Recompute::kNone ? fp8::Forms::kBoth : fp8::Forms::kRows;
    rms_norm("input rms_norm");
    cast(kQkv, "cast of q, k, v's input", hidden_, inputs, Maximum::kKnown);
    forward(kQkv, "q, k, v", hidden_, packed_, has_bias() ? Extra::kBias : Extra::kNone);
    rotation(true);
    heads(OperationKind::kAttentionForward, "attention");
    cast(kOutput, "cast of output's input", query_, fp8::Forms::kRows, Maximum::kFound);
    forward(kOutput, "output + residual", query_, hidden_, Extra::kResidual);
    rms_norm("post-attention rms_norm");
    cast(kGateUp, "cast of gate, up's input", hidden_, inputs, Maximum::kKnown);
    forward(kGateUp, "gate, up", hidden_, 2 * inner_);
    elementwise(OperationKind::kSwigluForward, "swiglu", tokens(), inner_);
    cast(kDown, "cast of down's input", inner_, inputs, Maximum::kKnown);
    forward(kDown, "down + residual", inner_, hidden_, Extra::kResidual);
  }

  void layer_backward(Recompute recompute) {
    using enum LayerProduct;
    const bool selective = recompute == Recompute::kSelective;
    if (recompute == Recompute::kFull) {
      recomputes_ = true;
      layer_forward(Recompute::kNone);
    } else if (shape_.fp8 && shape_.fp8->weights == Fp8Layer::Weights::kCodes) {
      transpose_weights();
    } else if (shape_.fp8 && shape_.fp8->weights >= Fp8Layer::Weights::kEachUse) {
      const bool finds = shape_.fp8->weights == Fp8Layer::Weights::kEachUse;
      cast_weights(fp8::Forms::kColumns, finds ? Maximum::kFound : Maximum::kKept);
    }
    cast(kDown, "cast of down's gradient", hidden_, fp8::Forms::kBoth, Maximum::kFound);
    data_gradient(kDown, "down, data gradient", inner_, hidden_);
    elementwise(selective ? OperationKind::kSwigluBackwardRecompute : OperationKind::kSwigluBackward, "swiglu",
                tokens(), inner_);
    if (selective) {
      // One kernel looks for both magnitudes, or for none.
      const bool known = shape_.fp8 && shape_.fp8->has(kGateUp);
      cast(kDown, "cast of down's input", inner_, fp8::Forms::kColumns, known ? Maximum::kKnown : Maximum::kFound);
    }
    weight_gradient(kDown, "down, weight gradient", inner_, hidden_);
    cast(kGateUp, "cast of gate, up's gradient", 2 * inner_, fp8::Forms::kBoth, Maximum::kKnown);
    data_gradient(kGateUp, "gate, up, data gradient", hidden_, 2 * inner_);
    rms_norm_backward("post-attention rms_norm", true, selective);
    if (selective) cast(kGateUp, "cast of gate, up's input", hidden_, fp8::Forms::kColumns, Maximum::kFound);
    weight_gradient(kGateUp, "gate, up, weight gradient", hidden_, 2 * inner_);
    cast(kOutput, "cast of output's gradient", hidden_, fp8::Forms::kBoth, Maximum::kKnown);
    cast(kOutput, "cast of output's input", query_, fp8::Forms::kColumns, Maximum::kKept);
    weight_gradient(kOutput, "output, weight gradient", query_, hidden_);
    data_gradient(kOutput, "output, data gradient", query_, hidden_);
    // Without norms the rotated heads are a view of what is kept.
    if (selective && has_qk_norm()) rotation(true);
    heads(OperationKind::kAttentionBackward, "attention");
    rotation(false);
    if (has_bias()) elementwise(OperationKind::kColumnSum, "q, k, v, bias gradient", tokens(), packed_);
    cast(kQkv, "cast of q, k, v's gradient", packed_, fp8::Forms::kBoth, Maximum::kKnown);
    data_gradient(kQkv, "q, k, v, data gradient", hidden_, packed_);
    rms_norm_backward("input rms_norm", true, selective);
    if (selective) cast(kQkv, "cast of q, k, v's input", hidden_, fp8::Forms::kColumns, Maximum::kFound);
    weight_gradient(kQkv, "q, k, v, weight gradient", hidden_, packed_);
    std::vector<int64_t> sums{hidden_};
    if (has_qk_norm()) sums.insert(sums.end(), {config_.head_dim, config_.head_dim});
    if (has_bias()) sums.push_back(packed_);
    sums.push_back(hidden_);
    row_sums("sums of norms' and biases' gradients", std::move(sums));
  }

  void head(int64_t chunk) {
    rms_norm("rms_norm");
    bool accumulates = shape_.accumulates;
    const auto chunks = [&](int64_t rows, int64_t calls) {
      const int64_t vocabulary = config_.vocab_size;
      matmul("logits", {.rows = rows, .columns = vocabulary, .inner = hidden_, .b_transposed = true}, false,
             shape_.type, calls);
      elementwise(OperationKind::kCrossEntropy, "cross entropy", rows, vocabulary, calls);
      matmul("data gradient", {.rows = rows, .columns = hidden_, .inner = vocabulary}, false, shape_.type, calls);
      const MatmulShape weight{.rows = vocabulary, .columns = hidden_, .inner = rows, .a_transposed = true};
      if (!accumulates) {
        matmul("weight gradient", weight, false, shape_.gradient_type);
        --calls;
        accumulates = true;
      }
      if (calls > 0) matmul("weight gradient (accumulating)", weight, true, shape_.gradient_type, calls);
    };
    if (const int64_t full = tokens() / chunk; full > 0) chunks(chunk, full);
    if (const int64_t rest = tokens() % chunk; rest > 0) chunks(rest, 1);
    rms_norm_backward("rms_norm", false, false);
    row_sums("sums of the norm's gradient", {hidden_});
  }

  void embedding_forward() { embedding(OperationKind::kEmbeddingForward, "embedding forward"); }

  void embedding_backward() {
    // A tied head has written to it before.
    if (!shape_.accumulates && !config_.tie_word_embeddings) {
      elementwise(OperationKind::kZero, "zeros for the gradient", config_.vocab_size, hidden_);
      made_.back().type = shape_.gradient_type;
    }
    embedding(OperationKind::kEmbeddingBackward, "embedding backward");
  }

  std::vector<Operation> take() { return std::move(made_); }

 private:
  enum class Extra { kNone, kBias, kResidual };
  // Of what is cast: found by the kernel that writes it, by an earlier cast, or by the cast.
  enum class Maximum { kKnown, kKept, kFound };

  int64_t tokens() const { return shape_.tokens(); }
  bool has_bias() const { return layout_.has(LayerRole::kQueryBias); }
  bool has_qk_norm() const { return layout_.has(LayerRole::kQueryNorm); }

  Operation& add(OperationKind kind, std::string_view name, int64_t calls = 1) {
    made_.push_back({.kind = kind, .name = name, .calls = calls, .type = shape_.type});
    return made_.back();
  }

  void matmul(std::string_view name, MatmulShape shape, bool adds, at::ScalarType out_type, int64_t calls = 1) {
    shape.type = shape_.type;
    shape.out_type = out_type;
    Operation& made = add(OperationKind::kMatmul, name, calls);
    made.matmul = shape;
    made.adds = adds;
  }
  // A product of a layer, in FP8 if that one is. `a`: the format of its first operand.
  void layer_matmul(LayerProduct product, std::string_view name, const MatmulShape& shape, bool adds,
                    at::ScalarType out_type, fp8::Format a) {
    matmul(name, shape, adds, out_type);
    if (!shape_.fp8 || !shape_.fp8->has(product)) return;
    using enum fp8::FastAccumulation;
    const fp8::Recipe& recipe = shape_.fp8->recipe;
    const bool is_forward = shape.b_transposed;
    const bool fast = recipe.fast_accumulation == kAll || (recipe.fast_accumulation == kForward && is_forward);
    Operation& made = made_.back();
    made.type = made.matmul.type = fp8::scalar_type(a);
    made.matmul.a_transposed = false;
    made.matmul.b_transposed = true;
    made.matmul.fp8 = Fp8Shape{.rowwise = recipe.scaling == fp8::Scaling::kRowwise, .fast_accumulation = fast};
  }
  fp8::Format gradient_format() const { return shape_.fp8 ? shape_.fp8->recipe.gradients : fp8::Format::kE4m3; }
  // a [N, in] times the transpose of a weight [out, in].
  void forward(LayerProduct product, std::string_view name, int64_t in, int64_t out, Extra extra = Extra::kNone) {
    layer_matmul(product, name,
                 {.rows = tokens(), .columns = out, .inner = in, .b_transposed = true, .bias = extra == Extra::kBias},
                 extra == Extra::kResidual, shape_.type, fp8::Format::kE4m3);
  }
  void data_gradient(LayerProduct product, std::string_view name, int64_t in, int64_t out) {
    layer_matmul(product, name, {.rows = tokens(), .columns = in, .inner = out}, false, shape_.type, gradient_format());
  }
  void weight_gradient(LayerProduct product, std::string_view name, int64_t in, int64_t out) {
    layer_matmul(product, name, {.rows = out, .columns = in, .inner = tokens(), .a_transposed = true},
                 shape_.accumulates, shape_.gradient_type, gradient_format());
  }

  // Of a matrix [tokens, columns], where the product reads FP8.
  void cast(LayerProduct product, std::string_view name, int64_t columns, fp8::Forms forms, Maximum maximum) {
    if (shape_.fp8 && shape_.fp8->has(product)) add_cast(name, tokens(), columns, forms, maximum);
  }
  // weight(name, out, in) for the products in FP8.
  template <class Weight>
  void each_weight(const Weight& weight) {
    using enum LayerProduct;
    if (shape_.fp8->has(kQkv)) weight("cast of q, k, v's weight", packed_, hidden_);
    if (shape_.fp8->has(kOutput)) weight("cast of output's weight", hidden_, query_);
    if (shape_.fp8->has(kGateUp)) weight("cast of gate, up's weight", 2 * inner_, hidden_);
    if (shape_.fp8->has(kDown)) weight("cast of down's weight", hidden_, inner_);
  }
  void cast_weights(fp8::Forms forms, Maximum maximum) {
    each_weight([&](std::string_view name, int64_t out, int64_t in) { add_cast(name, out, in, forms, maximum); });
  }
  void transpose_weights() {
    each_weight([&](std::string_view, int64_t out, int64_t in) {
      elementwise(OperationKind::kFp8Transpose, "transpose of a weight's codes", out, in);
    });
  }
  void add_cast(std::string_view name, int64_t rows, int64_t columns, fp8::Forms forms, Maximum maximum) {
    using enum OperationKind;
    const bool known = maximum == Maximum::kKept || (maximum == Maximum::kKnown && shape_.fp8->known_maxima);
    const bool rowwise = shape_.fp8->recipe.scaling == fp8::Scaling::kRowwise;
    elementwise(rowwise ? kFp8CastRowwise : known ? kFp8Cast : kFp8CastMaximum, name, rows, columns);
    made_.back().forms = forms;
  }

  void elementwise(OperationKind kind, std::string_view name, int64_t rows, int64_t columns, int64_t calls = 1) {
    Operation& made = add(kind, name, calls);
    made.rows = rows;
    made.columns = columns;
  }
  void rms_norm(std::string_view name) { elementwise(OperationKind::kRmsNormForward, name, tokens(), hidden_); }
  void rms_norm_backward(std::string_view name, bool residual, bool with_y) {
    elementwise(OperationKind::kRmsNormBackward, name, tokens(), hidden_);
    made_.back().residual = residual;
    made_.back().with_y = with_y;
  }
  void heads(OperationKind kind, std::string_view name) {
    add(kind, name).attention = {.batch = shape_.sequences,
                                 .length = shape_.length,
                                 .heads = config_.num_attention_heads,
                                 .key_value_heads = config_.num_key_value_heads,
                                 .head_dim = config_.head_dim};
  }
  void rotation(bool forward) {
    using enum OperationKind;
    heads(has_qk_norm() ? (forward ? kQkNormRopeForward : kQkNormRopeBackward)
                        : (forward ? kQkRopeForward : kQkRopeBackward),
          has_qk_norm() ? "norm and rotation of q, k" : "rotation of q, k");
  }
  void row_sums(std::string_view name, std::vector<int64_t> sums) {
    Operation& made = add(OperationKind::kRowSums, name);
    made.sums = std::move(sums);
    made.partials = kPartials;
    made.type = shape_.gradient_type;
  }
  void embedding(OperationKind kind, std::string_view name) {
    elementwise(kind, name, tokens(), hidden_);
    made_.back().vocabulary = config_.vocab_size;
  }

  const ModelConfig& config_;
  const MicroBatchShape& shape_;
  const LayerLayout layout_;
  const int64_t hidden_, inner_, query_, packed_;
  bool recomputes_ = false;  // a forward that a backward in the same call follows
  std::vector<Operation> made_;
};

}  // namespace

bool is_fp8_cast(OperationKind kind) {
  using enum OperationKind;
  return kind == kFp8Cast || kind == kFp8CastMaximum || kind == kFp8CastRowwise || kind == kFp8Transpose;
}

std::string_view name(OperationKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::optional<OperationKind> operation_of(std::string_view name) {
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<OperationKind>(found - kNames.begin());
}

double Operation::flops() const {
  switch (kind) {
    case OperationKind::kMatmul:
      return 2.0 * product(matmul.rows, matmul.columns) * static_cast<double>(matmul.inner);
    case OperationKind::kAttentionForward:
      return 2.0 * head_elements(attention, attention.heads) * static_cast<double>(attention.length);
    case OperationKind::kAttentionBackward:
      return 5.0 * head_elements(attention, attention.heads) * static_cast<double>(attention.length);
    default:
      return 0;
  }
}

double Operation::bytes() const {
  using enum OperationKind;
  const double element = size_of(type), matrix = element * product(rows, columns);
  const double rotated = head_elements(attention, attention.heads + attention.key_value_heads);
  const double packed = head_elements(attention, attention.heads + 2 * attention.key_value_heads);
  switch (kind) {
    case kMatmul:
      return element * (product(matmul.rows, matmul.inner) + product(matmul.inner, matmul.columns)) +
             size_of(matmul.out_type) * product(matmul.rows, matmul.columns) * (adds ? 2 : 1);
    case kAttentionForward:  // q, k, v and the output
      return 2 * element * rotated;
    case kAttentionBackward:  // q, k, v, the output and its gradient; three gradients
      return element * (2 * packed + 2 * head_elements(attention, attention.heads));
    case kQkRopeForward:
    case kQkNormRopeForward:
      return 2 * element * rotated;
    case kQkRopeBackward:  // the gradients, and that of the packed projection
      return 2 * element * packed;
    case kQkNormRopeBackward:  // and the inputs of the norms
      return element * (2 * packed + rotated);
    case kRmsNormForward:
    case kEmbeddingForward:
    case kCrossEntropy:
      return 2 * matrix;
    case kRmsNormBackward:
      return matrix * (3 + (residual ? 1 : 0) + (with_y ? 1 : 0));
    case kFp8Cast:
    case kFp8CastMaximum:
    case kFp8CastRowwise:  // each form is half as large as x, which a largest magnitude takes once more
      return matrix * ((kind == kFp8Cast ? 1 : 2) + (forms == fp8::Forms::kBoth ? 1 : 0.5));
    case kFp8Transpose:
      return 2 * product(rows, columns);
    case kSwigluForward:
    case kEmbeddingBackward:
      return 3 * matrix;
    case kSwigluBackward:
      return 5 * matrix;
    case kSwigluBackwardRecompute:
      return 6 * matrix;
    case kColumnSum:
    case kZero:
      return matrix;
    case kRowSums: {
      double all = 0;
      for (const int64_t width : sums) all += product(partials, width);
      return size_of(accumulate_type(type)) * all;
    }
    case kCount:
      break;
  }
  return 0;
}

std::string describe(const Operation& o) {
  const std::string start = fmt::format("{} {}", name(o.kind), short_name(o.type));
  if (o.kind == OperationKind::kMatmul) {
    const MatmulShape& s = o.matmul;
    return fmt::format("{} {} x {} x {} {}{} into {}{}{}{}", start, s.rows, s.columns, s.inner,
                       s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', short_name(s.out_type),
                       o.adds   ? " + matrix"
                       : s.bias ? " + bias"
                                : "",
                       s.fp8 && s.fp8->rowwise ? ", rowwise" : "", s.fp8 && s.fp8->fast_accumulation ? ", fast" : "");
  }
  if (o.kind == OperationKind::kRowSums) return fmt::format("{} of {} columns", start, fmt::join(o.sums, ", "));
  if (o.attention.batch > 0) {
    const AttentionShape& s = o.attention;
    return fmt::format("{} {} x {}, {} and {} heads of {}", start, s.batch, s.length, s.heads, s.key_value_heads,
                       s.head_dim);
  }
  if (is_fp8_cast(o.kind) && o.kind != OperationKind::kFp8Transpose)
    return fmt::format("{} {} x {}, {}", start, o.rows, o.columns, name_of(o.forms));
  return fmt::format("{} {} x {}{}{}", start, o.rows, o.columns, o.residual ? " + residual" : "",
                     o.with_y ? " with y" : "");
}

std::vector<Operation> layer_forward_operations(const ModelConfig& config, const MicroBatchShape& shape,
                                                Recompute recompute) {
  Builder builder(config, shape);
  builder.layer_forward(recompute);
  return builder.take();
}

std::vector<Operation> layer_backward_operations(const ModelConfig& config, const MicroBatchShape& shape,
                                                 Recompute recompute) {
  Builder builder(config, shape);
  builder.layer_backward(recompute);
  return builder.take();
}

std::vector<Operation> head_operations(const ModelConfig& config, const MicroBatchShape& shape, int64_t chunk) {
  Builder builder(config, shape);
  builder.head(chunk);
  return builder.take();
}

std::vector<Operation> embedding_forward_operations(const ModelConfig& config, const MicroBatchShape& shape) {
  Builder builder(config, shape);
  builder.embedding_forward();
  return builder.take();
}

std::vector<Operation> embedding_backward_operations(const ModelConfig& config, const MicroBatchShape& shape) {
  Builder builder(config, shape);
  builder.embedding_backward();
  return builder.take();
}

}  // namespace mpzero::model
