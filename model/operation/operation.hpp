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

// Forms of a matrix x [N, C] that matmuls read.
enum class Forms : uint8_t {
  kRows,     // x, for matmuls with inner dimension C
  kColumns,  // x^T, for matmuls with inner dimension N
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
  kRelativeAttentionForward,  // T5; this kind and the next two use ATen operators
  kRelativeAttentionBackward,
  kElementwise,
  kFp8Cast,         // tensorwise, with a precomputed maximum
  kFp8CastMaximum,  // tensorwise; computes the maximum first
  kFp8CastRowwise,
  kFp8Transpose,  // transpose of a quantized weight
  kCount
};
// Returns the kind's name: "matmul", "rms_norm_forward", ...
std::string_view name(OperationKind kind);
// Returns true for casts to FP8 and transposes of FP8 data.
bool is_fp8_cast(OperationKind kind);
// Parses the name of a kind. Returns std::nullopt for unknown names.
std::optional<OperationKind> operation_of(std::string_view name);

// FP8 properties of a MatmulShape. Both matrices are contiguous along the inner dimension (b_transposed). The matmul
// is multiplied by the scales of both matrices.
struct Fp8Shape {
  at::ScalarType b_type = at::kFloat8_e4m3fn;  // dtype of b; MatmulShape::type is the dtype of a
  bool rowwise = false;                        // one scale per row and column of out; otherwise one per matrix
  bool fast_accumulation = false;              // see fp8::FastAccumulation
  auto operator<=>(const Fp8Shape&) const = default;
};

// Matmul of two row-major matrices, as cuBLASLt runs it: out [rows, columns] = op(a) op(b). An addend is optional: a
// matrix of out's shape and dtype or, with `bias`, a vector [columns] that is added to each row. Sums are accumulated
// in fp32 and rounded once. a is stored as [rows, inner] and b as [inner, columns], or transposed. Both have dense rows
// and one dtype, bf16 or fp32, or the FP8 dtypes of `fp8`. The vector has the dtype of out. Matmuls of bf16 or FP8
// operands with an fp32 out do not support a vector.
struct MatmulShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool a_transposed = false, b_transposed = false;
  at::ScalarType type = at::kBFloat16;
  bool bias = false;
  at::ScalarType out_type = at::kBFloat16;
  // Power of two, in bytes, that divides all addresses: from LtMatmul::kAlignment to kFullAlignment. Some algorithms
  // require a larger alignment than others.
  uint32_t alignment = 256;
  std::optional<Fp8Shape> fp8 = {};
  auto operator<=>(const MatmulShape&) const = default;
};

struct AttentionShape {
  int64_t batch = 0, length = 0, heads = 0, key_value_heads = 0, head_dim = 0;
  auto operator<=>(const AttentionShape&) const = default;
};

// A kernel, matmul or attention call, with its sizes.
struct Operation {
  OperationKind kind = OperationKind::kMatmul;
  at::ScalarType type = at::kBFloat16;  // dtype of the operands

  MatmulShape matmul{};        // for kMatmul
  bool adds = false;           // adds a matrix to the matmul's result
  AttentionShape attention{};  // for attention, head norms and RoPE; `length` counts queries in T5
  // T5's attention: `columns` is the number of keys. Others: shape of the matrix that is read, added by
  // kEmbeddingBackward or filled by kZero.
  int64_t rows = 0, columns = 0;
  bool fused = false;                    // T5's attention: one kernel that reads the bias from memory
  bool residual = false;                 // kRmsNormBackward: adds the gradient of the residual
  bool with_y = false;                   // kRmsNormBackward: recomputes the output
  std::vector<int64_t> sums{};           // kRowSums: number of columns of each sum
  int64_t partials = 0;                  // kRowSums: number of rows of each sum
  int64_t vocabulary = 0;                // embeddings: number of rows of the weight
  double passes = 0;                     // kElementwise: number of reads and writes of the matrix
  fp8::Forms forms = fp8::Forms::kBoth;  // FP8 casts: forms that are written

  // Returns the number of floating-point operations, or 0 for kernels that only move data. Causal attention counts half
  // of the square.
  double flops() const;
  // Returns the minimum number of bytes read and written.
  double bytes() const;
  // Returns the number of kernel launches on a GPU, approximate for ATen operators.
  double launches() const;
};

// Returns the kind and the sizes as text. Operations with equal work have equal text.
std::string describe(const Operation& operation);

// Interface that observes the operations of the current thread.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  virtual void begin(const Operation& operation) = 0;
  virtual void end() = 0;

  // Returns a reference to the current thread's observer, or to null.
  static OperationObserver*& current();
};

// Records the current thread's operations during the recorder's lifetime.
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

// Scope that marks an operation for the profiler and the observer. `describe()` returns the Operation and is called
// only if an observer is set.
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

// Returns an operation on a matrix [rows, columns].
inline Operation on_matrix(at::ScalarType type, int64_t rows, int64_t columns) {
  return {.type = type, .rows = rows, .columns = columns};
}

}  // namespace mpzero::model
