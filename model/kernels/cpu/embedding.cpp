#include <numeric>
#include <vector>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cpu/dispatch.hpp"
#include "model/kernels/cpu/lanes.hpp"

namespace mpzero::model::cpu {
namespace {

// Adds rows [begin, end) of the values to out [columns], in order.
template <typename Out, typename T>
MPZERO_INLINE void add_values(Out* out, const T* values, int64_t columns, const int64_t* begin, const int64_t* end) {
  for_each_lanes(
      columns, [&](int64_t i, auto load, auto store) __attribute__((always_inline)) {
        Floats sum{};
        for (const int64_t* row = begin; row != end; ++row) sum += load(values + *row * columns + i);
        store(out + i, load(out + i) + sum);
      });
}
#define MPZERO_ADD(Out, T)                                                                                             \
  MPZERO_FOR_EACH_CPU void add(Out* out, const T* values, int64_t columns, const int64_t* begin, const int64_t* end) { \
    add_values(out, values, columns, begin, end);                                                                      \
  }
MPZERO_ADD(float, float)
MPZERO_ADD(float, c10::BFloat16)
MPZERO_ADD(c10::BFloat16, float)
MPZERO_ADD(c10::BFloat16, c10::BFloat16)
#undef MPZERO_ADD

}  // namespace

void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values) {
  const auto* const tokens = data<int64_t>(rows);
  const int64_t columns = values.size(1);
  // Groups the values by row of the weight and preserves their order.
  std::vector<int64_t> order(static_cast<size_t>(rows.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return tokens[a] < tokens[b]; });
  std::vector<size_t> groups;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || tokens[order[i]] != tokens[order[i - 1]]) groups.push_back(i);
  }
  groups.push_back(order.size());
  for_type(weight_gradient, [&](auto out_type) {
    for_type(values, [&](auto type) {
      auto* const out = data<decltype(out_type)>(weight_gradient);
      const auto* const from = data<decltype(type)>(values);
      for_rows(static_cast<int64_t>(groups.size()) - 1, columns, [&](int64_t begin, int64_t end) {
        for (auto group = static_cast<size_t>(begin); group < static_cast<size_t>(end); ++group) {
          add(out + tokens[order[groups[group]]] * columns, from, columns, order.data() + groups[group],
              order.data() + groups[group + 1]);
        }
      });
    });
  });
}

}  // namespace mpzero::model::cpu
