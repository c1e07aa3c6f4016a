#include "model/fp8/cast_watch.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace mpzero::model {
namespace {

// Enough to measure underflow rates of 0.01% at a low cost.
constexpr int64_t kSampledRows = 64;

// Returns sampled rows of a matrix with `count` rows: all rows if there are few, otherwise one random row from each of
// kSampledRows equal parts. Evenly spaced rows could all be the first tokens of sequences, which are not
// representative.
at::Tensor sampled_rows(int64_t count) {
  const int64_t parts = std::min(count, kSampledRows);
  at::Tensor rows = at::empty({parts}, at::kLong);
  std::mt19937_64 random(static_cast<uint64_t>(count));
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = part * count / parts, end = (part + 1) * count / parts;
    rows[part] = begin + static_cast<int64_t>(random() % static_cast<uint64_t>(end - begin));
  }
  return rows;
}

// Returns the number of nonzero values that became 0 or -0.
at::Tensor lost_among(const at::Tensor& codes, const at::Tensor& values) {
  return codes.bitwise_and(0x7f).eq(0).logical_and_(values.ne(0)).sum();
}

}  // namespace

void CastRange::merge(const CastRange& other) {
  casts += other.casts;
  // Propagates NaN.
  maximum = std::isnan(other.maximum) ? other.maximum : std::max(maximum, other.maximum);
  sampled += other.sampled;
  zeros += other.zeros;
}

CastWatch::CastWatch(int64_t layers)
    : seen_(static_cast<size_t>(layers) * kLayerProducts.size() * kOperandKinds.size()) {}

void CastWatch::begin() {
  on_ = true;
  std::fill(seen_.begin(), seen_.end(), CastRange());
  if (found_.defined()) found_.zero_();
}

void CastWatch::see(int64_t layer, LayerProduct product, OperandKind kind, const at::Tensor& maxima,
                    const fp8::Matrix& rows, const at::Tensor& values) {
  const size_t index = CastRanges::index(layer, product, kind);
  CastRange& range = seen_[index];
  if (kind == OperandKind::kWeight && range.casts > 0) return;
  if (!found_.defined()) {
    const int64_t operands = static_cast<int64_t>(seen_.size());
    found_ = at::zeros({2, operands}, maxima.options().dtype(at::kDouble));
    on_host_ = at::zeros({2, operands}, at::TensorOptions().dtype(at::kDouble).pinned_memory(maxima.is_cuda()));
  }
  ++range.casts;
  at::Tensor largest = found_[0][static_cast<int64_t>(index)];
  at::maximum_out(largest, largest, maxima.dim() == 0 ? maxima : maxima.amax());
  if (!rows.defined()) return;
  const int64_t count = rows.codes.size(0);
  at::Tensor& sample = samples_[count];
  if (!sample.defined()) sample = sampled_rows(count).to(rows.codes.device());
  const at::Tensor codes = rows.codes.view(at::kByte).index_select(0, sample);
  range.sampled += codes.numel();
  found_[1][static_cast<int64_t>(index)].add_(lost_among(codes, values.index_select(0, sample)));
}

void CastWatch::end() {
  on_ = false;
  if (found_.defined()) on_host_.copy_(found_, /*non_blocking=*/true);
}

CastRanges CastWatch::ranges() const {
  std::vector<CastRange> made = seen_;
  for (size_t i = 0; i < made.size() && on_host_.defined(); ++i) {
    const double* found = on_host_.const_data_ptr<double>();
    made[i].maximum = found[i];
    made[i].zeros = static_cast<int64_t>(found[made.size() + i]);
  }
  return CastRanges(std::move(made));
}

}  // namespace mpzero::model
