// Replaces this directory's .cu files and cublas_lt.cpp in builds without GPU kernels.

#include "base/gpu_kernels.hpp"
#include "model/kernels/cublas_lt.hpp"
#include "model/kernels/cuda.hpp"

namespace mpzero::model {

class LtMatmul::Handles {};

LtMatmul::LtMatmul(const MatmulShape&, int, Candidates) { throw_no_gpu_kernels(); }
LtMatmul::~LtMatmul() = default;
LtMatmul::LtMatmul(LtMatmul&&) noexcept = default;
size_t LtMatmul::algorithms() const { throw_no_gpu_kernels(); }
void LtMatmul::run(const at::Tensor&, const at::Tensor&, const at::Tensor&, at::Tensor&, size_t, LtScales) const {
  throw_no_gpu_kernels();
}
std::string LtMatmul::describe(size_t) const { throw_no_gpu_kernels(); }

}  // namespace mpzero::model

namespace mpzero::model::cuda {

void rms_norm_forward(const at::Tensor&, const at::Tensor&, double, const at::Tensor&, at::Tensor&, at::Tensor&) {
  throw_no_gpu_kernels();
}
at::Tensor rms_norm_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                             const at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&) {
  throw_no_gpu_kernels();
}
void qk_rope_forward(const at::Tensor&, HeadCounts, const QkNormWeights&, const RopeTables&, at::Tensor&) {
  throw_no_gpu_kernels();
}
void qk_rope_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, HeadCounts,
                      const QkNormWeights&, const RopeTables&, const at::Tensor&, QkRopeGradients&) {
  throw_no_gpu_kernels();
}
at::Tensor column_sum_rows(const at::Tensor&) { throw_no_gpu_kernels(); }
void row_sums(std::span<const RowSum>) { throw_no_gpu_kernels(); }
void swiglu_forward(const at::Tensor&, const at::Tensor&, at::Tensor&) { throw_no_gpu_kernels(); }
void swiglu_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, at::Tensor&,
                     at::Tensor&) {
  throw_no_gpu_kernels();
}
void cross_entropy(at::Tensor&, const at::Tensor&, std::optional<double>, const at::Tensor&, at::Tensor&) {
  throw_no_gpu_kernels();
}
void dropout(const at::Tensor&, const Dropout&) { throw_no_gpu_kernels(); }
void embedding_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  throw_no_gpu_kernels();
}

}  // namespace mpzero::model::cuda
