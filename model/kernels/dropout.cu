#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

// blockIdx.y selects a sequence of `each` elements. Each thread processes four adjacent elements.
template <typename T>
__global__ void dropout_kernel(T* x, int64_t each, Dropout dropout, uint32_t dropped, float scale) {
  const int64_t quad = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, left = each - 4 * quad;
  if (left <= 0) return;
  x += blockIdx.y * each + 4 * quad;
  if (left >= 4 && reinterpret_cast<uintptr_t>(x) % sizeof(Pack<T, 4>) == 0) {
    auto pack = load<T, 4>(x);
    drop(pack.v, 4, blockIdx.y, quad, dropout, dropped, scale);
    store<T, 4>(x, pack);
  } else {
    drop(x, min(left, int64_t{4}), blockIdx.y, quad, dropout, dropped, scale);
  }
}

}  // namespace

void dropout(const at::Tensor& x, const Dropout& dropout) {
  const c10::cuda::CUDAGuard guard(x.device());
  TORCH_CHECK(x.is_contiguous(), "dropout expects a contiguous tensor");
  if (x.numel() == 0) return;
  constexpr int kThreads = 256;
  const int64_t each = x.numel() / dropout.sequences;
  const dim3 blocks(static_cast<unsigned>((each + 4 * kThreads - 1) / (4 * kThreads)),
                    static_cast<unsigned>(dropout.sequences));
  with_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    dropout_kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.mutable_data_ptr<T>(), each, dropout, dropped_values(dropout), static_cast<float>(1 / (1 - dropout.rate)));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace mpzero::model::cuda
