#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

// One block a row.
template <typename T, int kPack>
__global__ void forward_kernel(const T* x, const T* weight, T* y, float* rstd, int64_t columns, float eps) {
  const int64_t row = blockIdx.x;
  x += row * columns;
  y += row * columns;
  float squares = 0.0f;
  for (int64_t i = threadIdx.x * kPack; i < columns; i += blockDim.x * kPack) {
    const auto pack = load<T, kPack>(x + i);
    for (int j = 0; j < kPack; ++j) squares += static_cast<float>(pack.v[j]) * static_cast<float>(pack.v[j]);
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(columns) + eps);
  if (threadIdx.x == 0) rstd[row] = scale;
  for (int64_t i = threadIdx.x * kPack; i < columns; i += blockDim.x * kPack) {
    auto pack = load<T, kPack>(x + i);
    const auto w = load<T, kPack>(weight + i);
    for (int j = 0; j < kPack; ++j) {
      const T normalized = static_cast<T>(static_cast<float>(pack.v[j]) * scale);
      pack.v[j] = static_cast<T>(static_cast<float>(normalized) * static_cast<float>(w.v[j]));
    }
    store<T, kPack>(y + i, pack);
  }
}

// Each block takes rows blockIdx.x, blockIdx.x + gridDim.x, … and sums its share of the weight's gradient, each thread
// the columns it owns: no atomics, a fixed order. partial [gridDim.x, columns].
template <typename T, int kPack>
__global__ void backward_kernel(const T* dy, const T* x, const T* weight, const float* rstd, const T* dresidual, T* dx,
                                float* partial, int64_t rows, int64_t columns) {
  extern __shared__ float dweight[];
  for (int64_t i = threadIdx.x * kPack; i < columns; i += blockDim.x * kPack) {
    for (int j = 0; j < kPack; ++j) dweight[i + j] = 0.0f;
  }
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t offset = row * columns;
    const float scale = rstd[row];
    float product = 0.0f;
    for (int64_t i = threadIdx.x * kPack; i < columns; i += blockDim.x * kPack) {
      const auto dy_pack = load<T, kPack>(dy + offset + i);
      const auto x_pack = load<T, kPack>(x + offset + i);
      const auto w = load<T, kPack>(weight + i);
      for (int j = 0; j < kPack; ++j) {
        const float d = static_cast<float>(dy_pack.v[j]);
        const float normalized = static_cast<float>(x_pack.v[j]) * scale;
        product += d * static_cast<float>(w.v[j]) * normalized;
        dweight[i + j] += d * static_cast<float>(static_cast<T>(normalized));
      }
    }
    const float mean = block_sum(product) / static_cast<float>(columns);
    for (int64_t i = threadIdx.x * kPack; i < columns; i += blockDim.x * kPack) {
      const auto dy_pack = load<T, kPack>(dy + offset + i);
      const auto x_pack = load<T, kPack>(x + offset + i);
      const auto w = load<T, kPack>(weight + i);
      Pack<T, kPack> residual{};
      if (dresidual != nullptr) residual = load<T, kPack>(dresidual + offset + i);
      Pack<T, kPack> out;
      for (int j = 0; j < kPack; ++j) {
        const float g = static_cast<float>(dy_pack.v[j]) * static_cast<float>(w.v[j]);
        const float normalized = static_cast<float>(x_pack.v[j]) * scale;
        out.v[j] = static_cast<T>(scale * (g - normalized * mean) + static_cast<float>(residual.v[j]));
      }
      store<T, kPack>(dx + offset + i, out);
    }
  }
  for (int64_t i = threadIdx.x * kPack; i < columns; i += blockDim.x * kPack) {
    for (int j = 0; j < kPack; ++j) partial[blockIdx.x * columns + i + j] = dweight[i + j];
  }
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
    with_pack<T>(columns, {x_data, w_data, y_data}, [&](T, auto pack) {
      forward_kernel<T, pack()><<<static_cast<unsigned>(rows), block_threads(columns / pack(), 1024), 0,
                                  c10::cuda::getCurrentCUDAStream()>>>(
          x_data, w_data, y_data, out.rstd.mutable_data_ptr<float>(), columns, static_cast<float>(eps));
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
  const int64_t blocks = std::clamp<int64_t>(rows, 1, 4 * multiprocessor_count());
  RmsNormGradients out{at::empty_like(x), {}};
  at::Tensor partial = at::empty({blocks, columns}, x.options().dtype(at::kFloat));
  const size_t shared_bytes = static_cast<size_t>(columns) * sizeof(float);
  with_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T *dy_data = dy.const_data_ptr<T>(), *x_data = x.const_data_ptr<T>(), *w_data = weight.const_data_ptr<T>();
    const T* residual_data = dresidual.defined() ? dresidual.const_data_ptr<T>() : nullptr;
    T* dx_data = out.dx.mutable_data_ptr<T>();
    with_pack<T>(columns, {dy_data, x_data, w_data, residual_data, dx_data}, [&](T, auto pack) {
      const auto kernel = backward_kernel<T, pack()>;
      if (shared_bytes > 40 * 1024) {
        C10_CUDA_CHECK(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
      }
      kernel<<<static_cast<unsigned>(blocks), block_threads(columns / pack(), 512), shared_bytes,
               c10::cuda::getCurrentCUDAStream()>>>(dy_data, x_data, w_data, rstd.const_data_ptr<float>(),
                                                    residual_data, dx_data, partial.mutable_data_ptr<float>(), rows,
                                                    columns);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
  out.dweight = partial.sum(0);
  return out;
}

}  // namespace mpzero::model::cuda
