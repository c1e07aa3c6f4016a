#include <ATen/ops/sort.h>

#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

constexpr int kColumnThreads = 128, kRunThreads = 4;  // a block

// One block for each sorted position; only the first of a run of equal rows has work. Threads of one y sum every
// kRunThreads-th position of the run, then the block adds their sums up, in a fixed order.
template <typename T, typename Out, int kPack>
__global__ void __launch_bounds__(kColumnThreads* kRunThreads)
    segment_sum_kernel(const int64_t* sorted_rows, const int64_t* positions, const T* values, Out* gradient,
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
  __shared__ float shares[kRunThreads][kColumnThreads * kPack];
  for (int64_t first = 0; first < columns; first += kColumnThreads * kPack) {
    const int64_t column = first + static_cast<int64_t>(threadIdx.x) * kPack;
    float sum[kPack] = {};
    if (column < columns) {
#pragma unroll 4
      for (int64_t i = begin + threadIdx.y; i < end; i += kRunThreads) {
        const auto pack = load<T, kPack>(values + positions[i] * columns + column);
        for (int j = 0; j < kPack; ++j) sum[j] += static_cast<float>(pack.v[j]);
      }
    }
    for (int j = 0; j < kPack; ++j) shares[threadIdx.y][threadIdx.x * kPack + j] = sum[j];
    __syncthreads();
    for (int i = threadIdx.y * kColumnThreads + threadIdx.x; i < kColumnThreads * kPack;
         i += kColumnThreads * kRunThreads) {
      if (first + i >= columns) continue;
      float total = 0.0f;
      for (int y = 0; y < kRunThreads; ++y) total += shares[y][i];
      Out& target = gradient[row * columns + first + i];
      target = static_cast<Out>(static_cast<float>(target) + total);
    }
    __syncthreads();  // the shares have been read
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
      const T* data = values.const_data_ptr<T>();
      with_pack<T>(columns, {data}, [&](T, auto pack) {
        segment_sum_kernel<T, Out, pack()>
            <<<static_cast<unsigned>(count), dim3(kColumnThreads, kRunThreads), 0, c10::cuda::getCurrentCUDAStream()>>>(
                sorted.const_data_ptr<int64_t>(), positions.const_data_ptr<int64_t>(), data,
                weight_gradient.mutable_data_ptr<Out>(), count, columns);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
      });
    });
  });
}

}  // namespace mpzero::model::cuda
