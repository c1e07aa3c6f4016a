#pragma once

#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>
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

// FP8 properties of a MatmulShape. Both matrices are contiguous along the inner dimension (b_transposed). The result is
// multiplied by the scales of both matrices.
struct Fp8Shape {
  at::ScalarType b_type = at::kFloat8_e4m3fn;  // dtype of b; MatmulShape::type is the dtype of a
  bool rowwise = false;                        // one scale per row and column of out; otherwise one per matrix
  bool fast_accumulation = false;              // see fp8::FastAccumulation
  auto operator<=>(const Fp8Shape&) const = default;
};

// Matmul of two row-major matrices, as cuBLASLt runs it: out [rows, columns] = op(a) op(b). An addend is optional: a
// matrix of out's shape and dtype or, with `bias`, a vector [columns] that is added to each row. Sums are accumulated
// in fp32 and rounded once. a is stored as [rows, inner] and b as [inner, columns], or transposed. a and b have dense
// rows and the same dtype (bf16 or fp32), or the FP8 dtypes of `fp8`. A vector addend has the dtype of out. Matmuls of
// bf16 or FP8 operands with an fp32 result do not support a vector addend.
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

// A call to a kernel, matmul or attention. The code that launches the kernel fills in all fields, so that plans,
// calibrations and profiles need no list of kernels.
struct Operation {
  std::string_view name{};              // OperationScope's name: the kernel's key in calibrations
  at::ScalarType type = at::kBFloat16;  // dtype of the operands
  std::vector<int64_t> sizes{};
  double bytes = 0;     // minimum number of bytes read and written
  double flops = 0;     // 0 for kernels that only move data; causal attention counts half of the square
  double launches = 1;  // number of GPU kernels; approximate for ATen operators

  std::optional<MatmulShape> matmul{};        // set for a matmul, which is timed by shape instead of bytes
  bool adds = false;                          // adds a matrix to the matmul's result
  std::optional<AttentionShape> attention{};  // set for attention, which is timed by shape
  // Shape of one of the ATen matmuls that together perform `flops`; `bytes` counts only the operation's other kernels.
  std::optional<MatmulShape> products{};

  // `kin` and `copy_share` are used to estimate the time if a calibration lacks the kernel. `kin`: name of a kernel
  // with the same time per byte. If `kin` is empty, the kernel is assumed to move its bytes at `copy_share` of the rate
  // of a device copy.
  std::string_view kin{};
  double copy_share = 1;
};

// Returns the number of bytes of a tensor with these sizes.
double bytes_of(at::ScalarType type, std::initializer_list<int64_t> sizes);

// Returns an operation that reads or writes a matrix [rows, columns] `passes` times in total.
Operation on_matrix(at::ScalarType type, int64_t rows, int64_t columns, double passes);

// Names of operations that are timed by shape.
inline constexpr const char* kMatmul = "matmul";
inline constexpr const char* kAttentionForward = "attention_forward";
inline constexpr const char* kAttentionBackward = "attention_backward";
Operation on_matmul(const MatmulShape& shape, bool adds);
Operation on_attention(const AttentionShape& shape, at::ScalarType type, bool backward);

// Returns the operation's name, dtypes, sizes and bytes as text. Operations with equal work have equal text.
std::string describe(const Operation& operation);

// Interface that observes the operations of the current thread.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  virtual void begin(const Operation& operation) = 0;
  virtual void end() = 0;

  // Returns a reference to the pointer to the current thread's observer, which is null if no observer is set.
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

// Scope that marks an operation for the profiler ("mpzero::<name>") and the observer. `name` must be a literal.
// `describe()` returns the Operation and is called only if an observer is set.
class OperationScope {
 public:
  template <typename Describe>
  OperationScope(const char* name, const Describe& describe) : observer_(OperationObserver::current()) {
    if (range_.isActive()) begin_range(name);
    if (observer_ != nullptr) {
      Operation operation = describe();
      operation.name = name;
      observer_->begin(operation);
    }
  }
  ~OperationScope() {
    if (observer_ != nullptr) observer_->end();
  }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  void begin_range(const char* name);

  at::RecordFunction range_{at::RecordScope::FUNCTION};
  OperationObserver* observer_;
};

}  // namespace mpzero::model
