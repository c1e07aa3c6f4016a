#pragma once

// Distribution of heads over threads in the kernels of qk_rope.cu.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <initializer_list>

#include "model/kernels/device.cuh"
#include "model/kernels/qk_rope.hpp"

namespace mpzero::model::cuda {

constexpr int kHeadThreads = 128;  // threads per block

// Divides numbers below 2^31 by a fixed divisor, without a division instruction (Granlund and Montgomery, 1994).
struct Divider {
  unsigned divisor = 1, multiplier = 1, shift = 0;

  Divider() = default;
  explicit Divider(unsigned by) : divisor(by) {
    while ((uint64_t{1} << shift) < by) ++shift;
    multiplier = static_cast<unsigned>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - by)) / by + 1);
  }
  __device__ unsigned quotient(unsigned n) const { return (__umulhi(n, multiplier) + n) >> shift; }
};

struct Shape {
  unsigned tokens;  // B * T
  Divider length;   // T
  int out_heads;    // heads per token in out
  int x_heads;      // heads per token in x
  int head_dim;
};

// Distributes a head over kLanes adjacent lanes. Each lane processes kPack elements of each half of the head. If
// kVector is true, a lane's elements are contiguous and accessed together, and D = 2 * kPack * kLanes. Otherwise a
// lane's elements are kLanes apart, D may be smaller, and elements beyond D are zero.
template <typename T, int kPack_, int kLanes_, bool kVector_>
class HeadLayout {
 public:
  static constexpr bool kVector = kVector_;
  static constexpr int kPack = kPack_, kLanes = kLanes_, kGroups = kHeadThreads / kLanes_;

  static __device__ int index(int lane, int j) { return kVector ? lane * kPack + j : lane + j * kLanes; }
  static __device__ Pack<T, kPack> load(const T* half, int lane, int count) {
    if constexpr (kVector) {
      return cuda::load<T, kPack>(half + lane * kPack);
    } else {
      return load_elements(half, lane, count);
    }
  }
  static __device__ Pack<T, kPack> load_once(const T* half, int lane, int count) {
    if constexpr (kVector) {
      return cuda::load_once<T, kPack>(half + lane * kPack);
    } else {
      return load_elements(half, lane, count);
    }
  }
  static __device__ void store(T* half, int lane, int count, const Pack<T, kPack>& pack) {
    if constexpr (kVector) {
      cuda::store<T, kPack>(half + lane * kPack, pack);
    } else {
      for (int j = 0; j < kPack; ++j) {
        if (index(lane, j) < count) half[index(lane, j)] = pack.v[j];
      }
    }
  }
  // Returns the sum over the lanes of a head. Must be called by all lanes of the warp.
  static __device__ float sum(float x) {
    for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
  }

 private:
  static __device__ Pack<T, kPack> load_elements(const T* half, int lane, int count) {
    Pack<T, kPack> pack;
    for (int j = 0; j < kPack; ++j) pack.v[j] = index(lane, j) < count ? half[index(lane, j)] : static_cast<T>(0.0f);
    return pack;
  }
};

// Strip of adjacent heads of one token, processed by one group of lanes.
struct Strip {
  bool valid;
  unsigned token, batch, position;
  int head;  // first head, relative to the HeadRange

  // `strips`: number of strips per token.
  __device__ Strip(const Shape& shape, unsigned item, const Divider& strips, int heads_a_strip)
      : valid(item < shape.tokens * strips.divisor),
        token(strips.quotient(item)),
        batch(shape.length.quotient(token)),
        position(token - batch * shape.length.divisor),
        head(static_cast<int>(item - token * strips.divisor) * heads_a_strip) {}
};

// Calls body(HeadLayout) with the layout for this head size and alignment.
template <typename T, typename Body>
void with_layout(int64_t head_dim, bool aligned, Body&& body) {
  constexpr int kPack = 16 / sizeof(T);
  TORCH_CHECK(head_dim <= 512, "qk_rope supports heads of up to 512 elements, not ", head_dim);
  if (aligned && head_dim == 2 * kPack * 4) return body(HeadLayout<T, kPack, 4, true>{});
  if (aligned && head_dim == 2 * kPack * 8) return body(HeadLayout<T, kPack, 8, true>{});
  if (aligned && head_dim == 2 * kPack * 16) return body(HeadLayout<T, kPack, 16, true>{});
  if (aligned && head_dim == 2 * kPack * 32) return body(HeadLayout<T, kPack, 32, true>{});
  if (head_dim <= 128) return body(HeadLayout<T, 2, 32, false>{});
  body(HeadLayout<T, 8, 32, false>{});
}

// Returns true if every head starts at a 16-byte aligned address.
inline bool aligned(const at::Tensor& x) {
  const auto bytes = [&](int64_t elements) { return static_cast<uintptr_t>(elements * x.element_size()); };
  uintptr_t all = reinterpret_cast<uintptr_t>(x.const_data_ptr());
  for (const int64_t stride : x.strides().slice(0, x.dim() - 1)) all |= bytes(stride);
  return all % 16 == 0;
}

// Returns the shape for x [B, T, heads, D], which contains queries, keys and values, contiguous per token.
inline Shape shape_of(const at::Tensor& x, HeadCounts heads, int64_t out_heads) {
  const int64_t all_heads = heads.query + 2 * heads.key_value;
  TORCH_CHECK(x.size(0) * x.size(1) * all_heads < (int64_t{1} << 31),
              "qk_rope supports fewer than 2^31 heads at a time");
  return {static_cast<unsigned>(x.size(0) * x.size(1)), Divider(static_cast<unsigned>(x.size(1))),
          static_cast<int>(out_heads), static_cast<int>(all_heads), static_cast<int>(x.size(3))};
}

// Strides, in elements, of a tensor [B, T, heads, D] with contiguous D.
struct Strides {
  int64_t batch, token, head;
};

inline Strides strides_of(const at::Tensor& x) { return {x.stride(0), x.stride(1), x.stride(2)}; }

// Queries, keys or values: adjacent heads of the packed projection. Blocks [first_block, first_block + blocks) process
// the heads. In the backward pass, `in` is the gradient of the forward output, `x` is the packed projection, and
// partial [blocks, D] receives each block's contribution to the weight gradient.
template <typename T>
struct HeadRange {
  const T* in = nullptr;
  Strides strides{};
  const T* x = nullptr;
  const T* weight = nullptr;
  float* partial = nullptr;
  int heads = 0;
  int first_head = 0;  // index in out and x
  int passes = 1;      // number of times that the kernel reads or writes the range
  Divider strips;      // strips per token
  int first_block = 0;
  int blocks = 0;
};

template <typename T>
__device__ HeadRange<T> range_of_block(const HeadRange<T>& first, const HeadRange<T>& second) {
  return static_cast<int>(blockIdx.x) < second.first_block ? first : second;
}

// Distributes up to `limit` blocks over the ranges in proportion to their traffic, without idle blocks. Returns the
// number of blocks.
template <typename T>
unsigned divide_blocks(std::initializer_list<HeadRange<T>*> ranges, const Shape& shape, int strip, int groups,
                       int limit) {
  int traffic = 0, blocks = 0;
  for (const HeadRange<T>* range : ranges) traffic += range->heads * range->passes;
  for (HeadRange<T>* range : ranges) {
    const int strips = (range->heads + strip - 1) / strip;
    range->strips = Divider(static_cast<unsigned>(strips));
    const int64_t useful = (static_cast<int64_t>(shape.tokens) * strips + groups - 1) / groups;
    range->first_block = blocks;
    range->blocks = static_cast<int>(
        std::clamp<int64_t>(static_cast<int64_t>(limit) * range->heads * range->passes / traffic, 1, useful));
    blocks += range->blocks;
  }
  return static_cast<unsigned>(blocks);
}

}  // namespace mpzero::model::cuda
