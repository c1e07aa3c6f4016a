#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cpu/dispatch.hpp"
#include "model/kernels/cpu/lanes.hpp"

namespace mpzero::model::cpu {
namespace {

MPZERO_INLINE Floats sigmoid(Floats x) { return 1.0F / (1.0F + exp(-x)); }

template <typename T>
struct SwigluRows {
  const T *dy, *gate_up;
  T *d_gate_up, *y;  // null if not requested
  int64_t inner;
};

template <typename T>
MPZERO_INLINE void forward_rows(const SwigluRows<T>& r, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T *const gates = r.gate_up + row * 2 * r.inner, *const ups = gates + r.inner;
    for_each_lanes(
        r.inner, [&](int64_t i, auto load, auto store) __attribute__((always_inline)) {
          const Floats gate = load(gates + i);
          store(r.y + row * r.inner + i, gate * sigmoid(gate) * load(ups + i));
        });
  }
}
MPZERO_FOR_EACH_CPU void forward(const SwigluRows<float>& r, int64_t begin, int64_t end) {
  forward_rows(r, begin, end);
}
MPZERO_FOR_EACH_CPU void forward(const SwigluRows<c10::BFloat16>& r, int64_t begin, int64_t end) {
  forward_rows(r, begin, end);
}

template <typename T>
MPZERO_INLINE void backward_rows(const SwigluRows<T>& r, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T *const gates = r.gate_up + row * 2 * r.inner, *const ups = gates + r.inner;
    T *const d_gates = r.d_gate_up + row * 2 * r.inner, *const d_ups = d_gates + r.inner;
    const int64_t at = row * r.inner;
    for_each_lanes(
        r.inner, [&](int64_t i, auto load, auto store) __attribute__((always_inline)) {
          const Floats gate = load(gates + i), up = load(ups + i), dy = load(r.dy + at + i);
          const Floats s = sigmoid(gate), silu = gate * s;
          store(d_gates + i, dy * up * (s + silu * (1.0F - s)));
          store(d_ups + i, dy * silu);
          if (r.y != nullptr) store(r.y + at + i, silu * up);
        });
  }
}
MPZERO_FOR_EACH_CPU void backward(const SwigluRows<float>& r, int64_t begin, int64_t end) {
  backward_rows(r, begin, end);
}
MPZERO_FOR_EACH_CPU void backward(const SwigluRows<c10::BFloat16>& r, int64_t begin, int64_t end) {
  backward_rows(r, begin, end);
}

}  // namespace

void swiglu_forward(const at::Tensor& gate_up, at::Tensor& y) {
  for_type(gate_up, [&](auto type) {
    using T = decltype(type);
    const SwigluRows<T> rows{nullptr, data<T>(gate_up), nullptr, data<T>(y), y.size(1)};
    for_rows(y.size(0), y.size(1), [&](int64_t begin, int64_t end) { forward(rows, begin, end); });
  });
}

void swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up, at::Tensor& d_gate_up, at::Tensor& y) {
  for_type(gate_up, [&](auto type) {
    using T = decltype(type);
    const SwigluRows<T> rows{data<T>(dy), data<T>(gate_up), data<T>(d_gate_up), data<T>(y), dy.size(1)};
    for_rows(dy.size(0), dy.size(1), [&](int64_t begin, int64_t end) { backward(rows, begin, end); });
  });
}

}  // namespace mpzero::model::cpu
