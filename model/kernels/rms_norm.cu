
#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

// Distribution of a row over threads: each of `threads` threads processes up to kPacks packs. Short rows use one warp
// each, with kRows rows per block; longer rows use a block of up to kMaxThreads threads. The backward pass runs kBlocks
// blocks per multiprocessor and prefetches kStages rows per thread. If kStages is 0, rows are not prefetched.
template <typename T, int kPack_, int kPacks_, int kRows_, int kMaxThreads_, int kBlocks_, int kStages_>
struct RowLayout {
  using Element = T;
  static constexpr int kPack = kPack_, kPacks = kPacks_, kRows = kRows_;
  static constexpr int kMaxThreads = kMaxThreads_, kBlocks = kBlocks_, kStages = kStages_;
  static_assert(kMaxThreads <= 1024 && kBlocks > 0 && kStages >= 0);
  static constexpr bool kWarpRows = kRows > 1;
  int threads;  // threads per row

  explicit RowLayout(int64_t columns)
      : threads(kWarpRows ? kWarp : block_threads((columns + kPack * kPacks - 1) / (kPack * kPacks), kMaxThreads)) {}
  dim3 block() const { return {static_cast<unsigned>(threads), kRows}; }
  // Shared memory for the prefetched rows of the gradient, the input and the residual gradient.
  size_t staged_bytes() const { return sizeof(Pack<T, kPack>) * kStages * 3 * kPacks * kRows * threads; }

  static __device__ int row_threads() { return kWarpRows ? kWarp : static_cast<int>(blockDim.x); }
  static __device__ int column(int k) { return (static_cast<int>(threadIdx.x) + k * row_threads()) * kPack; }
  // Returns the sum over the threads of a row. Consecutive calls must alternate between odd and even turns.
  static __device__ float sum(float x, int turn = 0) {
    if constexpr (kWarpRows) {
      return warp_sum(x);
    } else {
      __shared__ float shares[2][kWarp];
      const int lane = static_cast<int>(threadIdx.x) % kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
      x = warp_sum(x);
      if (lane == 0) shares[turn % 2][threadIdx.x / kWarp] = x;
      __syncthreads();  // the next call uses the other buffer and synchronizes before this buffer is reused
      return warp_sum(lane < warps ? shares[turn % 2][lane] : 0.0f);
    }
  }
};

// `kForward`: the forward pass does not keep sums, and is faster with more and smaller blocks.
template <typename T, bool kForward, typename Body>
void with_layout(int64_t columns, std::initializer_list<const void*> addresses, Body&& body) {
  constexpr int kVector = 16 / sizeof(T);
  TORCH_CHECK(columns <= 16384, "rms_norm supports rows of up to 16384 elements, not ", columns);
  with_pack<T>(columns, addresses, [&](T, auto pack) {
    const int64_t packs = columns / pack();
    if constexpr (pack() == 1) {
      body(RowLayout<T, 1, 16, 1, 1024, 1, 0>(columns));
    } else if (packs <= 2 * kWarp) {
      body(RowLayout<T, kVector, 2, 8, 256, 3, 2>(columns));
    } else if (packs <= 4 * kWarp) {
      if constexpr (kForward) {
        body(RowLayout<T, kVector, 2, 1, 64, 10, 0>(columns));
      } else {
        body(RowLayout<T, kVector, 4, 8, 256, 2, 2>(columns));
      }
    } else if (packs <= 2 * 256) {
      body(RowLayout<T, kVector, 2, 1, 256, 3, 2>(columns));
    } else if (packs <= 2 * 512) {
      body(RowLayout<T, kVector, 2, 1, 512, 1, 2>(columns));
    } else {
      constexpr int kStages = sizeof(T) == 2 ? 1 : 0;  // more stages exceed the shared memory of some GPUs
      body(RowLayout<T, kVector, 16384 / (kVector * 1024), 1, 1024, 1, kStages>(columns));
    }
  });
}

// kMaximum: updates *maximum to max(*maximum, max |y|).
template <typename T, typename Layout, bool kMaximum>
__global__ void __launch_bounds__(Layout::kMaxThreads)
    forward_kernel(const T* x, const T* weight, T* y, float* rstd, int64_t rows, int columns, float eps,
                   unsigned* maximum) {
  constexpr int kPack = Layout::kPack, kPacks = Layout::kPacks;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Layout::kRows + threadIdx.y;
  if (row >= rows) return;  // whole warps return
  x += row * columns;
  y += row * columns;
  Pack<T, kPack> in[kPacks] = {};
  float squares = 0.0f, value[kPack];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (Layout::column(k) < columns) in[k] = load<T, kPack>(x + Layout::column(k));
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    widen(in[k], value);
    for (const float v : value) squares += v * v;
  }
  const float scale = rsqrtf(Layout::sum(squares) / static_cast<float>(columns) + eps);
  if (threadIdx.x == 0) rstd[row] = scale;
  [[maybe_unused]] unsigned largest = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (Layout::column(k) >= columns) continue;
    float w[kPack];
    widen(load<T, kPack>(weight + Layout::column(k)), w);
    widen(in[k], value);
    for (float& v : value) v *= scale;
    round_to<T>(value);
    for (int j = 0; j < kPack; ++j) value[j] *= w[j];
    const auto out = rounded<T>(value);
    store<T, kPack>(y + Layout::column(k), out);
    if constexpr (kMaximum) largest = max(largest, magnitude(out));
  }
  if constexpr (kMaximum) raise(maximum, largest);
}

// Each block processes every gridDim.x-th row (or group of kRows rows) and sums its contribution to the weight
// gradient. Each thread sums its own columns, so the order is fixed, without atomics. partial: [gridDim.x, columns].
// Meanwhile, the next rows are copied to shared memory. Each thread copies only the data that it reads itself, so
// threads do not wait for each other. kMaximum: updates *maximum to max(*maximum, max |dx|).
template <typename T, typename Layout, bool kMaximum>
__global__ void __launch_bounds__(Layout::kMaxThreads, Layout::kBlocks)
    backward_kernel(const T* dy, const T* x, const T* weight, const float* rstd, const T* dresidual, T* dx, T* y,
                    float* partial, int64_t rows, int columns, unsigned* maximum) {
  constexpr int kPack = Layout::kPack, kPacks = Layout::kPacks, kStages = Layout::kStages;
  enum Input { kDy, kX, kResidual };
  extern __shared__ uint4 shared[];
  auto* staged = reinterpret_cast<Pack<T, kPack>*>(shared);  // [kStages, 3, kPacks, threads per block]
  const int threads = Layout::row_threads() * Layout::kRows;
  staged += threadIdx.y * Layout::row_threads() + threadIdx.x;
  const auto slot = [&](int stage, int input, int k) { return staged + ((stage * 3 + input) * kPacks + k) * threads; };
  const auto stage_row = [&](int64_t row, int stage) {
    if constexpr (kStages > 0) {
      if (row < rows) {
#pragma unroll
        for (int k = 0; k < kPacks; ++k) {
          if (Layout::column(k) >= columns) continue;
          const int64_t at = row * columns + Layout::column(k);
          copy_async<T, kPack>(slot(stage, kDy, k), dy + at);
          copy_async<T, kPack>(slot(stage, kX, k), x + at);
          if (dresidual != nullptr) copy_async<T, kPack>(slot(stage, kResidual, k), dresidual + at);
        }
      }
      __pipeline_commit();
    }
  };

  [[maybe_unused]] unsigned largest = 0;
  float dweight[kPacks][kPack] = {};
  Pack<T, kPack> w[kPacks] = {};
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (Layout::column(k) < columns) w[k] = load<T, kPack>(weight + Layout::column(k));
  }
  const int64_t step = static_cast<int64_t>(gridDim.x) * Layout::kRows;
  int64_t first = static_cast<int64_t>(blockIdx.x) * Layout::kRows;
  for (int stage = 0; stage < kStages; ++stage) stage_row(first + stage * step + threadIdx.y, stage);
  // All threads of a block execute the same number of iterations.
  for (int turn = 0; first < rows; first += step, ++turn) {
    const int64_t row = first + threadIdx.y, offset = row * columns;
    const int stage = kStages > 0 ? turn % kStages : 0;
    const auto read = [&](int input, int k) {
      if constexpr (kStages > 0) {
        return load<T, kPack>(slot(stage, input, k)->v);
      } else {
        return load<T, kPack>((input == kDy ? dy : input == kX ? x : dresidual) + offset + Layout::column(k));
      }
    };
    if constexpr (kStages > 0) __pipeline_wait_prior(kStages - 1);
    const float scale = row < rows ? rstd[row] : 0.0f;
    float product = 0.0f, d[kPack], in[kPack], gain[kPack];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (row >= rows || Layout::column(k) >= columns) continue;
      widen(read(kDy, k), d);
      widen(read(kX, k), in);
      widen(w[k], gain);
      for (int j = 0; j < kPack; ++j) {
        in[j] *= scale;
        product += d[j] * gain[j] * in[j];
      }
      round_to<T>(in);
      for (int j = 0; j < kPack; ++j) dweight[k][j] += d[j] * in[j];
      if (y != nullptr) {
        for (int j = 0; j < kPack; ++j) in[j] *= gain[j];
        store<T, kPack>(y + offset + Layout::column(k), rounded<T>(in));
      }
    }
    const float along_x = Layout::sum(product, turn) * scale * scale / static_cast<float>(columns);
    if (row < rows) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        if (Layout::column(k) >= columns) continue;
        float result[kPack] = {};
        if (dresidual != nullptr) widen(read(kResidual, k), result);
        widen(read(kDy, k), d);
        widen(read(kX, k), in);
        widen(w[k], gain);
        for (int j = 0; j < kPack; ++j) result[j] += scale * d[j] * gain[j] - along_x * in[j];
        const auto out = rounded<T>(result);
        store<T, kPack>(dx + offset + Layout::column(k), out);
        if constexpr (kMaximum) largest = max(largest, magnitude(out));
      }
    }
    stage_row(row + kStages * step, stage);
  }
  if constexpr (kMaximum) raise(maximum, largest);
  partial += static_cast<int64_t>(blockIdx.x) * columns;
  if constexpr (Layout::kWarpRows) {
    auto* shares = reinterpret_cast<float*>(shared);  // [kRows, kRowSize]; no prefetch is in flight
    constexpr int kRowSize = kPack * kPacks * kWarp;
    __syncthreads();
    for (int k = 0; k < kPacks; ++k) {
      for (int j = 0; j < kPack; ++j) shares[threadIdx.y * kRowSize + Layout::column(k) + j] = dweight[k][j];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.y * kWarp + threadIdx.x); i < columns; i += Layout::kRows * kWarp) {
      float sum = 0.0f;
      for (int r = 0; r < Layout::kRows; ++r) sum += shares[r * kRowSize + i];
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

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& maximum,
                      at::Tensor& y, at::Tensor& rstd) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t rows = x.size(0), columns = x.size(1);
  if (rows == 0) return;
  with_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T *x_data = x.const_data_ptr<T>(), *w_data = weight.const_data_ptr<T>();
    T* y_data = y.mutable_data_ptr<T>();
    with_layout<T, true>(columns, {x_data, w_data, y_data}, [&](auto layout) {
      using Layout = decltype(layout);
      const auto kernel = maximum.defined() ? forward_kernel<T, Layout, true> : forward_kernel<T, Layout, false>;
      kernel<<<groups(rows, Layout::kRows), layout.block(), 0, c10::cuda::getCurrentCUDAStream()>>>(
          x_data, w_data, y_data, rstd.mutable_data_ptr<float>(), rows, static_cast<int>(columns),
          static_cast<float>(eps), maximum_bits(maximum));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}

at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& rstd, const at::Tensor& dresidual, const at::Tensor& maximum,
                             at::Tensor& dx, at::Tensor& y) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t rows = x.size(0), columns = x.size(1);
  at::Tensor dweight_rows;
  with_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T *dy_data = dy.const_data_ptr<T>(), *x_data = x.const_data_ptr<T>(), *w_data = weight.const_data_ptr<T>();
    const T* residual_data = dresidual.defined() ? dresidual.const_data_ptr<T>() : nullptr;
    T *dx_data = dx.mutable_data_ptr<T>(), *y_data = y.defined() ? y.mutable_data_ptr<T>() : nullptr;
    with_layout<T, false>(columns, {dy_data, x_data, w_data, residual_data, dx_data, y_data}, [&](auto layout) {
      using Layout = decltype(layout);
      const unsigned blocks = std::clamp<unsigned>(groups(rows, Layout::kRows), 1,
                                                   static_cast<unsigned>(Layout::kBlocks * multiprocessor_count()));
      dweight_rows = x.new_empty({blocks, columns}, at::kFloat);
      const auto kernel = maximum.defined() ? backward_kernel<T, Layout, true> : backward_kernel<T, Layout, false>;
      const size_t shared_bytes = layout.staged_bytes();
      use_shared_memory(kernel, shared_bytes);
      kernel<<<blocks, layout.block(), shared_bytes, c10::cuda::getCurrentCUDAStream()>>>(
          dy_data, x_data, w_data, rstd.const_data_ptr<float>(), residual_data, dx_data, y_data,
          dweight_rows.mutable_data_ptr<float>(), rows, static_cast<int>(columns), maximum_bits(maximum));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
  return dweight_rows;
}

}  // namespace mpzero::model::cuda
