#include <ATen/ops/sort.h>

#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

// One block for each sorted position; only the first of a run of equal rows has work: it sums the run in order.
template <typename T, typename Out>
__global__ void segment_sum_kernel(const int64_t* sorted_rows, const int64_t* positions, const T* values, Out* gradient,
                                   int64_t count, int64_t columns) {
  const int64_t begin = blockIdx.x;
  const int64_t row = sorted_rows[begin];
  if (begin > 0 && sorted_rows[begin - 1] == row) return;
  int64_t end = begin + 1, beyond = count;
  while (end < beyond) {
    const int64_t middle = end + (beyond - end) / 2;
    if (sorted_rows[middle] == row) {
      end = middle + 1;
    } else {
      beyond = middle;
    }
  }
  for (int64_t column = threadIdx.x; column < columns; column += blockDim.x) {
    float sum = 0.0f;
#pragma unroll 8
    for (int64_t i = begin; i < end; ++i) sum += static_cast<float>(values[positions[i] * columns + column]);
    Out& target = gradient[row * columns + column];
    target = static_cast<Out>(static_cast<float>(target) + sum);
  }
}

}  // namespace

void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values_in) {
  const c10::cuda::CUDAGuard guard(values_in.device());
  TORCH_CHECK(weight_gradient.is_contiguous(), "embedding_backward wants a contiguous gradient");
  if (rows.numel() == 0) return;
  const at::Tensor values = values_in.contiguous();
  const auto [sorted, positions] = at::sort(rows, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const int64_t count = rows.size(0), columns = values.size(1);
  with_type(values.scalar_type(), [&](auto value_type) {
    using T = decltype(value_type);
    with_type(weight_gradient.scalar_type(), [&](auto out_type) {
      using Out = decltype(out_type);
      segment_sum_kernel<<<static_cast<unsigned>(count), block_threads(columns, 512), 0,
                           c10::cuda::getCurrentCUDAStream()>>>(
          sorted.const_data_ptr<int64_t>(), positions.const_data_ptr<int64_t>(), values.const_data_ptr<T>(),
          weight_gradient.mutable_data_ptr<Out>(), count, columns);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}

}  // namespace mpzero::model::cuda
