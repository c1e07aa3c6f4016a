#include <ATen/ops/empty.h>

#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

constexpr int kWarps = 8;  // a block

// Elements between neighbours of a [B, T, heads, D] tensor; D is dense.
struct Strides {
  int64_t batch, token, head;
};

Strides strides_of(const at::Tensor& x) { return {x.stride(0), x.stride(1), x.stride(2)}; }

struct Shape {
  int64_t tokens;  // B * T
  int64_t length;  // T
  int query_heads, key_value_heads, head_dim;
};

template <typename T>
__device__ float inverse_deviation(const T* x, int head_dim, float eps) {
  float squares = 0.0f;
  for (int i = threadIdx.x % kWarp; i < head_dim; i += kWarp) {
    squares += static_cast<float>(x[i]) * static_cast<float>(x[i]);
  }
  return rsqrtf(warp_sum(squares) / static_cast<float>(head_dim) + eps);
}

// A warp for each query and key head of each token.
template <typename T>
__global__ void forward_kernel(const T* qkv, const T* query_weight, const T* key_weight, const T* cos, const T* sin,
                               T* out, Shape shape, float eps) {
  const int rotated_heads = shape.query_heads + shape.key_value_heads;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (item >= shape.tokens * rotated_heads) return;
  const int64_t token = item / rotated_heads;
  const int head = static_cast<int>(item % rotated_heads);
  const T* x = qkv + (token * (rotated_heads + shape.key_value_heads) + head) * shape.head_dim;
  T* y = out + item * shape.head_dim;
  const T* weight = head < shape.query_heads ? query_weight : key_weight;
  const int half = shape.head_dim / 2;
  const int64_t position = token % shape.length;
  const float scale = weight != nullptr ? inverse_deviation(x, shape.head_dim, eps) : 1.0f;
  // Rounded where transformers rounds: after the norm and after its weight.
  const auto value = [&](int i) {
    if (weight == nullptr) return static_cast<float>(x[i]);
    const T normalized = static_cast<T>(static_cast<float>(x[i]) * scale);
    return static_cast<float>(static_cast<T>(static_cast<float>(normalized) * static_cast<float>(weight[i])));
  };
  for (int i = threadIdx.x % kWarp; i < half; i += kWarp) {
    const float a = value(i), b = value(i + half);
    const float c = static_cast<float>(cos[position * half + i]), s = static_cast<float>(sin[position * half + i]);
    y[i] = static_cast<T>(a * c - b * s);
    y[i + half] = static_cast<T>(b * c + a * s);
  }
}

// A warp for each head of each token in turn. partial [gridDim.x, 2, D] gets the block's share of the gradients of the
// query and key norm weights: each lane sums the columns it owns, then the block its warps, in a fixed order.
template <typename T>
__global__ void backward_kernel(const T* dq, const T* dk, const T* dv, Strides dq_strides, Strides dk_strides,
                                Strides dv_strides, const T* qkv, const T* query_weight, const T* key_weight,
                                const T* cos, const T* sin, T* dqkv, float* partial, Shape shape, float eps) {
  extern __shared__ float dweight[];  // [kWarps, 2, D]
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int head_dim = shape.head_dim, half = head_dim / 2;
  const int rotated_heads = shape.query_heads + shape.key_value_heads, heads = rotated_heads + shape.key_value_heads;
  float* own = dweight + warp * 2 * head_dim;
  if (partial != nullptr) {
    for (int i = threadIdx.x; i < kWarps * 2 * head_dim; i += blockDim.x) dweight[i] = 0.0f;
    __syncthreads();
  }
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + warp; item < shape.tokens * heads; item += stride) {
    const int64_t token = item / heads, batch = token / shape.length, position = token % shape.length;
    const int head = static_cast<int>(item % heads);
    const auto row = [&](const T* base, const Strides& s, int h) {
      return base + batch * s.batch + position * s.token + h * s.head;
    };
    T* out = dqkv + item * head_dim;
    if (head >= rotated_heads) {
      const T* d = row(dv, dv_strides, head - rotated_heads);
      for (int i = lane; i < head_dim; i += kWarp) out[i] = d[i];
      continue;
    }
    const bool is_query = head < shape.query_heads;
    const T* d = is_query ? row(dq, dq_strides, head) : row(dk, dk_strides, head - shape.query_heads);
    const T* weight = is_query ? query_weight : key_weight;
    const T* c = cos + position * half;
    const T* s = sin + position * half;
    const auto first = [&](int i) {
      return static_cast<float>(d[i]) * static_cast<float>(c[i]) +
             static_cast<float>(d[i + half]) * static_cast<float>(s[i]);
    };
    const auto second = [&](int i) {
      return static_cast<float>(d[i + half]) * static_cast<float>(c[i]) -
             static_cast<float>(d[i]) * static_cast<float>(s[i]);
    };
    if (weight == nullptr) {
      for (int i = lane; i < half; i += kWarp) {
        out[i] = static_cast<T>(first(i));
        out[i + half] = static_cast<T>(second(i));
      }
      continue;
    }
    const T* x = qkv + item * head_dim;
    const float scale = inverse_deviation(x, head_dim, eps);
    float* dweight_row = own + (is_query ? 0 : head_dim);
    float product = 0.0f;
    const auto accumulate = [&](int i, float dn) {
      const float normalized = static_cast<float>(x[i]) * scale;
      product += dn * static_cast<float>(weight[i]) * normalized;
      dweight_row[i] += dn * static_cast<float>(static_cast<T>(normalized));
    };
    for (int i = lane; i < half; i += kWarp) {
      accumulate(i, first(i));
      accumulate(i + half, second(i));
    }
    const float mean = warp_sum(product) / static_cast<float>(head_dim);
    const auto through_norm = [&](int i, float dn) {
      const float normalized = static_cast<float>(x[i]) * scale;
      return static_cast<T>(scale * (dn * static_cast<float>(weight[i]) - normalized * mean));
    };
    for (int i = lane; i < half; i += kWarp) {
      out[i] = through_norm(i, first(i));
      out[i + half] = through_norm(i + half, second(i));
    }
  }
  if (partial == nullptr) return;
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * head_dim; i += blockDim.x) {
    float sum = 0.0f;
    for (int w = 0; w < kWarps; ++w) sum += dweight[w * 2 * head_dim + i];
    partial[static_cast<int64_t>(blockIdx.x) * 2 * head_dim + i] = sum;
  }
}

at::Tensor dense_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

template <typename T>
const T* data_or_null(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}

}  // namespace

at::Tensor qk_rope_forward(const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope) {
  const c10::cuda::CUDAGuard guard(qkv.device());
  TORCH_CHECK(qkv.is_contiguous(), "qk_rope_forward wants a contiguous projection");
  const int64_t rotated_heads = heads.query + heads.key_value;
  at::Tensor out = at::empty({qkv.size(0), qkv.size(1), rotated_heads, qkv.size(3)}, qkv.options());
  const Shape shape{qkv.size(0) * qkv.size(1), qkv.size(1), static_cast<int>(heads.query),
                    static_cast<int>(heads.key_value), static_cast<int>(qkv.size(3))};
  const int64_t items = shape.tokens * rotated_heads;
  if (items == 0) return out;
  with_type(qkv.scalar_type(), [&](auto type) {
    using T = decltype(type);
    forward_kernel<T><<<static_cast<unsigned>((items + kWarps - 1) / kWarps), kWarps * kWarp, 0,
                        c10::cuda::getCurrentCUDAStream()>>>(
        qkv.const_data_ptr<T>(), data_or_null<T>(norm.query), data_or_null<T>(norm.key), rope.cos.const_data_ptr<T>(),
        rope.sin.const_data_ptr<T>(), out.mutable_data_ptr<T>(), shape, static_cast<float>(norm.eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return out;
}

QkRopeGradients qk_rope_backward(const at::Tensor& dq_in, const at::Tensor& dk_in, const at::Tensor& dv_in,
                                 const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm,
                                 const RopeTables& rope) {
  const c10::cuda::CUDAGuard guard(dq_in.device());
  const at::Tensor dq = dense_rows(dq_in), dk = dense_rows(dk_in), dv = dense_rows(dv_in);
  const int64_t all_heads = heads.query + 2 * heads.key_value, head_dim = dq.size(3);
  TORCH_CHECK(!norm.defined() || qkv.is_contiguous(), "qk_rope_backward wants a contiguous projection");
  QkRopeGradients result;
  result.dqkv = at::empty({dq.size(0), dq.size(1), all_heads, head_dim}, dq.options());
  const Shape shape{dq.size(0) * dq.size(1), dq.size(1), static_cast<int>(heads.query),
                    static_cast<int>(heads.key_value), static_cast<int>(head_dim)};
  const int64_t wanted = (shape.tokens * all_heads + kWarps - 1) / kWarps;
  const int64_t blocks = std::clamp<int64_t>(wanted, 1, 8 * multiprocessor_count());
  at::Tensor partial;
  if (norm.defined()) partial = at::empty({blocks, 2, head_dim}, dq.options().dtype(at::kFloat));
  const size_t shared_bytes = norm.defined() ? static_cast<size_t>(kWarps * 2 * head_dim) * sizeof(float) : 0;
  with_type(dq.scalar_type(), [&](auto type) {
    using T = decltype(type);
    backward_kernel<T>
        <<<static_cast<unsigned>(blocks), kWarps * kWarp, shared_bytes, c10::cuda::getCurrentCUDAStream()>>>(
            dq.const_data_ptr<T>(), dk.const_data_ptr<T>(), dv.const_data_ptr<T>(), strides_of(dq), strides_of(dk),
            strides_of(dv), data_or_null<T>(qkv), data_or_null<T>(norm.query), data_or_null<T>(norm.key),
            rope.cos.const_data_ptr<T>(), rope.sin.const_data_ptr<T>(), result.dqkv.mutable_data_ptr<T>(),
            norm.defined() ? partial.mutable_data_ptr<float>() : nullptr, shape, static_cast<float>(norm.eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  if (norm.defined()) {
    const at::Tensor sums = partial.sum(0);
    result.dquery_weight = sums[0];
    result.dkey_weight = sums[1];
  }
  return result;
}

}  // namespace mpzero::model::cuda
