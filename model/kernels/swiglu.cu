
#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

__device__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

// Returns silu(gate) * up, given sigmoid(gate), rounded as in transformers.
template <typename T>
__device__ T activate(float gate, float sigmoid, float up) {
  const T silu = static_cast<T>(gate * sigmoid);
  return static_cast<T>(static_cast<float>(silu) * up);
}

// Processes one row per block. kMaximum: updates *maximum to the amax of the result.
template <typename T, int kPack, bool kMaximum>
__global__ void forward_kernel(const T* gate_up, T* y, int64_t inner, unsigned* maximum) {
  [[maybe_unused]] unsigned largest = 0;
  const T* gate = gate_up + blockIdx.x * 2 * inner;
  const T* up = gate + inner;
  y += blockIdx.x * inner;
  for (int64_t i = threadIdx.x * kPack; i < inner; i += blockDim.x * kPack) {
    const auto g = load<T, kPack>(gate + i), u = load<T, kPack>(up + i);
    Pack<T, kPack> out;
    for (int j = 0; j < kPack; ++j) {
      const float x = static_cast<float>(g.v[j]);
      out.v[j] = activate<T>(x, sigmoid(x), static_cast<float>(u.v[j]));
    }
    store<T, kPack>(y + i, out);
    if constexpr (kMaximum) largest = max(largest, magnitude(out));
  }
  if constexpr (kMaximum) raise(maximum, largest);
}

// kWithOutput: writes the forward output to y. kMaximum: updates *maximum to the amax of d_gate_up, and *maximum_of_y
// to the amax of y.
template <typename T, int kPack, bool kWithOutput, bool kMaximum>
__global__ void backward_kernel(const T* dy, const T* gate_up, T* d_gate_up, T* y, int64_t inner, unsigned* maximum,
                                unsigned* maximum_of_y) {
  [[maybe_unused]] unsigned largest = 0, largest_y = 0;
  const T* gate = gate_up + blockIdx.x * 2 * inner;
  const T* up = gate + inner;
  T* d_gate = d_gate_up + blockIdx.x * 2 * inner;
  T* d_up = d_gate + inner;
  dy += blockIdx.x * inner;
  for (int64_t i = threadIdx.x * kPack; i < inner; i += blockDim.x * kPack) {
    const auto g = load<T, kPack>(gate + i), u = load<T, kPack>(up + i), d = load<T, kPack>(dy + i);
    Pack<T, kPack> dg, du, out;
    for (int j = 0; j < kPack; ++j) {
      const float x = static_cast<float>(g.v[j]), s = sigmoid(x), dy_j = static_cast<float>(d.v[j]);
      dg.v[j] = static_cast<T>(dy_j * static_cast<float>(u.v[j]) * s * (1.0f + x * (1.0f - s)));
      du.v[j] = static_cast<T>(dy_j * x * s);
      if constexpr (kWithOutput) out.v[j] = activate<T>(x, s, static_cast<float>(u.v[j]));
    }
    store<T, kPack>(d_gate + i, dg);
    store<T, kPack>(d_up + i, du);
    if constexpr (kWithOutput) store<T, kPack>(y + blockIdx.x * inner + i, out);
    if constexpr (kMaximum) largest = max(largest, max(magnitude(dg), magnitude(du)));
    if constexpr (kMaximum && kWithOutput) largest_y = max(largest_y, magnitude(out));
  }
  if constexpr (kMaximum) raise(maximum, largest);
  if constexpr (kMaximum && kWithOutput) raise(maximum_of_y, largest_y);
}

}  // namespace

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& maximum, at::Tensor& y) {
  const c10::cuda::CUDAGuard guard(gate_up.device());
  TORCH_CHECK(gate_up.is_contiguous(), "swiglu_forward expects contiguous gate_up");
  const int64_t rows = gate_up.size(0), inner = gate_up.size(1) / 2;
  if (rows == 0) return;
  with_type(gate_up.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T* in = gate_up.const_data_ptr<T>();
    T* out = y.mutable_data_ptr<T>();
    with_pack<T>(inner, {in, out}, [&](T, auto pack) {
      const auto kernel = maximum.defined() ? forward_kernel<T, pack(), true> : forward_kernel<T, pack(), false>;
      kernel<<<static_cast<unsigned>(rows), block_threads(inner / pack(), 256), 0, c10::cuda::getCurrentCUDAStream()>>>(
          in, out, inner, maximum_bits(maximum));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}

namespace {

template <bool kWithOutput>
void backward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum,
              const at::Tensor& maximum_of_y, at::Tensor& d_gate_up, at::Tensor& y_out) {
  TORCH_CHECK(!kWithOutput || maximum.defined() == maximum_of_y.defined(),
              "swiglu_backward expects both maxima or neither");
  const c10::cuda::CUDAGuard guard(gate_up.device());
  TORCH_CHECK(gate_up.is_contiguous(), "swiglu_backward expects contiguous gate_up");
  const int64_t rows = gate_up.size(0), inner = gate_up.size(1) / 2;
  if (rows == 0) return;
  with_type(gate_up.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T *dy_data = dy.const_data_ptr<T>(), *in = gate_up.const_data_ptr<T>();
    T* out = d_gate_up.mutable_data_ptr<T>();
    T* y = kWithOutput ? y_out.mutable_data_ptr<T>() : nullptr;
    with_pack<T>(inner, {dy_data, in, out, y}, [&](T, auto pack) {
      const auto kernel = maximum.defined() ? backward_kernel<T, pack(), kWithOutput, true>
                                            : backward_kernel<T, pack(), kWithOutput, false>;
      kernel<<<static_cast<unsigned>(rows), block_threads(inner / pack(), 256), 0, c10::cuda::getCurrentCUDAStream()>>>(
          dy_data, in, out, y, inner, maximum_bits(maximum), maximum_bits(maximum_of_y));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}

}  // namespace

void swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum,
                     const at::Tensor& maximum_of_y, at::Tensor& d_gate_up, at::Tensor& y) {
  const auto& run = y.defined() ? backward</*kWithOutput=*/true> : backward</*kWithOutput=*/false>;
  run(dy, gate_up, maximum, maximum_of_y, d_gate_up, y);
}

}  // namespace mpzero::model::cuda
