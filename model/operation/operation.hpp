#pragma once

#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mpzero::model::fp8 {

// The forms of a matrix x [N, C] that products read.
enum class Forms : uint8_t {
  kRows,     // x, for products whose inner dimension is C
  kColumns,  // x^T, for products whose inner dimension is N
  kBoth,
};
constexpr bool has_rows(Forms forms) { return forms != Forms::kColumns; }
constexpr bool has_columns(Forms forms) { return forms != Forms::kRows; }

}  // namespace mpzero::model::fp8

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
  kDropout,
  kRelativeAttentionForward,  // T5's; this and the next two use ATen's operators
  kRelativeAttentionBackward,
  kElementwise,
  kFp8Cast,         // tensorwise, with a known largest magnitude
  kFp8CastMaximum,  // tensorwise; computes the largest magnitude first
  kFp8CastRowwise,
  kFp8Transpose,  // of a quantized weight
  kCount
};
// "matmul", "rms_norm_forward", ...
std::string_view name(OperationKind kind);
// Casts to FP8 and transposes of FP8 data.
bool is_fp8_cast(OperationKind kind);
// Parses a kind's name; std::nullopt for other names.
std::optional<OperationKind> operation_of(std::string_view name);

// The FP8 part of a MatmulShape. Both matrices are contiguous along the inner dimension (b_transposed), and the product
// is multiplied by their scales.
struct Fp8Shape {
  at::ScalarType b_type = at::kFloat8_e4m3fn;  // MatmulShape::type is that of a
  bool rowwise = false;                        // one scale per row and column of out; else one per matrix
  bool fast_accumulation = false;              // see fp8::FastAccumulation
  auto operator<=>(const Fp8Shape&) const = default;
};

// A product of two row-major matrices as cuBLASLt runs it: out = op(a) op(b), optionally plus an addend of out's shape
// and dtype or, with `bias`, a vector [columns] added to each row; accumulated in fp32 and rounded once. out [rows,
// columns]; a is stored as [rows, inner], b as [inner, columns], or transposed. a and b have dense rows and one dtype,
// bf16 or fp32, or the FP8 dtypes of `fp8`. out and the vector have the same dtype; alternatively out is fp32 and there
// is no vector.
struct MatmulShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool a_transposed = false, b_transposed = false;
  at::ScalarType type = at::kBFloat16;
  bool bias = false;
  at::ScalarType out_type = at::kBFloat16;
  // All addresses are multiples of this power of two, in bytes, from LtMatmul::kAlignment to kFullAlignment. Some
  // algorithms require more alignment than others.
  uint32_t alignment = 256;
  std::optional<Fp8Shape> fp8 = {};
  auto operator<=>(const MatmulShape&) const = default;
};

struct AttentionShape {
  int64_t batch = 0, length = 0, heads = 0, key_value_heads = 0, head_dim = 0;
  auto operator<=>(const AttentionShape&) const = default;
};

// One kernel, matrix product or attention, with its sizes.
struct Operation {
  OperationKind kind = OperationKind::kMatmul;
  at::ScalarType type = at::kBFloat16;  // of its operands

  MatmulShape matmul{};        // of kMatmul
  bool adds = false;           // adds a matrix to the product
  AttentionShape attention{};  // for attention, head norms and rotations; length: T5's queries
  // T5's attention: `columns` keys. Others: the matrix [rows, columns] that is read; for the embedding's backward the
  // values that are added, for kZero the tensor that is filled.
  int64_t rows = 0, columns = 0;
  bool fused = false;                    // T5's attention: one kernel, with the bias in memory
  bool residual = false;                 // kRmsNormBackward: adds a gradient
  bool with_y = false;                   // kRmsNormBackward: recomputes the output
  std::vector<int64_t> sums{};           // kRowSums: the columns of each sum
  int64_t partials = 0;                  // kRowSums: rows of each
  int64_t vocabulary = 0;                // of embeddings: rows of the weight
  double passes = 0;                     // kElementwise: times the matrix is read or written
  fp8::Forms forms = fp8::Forms::kBoth;  // written by an FP8 cast

  // Floating-point operations; 0 for kernels that only move bytes. Causal attention counts half of the square.
  double flops() const;
  // Minimum number of bytes read and written.
  double bytes() const;
  // Number of kernel launches on a GPU; approximate for ATen's operators.
  double launches() const;
};

// Kind and sizes as text: equal for equal work.
std::string describe(const Operation& operation);

// Observes the operations of this thread.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  virtual void begin(const Operation& operation) = 0;
  virtual void end() = 0;

  // The current observer of this thread; null: none.
  static OperationObserver*& current();
};

// Records the operations of this thread while it exists.
class OperationRecorder final : public OperationObserver {
 public:
  OperationRecorder() : before_(std::exchange(current(), this)) {}
  ~OperationRecorder() override { current() = before_; }
  OperationRecorder(const OperationRecorder&) = delete;
  OperationRecorder& operator=(const OperationRecorder&) = delete;
  void begin(const Operation& operation) override { seen.push_back(operation); }
  void end() override {}

  std::vector<Operation> seen;

 private:
  OperationObserver* before_;
};

// Marks an operation while it exists, for the profiler and for the observer. `describe()` returns the Operation and is
// called only if there is an observer.
class OperationScope {
 public:
  template <typename Describe>
  OperationScope(OperationKind kind, const Describe& describe) : observer_(OperationObserver::current()) {
    if (range_.isActive()) begin_range(kind);
    if (observer_ != nullptr) {
      Operation operation = describe();
      operation.kind = kind;
      observer_->begin(operation);
    }
  }
  ~OperationScope() {
    if (observer_ != nullptr) observer_->end();
  }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  void begin_range(OperationKind kind);

  at::RecordFunction range_{at::RecordScope::FUNCTION};
  OperationObserver* observer_;
};

// An operation on a matrix [rows, columns].
inline Operation on_matrix(at::ScalarType type, int64_t rows, int64_t columns) {
  return {.type = type, .rows = rows, .columns = columns};
}

}  // namespace mpzero::model
