#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/operation/operation.hpp"

namespace mpzero::model {

// Dequantization scales of FP8 operands, fp32 on the GPU. Fp8Shape::rowwise determines the shape of the scales.
struct LtScales {
  const float *a = nullptr, *b = nullptr;
};

class LtMatmul {
 public:
  // Alignment of all addresses and rows, in bytes. kAlignment is required. Alignment beyond kFullAlignment has no
  // benefit.
  static constexpr uint32_t kAlignment = 16, kFullAlignment = 256;
  // Workspace size of a matmul, as recommended by cuBLAS for Hopper.
  static constexpr int64_t kWorkspaceBytes = 32 << 20;
  // Memory that cuBLAS reserves on Hopper when ATen creates a cuBLAS handle.
  static constexpr int64_t kHandleBytes = 32 << 20;

  enum class Candidates : uint8_t {
    kAll,         // with and without split-K, in any order of additions
    kRepeatable,  // only algorithms with a fixed order of split-K additions
  };

  // Queries cuBLASLt's heuristic for at most `most` algorithms for the current device, predicted fastest first. The
  // heuristic may return no algorithm. All processes on the same kind of device get the same algorithms.
  LtMatmul(const MatmulShape& shape, int most, Candidates candidates = Candidates::kAll);
  ~LtMatmul();
  LtMatmul(LtMatmul&& other) noexcept;

  size_t algorithms() const;
  // Computes out = op(a) op(b) + addend on the current stream. `addend` is undefined, a matrix of out's shape (possibly
  // `out` itself) or, with `bias`, a vector. Throws c10::Error if cuBLASLt fails.
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, at::Tensor& out, size_t algorithm = 0,
           LtScales scales = {}) const;
  // Returns cuBLASLt's configuration of the algorithm: the algorithm ID, tile, stages, split-K and other settings.
  std::string describe(size_t algorithm) const;

 private:
  class Handles;  // hides cuBLASLt's header, which only CUDA builds include
  std::unique_ptr<Handles> handles_;
};

}  // namespace mpzero::model
