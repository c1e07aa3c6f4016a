#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cpu/dispatch.hpp"
#include "model/kernels/cpu/lanes.hpp"

namespace mpzero::model::cpu {
namespace {

template <typename T>
MPZERO_INLINE void sum_rows(const T* x, int64_t columns, int64_t begin, int64_t end, float* sums) {
  for_each_lanes(
      columns, [&](int64_t i, auto load, auto store) __attribute__((always_inline)) {
        Floats sum{};
        for (int64_t row = begin; row < end; ++row) sum += load(x + row * columns + i);
        store(sums + i, sum);
      });
}
MPZERO_FOR_EACH_CPU void run(const float* x, int64_t columns, int64_t begin, int64_t end, float* sums) {
  sum_rows(x, columns, begin, end, sums);
}
MPZERO_FOR_EACH_CPU void run(const c10::BFloat16* x, int64_t columns, int64_t begin, int64_t end, float* sums) {
  sum_rows(x, columns, begin, end, sums);
}

}  // namespace

void column_sum(const at::Tensor& x, at::Tensor& sums) {
  for_type(x, [&](auto type) {
    using T = decltype(type);
    for_blocks(x.size(0), x.size(1), [&](int64_t block, int64_t begin, int64_t end) {
      run(data<const T>(x), x.size(1), begin, end, data<float>(sums) + block * x.size(1));
    });
  });
}

}  // namespace mpzero::model::cpu
