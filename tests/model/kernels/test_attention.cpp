#include <ATen/ops/randn.h>

#include "model/kernels/attention.hpp"
#include "model/kernels/cpu/attention.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/oracle.hpp"
#include "tests/skip.hpp"

namespace mpzero::model {
namespace {

struct Case {
  int64_t batch, length, heads, key_value_heads, head_dim;
  bool causal = true;
  std::vector<int32_t> ends = {};  // of packed documents
};

const std::vector<Case> kCases{{1, 1, 1, 1, 2},
                               {2, 37, 4, 2, 16},
                               {1, 130, 6, 2, 32},
                               {3, 64, 8, 1, 24},
                               {2, 37, 4, 2, 16, false},
                               {1, 130, 6, 2, 32, true, {0, 1, 70, 71, 130}},
                               {1, 40, 4, 1, 16, false, {0, 13, 40}}};
// Sizes of heads that the CPU's own kernel takes.
const std::vector<Case> kCpuCases{{1, 1, 1, 1, 32},
                                  {2, 37, 4, 2, 32},
                                  {1, 200, 6, 2, 64},
                                  {3, 64, 8, 1, 96},
                                  {1, 129, 1, 1, 256},
                                  {2, 200, 4, 2, 32, false},
                                  {1, 300, 4, 2, 32, true, {0, 1, 2, 64, 65, 200, 300}},
                                  {1, 300, 4, 1, 64, true, {0, 190, 192, 300}},
                                  {1, 200, 2, 1, 32, false, {0, 70, 71, 200}}};

// Output and gradients of one kernel against autograd through LibTorch's attention in fp64.
void check_kernel(AttentionKernel kernel, at::ScalarType type, double tolerance,
                  const std::vector<Case>& cases = kCases) {
  for (const Case& c : cases) {
    // Views of one packed projection, as in the decoder.
    const at::Tensor packed = at::randn({c.batch, c.length, c.heads + 2 * c.key_value_heads, c.head_dim}, at::kDouble)
                                  .to(type)
                                  .to(at::kDouble);
    const at::Tensor leaf = packed.clone().set_requires_grad(true);
    const auto parts = [&](const at::Tensor& x) {
      return x.split_with_sizes({c.heads, c.key_value_heads, c.key_value_heads}, 2);
    };
    const auto wide = parts(leaf);
    // Each document alone.
    std::vector<at::Tensor> outs;
    const std::vector<int32_t> ends = c.ends.empty() ? std::vector<int32_t>{0, static_cast<int32_t>(c.length)} : c.ends;
    for (size_t i = 1; i < ends.size(); ++i) {
      const auto part = [&](const at::Tensor& x) { return x.narrow(1, ends[i - 1], ends[i] - ends[i - 1]); };
      outs.push_back(oracle::attention(part(wide[0]), part(wide[1]), part(wide[2]), c.causal));
    }
    const at::Tensor expected = at::cat(outs, 1);
    const AttentionMask mask{c.causal, c.ends.empty() ? nullptr : documents_on(at::kCPU, c.ends, c.length)};
    const at::Tensor dout = at::randn(expected.sizes(), at::kDouble).to(type);
    const auto expected_gradients = parts(oracle::gradients(expected, {leaf}, dout.to(at::kDouble))[0]);

    const auto in = parts(packed.to(type));
    const AttentionOutput out = attention_forward(kernel, in[0], in[1], in[2], mask);
    const AttentionGradients gradients = attention_backward(kernel, dout, in[0], in[1], in[2], out, mask);
    CHECK(relative_error(out.out, expected.detach()) < tolerance);
    // A single token attends only to itself: its dq and dk are zero up to rounding.
    if (c.length > 1) {
      CHECK(relative_error(gradients.dq, expected_gradients[0]) < tolerance);
      CHECK(relative_error(gradients.dk, expected_gradients[1]) < tolerance);
    }
    CHECK(relative_error(gradients.dv, expected_gradients[2]) < tolerance);
    const AttentionGradients again = attention_backward(kernel, dout, in[0], in[1], in[2], out, mask);
    CHECK(bitwise_equal(again.dk, gradients.dk));
  }
}

}  // namespace

TEST_CASE("attention with ATen operators agrees with autograd") {
  check_kernel(AttentionKernel::kMath, at::kDouble, 1e-11);
}

TEST_CASE("attention on the CPU agrees with autograd") {
  SECTION("fp32") { check_kernel(AttentionKernel::kCpuFlash, at::kFloat, 1e-5); }
  SECTION("bf16") { check_kernel(AttentionKernel::kCpuFlash, at::kBFloat16, 2e-2); }
}

TEST_CASE("attention in blocks on the CPU agrees with autograd", "[avx512]") {
  if (!cpu::has_attention(at::kFloat, 32)) {
    skip_test("this CPU has no AVX-512");
    return;
  }
  check_kernel(AttentionKernel::kCpuBlocks, at::kFloat, 1e-5, kCpuCases);
}

TEST_CASE("attention in blocks on the CPU agrees with autograd in bf16", "[avx512bf16]") {
  if (!cpu::has_attention(at::kBFloat16, 32)) {
    skip_test("this CPU has no AVX512_BF16");
    return;
  }
  check_kernel(AttentionKernel::kCpuBlocks, at::kBFloat16, 2e-2, kCpuCases);
}

TEST_CASE("the CPU kernel is selected by dtype") {
  CHECK(choose_attention_kernel(at::randn({1, 2, 3, 4}, at::kDouble)) == AttentionKernel::kMath);
  CHECK(choose_attention_kernel(at::randn({1, 2, 3, 4}, at::kFloat)) == AttentionKernel::kCpuFlash);
  CHECK(choose_attention_kernel(at::randn({1, 2, 3, 4}, at::kFloat).to(at::kBFloat16)) == AttentionKernel::kCpuFlash);
  const auto blocks = [](at::ScalarType type) {
    return cpu::has_attention(type, 64) ? AttentionKernel::kCpuBlocks : AttentionKernel::kCpuFlash;
  };
  CHECK(choose_attention_kernel(at::kCPU, at::kFloat, 64) == blocks(at::kFloat));
  CHECK(choose_attention_kernel(at::kCPU, at::kBFloat16, 64) == blocks(at::kBFloat16));
}

}  // namespace mpzero::model
