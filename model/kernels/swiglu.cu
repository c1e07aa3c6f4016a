#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

constexpr int kThreads = 256;  // a block

__device__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// Where a thread's pack lies in gate_up; its own number counts the packs of y.
template <int kPack>
__device__ int64_t gate_offset(unsigned pack, unsigned packs_a_row) {
  const unsigned row = pack / packs_a_row;
  return (static_cast<int64_t>(row) * packs_a_row + pack) * kPack;
}

// A thread for each pack of y.
template <typename T, int kPack>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const T* gate_up, T* y, unsigned packs, unsigned packs_a_row) {
  const unsigned pack = blockIdx.x * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const T* gate = gate_up + gate_offset<kPack>(pack, packs_a_row);
  const auto g = load<T, kPack>(gate), u = load<T, kPack>(gate + static_cast<int64_t>(packs_a_row) * kPack);
  Pack<T, kPack> out;
  for (int j = 0; j < kPack; ++j) {
    const float x = static_cast<float>(g.v[j]);
    const T silu = static_cast<T>(x * sigmoid(x));
    out.v[j] = static_cast<T>(static_cast<float>(silu) * static_cast<float>(u.v[j]));
  }
  store<T, kPack>(y + static_cast<int64_t>(pack) * kPack, out);
}

template <typename T, int kPack>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const T* dy, const T* gate_up, T* d_gate_up, unsigned packs, unsigned packs_a_row) {
  const unsigned pack = blockIdx.x * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const int64_t offset = gate_offset<kPack>(pack, packs_a_row), inner = static_cast<int64_t>(packs_a_row) * kPack;
  const auto g = load<T, kPack>(gate_up + offset), u = load<T, kPack>(gate_up + offset + inner);
  const auto d = load<T, kPack>(dy + static_cast<int64_t>(pack) * kPack);
  Pack<T, kPack> dg, du;
  for (int j = 0; j < kPack; ++j) {
    const float x = static_cast<float>(g.v[j]), s = sigmoid(x), dy_j = static_cast<float>(d.v[j]);
    dg.v[j] = static_cast<T>(dy_j * static_cast<float>(u.v[j]) * s * (1.0f + x * (1.0f - s)));
    du.v[j] = static_cast<T>(dy_j * x * s);
  }
  store<T, kPack>(d_gate_up + offset, dg);
  store<T, kPack>(d_gate_up + offset + inner, du);
}

// The packs of y, which unsigned numbers must count.
unsigned count_packs(int64_t rows, int64_t inner, int pack) {
  const int64_t packs = rows * (inner / pack);
  TORCH_CHECK(packs < (int64_t{1} << 31), "swiglu takes fewer than 2^31 packs at a time");
  return static_cast<unsigned>(packs);
}

unsigned blocks_for(unsigned packs) { return (packs + kThreads - 1) / kThreads; }

}  // namespace

at::Tensor swiglu_forward(const at::Tensor& gate_up) {
  const c10::cuda::CUDAGuard guard(gate_up.device());
  TORCH_CHECK(gate_up.is_contiguous(), "swiglu_forward wants contiguous gate_up");
  const int64_t rows = gate_up.size(0), inner = gate_up.size(1) / 2;
  at::Tensor y = at::empty({rows, inner}, gate_up.options());
  if (y.numel() == 0) return y;
  with_type(gate_up.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T* in = gate_up.const_data_ptr<T>();
    T* out = y.mutable_data_ptr<T>();
    with_pack<T>(inner, {in, out}, [&](T, auto pack) {
      const unsigned packs = count_packs(rows, inner, pack());
      forward_kernel<T, pack()><<<blocks_for(packs), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
          in, out, packs, static_cast<unsigned>(inner / pack()));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
  return y;
}

at::Tensor swiglu_backward(const at::Tensor& dy_in, const at::Tensor& gate_up) {
  const c10::cuda::CUDAGuard guard(gate_up.device());
  TORCH_CHECK(gate_up.is_contiguous(), "swiglu_backward wants contiguous gate_up");
  const at::Tensor dy = dy_in.contiguous();
  const int64_t rows = gate_up.size(0), inner = gate_up.size(1) / 2;
  at::Tensor d_gate_up = at::empty_like(gate_up);
  if (d_gate_up.numel() == 0) return d_gate_up;
  with_type(gate_up.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const T *dy_data = dy.const_data_ptr<T>(), *in = gate_up.const_data_ptr<T>();
    T* out = d_gate_up.mutable_data_ptr<T>();
    with_pack<T>(inner, {dy_data, in, out}, [&](T, auto pack) {
      const unsigned packs = count_packs(rows, inner, pack());
      backward_kernel<T, pack()><<<blocks_for(packs), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
          dy_data, in, out, packs, static_cast<unsigned>(inner / pack()));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
  return d_gate_up;
}

}  // namespace mpzero::model::cuda
