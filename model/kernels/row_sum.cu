#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

constexpr int kMaxSums = 8;  // sums per launch

struct Sum {
  const float* rows;
  void* out;  // fp32 or bf16
  int64_t count, columns, row_stride;
  unsigned first_block;
  bool wide, overwrite;
};

struct Sums {
  Sum sum[kMaxSums];
  int count;
};

template <typename Out>
__device__ void put(const Sum& sum, int64_t column, float total) {
  Out* at = static_cast<Out*>(sum.out) + column;
  *at = static_cast<Out>(sum.overwrite ? total : static_cast<float>(*at) + total);
}

// Each block computes 32 columns of a sum. Each warp sums every 32nd row, then the block sums over its warps, in a
// fixed order.
__global__ void __launch_bounds__(kWarp* kWarp) kernel(const __grid_constant__ Sums sums) {
  __shared__ float shares[kWarp][kWarp + 1];
  int which = 0;
  while (which + 1 < sums.count && blockIdx.x >= sums.sum[which + 1].first_block) ++which;
  const Sum& sum = sums.sum[which];
  const int64_t first = static_cast<int64_t>(blockIdx.x - sum.first_block) * kWarp, column = first + threadIdx.x;
  float part = 0.0f;
  if (column < sum.columns) {
    const float* rows = sum.rows + column;
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < sum.count; row += kWarp) part += rows[row * sum.row_stride];
  }
  shares[threadIdx.y][threadIdx.x] = part;
  __syncthreads();
  // Warp y sums column y of the block.
  const float total = warp_sum(shares[threadIdx.x][threadIdx.y]);
  if (threadIdx.x != 0 || first + threadIdx.y >= sum.columns) return;
  if (sum.wide) {
    put<float>(sum, first + threadIdx.y, total);
  } else {
    put<c10::BFloat16>(sum, first + threadIdx.y, total);
  }
}

void launch(std::span<const RowSum> batch) {
  Sums sums{};
  unsigned blocks = 0;
  for (const RowSum& one : batch) {
    const int64_t columns = one.rows.size(1);
    TORCH_CHECK(one.rows.stride(1) == 1 && one.out.is_contiguous() && one.out.numel() == columns,
                "row_sum expects dense rows and one output element per column");
    sums.sum[sums.count++] = {.rows = one.rows.const_data_ptr<float>(),
                              .out = one.out.mutable_data_ptr(),
                              .count = one.rows.size(0),
                              .columns = columns,
                              .row_stride = one.rows.stride(0),
                              .first_block = blocks,
                              .wide = one.out.scalar_type() == at::kFloat,
                              .overwrite = one.overwrite};
    blocks += static_cast<unsigned>((columns + kWarp - 1) / kWarp);
  }
  if (blocks == 0) return;
  kernel<<<blocks, dim3(kWarp, kWarp), 0, c10::cuda::getCurrentCUDAStream()>>>(sums);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void row_sums(std::span<const RowSum> sums) {
  if (sums.empty()) return;
  const c10::cuda::CUDAGuard guard(sums.front().rows.device());
  for (; sums.size() > kMaxSums; sums = sums.subspan(kMaxSums)) launch(sums.first(kMaxSums));
  launch(sums);
}

}  // namespace mpzero::model::cuda
