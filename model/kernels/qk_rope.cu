
#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"
#include "model/kernels/head_layout.cuh"

namespace mpzero::model::cuda {
namespace {

constexpr int kThreads = kHeadThreads;
constexpr int kForwardStrip = 2, kBackwardStrip = 2;
constexpr int kBackwardBlocks = 5;  // concurrent blocks per multiprocessor

template <typename T, typename Layout>
__global__ void __launch_bounds__(kThreads) forward_kernel(const HeadRange<T> query, const HeadRange<T> key,
                                                           const T* cos, const T* sin, T* out, Shape shape, float eps) {
  constexpr int kPack = Layout::kPack;
  const HeadRange<T> range = range_of_block(query, key);
  const int lane = threadIdx.x % Layout::kLanes, group = threadIdx.x / Layout::kLanes;
  const int head_dim = shape.head_dim, half = head_dim / 2;
  const bool with_norm = range.weight != nullptr;
  Pack<T, kPack> weights[2];
  if (with_norm) {
    weights[0] = Layout::load(range.weight, lane, half);
    weights[1] = Layout::load(range.weight + half, lane, half);
  }
  const unsigned step = range.blocks * Layout::kGroups;
  // All threads of a block execute the same number of iterations.
  for (unsigned begin = (blockIdx.x - range.first_block) * Layout::kGroups; begin < shape.tokens * range.strips.divisor;
       begin += step) {
    const Strip strip(shape, begin + group, range.strips, kForwardStrip);
    Pack<T, kPack> x[kForwardStrip][2] = {}, c = {}, s = {};
    if (strip.valid) {
      const T* row = range.in + strip.batch * range.strides.batch + strip.position * range.strides.token;
#pragma unroll
      for (int h = 0; h < kForwardStrip; ++h) {
        if (strip.head + h < range.heads) {
          const T* head = row + (strip.head + h) * range.strides.head;
          x[h][0] = Layout::load_once(head, lane, half);
          x[h][1] = Layout::load_once(head + half, lane, half);
        }
      }
      c = Layout::load(cos + static_cast<int64_t>(strip.position) * half, lane, half);
      s = Layout::load(sin + static_cast<int64_t>(strip.position) * half, lane, half);
    }
#pragma unroll
    for (int h = 0; h < kForwardStrip; ++h) {
      float y[2][kPack], cosine[kPack], sine[kPack];
      widen(x[h][0], y[0]);
      widen(x[h][1], y[1]);
      if (with_norm) {
        float squares = 0.0f;
        for (int j = 0; j < kPack; ++j) squares += y[0][j] * y[0][j] + y[1][j] * y[1][j];
        const float scale = rsqrtf(Layout::sum(squares) / static_cast<float>(head_dim) + eps);
        // Like transformers, rounds after the norm and after the multiplication by the weight.
        for (int side = 0; side < 2; ++side) {
          float weight[kPack];
          widen(weights[side], weight);
          for (float& value : y[side]) value *= scale;
          round_to<T>(y[side]);
          for (int j = 0; j < kPack; ++j) y[side][j] *= weight[j];
          round_to<T>(y[side]);
        }
      }
      if (!strip.valid || strip.head + h >= range.heads) continue;
      widen(c, cosine);
      widen(s, sine);
      for (int j = 0; j < kPack; ++j) {
        const float a = y[0][j], b = y[1][j];
        y[0][j] = a * cosine[j] - b * sine[j];
        y[1][j] = b * cosine[j] + a * sine[j];
      }
      T* to =
          out + (static_cast<int64_t>(strip.token) * shape.out_heads + range.first_head + strip.head + h) * head_dim;
      Layout::store(to, lane, half, rounded<T>(y[0]));
      Layout::store(to + half, lane, half, rounded<T>(y[1]));
    }
  }
}

// Copies the gradients of the values to the result. Returns the amax that the thread copied.
template <typename T, typename Layout>
__device__ unsigned copy_range(const HeadRange<T>& range, T* out, const Shape& shape) {
  unsigned largest = 0;
  const int lane = threadIdx.x % Layout::kLanes, group = threadIdx.x / Layout::kLanes;
  const int half = shape.head_dim / 2;
  for (unsigned item = (blockIdx.x - range.first_block) * Layout::kGroups + group;
       item < shape.tokens * range.strips.divisor; item += range.blocks * Layout::kGroups) {
    const Strip strip(shape, item, range.strips, kBackwardStrip);
    const T* row = range.in + strip.batch * range.strides.batch + strip.position * range.strides.token;
#pragma unroll
    for (int h = 0; h < kBackwardStrip; ++h) {
      if (strip.head + h >= range.heads) continue;
      const T* from = row + (strip.head + h) * range.strides.head;
      T* to = out + (static_cast<int64_t>(strip.token) * shape.out_heads + range.first_head + strip.head + h) *
                        shape.head_dim;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const auto copied = Layout::load_once(from + side * half, lane, half);
        Layout::store(to + side * half, lane, half, copied);
        largest = max(largest, magnitude(copied));
      }
    }
  }
  return largest;
}

// Data that a thread prefetches to shared memory for the next strips: the gradient and the norm's input for each half
// of each head, the cosines and the sines. Each thread copies only the data that it reads itself. Layouts without
// vectors do not prefetch.
template <typename T, typename Layout>
struct Staging {
  static constexpr int kStages = Layout::kVector ? 2 : 0;
  static constexpr int kInputs = kBackwardStrip * 2, kCos = 2 * kInputs, kSin = kCos + 1, kSlots = kSin + 1;
  using Packs = Pack<T, Layout::kPack>;
  // After the last strip, the memory contains each group's contribution to the weight gradient.
  static constexpr size_t kSumBytes = sizeof(float) * kThreads * 2 * Layout::kPack;
  static constexpr size_t kBytes = std::max(kSumBytes, sizeof(Packs) * kStages * kSlots * kThreads);
};

// Each lane sums the weight gradient over its heads, then the block sums over its groups, in a fixed order. kMaximum:
// updates *maximum to the amax of the result.
template <typename T, typename Layout, bool kMaximum>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks)
    backward_kernel(const HeadRange<T> query, const HeadRange<T> key, const HeadRange<T> value, const T* cos,
                    const T* sin, T* out, Shape shape, float eps, unsigned* maximum) {
  constexpr int kPack = Layout::kPack;
  if (static_cast<int>(blockIdx.x) >= value.first_block) {
    [[maybe_unused]] const unsigned copied = copy_range<T, Layout>(value, out, shape);
    if constexpr (kMaximum) raise(maximum, copied);
    return;
  }
  using Stages = Staging<T, Layout>;
  using Packs = typename Stages::Packs;
  extern __shared__ uint4 shared[];
  const auto slot = [&](int stage, int i) {
    return reinterpret_cast<Packs*>(shared) + (stage * Stages::kSlots + i) * kThreads + threadIdx.x;
  };
  const HeadRange<T> range = range_of_block(query, key);
  const int lane = threadIdx.x % Layout::kLanes, group = threadIdx.x / Layout::kLanes;
  const int head_dim = shape.head_dim, half = head_dim / 2;
  const bool with_norm = range.weight != nullptr;
  [[maybe_unused]] unsigned largest = 0;
  Packs weights[2] = {};
  float dweight[2][kPack] = {};
  if (with_norm) {
    weights[0] = Layout::load(range.weight, lane, half);
    weights[1] = Layout::load(range.weight + half, lane, half);
  }
  // Calls take(slot, position of the first element of the half head or table row) for all inputs of a strip.
  const auto for_inputs = [&](const Strip& strip, const auto& take) {
    if (!strip.valid) return;
    const T* d_row = range.in + strip.batch * range.strides.batch + strip.position * range.strides.token;
    const T* x_row = range.x + (static_cast<int64_t>(strip.token) * shape.x_heads + range.first_head) * head_dim;
#pragma unroll
    for (int h = 0; h < kBackwardStrip; ++h) {
      const int head = strip.head + h;
      if (head >= range.heads) continue;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        take(2 * h + side, d_row + head * range.strides.head + side * half);
        if (with_norm) take(Stages::kInputs + 2 * h + side, x_row + head * head_dim + side * half);
      }
    }
    take(Stages::kCos, cos + static_cast<int64_t>(strip.position) * half);
    take(Stages::kSin, sin + static_cast<int64_t>(strip.position) * half);
  };
  const auto stage_strip = [&](unsigned begin, int stage) {
    if constexpr (Stages::kStages > 0) {
      for_inputs(Strip(shape, begin + group, range.strips, kBackwardStrip),
                 [&](int i, const T* from) { copy_async<T, kPack>(slot(stage, i), from + lane * kPack); });
      __pipeline_commit();
    }
  };
  const unsigned step = range.blocks * Layout::kGroups, end = shape.tokens * range.strips.divisor;
  unsigned begin = (blockIdx.x - range.first_block) * Layout::kGroups;
  for (int stage = 0; stage < Stages::kStages; ++stage) stage_strip(begin + stage * step, stage);
  for (int turn = 0; begin < end; begin += step, ++turn) {
    const Strip strip(shape, begin + group, range.strips, kBackwardStrip);
    const int stage = turn & 1;
    Packs direct[Stages::kStages > 0 ? 1 : Stages::kSlots] = {};
    if constexpr (Stages::kStages > 0) {
      __pipeline_wait_prior(Stages::kStages - 1);
    } else {
      for_inputs(strip, [&](int i, const T* from) { direct[i] = Layout::load_once(from, lane, half); });
    }
    // Returns zeros if there is no head.
    const auto read = [&](int i, bool there) {
      if constexpr (Stages::kStages > 0) {
        const uint4 bits = there ? *reinterpret_cast<const uint4*>(slot(stage, i)) : make_uint4(0, 0, 0, 0);
        return reinterpret_cast<const Packs&>(bits);
      } else {
        return direct[i];
      }
    };
    const Packs c = read(Stages::kCos, strip.valid), s = read(Stages::kSin, strip.valid);
#pragma unroll
    for (int h = 0; h < kBackwardStrip; ++h) {
      const bool there = strip.valid && strip.head + h < range.heads;
      const Packs d[2] = {read(2 * h, there), read(2 * h + 1, there)};
      float dy[2][kPack];  // gradient after the inverse rotation
      {
        float a[kPack], b[kPack], cosine[kPack], sine[kPack];
        widen(d[0], a);
        widen(d[1], b);
        widen(c, cosine);
        widen(s, sine);
        for (int j = 0; j < kPack; ++j) {
          dy[0][j] = a[j] * cosine[j] + b[j] * sine[j];
          dy[1][j] = b[j] * cosine[j] - a[j] * sine[j];
        }
      }
      if (with_norm) {
        const Packs x[2] = {read(Stages::kInputs + 2 * h, there), read(Stages::kInputs + 2 * h + 1, there)};
        float squares = 0.0f, product = 0.0f;
        for (int side = 0; side < 2; ++side) {
          float in[kPack], weight[kPack];
          widen(x[side], in);
          widen(weights[side], weight);
          for (int j = 0; j < kPack; ++j) {
            squares += in[j] * in[j];
            product += dy[side][j] * weight[j] * in[j];
          }
        }
        const float scale = rsqrtf(Layout::sum(squares) / static_cast<float>(head_dim) + eps);
        const float along_x = Layout::sum(product) * scale * scale * scale / static_cast<float>(head_dim);
        for (int side = 0; side < 2; ++side) {
          float in[kPack], weight[kPack], normalized[kPack];
          widen(x[side], in);
          widen(weights[side], weight);
          for (int j = 0; j < kPack; ++j) normalized[j] = in[j] * scale;
          round_to<T>(normalized);
          for (int j = 0; j < kPack; ++j) {
            dweight[side][j] += dy[side][j] * normalized[j];
            dy[side][j] = scale * dy[side][j] * weight[j] - along_x * in[j];
          }
        }
      }
      if (!there) continue;
      T* to =
          out + (static_cast<int64_t>(strip.token) * shape.out_heads + range.first_head + strip.head + h) * head_dim;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const auto result = rounded<T>(dy[side]);
        Layout::store(to + side * half, lane, half, result);
        if constexpr (kMaximum) largest = max(largest, magnitude(result));
      }
    }
    stage_strip(begin + Stages::kStages * step, stage);
  }
  if constexpr (kMaximum) raise(maximum, largest);
  if (!with_norm) return;
  auto* shares = reinterpret_cast<float*>(shared);  // [groups, 2, kPack * kLanes]
  constexpr int kHalf = kPack * Layout::kLanes;
  __syncthreads();  // all threads have finished reading strips
  for (int side = 0; side < 2; ++side) {
    for (int j = 0; j < kPack; ++j) shares[(group * 2 + side) * kHalf + Layout::index(lane, j)] = dweight[side][j];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < head_dim; i += kThreads) {
    const int side = i < half ? 0 : 1;
    float sum = 0.0f;
    for (int g = 0; g < Layout::kGroups; ++g) sum += shares[(g * 2 + side) * kHalf + i - side * half];
    range.partial[static_cast<int64_t>(blockIdx.x - range.first_block) * head_dim + i] = sum;
  }
}

at::Tensor dense_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

template <typename T>
const T* data_or_null(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}

}  // namespace

void qk_rope_forward(const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope,
                     at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(qkv.device());
  TORCH_CHECK(qkv.is_contiguous() && out.is_contiguous(), "qk_rope_forward expects contiguous tensors");
  const Shape shape = shape_of(qkv, heads, out.size(2));
  if (shape.tokens == 0) return;
  const bool vectors = aligned(qkv) && aligned(out) && aligned(rope.cos) && aligned(rope.sin) &&
                       (!norm.defined() || (aligned(norm.query) && aligned(norm.key)));
  with_type(qkv.scalar_type(), [&](auto type) {
    using T = decltype(type);
    with_layout<T>(shape.head_dim, vectors, [&](auto layout) {
      using Layout = decltype(layout);
      const Strides strides = strides_of(qkv);
      const int query_heads = static_cast<int>(heads.query);
      HeadRange<T> query{.in = qkv.const_data_ptr<T>(),
                         .strides = strides,
                         .weight = data_or_null<T>(norm.query),
                         .heads = query_heads};
      HeadRange<T> key{.in = qkv.const_data_ptr<T>() + heads.query * strides.head,
                       .strides = strides,
                       .weight = data_or_null<T>(norm.key),
                       .heads = static_cast<int>(heads.key_value),
                       .first_head = query_heads};
      const unsigned blocks =
          divide_blocks<T>({&query, &key}, shape, kForwardStrip, Layout::kGroups, 32 * multiprocessor_count());
      forward_kernel<T, Layout><<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
          query, key, rope.cos.const_data_ptr<T>(), rope.sin.const_data_ptr<T>(), out.mutable_data_ptr<T>(), shape,
          static_cast<float>(norm.eps));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}

void qk_rope_backward(const at::Tensor& dq_in, const at::Tensor& dk_in, const at::Tensor& dv_in, const at::Tensor& qkv,
                      HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope, const at::Tensor& maximum,
                      QkRopeGradients& result) {
  const c10::cuda::CUDAGuard guard(dq_in.device());
  const at::Tensor dq = dense_rows(dq_in), dk = dense_rows(dk_in), dv = dense_rows(dv_in);
  const int64_t all_heads = heads.query + 2 * heads.key_value, head_dim = dq.size(3);
  TORCH_CHECK(!norm.defined() || qkv.is_contiguous(), "qk_rope_backward expects a contiguous projection");
  const Shape shape = shape_of(dq, heads, all_heads);
  if (shape.tokens == 0) {
    if (norm.defined()) {
      result.dquery_weight_rows = dq.new_empty({0, head_dim}, at::kFloat);
      result.dkey_weight_rows = result.dquery_weight_rows;
    }
    return;
  }
  const bool vectors = aligned(dq) && aligned(dk) && aligned(dv) && aligned(result.dqkv) && aligned(rope.cos) &&
                       aligned(rope.sin) &&
                       (!norm.defined() || (aligned(qkv) && aligned(norm.query) && aligned(norm.key)));
  with_type(dq.scalar_type(), [&](auto type) {
    using T = decltype(type);
    with_layout<T>(head_dim, vectors, [&](auto layout) {
      using Layout = decltype(layout);
      const int query_heads = static_cast<int>(heads.query), key_value_heads = static_cast<int>(heads.key_value);
      const T* x = norm.defined() ? qkv.const_data_ptr<T>() : nullptr;
      const int passes = norm.defined() ? 3 : 2;  // the gradient, the norm's input and the result
      HeadRange<T> query{.in = dq.const_data_ptr<T>(),
                         .strides = strides_of(dq),
                         .x = x,
                         .weight = data_or_null<T>(norm.query),
                         .heads = query_heads,
                         .passes = passes};
      HeadRange<T> key{.in = dk.const_data_ptr<T>(),
                       .strides = strides_of(dk),
                       .x = x,
                       .weight = data_or_null<T>(norm.key),
                       .heads = key_value_heads,
                       .first_head = query_heads,
                       .passes = passes};
      HeadRange<T> value{.in = dv.const_data_ptr<T>(),
                         .strides = strides_of(dv),
                         .heads = key_value_heads,
                         .first_head = query_heads + key_value_heads,
                         .passes = 2};
      const unsigned blocks = divide_blocks<T>({&query, &key, &value}, shape, kBackwardStrip, Layout::kGroups,
                                               kBackwardBlocks * multiprocessor_count());
      if (norm.defined()) {
        const at::Tensor partial = dq.new_empty({query.blocks + key.blocks, head_dim}, at::kFloat);
        result.dquery_weight_rows = partial.narrow(0, 0, query.blocks);
        result.dkey_weight_rows = partial.narrow(0, query.blocks, key.blocks);
        query.partial = result.dquery_weight_rows.mutable_data_ptr<float>();
        key.partial = result.dkey_weight_rows.mutable_data_ptr<float>();
      }
      const auto kernel = maximum.defined() ? backward_kernel<T, Layout, true> : backward_kernel<T, Layout, false>;
      constexpr size_t kSharedBytes = Staging<T, Layout>::kBytes;
      use_shared_memory(kernel, kSharedBytes);
      kernel<<<blocks, kThreads, kSharedBytes, c10::cuda::getCurrentCUDAStream()>>>(
          query, key, value, rope.cos.const_data_ptr<T>(), rope.sin.const_data_ptr<T>(),
          result.dqkv.mutable_data_ptr<T>(), shape, static_cast<float>(norm.eps), maximum_bits(maximum));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}

}  // namespace mpzero::model::cuda
