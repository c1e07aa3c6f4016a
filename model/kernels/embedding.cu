#include <ATen/cuda/cub.h>

#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

constexpr int kUnroll = 8;  // rows in flight per thread

// One block per sorted position. Only the first block of a run of equal rows does work: it sums the run in order.
template <typename T, typename Out, int kPack>
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
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * kPack; column < columns; column += blockDim.x * kPack) {
    float sum[kPack] = {};
    int64_t i = begin;
    for (; i + kUnroll <= end; i += kUnroll) {
      Pack<T, kPack> packs[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) packs[u] = load<T, kPack>(values + positions[i + u] * columns + column);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        float value[kPack];
        widen(packs[u], value);
        for (int j = 0; j < kPack; ++j) sum[j] += value[j];
      }
    }
    for (; i < end; ++i) {
      const auto pack = load<T, kPack>(values + positions[i] * columns + column);
      for (int j = 0; j < kPack; ++j) sum[j] += static_cast<float>(pack.v[j]);
    }
    Out* target = gradient + row * columns + column;
    constexpr int kOutPack = std::min<int>(kPack, 16 / sizeof(Out));
#pragma unroll
    for (int first = 0; first < kPack; first += kOutPack) {
      float total[kOutPack];
      widen(load<Out, kOutPack>(target + first), total);
      for (int j = 0; j < kOutPack; ++j) total[j] += sum[first + j];
      store<Out, kOutPack>(target + first, rounded<Out>(total));
    }
  }
}

}  // namespace

void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& order,
                        const at::Tensor& values_in) {
  const c10::cuda::CUDAGuard guard(values_in.device());
  TORCH_CHECK(weight_gradient.is_contiguous(), "embedding_backward expects a contiguous gradient");
  if (rows.numel() == 0) return;
  const at::Tensor values = values_in.contiguous();
  const at::Tensor unsorted = rows.contiguous();
  const at::Tensor sorted = unsorted.new_empty(unsorted.sizes()), positions = order.new_empty(order.sizes());
  const int64_t count = rows.size(0), columns = values.size(1);
  // The sort is stable and compares only the bits that a row number can use.
  at::cuda::cub::radix_sort_pairs(unsorted.const_data_ptr<int64_t>(), sorted.mutable_data_ptr<int64_t>(),
                                  order.const_data_ptr<int64_t>(), positions.mutable_data_ptr<int64_t>(), count,
                                  /*descending=*/false, /*begin_bit=*/0,
                                  at::cuda::cub::get_num_bits(static_cast<uint64_t>(weight_gradient.size(0))));
  with_type(values.scalar_type(), [&](auto value_type) {
    using T = decltype(value_type);
    with_type(weight_gradient.scalar_type(), [&](auto out_type) {
      using Out = decltype(out_type);
      const T* data = values.const_data_ptr<T>();
      Out* out = weight_gradient.mutable_data_ptr<Out>();
      with_pack<T>(columns, {data, out}, [&](T, auto pack) {
        segment_sum_kernel<T, Out, pack()><<<static_cast<unsigned>(count), block_threads(columns / pack(), 512), 0,
                                             c10::cuda::getCurrentCUDAStream()>>>(
            sorted.const_data_ptr<int64_t>(), positions.const_data_ptr<int64_t>(), data, out, count, columns);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
      });
    });
  });
}

}  // namespace mpzero::model::cuda
