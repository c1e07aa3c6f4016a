#include "model/kernels/cublas_lt.hpp"

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>

namespace mpzero::model {
namespace {

constexpr int64_t kWorkspaceBytes = LtMatmul::kWorkspaceBytes;
constexpr uint32_t kAlignment = LtMatmul::kAlignment;

void check(cublasStatus_t status, const char* call) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, call, ": ", cublasLtGetStatusString(status));
}

cudaDataType_t data_type(at::ScalarType type) {
  TORCH_CHECK(type == at::kBFloat16 || type == at::kFloat, "LtMatmul takes fp32 and bf16, not ", type);
  return type == at::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

}  // namespace

// cuBLASLt counts by columns, where a row-major matrix is its own transpose.
LtMatmul::Layout LtMatmul::layout(at::ScalarType type, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, data_type(type), static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
                                   columns),
        "cublasLtMatrixLayoutCreate");
  return Layout(made);
}

LtMatmul::LtMatmul(const MatmulShape& s, int candidates)
    : bias_(s.bias),
      a_(s.a_transposed ? layout(s.type, s.inner, s.rows) : layout(s.type, s.rows, s.inner)),
      b_(s.b_transposed ? layout(s.type, s.columns, s.inner) : layout(s.type, s.inner, s.columns)),
      out_(layout(s.type, s.rows, s.columns)) {
  cublasLtMatmulDesc_t description = nullptr;
  check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  description_.reset(description);
  // out^T = op(b)^T op(a)^T: cuBLASLt's first matrix is our second.
  const auto set_operation = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(description, attribute, &operation, sizeof(operation)),
          "cublasLtMatmulDescSetAttribute");
  };
  set_operation(CUBLASLT_MATMUL_DESC_TRANSA, s.b_transposed);
  set_operation(CUBLASLT_MATMUL_DESC_TRANSB, s.a_transposed);
  if (s.bias) {
    // A vector along the rows of cuBLASLt's result, which are our columns; of the result's type.
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    check(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)),
          "cublasLtMatmulDescSetAttribute");
    // Nobody reads it: the heuristic wants an address, and to see how it is aligned. run() sets the vector's.
    const void* aligned = reinterpret_cast<const void*>(uintptr_t{kAlignment});
    check(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof(aligned)),
          "cublasLtMatmulDescSetAttribute");
  }

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> owned_preference(preference);
  const size_t workspace = kWorkspaceBytes;
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof(workspace)),
        "cublasLtMatmulPreferenceSetAttribute");
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &kAlignment, sizeof(kAlignment)),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(candidates));
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), description, b_.get(), a_.get(),
                                       out_.get(), out_.get(), preference, candidates, found.data(), &count),
        "cublasLtMatmulAlgoGetHeuristic");
  TORCH_CHECK(count > 0, "cuBLASLt has no algorithm for [", s.rows, ", ", s.inner, "] x [", s.inner, ", ", s.columns,
              "]");
  for (int i = 0; i < count; ++i) algorithms_.push_back(found[static_cast<size_t>(i)].algo);
}

void LtMatmul::run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, at::Tensor& out,
                   size_t algorithm) const {
  const bool adds = addend.defined() && !bias_;
  const float alpha = 1.0F, beta = adds ? 1.0F : 0.0F;
  const at::Tensor& c = adds ? addend : out;
  // A copy, since several threads may run one product with vectors of their own.
  cublasLtMatmulDescOpaque_t description = *description_;
  if (bias_) {
    const void* vector = addend.const_data_ptr();
    check(cublasLtMatmulDescSetAttribute(&description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof(vector)),
          "cublasLtMatmulDescSetAttribute");
  }
  at::Tensor workspace = at::empty({kWorkspaceBytes}, out.options().dtype(at::kByte));
  check(cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), &description, &alpha, b.const_data_ptr(), b_.get(),
                       a.const_data_ptr(), a_.get(), &beta, c.const_data_ptr(), out_.get(), out.mutable_data_ptr(),
                       out_.get(), &algorithms_[algorithm], workspace.mutable_data_ptr(), kWorkspaceBytes,
                       c10::cuda::getCurrentCUDAStream()),
        "cublasLtMatmul");
}

}  // namespace mpzero::model
