#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

// A block for each 32 columns: each warp sums every 32nd row, then the block its warps, in a fixed order.
template <typename Out>
__global__ void __launch_bounds__(kWarp* kWarp)
    kernel(const float* rows, Out* out, int64_t count, int64_t columns, int64_t row_stride, bool overwrite) {
  __shared__ float shares[kWarp][kWarp + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < count; row += kWarp) sum += rows[row * row_stride + column];
  }
  shares[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Now warp y sums column y of the block.
  const int64_t target = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.y;
  const float total = warp_sum(shares[threadIdx.x][threadIdx.y]);
  if (threadIdx.x != 0 || target >= columns) return;
  out[target] = static_cast<Out>(overwrite ? total : static_cast<float>(out[target]) + total);
}

}  // namespace

void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite) {
  const c10::cuda::CUDAGuard guard(rows.device());
  TORCH_CHECK(rows.stride(1) == 1 && out.is_contiguous() && out.numel() == rows.size(1),
              "row_sum wants dense rows and as many sums as columns");
  const int64_t columns = rows.size(1);
  with_type(out.scalar_type(), [&](auto type) {
    using Out = decltype(type);
    kernel<Out><<<static_cast<unsigned>((columns + kWarp - 1) / kWarp), dim3(kWarp, kWarp), 0,
                  c10::cuda::getCurrentCUDAStream()>>>(rows.const_data_ptr<float>(), out.mutable_data_ptr<Out>(),
                                                       rows.size(0), columns, rows.stride(0), overwrite);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace mpzero::model::cuda
