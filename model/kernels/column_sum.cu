
#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kRowsInFlight = 4;  // rows that a thread reads before adding them
constexpr int kRowsAThread = 16;  // minimum number, because each block adds a row to the partial sums
constexpr int kBlocksAMultiprocessor = 4;

// Each block covers blockDim.x packs of columns and processes every gridDim.x-th group of blockDim.y adjacent rows.
// Each thread sums its own columns, then the block sums over the blockDim.y threads of each column. The order is fixed,
// without atomics. partial: [gridDim.x, columns].
template <typename T, int kPack>
__global__ void __launch_bounds__(kMaxThreads) kernel(const T* x, float* partial, int64_t rows, int64_t columns) {
  __shared__ float shares[kMaxThreads * kPack];  // [blockDim.y, blockDim.x * kPack]
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kPack;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  float sum[kPack] = {};
  if (column < columns) {
    int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    const auto add = [&](const Pack<T, kPack>& pack) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) sum[j] += static_cast<float>(pack.v[j]);
    };
    for (; row + (kRowsInFlight - 1) * step < rows; row += kRowsInFlight * step) {
      Pack<T, kPack> packs[kRowsInFlight];
#pragma unroll
      for (int k = 0; k < kRowsInFlight; ++k) packs[k] = load<T, kPack>(x + (row + k * step) * columns + column);
#pragma unroll
      for (int k = 0; k < kRowsInFlight; ++k) add(packs[k]);
    }
    for (; row < rows; row += step) add(load<T, kPack>(x + row * columns + column));
  }
  const int width = blockDim.x * kPack;
#pragma unroll
  for (int j = 0; j < kPack; ++j) shares[threadIdx.y * width + threadIdx.x * kPack + j] = sum[j];
  __syncthreads();
  const int64_t first_column = static_cast<int64_t>(blockIdx.y) * width;
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < width; i += blockDim.x * blockDim.y) {
    if (first_column + i >= columns) break;
    float total = 0.0f;
    for (unsigned y = 0; y < blockDim.y; ++y) total += shares[y * width + i];
    partial[blockIdx.x * columns + first_column + i] = total;
  }
}

}  // namespace

at::Tensor column_sum_rows(const at::Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  TORCH_CHECK(x.is_contiguous() && x.dim() == 2, "column_sum_rows expects a contiguous matrix");
  const int64_t rows = x.size(0), columns = x.size(1);
  at::Tensor partial;
  if (x.numel() == 0) return x.new_empty({0, columns}, at::kFloat);
  with_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T* data = x.const_data_ptr<T>();
    with_pack<T>(columns, {data}, [&](T, auto pack) {
      constexpr int kPack = pack();
      const int64_t packs = (columns + kPack - 1) / kPack;
      const int64_t bands = (packs + kMaxThreads / 2 - 1) / (kMaxThreads / 2);
      const auto width = static_cast<unsigned>((packs + bands - 1) / bands);
      const unsigned height = std::max(1u, kMaxThreads / width);
      const int64_t wanted = (rows + height * kRowsAThread - 1) / (height * kRowsAThread);
      const int64_t useful = std::max<int64_t>(1, kBlocksAMultiprocessor * multiprocessor_count() / bands);
      const auto blocks = static_cast<unsigned>(std::min(wanted, useful));
      partial = x.new_empty({blocks, columns}, at::kFloat);
      kernel<T, kPack>
          <<<dim3(blocks, static_cast<unsigned>(bands)), dim3(width, height), 0, c10::cuda::getCurrentCUDAStream()>>>(
              data, partial.mutable_data_ptr<float>(), rows, columns);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
  return partial;
}

}  // namespace mpzero::model::cuda
