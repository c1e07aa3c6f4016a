#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

// Rows, or groups of them, that a block of the backward pass takes at least: each block adds a row to the sums.
constexpr int kRowsABlock = 2;

// How a row is spread over threads: each of `threads` holds up to kPacks packs of it in registers, so that it is read
// once. Short rows take one warp each, kRows rows a block; longer ones a block of up to kMaxThreads.
template <typename T, int kPack_, int kPacks_, int kRows_, int kMaxThreads_, int kBlocks_>
struct RowLayout {
  using Element = T;
  static constexpr int kPack = kPack_, kPacks = kPacks_, kRows = kRows_;
  static constexpr int kMaxThreads = kMaxThreads_, kBlocks = kBlocks_;  // of a block; blocks a multiprocessor
  static constexpr bool kWarpRows = kRows > 1;
  int threads;  // a row

  explicit RowLayout(int64_t columns)
      : threads(kWarpRows ? kWarp : block_threads((columns + kPack * kPacks - 1) / (kPack * kPacks), kMaxThreads)) {}
  dim3 block() const { return {static_cast<unsigned>(threads), kRows}; }

  static __device__ int64_t column(int k) { return (threadIdx.x + static_cast<int64_t>(k) * blockDim.x) * kPack; }
  static __device__ float sum(float x) {
    if constexpr (kWarpRows) {
      return warp_sum(x);
    } else {
      return block_sum(x);
    }
  }
};

template <typename T, typename Body>
void with_layout(int64_t columns, std::initializer_list<const void*> addresses, Body&& body) {
  constexpr int kVector = 16 / sizeof(T), kPacks = 2, kScalars = 16;
  TORCH_CHECK(columns <= 16384, "rms_norm takes rows of up to 16384 elements, not ", columns);
  with_pack<T>(columns, addresses, [&](T, auto pack) {
    if constexpr (pack() == 1) {
      body(RowLayout<T, 1, kScalars, 1, 1024, 1>(columns));
    } else if (columns <= kVector * kPacks * kWarp) {
      body(RowLayout<T, kVector, kPacks, 4, 128, 5>(columns));
    } else if (columns <= kVector * kPacks * 64) {
      body(RowLayout<T, kVector, kPacks, 1, 64, 10>(columns));
    } else if (columns <= kVector * kPacks * 256) {
      body(RowLayout<T, kVector, kPacks, 1, 256, 2>(columns));
    } else {
      body(RowLayout<T, kVector, 16384 / (kVector * 1024), 1, 1024, 1>(columns));
    }
  });
}

template <typename T, typename Layout>
__global__ void __launch_bounds__(Layout::kMaxThreads)
    forward_kernel(const T* x, const T* weight, T* y, float* rstd, int64_t rows, int64_t columns, float eps) {
  constexpr int kPack = Layout::kPack, kPacks = Layout::kPacks;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Layout::kRows + threadIdx.y;
  if (row >= rows) return;  // a whole warp, or nobody
  x += row * columns;
  y += row * columns;
  Pack<T, kPack> in[kPacks];
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (Layout::column(k) < columns) in[k] = load<T, kPack>(x + Layout::column(k));
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (Layout::column(k) >= columns) continue;
    for (int j = 0; j < kPack; ++j) squares += static_cast<float>(in[k].v[j]) * static_cast<float>(in[k].v[j]);
  }
  const float scale = rsqrtf(Layout::sum(squares) / static_cast<float>(columns) + eps);
  if (threadIdx.x == 0) rstd[row] = scale;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (Layout::column(k) >= columns) continue;
    const auto w = load<T, kPack>(weight + Layout::column(k));
    for (int j = 0; j < kPack; ++j) {
      const T normalized = static_cast<T>(static_cast<float>(in[k].v[j]) * scale);
      in[k].v[j] = static_cast<T>(static_cast<float>(normalized) * static_cast<float>(w.v[j]));
    }
    store<T, kPack>(y + Layout::column(k), in[k]);
  }
}

// Each block takes every gridDim.x-th row (or group of kRows rows) and sums its share of the weight's gradient, each
// thread the columns it owns: no atomics, a fixed order. partial [gridDim.x, columns].
template <typename T, typename Layout>
__global__ void __launch_bounds__(Layout::kMaxThreads, Layout::kBlocks)
    backward_kernel(const T* dy, const T* x, const T* weight, const float* rstd, const T* dresidual, T* dx,
                    float* partial, int64_t rows, int64_t columns) {
  constexpr int kPack = Layout::kPack, kPacks = Layout::kPacks;
  float dweight[kPacks][kPack] = {};
  Pack<T, kPack> w[kPacks] = {};
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (Layout::column(k) < columns) w[k] = load<T, kPack>(weight + Layout::column(k));
  }
  // Every thread of a block makes the same number of turns.
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * Layout::kRows; first < rows;
       first += static_cast<int64_t>(gridDim.x) * Layout::kRows) {
    const int64_t row = first + threadIdx.y, offset = row * columns;
    Pack<T, kPack> dy_row[kPacks] = {}, x_row[kPacks] = {}, residual[kPacks] = {};
    float scale = 0.0f, product = 0.0f;
    if (row < rows) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        if (Layout::column(k) >= columns) continue;
        dy_row[k] = load<T, kPack>(dy + offset + Layout::column(k));
        x_row[k] = load<T, kPack>(x + offset + Layout::column(k));
        if (dresidual != nullptr) residual[k] = load<T, kPack>(dresidual + offset + Layout::column(k));
      }
      scale = rstd[row];
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      for (int j = 0; j < kPack; ++j) {
        const float d = static_cast<float>(dy_row[k].v[j]);
        const float normalized = static_cast<float>(x_row[k].v[j]) * scale;
        product += d * static_cast<float>(w[k].v[j]) * normalized;
        dweight[k][j] += d * static_cast<float>(static_cast<T>(normalized));
      }
    }
    const float mean = Layout::sum(product) / static_cast<float>(columns);
    if (row >= rows) continue;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (Layout::column(k) >= columns) continue;
      for (int j = 0; j < kPack; ++j) {
        const float g = static_cast<float>(dy_row[k].v[j]) * static_cast<float>(w[k].v[j]);
        const float normalized = static_cast<float>(x_row[k].v[j]) * scale;
        residual[k].v[j] = static_cast<T>(scale * (g - normalized * mean) + static_cast<float>(residual[k].v[j]));
      }
      store<T, kPack>(dx + offset + Layout::column(k), residual[k]);
    }
  }
  partial += blockIdx.x * columns;
  if constexpr (Layout::kWarpRows) {
    __shared__ float shares[Layout::kRows][kPack * kPacks * kWarp];
    for (int k = 0; k < kPacks; ++k) {
      for (int j = 0; j < kPack; ++j) shares[threadIdx.y][Layout::column(k) + j] = dweight[k][j];
    }
    __syncthreads();
    for (int64_t i = threadIdx.y * kWarp + threadIdx.x; i < columns; i += Layout::kRows * kWarp) {
      float sum = 0.0f;
      for (int r = 0; r < Layout::kRows; ++r) sum += shares[r][i];
      partial[i] = sum;
    }
  } else {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (Layout::column(k) >= columns) continue;
      for (int j = 0; j < kPack; ++j) partial[Layout::column(k) + j] = dweight[k][j];
    }
  }
}

unsigned groups(int64_t rows, int rows_a_group) {
  return static_cast<unsigned>((rows + rows_a_group - 1) / rows_a_group);
}

}  // namespace

RmsNormOutput rms_norm_forward(const at::Tensor& x_in, const at::Tensor& weight, double eps) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const at::Tensor x = x_in.contiguous();
  const int64_t columns = x.size(-1), rows = x.numel() / columns;
  RmsNormOutput out{at::empty_like(x), at::empty(x.sizes().slice(0, x.dim() - 1), x.options().dtype(at::kFloat))};
  if (rows == 0) return out;
  with_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T *x_data = x.const_data_ptr<T>(), *w_data = weight.const_data_ptr<T>();
    T* y_data = out.y.mutable_data_ptr<T>();
    with_layout<T>(columns, {x_data, w_data, y_data}, [&](auto layout) {
      using Layout = decltype(layout);
      forward_kernel<T, Layout><<<groups(rows, Layout::kRows), layout.block(), 0, c10::cuda::getCurrentCUDAStream()>>>(
          x_data, w_data, y_data, out.rstd.mutable_data_ptr<float>(), rows, columns, static_cast<float>(eps));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
  return out;
}

RmsNormGradients rms_norm_backward(const at::Tensor& dy_in, const at::Tensor& x_in, const at::Tensor& weight,
                                   const at::Tensor& rstd, const at::Tensor& dresidual_in) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const at::Tensor dy = dy_in.contiguous(), x = x_in.contiguous();
  const at::Tensor dresidual = dresidual_in.defined() ? dresidual_in.contiguous() : dresidual_in;
  const int64_t columns = x.size(-1), rows = x.numel() / columns;
  RmsNormGradients out{at::empty_like(x), {}};
  with_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T *dy_data = dy.const_data_ptr<T>(), *x_data = x.const_data_ptr<T>(), *w_data = weight.const_data_ptr<T>();
    const T* residual_data = dresidual.defined() ? dresidual.const_data_ptr<T>() : nullptr;
    T* dx_data = out.dx.mutable_data_ptr<T>();
    with_layout<T>(columns, {dy_data, x_data, w_data, residual_data, dx_data}, [&](auto layout) {
      using Layout = decltype(layout);
      const unsigned blocks = std::clamp<unsigned>(groups(rows, kRowsABlock * Layout::kRows), 1,
                                                   static_cast<unsigned>(Layout::kBlocks * multiprocessor_count()));
      out.dweight_rows = at::empty({blocks, columns}, x.options().dtype(at::kFloat));
      backward_kernel<T, Layout><<<blocks, layout.block(), 0, c10::cuda::getCurrentCUDAStream()>>>(
          dy_data, x_data, w_data, rstd.const_data_ptr<float>(), residual_data, dx_data,
          out.dweight_rows.mutable_data_ptr<float>(), rows, columns);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
  return out;
}

}  // namespace mpzero::model::cuda
