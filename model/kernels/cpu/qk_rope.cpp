#include <array>
#include <cmath>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cpu/dispatch.hpp"
#include "model/kernels/cpu/heads.hpp"
#include "model/kernels/cpu/lanes.hpp"

namespace mpzero::model::cpu {
namespace {

// Half of a head in registers: at most 8 vectors.
using Half = std::array<Floats, kLargestHead / 2 / kLanes>;

// Arguments for queries or for keys.
template <typename T>
struct Rotation {
  const T *cos, *sin, *weight;  // weight: null without a norm
  int64_t length, heads, head_dim;
  float eps;
  int64_t half() const { return head_dim / 2; }
  int64_t vectors() const { return half() / kLanes; }
};

template <typename T>
MPZERO_INLINE void load_head(const T* head, const Rotation<T>& r, Half& first, Half& second) {
  for (int64_t i = 0; i < r.vectors(); ++i) {
    first[static_cast<size_t>(i)] = load(head + i * kLanes);
    second[static_cast<size_t>(i)] = load(head + r.half() + i * kLanes);
  }
}

MPZERO_INLINE float rstd_of(const Half& first, const Half& second, int64_t vectors, int64_t head_dim, float eps) {
  Floats squares{};
  for (size_t i = 0; i < static_cast<size_t>(vectors); ++i) squares += first[i] * first[i] + second[i] * second[i];
  return 1.0F / std::sqrt(sum(squares) / static_cast<float>(head_dim) + eps);
}

// Processes tokens [begin, end) of B * T.
template <typename T>
MPZERO_INLINE void forward_tokens(const Rotation<T>& r, const HeadsOf<T>& in, const HeadsOf<T>& out, int64_t begin,
                                  int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t b = row / r.length, t = row % r.length;
    const T *const cos = r.cos + t * r.half(), *const sin = r.sin + t * r.half();
    for (int64_t h = 0; h < r.heads; ++h) {
      Half first, second;
      load_head(in.at(b, t, h), r, first, second);
      const float rstd = r.weight == nullptr ? 1.0F : rstd_of(first, second, r.vectors(), r.head_dim, r.eps);
      T* const to = out.at(b, t, h);
      for (int64_t i = 0; i < r.vectors(); ++i) {
        Floats x = first[static_cast<size_t>(i)], y = second[static_cast<size_t>(i)];
        if (r.weight != nullptr) {
          // Like transformers, rounds after the norm and after the multiplication by the weight.
          x = rounded<T>(rounded<T>(x * rstd) * load(r.weight + i * kLanes));
          y = rounded<T>(rounded<T>(y * rstd) * load(r.weight + r.half() + i * kLanes));
        }
        const Floats c = load(cos + i * kLanes), s = load(sin + i * kLanes);
        store(to + i * kLanes, x * c - y * s);
        store(to + r.half() + i * kLanes, y * c + x * s);
      }
    }
  }
}
MPZERO_FOR_EACH_CPU void forward(const Rotation<float>& r, const HeadsOf<float>& in, const HeadsOf<float>& out,
                                 int64_t begin, int64_t end) {
  forward_tokens(r, in, out, begin, end);
}
MPZERO_FOR_EACH_CPU void forward(const Rotation<c10::BFloat16>& r, const HeadsOf<c10::BFloat16>& in,
                                 const HeadsOf<c10::BFloat16>& out, int64_t begin, int64_t end) {
  forward_tokens(r, in, out, begin, end);
}

// Writes the sum over these tokens and all heads to dweight [D] if there is a norm.
template <typename T>
MPZERO_INLINE void backward_tokens(const Rotation<T>& r, const HeadsOf<T>& d, const HeadsOf<T>& in,
                                   const HeadsOf<T>& out, int64_t begin, int64_t end, float* dweight) {
  const auto vectors = static_cast<size_t>(r.vectors());
  Half first_sums{}, second_sums{};
  for (int64_t row = begin; row < end; ++row) {
    const int64_t b = row / r.length, t = row % r.length;
    const T *const cos = r.cos + t * r.half(), *const sin = r.sin + t * r.half();
    for (int64_t h = 0; h < r.heads; ++h) {
      Half first, second;
      load_head(d.at(b, t, h), r, first, second);
      for (size_t i = 0; i < vectors; ++i) {
        const auto at = static_cast<int64_t>(i) * kLanes;
        const Floats c = load(cos + at), s = load(sin + at), x = first[i], y = second[i];
        first[i] = x * c + y * s;
        second[i] = y * c - x * s;
      }
      if (r.weight != nullptr) {
        Half x, y;
        load_head(in.at(b, t, h), r, x, y);
        const float rstd = rstd_of(x, y, r.vectors(), r.head_dim, r.eps);
        Floats products{};
        for (size_t i = 0; i < vectors; ++i) {
          const auto at = static_cast<int64_t>(i) * kLanes;
          x[i] *= rstd;
          y[i] *= rstd;
          first_sums[i] += first[i] * rounded<T>(x[i]);
          second_sums[i] += second[i] * rounded<T>(y[i]);
          first[i] *= load(r.weight + at);
          second[i] *= load(r.weight + r.half() + at);
          products += first[i] * x[i] + second[i] * y[i];
        }
        const float mean = sum(products) / static_cast<float>(r.head_dim);
        for (size_t i = 0; i < vectors; ++i) {
          first[i] = (first[i] - x[i] * mean) * rstd;
          second[i] = (second[i] - y[i] * mean) * rstd;
        }
      }
      T* const to = out.at(b, t, h);
      for (size_t i = 0; i < vectors; ++i) {
        store(to + static_cast<int64_t>(i) * kLanes, first[i]);
        store(to + r.half() + static_cast<int64_t>(i) * kLanes, second[i]);
      }
    }
  }
  if (r.weight == nullptr) return;
  for (size_t i = 0; i < vectors; ++i) {
    store(dweight + static_cast<int64_t>(i) * kLanes, first_sums[i]);
    store(dweight + r.half() + static_cast<int64_t>(i) * kLanes, second_sums[i]);
  }
}
MPZERO_FOR_EACH_CPU void backward(const Rotation<float>& r, const HeadsOf<float>& d, const HeadsOf<float>& in,
                                  const HeadsOf<float>& out, int64_t begin, int64_t end, float* dweight) {
  backward_tokens(r, d, in, out, begin, end, dweight);
}
MPZERO_FOR_EACH_CPU void backward(const Rotation<c10::BFloat16>& r, const HeadsOf<c10::BFloat16>& d,
                                  const HeadsOf<c10::BFloat16>& in, const HeadsOf<c10::BFloat16>& out, int64_t begin,
                                  int64_t end, float* dweight) {
  backward_tokens(r, d, in, out, begin, end, dweight);
}

template <typename T>
Rotation<T> rotation(const at::Tensor& qkv, const Heads& heads, bool of_queries, const at::Tensor& cos,
                     const at::Tensor& sin) {
  return {data<T>(cos),
          data<T>(sin),
          data<T>(of_queries ? heads.query_weight : heads.key_weight),
          qkv.size(1),
          of_queries ? heads.query : heads.key_value,
          qkv.size(3),
          static_cast<float>(heads.eps)};
}

}  // namespace

bool has_rope(int64_t head_dim) { return head_dim % (2 * kLanes) == 0 && head_dim <= kLargestHead; }

void qk_rope_forward(const at::Tensor& qkv, const Heads& heads, const at::Tensor& cos, const at::Tensor& sin,
                     const at::Tensor& out) {
  for_type(qkv, [&](auto type) {
    using T = decltype(type);
    const auto query = rotation<T>(qkv, heads, true, cos, sin), key = rotation<T>(qkv, heads, false, cos, sin);
    const HeadsOf<T> from(qkv), to(out), key_from(qkv.narrow(2, heads.query, heads.key_value)),
        key_to(out.narrow(2, heads.query, heads.key_value));
    for_rows(qkv.size(0) * qkv.size(1), qkv.stride(1), [&](int64_t begin, int64_t end) {
      forward(query, from, to, begin, end);
      forward(key, key_from, key_to, begin, end);
    });
  });
}

void qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& qkv,
                      const Heads& heads, const at::Tensor& cos, const at::Tensor& sin, at::Tensor& dqkv,
                      at::Tensor& dquery_weight_rows, at::Tensor& dkey_weight_rows) {
  for_type(qkv, [&](auto type) {
    using T = decltype(type);
    const auto query = rotation<T>(qkv, heads, true, cos, sin), key = rotation<T>(qkv, heads, false, cos, sin);
    const int64_t length = qkv.size(1), head_dim = qkv.size(3), rotated = heads.query + heads.key_value;
    const HeadsOf<T> from(qkv), to(dqkv), query_gradient(dq), key_gradient(dk), value_gradient(dv),
        key_from(qkv.narrow(2, heads.query, heads.key_value)), key_to(dqkv.narrow(2, heads.query, heads.key_value)),
        value_to(dqkv.narrow(2, rotated, heads.key_value));
    auto *const query_sums = data<float>(dquery_weight_rows), *const key_sums = data<float>(dkey_weight_rows);
    for_blocks(qkv.size(0) * length, dqkv.stride(1), [&](int64_t block, int64_t begin, int64_t end) {
      backward(query, query_gradient, from, to, begin, end,
               query_sums + (query_sums != nullptr ? block * head_dim : 0));
      backward(key, key_gradient, key_from, key_to, begin, end,
               key_sums + (key_sums != nullptr ? block * head_dim : 0));
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t h = 0; h < heads.key_value; ++h) {
          const T* const value = value_gradient.at(row / length, row % length, h);
          std::copy(value, value + head_dim, value_to.at(row / length, row % length, h));
        }
      }
    });
  });
}

}  // namespace mpzero::model::cpu
