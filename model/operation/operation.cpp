#include "model/operation/operation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tuple>

namespace mpzero::model {
namespace {

double product(std::initializer_list<int64_t> sizes) {
  double all = 1;
  for (const int64_t size : sizes) all *= static_cast<double>(size);
  return all;
}

const char* short_name(at::ScalarType type) {
  return type == at::kBFloat16        ? "bf16"
         : type == at::kFloat         ? "fp32"
         : type == at::kFloat8_e4m3fn ? "e4m3"
         : type == at::kFloat8_e5m2   ? "e5m2"
                                      : "fp64";
}

std::string describe(const MatmulShape& s, bool adds) {
  return fmt::format(" {}{} into {}{}{}{}", s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N',
                     short_name(s.out_type),
                     adds     ? " + matrix"
                     : s.bias ? " + bias"
                              : "",
                     s.fp8 && s.fp8->rowwise ? ", rowwise" : "", s.fp8 && s.fp8->fast_accumulation ? ", fast" : "");
}

}  // namespace

OperationObserver*& OperationObserver::current() {
  thread_local OperationObserver* observer = nullptr;
  return observer;
}

void OperationScope::begin_range(const char* name) { range_.before(fmt::format("mpzero::{}", name)); }

double bytes_of(at::ScalarType type, std::initializer_list<int64_t> sizes) {
  return static_cast<double>(c10::elementSize(type)) * product(sizes);
}

Operation on_matrix(at::ScalarType type, int64_t rows, int64_t columns, double passes) {
  return {.type = type, .sizes = {rows, columns}, .bytes = passes * bytes_of(type, {rows, columns})};
}

Operation on_matmul(const MatmulShape& shape, bool adds) {
  const auto& [rows, columns, inner] = std::tie(shape.rows, shape.columns, shape.inner);
  return {.name = kMatmul,
          .type = shape.type,
          .sizes = {rows, columns, inner},
          .bytes = bytes_of(shape.type, {rows, inner}) + bytes_of(shape.type, {inner, columns}) +
                   bytes_of(shape.out_type, {rows, columns}) * (adds ? 2 : 1),
          .flops = 2 * product({rows, columns, inner}),
          .matmul = shape,
          .adds = adds};
}

Operation on_attention(const AttentionShape& shape, at::ScalarType type, bool backward) {
  const auto& [batch, length, heads, key_value_heads, head_dim] = shape;
  const auto bytes = [&, tokens = batch * length, dim = head_dim](int64_t own) {
    return bytes_of(type, {tokens, own, dim});
  };
  // Forward: q, k, v and the output. Backward: also the output's gradient, dq, dk and dv.
  const double forward_bytes = bytes(2 * heads + 2 * key_value_heads);
  return {.name = backward ? kAttentionBackward : kAttentionForward,
          .type = type,
          .sizes = {batch, length, heads, key_value_heads, head_dim},
          .bytes = backward ? 2 * forward_bytes : forward_bytes,
          .flops = (backward ? 5 : 2) * product({batch, length, heads, head_dim, length}),
          .attention = shape};
}

std::string describe(const Operation& o) {
  return fmt::format("{} {} {}{}, {:.0f} bytes", o.name, short_name(o.type), fmt::join(o.sizes, " x "),
                     o.matmul ? describe(*o.matmul, o.adds) : "", o.bytes);
}

}  // namespace mpzero::model
