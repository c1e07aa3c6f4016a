#include <cmath>

#include "base/device/simulated.hpp"
#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cpu/dispatch.hpp"
#include "model/kernels/cpu/lanes.hpp"

namespace mpzero::model::cpu {
namespace {

template <typename T>
struct Forward {
  const T *x, *weight;
  T* y;
  float* rstd;
  int64_t columns;
  float eps;
};

template <typename T>
MPZERO_INLINE void forward_rows(const Forward<T>& f, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const x = f.x + row * f.columns;
    T* const y = f.y + row * f.columns;
    Floats squares{};
    for_each_lanes(
        f.columns, [&](int64_t i, auto load, auto) __attribute__((always_inline)) {
          const Floats value = load(x + i);
          squares += value * value;
        });
    const float rstd = 1.0F / std::sqrt(sum(squares) / static_cast<float>(f.columns) + f.eps);
    f.rstd[row] = rstd;
    for_each_lanes(
        f.columns, [&](int64_t i, auto load, auto store) __attribute__((always_inline)) {
          store(y + i, rounded<T>(load(x + i) * rstd) * load(f.weight + i));
        });
  }
}
MPZERO_FOR_EACH_CPU void run(const Forward<float>& f, int64_t begin, int64_t end) { forward_rows(f, begin, end); }
MPZERO_FOR_EACH_CPU void run(const Forward<c10::BFloat16>& f, int64_t begin, int64_t end) {
  forward_rows(f, begin, end);
}

template <typename T>
struct Backward {
  const T *dy, *x, *weight, *dresidual;
  const float* rstd;
  T *dx, *y;
  int64_t columns;
};

// Writes the sum over these rows to dweight [H].
template <typename T>
MPZERO_INLINE void backward_rows(const Backward<T>& b, int64_t begin, int64_t end, float* dweight) {
  std::fill(dweight, dweight + b.columns, 0.0F);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * b.columns;
    const float rstd = b.rstd[row];
    Floats products{};
    for_each_lanes(
        b.columns, [&](int64_t i, auto load, auto) __attribute__((always_inline)) {
          products += load(b.dy + at + i) * load(b.weight + i) * (load(b.x + at + i) * rstd);
        });
    const float mean = sum(products) / static_cast<float>(b.columns);
    for_each_lanes(
        b.columns, [&](int64_t i, auto load, auto store) __attribute__((always_inline)) {
          const Floats dy = load(b.dy + at + i), weight = load(b.weight + i), normalized = load(b.x + at + i) * rstd;
          Floats dx = (dy * weight - normalized * mean) * rstd;
          if (b.dresidual != nullptr) dx += load(b.dresidual + at + i);
          store(b.dx + at + i, dx);
          const Floats forward = rounded<T>(normalized);
          store(dweight + i, load(dweight + i) + dy * forward);
          if (b.y != nullptr) store(b.y + at + i, forward * weight);
        });
  }
}
MPZERO_FOR_EACH_CPU void run(const Backward<float>& b, int64_t begin, int64_t end, float* dweight) {
  backward_rows(b, begin, end, dweight);
}
MPZERO_FOR_EACH_CPU void run(const Backward<c10::BFloat16>& b, int64_t begin, int64_t end, float* dweight) {
  backward_rows(b, begin, end, dweight);
}

}  // namespace

int64_t threads() {
  const int simulated = simulated_target().threads;
  return simulated > 0 ? simulated : at::get_num_threads();
}

int64_t partial_sums(int64_t rows) { return ceil_div(rows, kSummedRows); }

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& y, at::Tensor& rstd) {
  for_type(x, [&](auto type) {
    using T = decltype(type);
    const Forward<T> f{data<T>(x), data<T>(weight), data<T>(y), data<float>(rstd), x.size(1), static_cast<float>(eps)};
    for_rows(x.size(0), x.size(1), [&](int64_t begin, int64_t end) { run(f, begin, end); });
  });
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& dresidual, at::Tensor& dx, at::Tensor& dweight_rows, at::Tensor& y) {
  for_type(x, [&](auto type) {
    using T = decltype(type);
    const Backward<T> b{data<T>(dy),       data<T>(x),  data<T>(weight), data<T>(dresidual),
                        data<float>(rstd), data<T>(dx), data<T>(y),      x.size(1)};
    auto* const sums = data<float>(dweight_rows);
    for_blocks(x.size(0), x.size(1),
               [&](int64_t block, int64_t begin, int64_t end) { run(b, begin, end, sums + block * x.size(1)); });
  });
}

}  // namespace mpzero::model::cpu
