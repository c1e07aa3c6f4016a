#include <cmath>
#include <limits>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cpu/dispatch.hpp"
#include "model/kernels/cpu/lanes.hpp"

namespace mpzero::model::cpu {
namespace {

template <typename T>
struct LossRows {
  T* logits;
  const int64_t* targets;
  float* losses;
  int64_t columns;
  std::optional<float> gradient_scale;
  const float* weights = nullptr;  // null: all weights are 1
};

template <typename T>
MPZERO_INLINE void loss_of_rows(const LossRows<T>& r, int64_t begin, int64_t end) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t row = begin; row < end; ++row) {
    T* const logits = r.logits + row * r.columns;
    const int64_t full = r.columns / kLanes * kLanes, rest = r.columns - full;
    // Lanes beyond the last logit are -inf, which changes neither the maximum nor the sum.
    const Floats last = load_first(logits + full, rest, -kInfinity);
    Floats maxima = last;
    for (int64_t i = 0; i < full; i += kLanes) maxima = larger(load(logits + i), maxima);
    const float maximum = largest(maxima);
    Floats sums = exp(last - maximum);
    for (int64_t i = 0; i < full; i += kLanes) sums += exp(load(logits + i) - maximum);
    // Subtracts the maximum and the logarithm one after the other, because their sum would be rounded.
    const float log_total = std::log(sum(sums));
    const int64_t target = r.targets[row];
    const bool known = target >= 0 && target < r.columns;
    const float log_p =
        known ? (static_cast<float>(logits[target]) - maximum) - log_total : std::numeric_limits<float>::quiet_NaN();
    r.losses[row] = -log_p;
    if (!r.gradient_scale) continue;
    const float scale = *r.gradient_scale * (r.weights != nullptr ? r.weights[row] : 1.0F);
    for (int64_t i = 0; i < full; i += kLanes) store(logits + i, exp(load(logits + i) - maximum - log_total) * scale);
    store_first(logits + full, exp(last - maximum - log_total) * scale, rest);
    if (known) logits[target] = static_cast<T>(std::expm1(log_p) * scale);
  }
}
MPZERO_FOR_EACH_CPU void run(const LossRows<float>& r, int64_t begin, int64_t end) { loss_of_rows(r, begin, end); }
MPZERO_FOR_EACH_CPU void run(const LossRows<c10::BFloat16>& r, int64_t begin, int64_t end) {
  loss_of_rows(r, begin, end);
}

}  // namespace

void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, std::optional<double> gradient_scale,
                   const at::Tensor& weights, at::Tensor& losses) {
  for_type(logits, [&](auto type) {
    using T = decltype(type);
    LossRows<T> rows{data<T>(logits), data<int64_t>(targets), data<float>(losses), logits.size(1), std::nullopt};
    if (weights.defined()) rows.weights = data<float>(weights);
    if (gradient_scale) rows.gradient_scale = static_cast<float>(*gradient_scale);
    for_rows(logits.size(0), logits.size(1), [&](int64_t begin, int64_t end) { run(rows, begin, end); });
  });
}

}  // namespace mpzero::model::cpu
