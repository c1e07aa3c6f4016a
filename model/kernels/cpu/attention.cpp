#include "model/kernels/cpu/attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cpu/dispatch.hpp"
#include "model/kernels/cpu/heads.hpp"
#include "model/kernels/cpu/lanes.hpp"
#include "model/kernels/cpu/matmul.hpp"
#include "model/kernels/cpu/micro_kernel.hpp"
#include "model/kernels/cpu/pack.hpp"

namespace mpzero::model::cpu {
namespace {

// Queries and keys per block, and the depth of micro-kernel matmuls over queries or keys.
constexpr int64_t kQueries = 64, kKeys = 64;

struct Sizes {
  Sizes(const at::Tensor& q, const at::Tensor& k)
      : batch(q.size(0)), length(q.size(1)), heads(q.size(2)), key_value_heads(k.size(2)), head_dim(q.size(3)) {}
  int64_t group() const { return heads / key_value_heads; }
  int64_t batch, length, heads, key_value_heads, head_dim;
};

// Keys that each query attends to: all keys of its document or, with `causal`, only keys up to its own position.
class Visible {
 public:
  Visible(int64_t length, bool causal, std::span<const int32_t> ends)
      : causal_(causal), begins_(static_cast<size_t>(length)), ends_(begins_.size()) {
    const std::array<int32_t, 2> whole{0, static_cast<int32_t>(length)};
    if (ends.empty()) ends = whole;
    for (size_t i = 1; i < ends.size(); ++i) {
      std::fill(begins_.begin() + ends[i - 1], begins_.begin() + ends[i], ends[i - 1]);
      std::fill(ends_.begin() + ends[i - 1], ends_.begin() + ends[i], ends[i]);
    }
  }
  // A query attends to keys [first_key, last_key). Queries [first_query, last_query) attend to a key. All bounds are
  // ascending.
  int64_t first_key(int64_t query) const { return begins_[static_cast<size_t>(query)]; }
  int64_t last_key(int64_t query) const { return causal_ ? query + 1 : ends_[static_cast<size_t>(query)]; }
  int64_t first_query(int64_t key) const { return causal_ ? key : begins_[static_cast<size_t>(key)]; }
  int64_t last_query(int64_t key) const { return ends_[static_cast<size_t>(key)]; }

 private:
  bool causal_;
  std::vector<int32_t> begins_, ends_;  // bounds of each token's document
};

// Part of a block that a row attends to: [first, last), relative to the block.
struct Range {
  int32_t first, last;
};

Range within(int64_t first, int64_t last, int64_t block, int64_t size) {
  return {static_cast<int32_t>(std::clamp<int64_t>(first - block, 0, size)),
          static_cast<int32_t>(std::clamp<int64_t>(last - block, 0, size))};
}

// Rows [T, D] of a head, packed as panels of `block` rows: as rows of B for matmuls over the rows, or transposed for
// matmuls over D. Rows beyond the last row are zero.
template <typename T>
class Panels {
 public:
  Panels(int64_t length, int64_t head_dim, int64_t block, bool transposed)
      : length_(length),
        head_dim_(head_dim),
        block_(block),
        transposed_(transposed),
        memory_(elements<T>(round_up(length, block) * head_dim)) {}

  void pack(const T* rows, int64_t stride, int64_t index) const {
    const int64_t begin = index * block_, present = std::min(length_ - begin, block_);
    T* const panel = at(index);
    if (transposed_) {
      pack_transposed(rows + begin * stride, stride, head_dim_, present, block_, panel);
    } else {
      pack_rows(rows + begin * stride, stride, present, head_dim_, head_dim_, panel);
      zero_rest(present, head_dim_, block_, panel);
    }
  }
  void pack_all(const T* rows, int64_t stride) const {
    for (int64_t index = 0; index * block_ < length_; ++index) pack(rows, stride, index);
  }
  T* at(int64_t index) const { return data<T>(memory_) + index * block_ * head_dim_; }

 private:
  int64_t length_, head_dim_, block_;
  bool transposed_;
  at::Tensor memory_;
};

// Running softmax of a block of queries.
struct Softmax {
  float maximum[kQueries], sum[kQueries];
};

// Converts scores [queries, kKeys] to probabilities in T, relative to the row's maximum so far. Rescales sums [queries,
// head_dim] to the new maximum. `seen`: range of each query.
template <typename T>
MPZERO_INLINE void soften(float* scores, T* probabilities, int64_t queries, const Range* seen, float scale,
                          Softmax& softmax, float* sums, int64_t head_dim) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t q = 0; q < queries; ++q) {
    float* const row = scores + q * kKeys;
    const int64_t first = seen[q].first, last = seen[q].last;
    if (first >= last) {
      std::fill(probabilities + q * kKeys, probabilities + (q + 1) * kKeys, T(0.0F));
      continue;
    }
    if (first > 0) std::fill(row, row + first, -kInfinity);
    if (last < kKeys) std::fill(row + last, row + kKeys, -kInfinity);
    Floats maxima = load(row);
    for (int64_t k = kLanes; k < kKeys; k += kLanes) maxima = larger(load(row + k), maxima);
    const float before = softmax.maximum[q], maximum = std::max(before, largest(maxima) * scale);
    Floats total{};
    for (int64_t k = 0; k < kKeys; k += kLanes) {
      const Floats p = exp(load(row + k) * scale - maximum);
      total += p;
      store(probabilities + q * kKeys + k, p);
    }
    const float correction = std::exp(before - maximum);
    softmax.maximum[q] = maximum;
    softmax.sum[q] = softmax.sum[q] * correction + cpu::sum(total);
    if (correction == 1.0F) continue;
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      store(sums + q * head_dim + d, load(sums + q * head_dim + d) * correction);
    }
  }
}
#define MPZERO_SOFTEN(T)                                                                                     \
  MPZERO_FOR_EACH_CPU void soften_block(float* scores, T* probabilities, int64_t queries, const Range* seen, \
                                        float scale, Softmax& softmax, float* sums, int64_t head_dim) {      \
    soften(scores, probabilities, queries, seen, scale, softmax, sums, head_dim);                            \
  }                                                                                                          \
  MPZERO_FOR_EACH_CPU void divide_row(const float* sums, float divisor, int64_t count, T* out) {             \
    for (int64_t d = 0; d < count; d += kLanes) store(out + d, load(sums + d) / divisor);                    \
  }                                                                                                          \
  MPZERO_FOR_EACH_CPU void store_row(const float* values, int64_t count, T* out) {                           \
    for (int64_t d = 0; d < count; d += kLanes) store(out + d, load(values + d));                            \
  }                                                                                                          \
  MPZERO_FOR_EACH_CPU float dot(const T* a, const T* b, int64_t count) {                                     \
    Floats products{};                                                                                       \
    for (int64_t d = 0; d < count; d += kLanes) products += load(a + d) * load(b + d);                       \
    return sum(products);                                                                                    \
  }
MPZERO_SOFTEN(float)
MPZERO_SOFTEN(c10::BFloat16)
#undef MPZERO_SOFTEN

// Converts a block's scores and their gradients, keys by queries, to probabilities and gradients of the unscaled
// scores. log_sums and deltas belong to the block's queries. `seen`: for each key, the queries that attend to it; other
// queries have probability 0.
template <typename T>
MPZERO_INLINE void differentiate(const float* scores, const float* gradients, int64_t keys, const Range* seen,
                                 float scale, const float* log_sums, const float* deltas, T* probabilities,
                                 T* d_scores) {
  constexpr Words kIndices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Floats zero{};
  for (int64_t k = 0; k < keys; ++k) {
    const auto first = static_cast<uint32_t>(seen[k].first), last = static_cast<uint32_t>(seen[k].last);
    for (int64_t q = 0; q < kQueries; q += kLanes) {
      const Words index = kIndices + static_cast<uint32_t>(q);
      const auto sees = index >= first && index < last;
      const int64_t at = k * kQueries + q;
      const Floats p = exp(load(scores + at) * scale - load(log_sums + q));
      const Floats ds = p * (load(gradients + at) - load(deltas + q)) * scale;
      store(probabilities + at, sees ? p : zero);
      store(d_scores + at, sees ? ds : zero);
    }
  }
}
MPZERO_FOR_EACH_CPU void differentiate_block(const float* scores, const float* gradients, int64_t keys,
                                             const Range* seen, float scale, const float* log_sums, const float* deltas,
                                             float* probabilities, float* d_scores) {
  differentiate(scores, gradients, keys, seen, scale, log_sums, deltas, probabilities, d_scores);
}
MPZERO_FOR_EACH_CPU void differentiate_block(const float* scores, const float* gradients, int64_t keys,
                                             const Range* seen, float scale, const float* log_sums, const float* deltas,
                                             c10::BFloat16* probabilities, c10::BFloat16* d_scores) {
  differentiate(scores, gradients, keys, seen, scale, log_sums, deltas, probabilities, d_scores);
}

template <typename T>
void forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
             const at::Tensor& log_sums, const Visible& visible) {
  const Sizes s(q, k);
  const HeadsOf<T> queries(q), keys(k), values(v), results(out);
  const float scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim));
  const int64_t query_blocks = ceil_div(s.length, kQueries), key_blocks = ceil_div(s.length, kKeys);
  std::vector<Panels<T>> key_panels, value_panels;
  for (int64_t i = 0; i < s.batch * s.key_value_heads; ++i) {
    key_panels.emplace_back(s.length, s.head_dim, kKeys, true);
    value_panels.emplace_back(s.length, s.head_dim, kKeys, false);
  }
  at::parallel_for(0, s.batch * s.key_value_heads * key_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / key_blocks, b = head / s.key_value_heads, h = head % s.key_value_heads;
      key_panels[static_cast<size_t>(head)].pack(keys.at(b, 0, h), keys.token, i % key_blocks);
      value_panels[static_cast<size_t>(head)].pack(values.at(b, 0, h), values.token, i % key_blocks);
    }
  });
  at::parallel_for(0, s.batch * s.heads * query_blocks, 1, [&](int64_t begin, int64_t end) {
    const MicroKernel<T> kernel;
    const at::Tensor memory = elements<float>(kQueries * (kKeys + s.head_dim));
    const at::Tensor probabilities = elements<T>(kQueries * kKeys);
    float *const scores = memory.mutable_data_ptr<float>(), *const sums = scores + kQueries * kKeys;
    T* const p = probabilities.mutable_data_ptr<T>();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / query_blocks, b = head / s.heads, h = head % s.heads;
      // Alternates between long and short rows to balance the load.
      const int64_t index = i % query_blocks, block = index % 2 == 0 ? index / 2 : query_blocks - 1 - index / 2;
      const int64_t first = block * kQueries, count = std::min(s.length - first, kQueries);
      const auto key_value = static_cast<size_t>(b * s.key_value_heads + h / s.group());
      Softmax softmax;
      std::fill(softmax.maximum, softmax.maximum + kQueries, -std::numeric_limits<float>::infinity());
      std::fill(softmax.sum, softmax.sum + kQueries, 0.0F);
      std::fill(sums, sums + kQueries * s.head_dim, 0.0F);
      for (int64_t j = visible.first_key(first) / kKeys; j * kKeys < visible.last_key(first + count - 1); ++j) {
        Range seen[kQueries];
        for (int64_t row = 0; row < count; ++row) {
          seen[row] = within(visible.first_key(first + row), visible.last_key(first + row), j * kKeys, kKeys);
        }
        kernel.multiply(count, kKeys, s.head_dim, queries.at(b, first, h), queries.token, key_panels[key_value].at(j),
                        kKeys, false, scores, kKeys);
        soften_block(scores, p, count, seen, scale, softmax, sums, s.head_dim);
        kernel.multiply(count, s.head_dim, kKeys, p, kKeys, value_panels[key_value].at(j), s.head_dim, true, sums,
                        s.head_dim);
      }
      float* const logs = log_sums.mutable_data_ptr<float>() + head * s.length + first;
      for (int64_t row = 0; row < count; ++row) {
        divide_row(sums + row * s.head_dim, softmax.sum[row], s.head_dim, results.at(b, first + row, h));
        logs[row] = softmax.maximum[row] + std::log(softmax.sum[row]);
      }
    }
  });
}

// Gradients of one query head. dk and dv ([T, D] fp32) contain only the contribution of this head.
template <typename T>
class HeadBackward {
 public:
  HeadBackward(const Sizes& s, const Visible& visible)
      : s_(s),
        visible_(visible),
        query_columns_(s.length, s.head_dim, kQueries, true),
        query_rows_(s.length, s.head_dim, kQueries, false),
        dout_columns_(s.length, s.head_dim, kQueries, true),
        dout_rows_(s.length, s.head_dim, kQueries, false),
        key_rows_(s.length, s.head_dim, kKeys, false),
        products_(elements<float>(2 * kKeys * kQueries)),
        rounded_(elements<T>(3 * kKeys * kQueries)),
        rows_(elements<float>(2 * padded())),
        dq_(elements<float>(s.length * s.head_dim)) {}

  void run(const HeadsOf<T>& dout, const HeadsOf<T>& q, const HeadsOf<T>& k, const HeadsOf<T>& v, const HeadsOf<T>& out,
           const float* log_sums, int64_t b, int64_t h, const HeadsOf<T>& dq, float* dk, float* dv) {
    const int64_t length = s_.length, head_dim = s_.head_dim, kv = h / s_.group();
    query_columns_.pack_all(q.at(b, 0, h), q.token);
    query_rows_.pack_all(q.at(b, 0, h), q.token);
    dout_columns_.pack_all(dout.at(b, 0, h), dout.token);
    dout_rows_.pack_all(dout.at(b, 0, h), dout.token);
    key_rows_.pack_all(k.at(b, 0, kv), k.token);
    float *const logs = rows_.template mutable_data_ptr<float>(), *const deltas = logs + padded();
    std::fill(logs, logs + 2 * padded(), 0.0F);
    std::copy(log_sums, log_sums + length, logs);
    for (int64_t t = 0; t < length; ++t) deltas[t] = dot(dout.at(b, t, h), out.at(b, t, h), head_dim);
    float* const query_sums = dq_.template mutable_data_ptr<float>();
    std::fill(query_sums, query_sums + length * head_dim, 0.0F);
    for (int64_t j = 0; j * kKeys < length; ++j) {
      const int64_t first = j * kKeys, keys = std::min(length - first, kKeys);
      const int64_t start = visible_.first_query(first) / kQueries;
      for (int64_t i = start; i * kQueries < visible_.last_query(first + keys - 1); ++i) {
        const bool adds = i > start;
        block(k.at(b, first, kv), k.token, v.at(b, first, kv), v.token, i, j, keys, logs, deltas, adds,
              dk + first * head_dim, dv + first * head_dim, query_sums + i * kQueries * head_dim);
      }
    }
    for (int64_t t = 0; t < length; ++t) store_row(query_sums + t * head_dim, head_dim, dq.at(b, t, h));
  }

 private:
  int64_t padded() const { return round_up(s_.length, kQueries); }

  // Processes the queries of block i and the keys of block j. `adds`: true if dk and dv contain sums of earlier blocks.
  void block(const T* k, int64_t k_stride, const T* v, int64_t v_stride, int64_t i, int64_t j, int64_t keys,
             const float* logs, const float* deltas, bool adds, float* dk, float* dv, float* dq) const {
    const int64_t head_dim = s_.head_dim, first = i * kQueries, queries = std::min(s_.length - first, kQueries);
    const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    float *const scores = products_.mutable_data_ptr<float>(), *const gradients = scores + kKeys * kQueries;
    T *const p = rounded_.mutable_data_ptr<T>(), *const ds = p + kKeys * kQueries,
             *const ds_rows = ds + kKeys * kQueries;
    kernel_.multiply(keys, kQueries, head_dim, k, k_stride, query_columns_.at(i), kQueries, false, scores, kQueries);
    kernel_.multiply(keys, kQueries, head_dim, v, v_stride, dout_columns_.at(i), kQueries, false, gradients, kQueries);
    Range seen[kKeys];
    for (int64_t key = 0; key < keys; ++key) {
      seen[key] = within(visible_.first_query(j * kKeys + key), visible_.last_query(j * kKeys + key), first, kQueries);
    }
    differentiate_block(scores, gradients, keys, seen, scale, logs + first, deltas + first, p, ds);
    kernel_.multiply(keys, head_dim, kQueries, p, kQueries, dout_rows_.at(i), head_dim, adds, dv, head_dim);
    kernel_.multiply(keys, head_dim, kQueries, ds, kQueries, query_rows_.at(i), head_dim, adds, dk, head_dim);
    transpose(ds, kQueries, keys, kQueries, kKeys, ds_rows);
    kernel_.multiply(queries, head_dim, kKeys, ds_rows, kKeys, key_rows_.at(j), head_dim, true, dq, head_dim);
  }

  const Sizes& s_;
  const Visible& visible_;
  MicroKernel<T> kernel_;
  Panels<T> query_columns_, query_rows_, dout_columns_, dout_rows_, key_rows_;
  at::Tensor products_, rounded_, rows_, dq_;
};

MPZERO_FOR_EACH_CPU void add_rows(const float* addend, int64_t count, float* sum) {
  for (int64_t i = 0; i < count; i += kLanes) store(sum + i, load(sum + i) + load(addend + i));
}

template <typename T>
void backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
              const at::Tensor& out, const at::Tensor& log_sums, const at::Tensor& dq, const at::Tensor& dk,
              const at::Tensor& dv, const Visible& visible) {
  const Sizes s(q, k);
  const HeadsOf<T> d(dout), queries(q), keys(k), values(v), results(out), d_queries(dq), d_keys(dk), d_values(dv);
  // Gradients of keys and values per query head, summed over each group in the order of its heads.
  const int64_t head = s.length * s.head_dim;
  const at::Tensor sums = elements<float>(2 * s.batch * s.heads * head);
  float *const key_sums = sums.mutable_data_ptr<float>(), *const value_sums = key_sums + s.batch * s.heads * head;
  at::parallel_for(0, s.batch * s.heads, 1, [&](int64_t begin, int64_t end) {
    HeadBackward<T> of_head(s, visible);
    for (int64_t i = begin; i < end; ++i) {
      of_head.run(d, queries, keys, values, results, log_sums.const_data_ptr<float>() + i * s.length, i / s.heads,
                  i % s.heads, d_queries, key_sums + i * head, value_sums + i * head);
    }
  });
  at::parallel_for(0, s.batch * s.key_value_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / s.key_value_heads, h = i % s.key_value_heads;
      const auto finish = [&](float* of_heads, const HeadsOf<T>& result) {
        float* const first = of_heads + (b * s.heads + h * s.group()) * head;
        for (int64_t g = 1; g < s.group(); ++g) add_rows(first + g * head, head, first);
        for (int64_t t = 0; t < s.length; ++t) store_row(first + t * s.head_dim, s.head_dim, result.at(b, t, h));
      };
      finish(key_sums, d_keys);
      finish(value_sums, d_values);
    }
  });
}

}  // namespace

bool has_attention(at::ScalarType type, int64_t head_dim) {
  return has_matmul(type) && head_dim % 32 == 0 && head_dim <= kLargestHead;
}

void attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                       const at::Tensor& log_sums, bool causal, std::span<const int32_t> ends) {
  const Visible visible(q.size(1), causal, ends);
  for_type(q, [&](auto type) { forward<decltype(type)>(q, k, v, out, log_sums, visible); });
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& log_sums, const at::Tensor& dq, const at::Tensor& dk,
                        const at::Tensor& dv, bool causal, std::span<const int32_t> ends) {
  const Visible visible(q.size(1), causal, ends);
  for_type(q, [&](auto type) { backward<decltype(type)>(dout, q, k, v, out, log_sums, dq, dk, dv, visible); });
}

int64_t attention_forward_bytes(int64_t batch, int64_t heads, int64_t key_value_heads, int64_t length, int64_t head_dim,
                                at::ScalarType type) {
  const auto element = static_cast<int64_t>(c10::elementSize(type)), wide = static_cast<int64_t>(sizeof(float));
  const int64_t panels = 2 * batch * key_value_heads * round_up(length, kKeys) * head_dim * element;
  const int64_t block = kQueries * (kKeys + head_dim) * wide + kQueries * kKeys * element;
  return panels + std::min<int64_t>(threads(), batch * heads * ceil_div(length, kQueries)) * block;
}

int64_t attention_backward_bytes(int64_t batch, int64_t heads, int64_t length, int64_t head_dim, at::ScalarType type) {
  const auto element = static_cast<int64_t>(c10::elementSize(type)), wide = static_cast<int64_t>(sizeof(float));
  const int64_t padded = round_up(length, kQueries);
  // Memory of a HeadBackward: the panels of one head, the gradient and sums of its queries, and a block.
  const int64_t of_thread = 5 * padded * head_dim * element + (length * head_dim + 2 * padded) * wide +
                            kQueries * kKeys * (2 * wide + 3 * element);
  return 2 * batch * heads * length * head_dim * wide + std::min<int64_t>(threads(), batch * heads) * of_thread;
}

}  // namespace mpzero::model::cpu
