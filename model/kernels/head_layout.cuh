#pragma once

// How the kernels of qk_rope.cu spread heads over threads.
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {

constexpr int kHeadThreads = 128;  // a block

// Divides numbers below 2^31 by one divisor, without a division (Granlund and Montgomery, 1994).
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
  int out_heads;    // of a token in out
  int x_heads;      // of a token in x
  int head_dim;
};

// How kLanes neighbouring lanes hold a head: kPack elements of each half a lane. With kVector the elements of a lane
// are neighbours, read and written at once, and D = 2 * kPack * kLanes; else they lie kLanes apart and any D up to that
// will do, with zeros behind its end.
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
  // Over the lanes of a head; all lanes of the warp must call it.
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

// A strip of neighbouring heads of one token, worked on by one group of lanes.
struct Strip {
  bool valid;
  unsigned token, batch, position;
  int head;  // the first, within the part

  // `strips`: of a token.
  __device__ Strip(const Shape& shape, unsigned item, const Divider& strips, int heads_a_strip)
      : valid(item < shape.tokens * strips.divisor),
        token(strips.quotient(item)),
        batch(shape.length.quotient(token)),
        position(token - batch * shape.length.divisor),
        head(static_cast<int>(item - token * strips.divisor) * heads_a_strip) {}
};

}  // namespace mpzero::model::cuda
