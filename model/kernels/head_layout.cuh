#pragma once

// How the kernels of qk_rope.cu spread heads over threads.
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {

constexpr int kHeadThreads = 128;  // a block

struct Shape {
  unsigned tokens;  // B * T
  unsigned length;  // T
  int out_heads;    // of a token in out
  int x_heads;      // of a token in x
  int head_dim;
};

// How kLanes neighbouring lanes hold a head: kPack elements of each half a lane. With kVector the elements of a lane
// are neighbours, read and written at once, and D = 2 * kPack * kLanes; else they lie kLanes apart and any D up to that
// will do, with zeros behind its end.
template <typename T, int kPack_, int kLanes_, bool kVector>
struct HeadLayout {
  static constexpr int kPack = kPack_, kLanes = kLanes_, kGroups = kHeadThreads / kLanes_;

  static __device__ int index(int lane, int j) { return kVector ? lane * kPack + j : lane + j * kLanes; }
  static __device__ Pack<T, kPack> load(const T* half, int lane, int count) {
    if constexpr (kVector) {
      return cuda::load<T, kPack>(half + lane * kPack);
    } else {
      Pack<T, kPack> pack;
      for (int j = 0; j < kPack; ++j) pack.v[j] = index(lane, j) < count ? half[index(lane, j)] : static_cast<T>(0.0f);
      return pack;
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
  // Over the lanes of a head; all lanes of the warp must call it.
  static __device__ float sum(float x) {
    for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
  }
};

// A strip of neighbouring heads of one token, worked on by one group of lanes.
struct Strip {
  bool valid;
  unsigned token, batch, position;
  int head;  // the first, within the part

  __device__ Strip(const Shape& shape, unsigned item, unsigned strips, int heads_a_strip)
      : valid(item < shape.tokens * strips),
        token(item / strips),
        batch(token / shape.length),
        position(token % shape.length),
        head(static_cast<int>(item % strips) * heads_a_strip) {}
};

}  // namespace mpzero::model::cuda
