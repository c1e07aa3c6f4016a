#include "model/operation/operation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "model/operation/accumulate_type.hpp"

namespace mpzero::model {
namespace {

constexpr std::string_view kPrefix = "mpzero::";

// Names of operations in the profiler.
constexpr std::array<std::string_view, static_cast<size_t>(OperationKind::kCount)> kNames{
    "mpzero::matmul",
    "mpzero::attention_forward",
    "mpzero::attention_backward",
    "mpzero::rms_norm_forward",
    "mpzero::rms_norm_backward",
    "mpzero::qk_rope_forward",
    "mpzero::qk_rope_backward",
    "mpzero::qk_norm_rope_forward",
    "mpzero::qk_norm_rope_backward",
    "mpzero::swiglu_forward",
    "mpzero::swiglu_backward",
    "mpzero::swiglu_backward_recompute",
    "mpzero::column_sum",
    "mpzero::row_sums",
    "mpzero::cross_entropy",
    "mpzero::embedding_forward",
    "mpzero::embedding_backward",
    "mpzero::zero",
    "mpzero::dropout",
    "mpzero::relative_attention_forward",
    "mpzero::relative_attention_backward",
    "mpzero::elementwise",
    "mpzero::fp8_cast",
    "mpzero::fp8_cast_maximum",
    "mpzero::fp8_cast_rowwise",
    "mpzero::fp8_transpose",
};

double size_of(at::ScalarType type) { return static_cast<double>(c10::elementSize(type)); }

double product(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

// Returns the number of elements of `heads` heads.
double head_elements(const AttentionShape& s, int64_t heads) {
  return product(s.batch * s.length, heads) * static_cast<double>(s.head_dim);
}

// Returns the number of T5's attention scores.
double scores(const Operation& o) {
  return product(o.attention.batch * o.attention.heads, o.attention.length) * static_cast<double>(o.columns);
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

}  // namespace

OperationObserver*& OperationObserver::current() {
  thread_local OperationObserver* observer = nullptr;
  return observer;
}

void OperationScope::begin_range(OperationKind kind) { range_.before(kNames[static_cast<size_t>(kind)].data()); }

bool is_fp8_cast(OperationKind kind) {
  using enum OperationKind;
  return kind == kFp8Cast || kind == kFp8CastMaximum || kind == kFp8CastRowwise || kind == kFp8Transpose;
}

std::string_view name(OperationKind kind) { return kNames[static_cast<size_t>(kind)].substr(kPrefix.size()); }

std::optional<OperationKind> operation_of(std::string_view name) {
  for (size_t kind = 0; kind < kNames.size(); ++kind) {
    if (kNames[kind].substr(kPrefix.size()) == name) return static_cast<OperationKind>(kind);
  }
  return std::nullopt;
}

double Operation::flops() const {
  switch (kind) {
    case OperationKind::kMatmul:
      return 2.0 * product(matmul.rows, matmul.columns) * static_cast<double>(matmul.inner);
    case OperationKind::kAttentionForward:
      return 2.0 * head_elements(attention, attention.heads) * static_cast<double>(attention.length);
    case OperationKind::kAttentionBackward:
      return 5.0 * head_elements(attention, attention.heads) * static_cast<double>(attention.length);
    case OperationKind::kRelativeAttentionForward:  // two matmuls
      return 2 * 2.0 * scores(*this) * static_cast<double>(attention.head_dim);
    case OperationKind::kRelativeAttentionBackward:  // recomputed scores and four more matmuls
      return 5 * 2.0 * scores(*this) * static_cast<double>(attention.head_dim);
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
    case kAttentionBackward:  // q, k, v, the output and its gradient; dq, dk and dv
      return element * (2 * packed + 2 * head_elements(attention, attention.heads));
    case kQkRopeForward:
    case kQkNormRopeForward:
      return 2 * element * rotated;
    case kQkRopeBackward:  // dq, dk and dv; the gradient of the packed projection
      return 2 * element * packed;
    case kQkNormRopeBackward:  // also the inputs of the norms
      return element * (2 * packed + rotated);
    case kRmsNormForward:
    case kEmbeddingForward:
    case kCrossEntropy:
    case kDropout:
      return 2 * matrix;
    case kRmsNormBackward:
      return matrix * (3 + (residual ? 1 : 0) + (with_y ? 1 : 0));
    case kFp8Cast:
    case kFp8CastMaximum:
    case kFp8CastRowwise:  // each form is half as large as x; computing the maximum reads x again
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
    // Scores in fp32: written, biases added, masked, softmax, read.
    // Fused: only the bias, which is created in two passes, masked and read.
    case kRelativeAttentionForward:
      return fused ? element * 4 * scores(*this) : size_of(at::kFloat) * 8 * scores(*this);
    // Scores as in the forward pass; their gradient: written, times p and summed, subtracted, times p, read twice,
    // summed for the table.
    // Fused: the bias again; the gradient of the scores, written and read once.
    case kRelativeAttentionBackward:
      return fused ? element * 6 * scores(*this) : size_of(at::kFloat) * 21 * scores(*this);
    case kElementwise:
      return passes * matrix;
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

double Operation::launches() const {
  switch (kind) {
    case OperationKind::kRelativeAttentionForward:
      return fused ? 6 : 14;
    case OperationKind::kRelativeAttentionBackward:
      return fused ? 16 : 28;
    case OperationKind::kElementwise:
      return std::ceil(passes / 3);
    default:
      return 1;
  }
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
    const bool of_t5 = o.columns > 0;
    if (of_t5)
      return fmt::format("{} {} x {} x {}, {} heads of {}", start, s.batch, s.length, o.columns, s.heads, s.head_dim);
    return fmt::format("{} {} x {}, {} and {} heads of {}", start, s.batch, s.length, s.heads, s.key_value_heads,
                       s.head_dim);
  }
  if (is_fp8_cast(o.kind) && o.kind != OperationKind::kFp8Transpose)
    return fmt::format("{} {} x {}, {}", start, o.rows, o.columns, name_of(o.forms));
  return fmt::format("{} {} x {}{}{}", start, o.rows, o.columns, o.residual ? " + residual" : "",
                     o.with_y ? " with y" : "");
}

}  // namespace mpzero::model
