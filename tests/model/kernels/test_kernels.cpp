// The reference kernels against LibTorch autograd in fp64.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "model/kernels/column_sum.hpp"
#include "model/kernels/cross_entropy.hpp"
#include "model/kernels/embedding.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/swiglu.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/oracle.hpp"

namespace mpzero::model {
namespace {

at::Tensor leaf(at::IntArrayRef shape) { return at::randn(shape, at::kDouble).set_requires_grad(true); }

ModelConfig rope_config(int64_t head_dim) {
  ModelConfig config;
  config.head_dim = head_dim;
  config.rope_theta = 10000.0;
  return config;
}

}  // namespace

TEST_CASE("kernels compute the amax of their output") {
  const auto largest = [](const at::Tensor& x) { return x.abs().max().to(at::kFloat); };
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor x = at::randn({7, 96}).to(type), dy = at::randn({7, 48}).to(type);
    const at::Tensor weight = at::randn({96}).to(type);
    const auto zero = [] { return at::zeros({}, at::kFloat); };
    const auto check = [&](const at::Tensor& maximum, const at::Tensor& result) {
      INFO(type);
      CHECK(bitwise_equal(maximum, largest(result)));
    };
    at::Tensor maximum = zero(), of_y = zero();
    check(maximum, rms_norm_forward(x, weight, 1e-6, maximum).y);
    maximum = zero();
    check(maximum, swiglu_forward(x, maximum));
    maximum = zero();
    check(maximum, swiglu_backward(dy, x, maximum));
    maximum = zero();
    const SwigluRecomputed both = swiglu_backward_recompute(dy, x, maximum, of_y);
    check(maximum, both.d_gate_up);
    check(of_y, both.y);
    // It is raised, not set.
    maximum.fill_(1e9);
    swiglu_forward(x, maximum);
    CHECK(maximum.item<float>() == 1e9F);
  }
}

TEST_CASE("rms_norm and its backward agree with autograd") {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{1, 3}, {7, 24}, {2, 5, 33}}) {
    const at::Tensor x = leaf(shape), weight = leaf({shape.back()});
    const at::Tensor expected = at::rms_norm(x, {shape.back()}, weight, 1e-5);
    const at::Tensor dy = at::randn(shape, at::kDouble), dresidual = at::randn(shape, at::kDouble);
    const auto expected_gradients = oracle::gradients(expected, {x, weight}, dy);

    const RmsNormOutput out = rms_norm_forward(x.detach(), weight.detach(), 1e-5);
    const RmsNormGradients plain = rms_norm_backward(dy, x.detach(), weight.detach(), out.rstd, at::Tensor());
    const RmsNormGradients added = rms_norm_backward(dy, x.detach(), weight.detach(), out.rstd, dresidual, true);
    CHECK_FALSE(plain.y.defined());
    CHECK(bitwise_equal(added.y, out.y));
    CHECK(relative_error(out.y, expected.detach()) < 1e-12);
    CHECK(relative_error(plain.dx, expected_gradients[0]) < 1e-11);
    CHECK(relative_error(plain.dweight_rows.sum(0), expected_gradients[1]) < 1e-11);
    CHECK(relative_error(added.dx, expected_gradients[0] + dresidual) < 1e-11);
  }
}

TEST_CASE("bf16 rms_norm rounds the normalized input before the weight, as transformers does") {
  const at::Tensor x = at::randn({5, 64}, at::kFloat).to(at::kBFloat16);
  const at::Tensor weight = at::randn({64}, at::kFloat).to(at::kBFloat16);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor normalized = wide * (wide.pow(2).mean(-1, true) + 1e-6).rsqrt();
  CHECK(bitwise_equal(rms_norm_forward(x, weight, 1e-6).y, weight * normalized.to(at::kBFloat16)));
}

TEST_CASE("norm and RoPE of queries and keys agree with autograd") {
  for (const bool with_norm : {false, true}) {
    for (const int64_t head_dim : {2, 16, 30}) {
      const HeadCounts heads{6, 2};
      const int64_t batch = 2, length = 9;
      const at::Tensor qkv = leaf({batch, length, heads.query + 2 * heads.key_value, head_dim});
      const at::Tensor query_weight = leaf({head_dim}), key_weight = leaf({head_dim});
      const RopeTables tables = RopeTable(rope_config(head_dim)).get(length, qkv.options());
      at::Tensor q = qkv.narrow(2, 0, 6), k = qkv.narrow(2, 6, 2);
      const at::Tensor v = qkv.narrow(2, 8, 2);
      if (with_norm) {
        q = at::rms_norm(q, {head_dim}, query_weight, 1e-6);
        k = at::rms_norm(k, {head_dim}, key_weight, 1e-6);
      }
      const at::Tensor expected = at::cat({oracle::rope(q, tables), oracle::rope(k, tables), v}, 2);
      const at::Tensor seed = at::randn(expected.sizes(), at::kDouble);
      std::vector<at::Tensor> inputs{qkv};
      if (with_norm) inputs = {qkv, query_weight, key_weight};
      const auto expected_gradients = oracle::gradients(expected, inputs, seed);

      QkNormWeights norm;
      if (with_norm) norm = {query_weight.detach(), key_weight.detach(), 1e-6};
      at::Tensor packed = qkv.detach().clone();
      const at::Tensor out = qk_rope_forward(packed, heads, norm, tables);
      CHECK(out.is_alias_of(packed) == !with_norm);
      CHECK(packed.narrow(2, 8, 2).equal(qkv.detach().narrow(2, 8, 2)));
      const QkRopeGradients gradients = qk_rope_backward(seed.narrow(2, 0, 6), seed.narrow(2, 6, 2),
                                                         seed.narrow(2, 8, 2), qkv.detach(), heads, norm, tables);
      CHECK(relative_error(out, expected.detach().narrow(2, 0, 8)) < 1e-12);
      CHECK(relative_error(gradients.dqkv, expected_gradients[0]) < 1e-11);
      CHECK(gradients.dquery_weight_rows.defined() == with_norm);
      if (with_norm) {
        CHECK(relative_error(gradients.dquery_weight_rows.sum(0), expected_gradients[1]) < 1e-11);
        CHECK(relative_error(gradients.dkey_weight_rows.sum(0), expected_gradients[2]) < 1e-11);
      }
    }
  }
}

TEST_CASE("sums over columns agree with fp64, in bf16 too") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({300, 7}, at::kDouble).add_(3.0).to(type);
    const at::Tensor rows = column_sum_rows(x);
    CHECK(rows.scalar_type() == (type == at::kDouble ? at::kDouble : at::kFloat));
    CHECK(relative_error(rows.sum(0), x.to(at::kDouble).sum(0)) < 1e-6);
  }
  CHECK(relative_error(column_sum_rows(at::zeros({0, 5})).sum(0), at::zeros({5})) == 0);
}

TEST_CASE("swiglu and its backward agree with autograd") {
  const at::Tensor gate_up = leaf({11, 2 * 13});
  const at::Tensor expected = at::silu(gate_up.narrow(1, 0, 13)) * gate_up.narrow(1, 13, 13);
  const at::Tensor dy = at::randn({11, 13}, at::kDouble);
  const auto expected_gradients = oracle::gradients(expected, {gate_up}, dy);
  CHECK(relative_error(swiglu_forward(gate_up.detach()), expected.detach()) < 1e-12);
  CHECK(relative_error(swiglu_backward(dy, gate_up.detach()), expected_gradients[0]) < 1e-12);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor typed = gate_up.detach().to(type), typed_dy = dy.to(type);
    const SwigluRecomputed both = swiglu_backward_recompute(typed_dy, typed);
    CHECK(bitwise_equal(both.y, swiglu_forward(typed)));
    CHECK(bitwise_equal(both.d_gate_up, swiglu_backward(typed_dy, typed)));
  }
}

TEST_CASE("cross entropy and its gradient agree with autograd, with large logits too") {
  for (const double spread : {1.0, 300.0}) {
    const at::Tensor logits = at::randn({7, 19}, at::kDouble).mul_(spread).set_requires_grad(true);
    const at::Tensor targets = at::randint(19, {7}, at::kLong);
    const at::Tensor expected = at::cross_entropy_loss(logits, targets, {}, /*reduction=*/0);
    const auto expected_gradients = oracle::gradients(expected.sum() * 0.25, {logits}, at::ones({}, at::kDouble));

    at::Tensor in_place = logits.detach().clone();
    const at::Tensor losses = cross_entropy_forward_backward_(in_place, targets, 0.25);
    CHECK(relative_error(losses, expected.detach()) < 1e-12);
    CHECK(relative_error(cross_entropy_forward(logits.detach(), targets), expected.detach()) < 1e-12);
    CHECK(relative_error(in_place, expected_gradients[0]) < 1e-12);
  }
}

TEST_CASE("the embedding's gradient agrees with autograd if tokens repeat") {
  const at::Tensor weight = leaf({17, 6});
  const at::Tensor tokens = at::randint(5, {64}, at::kLong);
  const at::Tensor dy = at::randn({64, 6}, at::kDouble);
  const auto expected = oracle::gradients(at::embedding(weight, tokens), {weight}, dy);
  at::Tensor gradient = at::zeros({17, 6}, at::kDouble);
  embedding_backward(gradient, tokens, dy);
  CHECK(relative_error(gradient, expected[0]) < 1e-13);
  embedding_backward(gradient, tokens, dy);
  CHECK(relative_error(gradient, expected[0] * 2) < 1e-13);
}

}  // namespace mpzero::model
