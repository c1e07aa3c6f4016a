#include "model/kernels/cublas_lt.hpp"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace mpzero::model {
namespace {

constexpr int64_t kWorkspaceBytes = LtMatmul::kWorkspaceBytes;

// In-place reduction: blocks add to the result in the order in which they finish.
constexpr uint32_t kUnordered = CUBLASLT_REDUCTION_SCHEME_INPLACE;

void check(cublasStatus_t status, const char* call) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, call, ": ", cublasLtGetStatusString(status));
}

cudaDataType_t data_type(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return CUDA_R_16BF;
    case at::kFloat:
      return CUDA_R_32F;
    case at::kFloat8_e4m3fn:
      return CUDA_R_8F_E4M3;
    case at::kFloat8_e5m2:
      return CUDA_R_8F_E5M2;
    default:
      TORCH_CHECK(false, "LtMatmul supports fp32, bf16 and FP8, not ", type);
  }
}

template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { kDestroy(handle); }
};
template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, kDestroy>>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

// cuBLASLt is column-major: a row-major matrix is passed as its transpose.
Layout layout(at::ScalarType type, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, data_type(type), static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
                                   columns),
        "cublasLtMatrixLayoutCreate");
  return Layout(made);
}

at::ScalarType b_type(const MatmulShape& s) { return s.fp8 ? s.fp8->b_type : s.type; }

template <typename T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}

}  // namespace

class LtMatmul::Handles {
 public:
  Handles(const MatmulShape& shape, int most, Candidates candidates);
  size_t algorithms() const { return algorithms_.size(); }
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, at::Tensor& out, size_t algorithm,
           LtScales scales) const;
  std::string describe(size_t algorithm) const;

 private:
  // Appends at most `most` new heuristic results to the list. `reductions`: allowed split-K reduction schemes, a mask
  // of cublasLtReductionScheme_t.
  void propose(int most, uint32_t reductions, uint32_t alignment);

  bool bias_, scales_;
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> description_;
  Layout a_, b_, out_;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
};

LtMatmul::Handles::Handles(const MatmulShape& s, int most, Candidates candidates)
    : bias_(s.bias),
      scales_(s.fp8.has_value()),
      a_(s.a_transposed ? layout(s.type, s.inner, s.rows) : layout(s.type, s.rows, s.inner)),
      b_(s.b_transposed ? layout(b_type(s), s.columns, s.inner) : layout(b_type(s), s.inner, s.columns)),
      out_(layout(s.out_type, s.rows, s.columns)) {
  cublasLtMatmulDesc_t description = nullptr;
  check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  description_.reset(description);
  // Computes out^T = op(b)^T op(a)^T: cuBLASLt's first matrix is b.
  const auto set_operation = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(description, attribute, &operation, sizeof(operation)),
          "cublasLtMatmulDescSetAttribute");
  };
  set_operation(CUBLASLT_MATMUL_DESC_TRANSA, s.b_transposed);
  set_operation(CUBLASLT_MATMUL_DESC_TRANSB, s.a_transposed);
  if (s.bias) {
    // The bias has the dtype of out and extends along cuBLASLt's rows, which are the columns of out.
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    check(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)),
          "cublasLtMatmulDescSetAttribute");
    // Placeholder that is never read: the heuristic derives the alignment from the address. run() sets the real
    // address.
    const uintptr_t aligned = s.alignment;
    check(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof(aligned)),
          "cublasLtMatmulDescSetAttribute");
  }
  if (s.fp8) {
    set(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(s.fp8->fast_accumulation));
    const int32_t mode =
        s.fp8->rowwise ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    set(description, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
    set(description, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
    // Placeholder addresses, as for the bias.
    const uintptr_t aligned = s.alignment;
    set(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, aligned);
    set(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, aligned);
  }
  if (candidates == Candidates::kRepeatable) {
    propose(most, CUBLASLT_REDUCTION_SCHEME_MASK & ~kUnordered, s.alignment);
    return;
  }
  // Reserves some results for algorithms without split-K, because a heuristic that prefers split-K returns few others.
  propose(most - most / 3, CUBLASLT_REDUCTION_SCHEME_MASK, s.alignment);
  propose(most - static_cast<int>(algorithms()), CUBLASLT_REDUCTION_SCHEME_NONE, s.alignment);
}

void LtMatmul::Handles::propose(int most, uint32_t reductions, uint32_t alignment) {
  if (most <= 0) return;
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> owned_preference(preference);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(attribute, alignment);
  }
  // The heuristic may repeat earlier results.
  const auto asked = static_cast<size_t>(most) + algorithms();
  std::vector<cublasLtMatmulHeuristicResult_t> found(asked);
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), description_.get(), b_.get(), a_.get(),
                                     out_.get(), out_.get(), preference, static_cast<int>(asked), found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < count && most > 0; ++i) {
    const cublasLtMatmulHeuristicResult_t& proposal = found[static_cast<size_t>(i)];
    const bool known = std::any_of(algorithms_.begin(), algorithms_.end(), [&](const cublasLtMatmulAlgo_t& other) {
      return std::memcmp(&other, &proposal.algo, sizeof(other)) == 0;
    });
    if (known || proposal.state != CUBLAS_STATUS_SUCCESS) continue;
    algorithms_.push_back(proposal.algo);
    --most;
  }
}

std::string LtMatmul::Handles::describe(size_t algorithm) const {
  const auto value = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto initial) {
    size_t written = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(&algorithms_[algorithm], attribute, &initial, sizeof(initial), &written);
    return status == CUBLAS_STATUS_SUCCESS ? std::to_string(initial) : std::string("?");
  };
  return "id " + value(CUBLASLT_ALGO_CONFIG_ID, int32_t{}) + " tile " +
         value(CUBLASLT_ALGO_CONFIG_TILE_ID, uint32_t{}) + " stages " +
         value(CUBLASLT_ALGO_CONFIG_STAGES_ID, uint32_t{}) + " cluster " +
         value(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, uint16_t{}) + " swizzle " +
         value(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, uint32_t{}) + " split " +
         value(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32_t{}) + " option " +
         value(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, uint32_t{});
}

void LtMatmul::Handles::run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, at::Tensor& out,
                            size_t algorithm, LtScales scales) const {
  const bool adds = addend.defined() && !bias_;
  const float alpha = 1.0F, beta = adds ? 1.0F : 0.0F;
  const at::Tensor& c = adds ? addend : out;
  // Copies the descriptor, because several threads may run one matmul with different vectors.
  cublasLtMatmulDescOpaque_t description = *description_;
  if (bias_) {
    const auto vector = reinterpret_cast<uintptr_t>(addend.const_data_ptr());
    check(cublasLtMatmulDescSetAttribute(&description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof(vector)),
          "cublasLtMatmulDescSetAttribute");
  }
  if (scales_) {
    // cuBLASLt's first matrix is b.
    set(&description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.b);
    set(&description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.a);
  }
  // Not allocated as a tensor, because ATen fills new tensors under deterministic algorithms.
  const c10::DataPtr workspace = c10::cuda::CUDACachingAllocator::get()->allocate(kWorkspaceBytes);
  check(cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), &description, &alpha, b.const_data_ptr(), b_.get(),
                       a.const_data_ptr(), a_.get(), &beta, c.const_data_ptr(), out_.get(), out.mutable_data_ptr(),
                       out_.get(), &algorithms_[algorithm], workspace.get(), kWorkspaceBytes,
                       c10::cuda::getCurrentCUDAStream()),
        "cublasLtMatmul");
}

LtMatmul::LtMatmul(const MatmulShape& shape, int most, Candidates candidates)
    : handles_(std::make_unique<Handles>(shape, most, candidates)) {}
LtMatmul::~LtMatmul() = default;
LtMatmul::LtMatmul(LtMatmul&&) noexcept = default;
size_t LtMatmul::algorithms() const { return handles_->algorithms(); }
void LtMatmul::run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, at::Tensor& out,
                   size_t algorithm, LtScales scales) const {
  handles_->run(a, b, addend, out, algorithm, scales);
}
std::string LtMatmul::describe(size_t algorithm) const { return handles_->describe(algorithm); }

}  // namespace mpzero::model
