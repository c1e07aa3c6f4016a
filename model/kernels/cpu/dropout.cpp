#include <c10/util/BFloat16.h>

#include <type_traits>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cpu/dispatch.hpp"

namespace mpzero::model::cpu {
namespace {

template <typename T>
void drop_all(const at::Tensor& x, const Dropout& dropout) {
  T* const elements = data<T>(x);
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto scale = static_cast<Wide>(1 / (1 - dropout.rate));
  const uint32_t dropped = dropped_values(dropout);
  const int64_t each = x.numel() / dropout.sequences, quads = ceil_div(each, 4);
  for_rows(dropout.sequences * quads, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t sequence = i / quads, quad = i % quads;
      drop(elements + sequence * each + 4 * quad, std::min<int64_t>(4, each - 4 * quad), sequence, quad, dropout,
           dropped, scale);
    }
  });
}

}  // namespace

void dropout(const at::Tensor& x, const Dropout& dropout) {
  if (x.scalar_type() == at::kDouble) return drop_all<double>(x, dropout);
  for_type(x, [&](auto type) { drop_all<decltype(type)>(x, dropout); });
}

}  // namespace mpzero::model::cpu
