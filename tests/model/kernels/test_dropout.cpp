// The masks are compared with transformers' T5 and an implementation of Philox in tests/e2e/test_t5.py.
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <cmath>

#include "model/kernels/dropout.hpp"
#include "model/kernels/relative_attention.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"

namespace mpzero::model {
namespace {

Dropout third(int64_t sequences, int64_t first_sample = 0, uint32_t place = 0, uint64_t seed = 7) {
  return {
      .rate = 1.0 / 3, .seed = {.seed = seed, .first_sample = first_sample}, .sequences = sequences, .place = place};
}

at::Tensor mask(const Dropout& dropout, int64_t elements = 1003) {
  return after_dropout(at::ones({dropout.sequences, elements}, at::kDouble), dropout);
}

}  // namespace

TEST_CASE("dropout zeroes a fraction of the elements and preserves the mean") {
  const at::Tensor kept = mask(third(40, 0), 10'000);
  // Five deviations of a binomial distribution.
  const double n = 400'000, deviation = std::sqrt(n / 3 * 2 / 3);
  CHECK(std::abs(kept.eq(0).sum().item<double>() - n / 3) < 5 * deviation);
  CHECK(kept.max().item<double>() == Approx(1.5));
  CHECK(kept.mean().item<double>() == Approx(1).epsilon(5 * deviation * 1.5 / n));
}

TEST_CASE("a sequence has the same mask in every batch and dtype") {
  const at::Tensor together = mask(third(5));
  CHECK(at::cat({mask(third(2)), mask(third(3, 2))}).equal(together));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    CHECK(after_dropout(at::ones({5, 1003}, type), third(5)).eq(0).equal(together.eq(0)));
  }
}

TEST_CASE("seeds, sequences and places have different masks") {
  const at::Tensor first = mask(third(1));
  for (const Dropout& other : {third(1, 1), third(1, int64_t{1} << 32), third(1, 0, 1), third(1, 0, 0, 8),
                               third(1, 0, 0, 7 + (uint64_t{1} << 32))}) {
    // Of independent masks, 5 of 9 elements are alike.
    CHECK(mask(other).eq(first).sum().item<double>() == Approx(1003 * 5 / 9).margin(100));
  }
}

TEST_CASE("with rate 0, no tensor is copied") {
  const at::Tensor x = at::randn({2, 3});
  CHECK(after_dropout(x, {}).is_same(x));
}

TEST_CASE("the gradients of attention with dropout agree with autograd") {
  const auto leaf = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble).requires_grad_(); };
  const at::Tensor q = leaf({2, 5, 3, 4}), k = leaf({2, 7, 3, 4}), v = leaf({2, 7, 3, 4});
  const at::Tensor dout = at::randn({2, 5, 3, 4}, at::kDouble);
  const RelativeAttention call{.dropout = third(2)};
  const at::Tensor kept = after_dropout(at::ones({2, 3, 5, 7}, at::kDouble), call.dropout);
  const auto heads = [](const at::Tensor& x) { return x.transpose(1, 2); };
  const at::Tensor p = heads(q).matmul(heads(k).transpose(2, 3)).softmax(-1).mul(kept);
  const at::Tensor expected = p.matmul(heads(v)).transpose(1, 2);
  expected.backward(dout);
  const AttentionOutput made = relative_attention_forward(q.detach(), k.detach(), v.detach(), call);
  CHECK(relative_error(made.out, expected.detach()) < 1e-12);
  const auto gradients = relative_attention_backward(dout, q.detach(), k.detach(), v.detach(), made, call);
  CHECK(relative_error(gradients.dq, q.grad()) < 1e-12);
  CHECK(relative_error(gradients.dk, k.grad()) < 1e-12);
  CHECK(relative_error(gradients.dv, v.grad()) < 1e-12);
}

}  // namespace mpzero::model
