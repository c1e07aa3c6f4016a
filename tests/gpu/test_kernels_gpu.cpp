// The model's kernels on the GPU, one by one, against the same in fp64 on the CPU.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "model/kernels/attention.hpp"
#include "model/kernels/cross_entropy.hpp"
#include "model/kernels/cuda.hpp"
#include "model/kernels/embedding.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/kernels/relative_attention.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/row_sum.hpp"
#include "model/kernels/swiglu.hpp"
#include "model/operation/launch.hpp"
#include "model/rope_table.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/compare.hpp"

namespace mpzero::model {
namespace {

// A type, and the tolerance of its results against fp64, relative to the largest value.
struct Precision {
  at::ScalarType type;
  double tolerance;
};

const std::vector<Precision> kPrecisions{{at::kFloat, 2e-5}, {at::kBFloat16, 1.2e-2}};

// The same values twice: in fp64 on the CPU, and on the GPU in a type that holds them exactly.
struct Pair {
  at::Tensor exact;
  at::Tensor gpu;

  Pair(at::IntArrayRef shape, at::ScalarType type, double scale = 1.0, double center = 0.0)
      : Pair(at::randn(shape, at::kDouble).mul_(scale).add_(center), type) {}
  Pair(const at::Tensor& values, at::ScalarType type)
      : exact(values.to(type).to(at::kDouble)), gpu(values.to(type).to(at::kCUDA)) {}
  Pair narrow(int64_t dim, int64_t begin, int64_t count) const {
    Pair part = *this;
    part.exact = exact.narrow(dim, begin, count);
    part.gpu = gpu.narrow(dim, begin, count);
    return part;
  }
};

}  // namespace

TEST_CASE("rms_norm on the GPU", "[kernels]") {
  if (!has_gpu()) return;
  for (const auto& [type, tolerance] : kPrecisions) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{1, 8},
                                                                                {3, 7},
                                                                                {5, 33},
                                                                                {257, 128},
                                                                                {9, 600},
                                                                                {1000, 1024},
                                                                                {4099, 1024},
                                                                                {2500, 896},
                                                                                {5000, 512},
                                                                                {600, 2048},
                                                                                {700, 5120},
                                                                                {2048, 4096},
                                                                                {4, 16384}}) {
      for (const double scale : {1.0, 1e3, 1e-4}) {
        INFO(type << " " << rows << "x" << columns << " scale " << scale);
        const Pair x({rows, columns}, type, scale), weight({columns}, type, 0.3, 1.0), dy({rows, columns}, type),
            residual({rows, columns}, type);
        const RmsNormOutput expected = reference::rms_norm_forward(x.exact, weight.exact, 1e-6);
        const RmsNormGradients expected_gradients =
            reference::rms_norm_backward(dy.exact, x.exact, weight.exact, expected.rstd, residual.exact);
        REQUIRE(has_kernels(x.gpu));
        const RmsNormOutput out = rms_norm_forward(x.gpu, weight.gpu, 1e-6);
        const auto backward = [&] { return rms_norm_backward(dy.gpu, x.gpu, weight.gpu, out.rstd, residual.gpu); };
        const RmsNormGradients gradients = backward();
        CHECK(relative_error(out.y, expected.y) < tolerance);
        CHECK(relative_error(out.rstd, expected.rstd) < 1e-5);
        CHECK(relative_error(gradients.dx, expected_gradients.dx) < tolerance);
        CHECK(relative_error(gradients.dweight_rows.sum(0), expected_gradients.dweight_rows.sum(0)) < tolerance);
        CHECK(bitwise_equal(backward().dweight_rows, gradients.dweight_rows));
        const RmsNormGradients plain = rms_norm_backward(dy.gpu, x.gpu, weight.gpu, out.rstd, at::Tensor());
        CHECK(relative_error(plain.dx, expected_gradients.dx - residual.exact) < tolerance);
      }
    }
  }
}

TEST_CASE("norm and RoPE of queries and keys on the GPU", "[kernels]") {
  if (!has_gpu()) return;
  for (const auto& [type, tolerance] : kPrecisions) {
    for (const bool with_norm : {false, true}) {
      for (const int64_t head_dim : {6, 32, 64, 80, 128, 256}) {
        INFO(type << " norm " << with_norm << " head_dim " << head_dim);
        const HeadCounts heads{6, 2};
        const int64_t batch = 3, length = 77;
        ModelConfig config;
        config.head_dim = head_dim;
        config.rope_theta = 10000.0;
        const Pair qkv({batch, length, 10, head_dim}, type), d({batch, 10, length, head_dim}, type);
        const Pair query_weight({head_dim}, type, 0.3, 1.0), key_weight({head_dim}, type, 0.3, 1.0);
        RopeTable table(config);
        const RopeTables gpu_tables = table.get(length, qkv.gpu.options());
        const RopeTables tables{gpu_tables.cos.to(at::kCPU, at::kDouble), gpu_tables.sin.to(at::kCPU, at::kDouble)};
        QkNormWeights norm, gpu_norm;
        if (with_norm) norm = {query_weight.exact, key_weight.exact, 1e-6};
        if (with_norm) gpu_norm = {query_weight.gpu, key_weight.gpu, 1e-6};
        // Gradients arrive as views with the heads dimension before the tokens.
        const auto part = [](const at::Tensor& x, int64_t begin, int64_t count) {
          return x.narrow(1, begin, count).transpose(1, 2);
        };
        const auto backward = [&](const at::Tensor& dy, const at::Tensor& in, const QkNormWeights& n,
                                  const RopeTables& t) {
          return qk_rope_backward(part(dy, 0, 6), part(dy, 6, 2), part(dy, 8, 2), in, heads, n, t);
        };
        at::Tensor exact = qkv.exact.clone(), gpu = qkv.gpu.clone();  // rotated in place if there are no norms
        CHECK(relative_error(qk_rope_forward(gpu, heads, gpu_norm, gpu_tables),
                             qk_rope_forward(exact, heads, norm, tables)) < tolerance);
        CHECK(bitwise_equal(gpu.narrow(2, 8, 2), qkv.gpu.narrow(2, 8, 2)));
        const QkRopeGradients expected = backward(d.exact, qkv.exact, norm, tables);
        const QkRopeGradients gradients = backward(d.gpu, qkv.gpu, gpu_norm, gpu_tables);
        CHECK(relative_error(gradients.dqkv, expected.dqkv) < tolerance);
        CHECK(gradients.dkey_weight_rows.defined() == with_norm);
        if (with_norm) {
          CHECK(relative_error(gradients.dquery_weight_rows.sum(0), expected.dquery_weight_rows.sum(0)) < tolerance);
          CHECK(relative_error(gradients.dkey_weight_rows.sum(0), expected.dkey_weight_rows.sum(0)) < tolerance);
          CHECK(bitwise_equal(backward(d.gpu, qkv.gpu, gpu_norm, gpu_tables).dkey_weight_rows,
                              gradients.dkey_weight_rows));
        }
      }
    }
  }
}

TEST_CASE("sums over rows on the GPU", "[kernels]") {
  if (!has_gpu()) return;
  for (const auto& [type, tolerance] : kPrecisions) {
    for (const auto& [count, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 5}, {1, 1}, {33, 31}, {528, 128}, {1056, 4096}}) {
      INFO(type << " " << count << "x" << columns);
      const Pair wide({count, columns + 3}, at::kFloat), before({columns}, type);
      const Pair rows = wide.narrow(1, 1, columns);
      const at::Tensor sum = rows.exact.sum(0);
      at::Tensor out = before.gpu.clone();
      row_sum(rows.gpu, out, /*overwrite=*/false);
      CHECK(relative_error(out, before.exact + sum) < tolerance);
      row_sum(rows.gpu, out, /*overwrite=*/true);
      CHECK(relative_error(out, sum) < tolerance);
    }
  }
}

TEST_CASE("many sums over rows in one call on the GPU", "[kernels]") {
  if (!has_gpu()) return;
  // More sums than fit into one launch, of both types, adding and overwriting, one of zero rows.
  std::vector<RowSum> sums;
  std::vector<at::Tensor> expected;
  for (int i = 0; i < 19; ++i) {
    const at::ScalarType type = i % 3 == 0 ? at::kFloat : at::kBFloat16;
    const int64_t count = i == 5 ? 0 : 1 + 37 * i, columns = 1 + 65 * ((i * 7) % 19);
    const Pair rows({count, columns}, at::kFloat), before({columns}, type);
    const bool overwrite = i % 2 == 0;
    sums.push_back({rows.gpu, before.gpu, overwrite});
    expected.push_back(overwrite ? rows.exact.sum(0) : before.exact + rows.exact.sum(0));
  }
  row_sums(sums);
  for (size_t i = 0; i < sums.size(); ++i) {
    INFO("sum " << i);
    CHECK(relative_error(sums[i].out, expected[i]) < (sums[i].out.scalar_type() == at::kFloat ? 2e-5 : 1.2e-2));
  }
}

TEST_CASE("swiglu on the GPU", "[kernels]") {
  if (!has_gpu()) return;
  for (const auto& [type, tolerance] : kPrecisions) {
    for (const auto& [rows, inner] :
         std::vector<std::pair<int64_t, int64_t>>{{3, 9}, {7, 13}, {300, 3072}, {64, 14336}}) {
      for (const double scale : {1.0, 200.0}) {
        INFO(type << " " << rows << "x" << inner << " scale " << scale);
        const Pair gate_up({rows, 2 * inner}, type, scale), dy({rows, inner}, type);
        CHECK(relative_error(swiglu_forward(gate_up.gpu), swiglu_forward(gate_up.exact)) < tolerance);
        CHECK(relative_error(swiglu_backward(dy.gpu, gate_up.gpu), swiglu_backward(dy.exact, gate_up.exact)) <
              tolerance);
      }
    }
  }
}

TEST_CASE("cross entropy on the GPU", "[kernels]") {
  if (!has_gpu()) return;
  for (const auto& [type, tolerance] : kPrecisions) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{1, 2},
                                                                                {9, 53},
                                                                                {65, 1000},
                                                                                {3, 20011},
                                                                                {300, 16384},
                                                                                {7, 32000},
                                                                                {17, 128256},
                                                                                {5, 151936},
                                                                                {2, 262144}}) {
      for (const double scale : {1.0, 100.0}) {
        INFO(type << " " << rows << "x" << columns << " scale " << scale);
        const Pair logits({rows, columns}, type, scale);
        const at::Tensor targets = at::randint(columns, {rows}, at::kLong), gpu_targets = targets.to(at::kCUDA);
        at::Tensor expected = logits.exact.clone(), in_place = logits.gpu.clone();
        const at::Tensor losses = cross_entropy_forward_backward_(expected, targets, 0.125);
        // If one logit is much larger than the others, loss and gradient are small differences: log-sum-exp minus
        // logit, and probability minus one. They are exact to the rounding of these terms, not to their own size.
        CHECK(relative_error(cross_entropy_forward(logits.gpu, gpu_targets), losses, scale) < 1e-5);
        CHECK(relative_error(cross_entropy_forward_backward_(in_place, gpu_targets, 0.125), losses, scale) < 1e-5);
        CHECK(relative_error(in_place, expected, 0.125) < tolerance);

        const at::Tensor weights = at::rand({rows}, at::kFloat);
        at::Tensor weighted = logits.exact.clone(), weighted_in_place = logits.gpu.clone();
        cross_entropy_forward_backward_(weighted, targets, 0.125, weights);
        cross_entropy_forward_backward_(weighted_in_place, gpu_targets, 0.125, weights.to(at::kCUDA));
        CHECK(relative_error(weighted_in_place, weighted, 0.125) < tolerance);
      }
    }
  }
}

TEST_CASE("a target outside the vocabulary makes the loss NaN on the GPU", "[kernels]") {
  if (!has_gpu()) return;
  const at::Tensor logits = at::randn({2, 10}).to(at::kCUDA);
  at::Tensor targets = at::zeros({2}, at::kLong);
  targets[1] = 10;
  const at::Tensor losses = cross_entropy_forward(logits, targets.to(at::kCUDA));
  CHECK_FALSE(losses[0].isnan().item<bool>());
  CHECK(losses[1].isnan().item<bool>());
}

TEST_CASE("cross entropy of long rows with masked logits, and with targets outside the vocabulary, on the GPU",
          "[kernels]") {
  if (!has_gpu()) return;
  const int64_t columns = 151936;
  at::Tensor values = at::randn({4, columns}, at::kDouble);
  values[0].narrow(0, 0, columns - 1).fill_(-std::numeric_limits<double>::infinity());
  values[1].narrow(0, 1000, 140000).fill_(-std::numeric_limits<double>::infinity());
  const Pair logits(values, at::kBFloat16);
  const at::Tensor targets = at::zeros({4}, at::kLong);
  targets[0] = columns - 1;
  at::Tensor expected = logits.exact.clone(), in_place = logits.gpu.clone();
  const at::Tensor losses = cross_entropy_forward_backward_(expected, targets, 1.0);
  CHECK(relative_error(cross_entropy_forward_backward_(in_place, targets.to(at::kCUDA), 1.0), losses) < 1e-5);
  CHECK(relative_error(in_place, expected) < 1.2e-2);
  targets[2] = columns;
  targets[3] = -1;
  in_place = logits.gpu.clone();
  const at::Tensor outside = cross_entropy_forward_backward_(in_place, targets.to(at::kCUDA), 1.0);
  CHECK(relative_error(outside.narrow(0, 0, 2), losses.narrow(0, 0, 2)) < 1e-5);
  CHECK(outside.narrow(0, 2, 2).isnan().all().item<bool>());
}

TEST_CASE("the embedding's gradient on the GPU", "[kernels]") {
  if (!has_gpu()) return;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const auto& [count, vocabulary, columns] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {1, 3, 5}, {1000, 3, 33}, {4096, 50000, 1024}, {777, 1, 16}}) {
      const Pair values({count, columns}, type);
      const at::Tensor rows = at::randint(vocabulary, {count}, at::kLong), gpu_rows = rows.to(at::kCUDA);
      at::Tensor expected = at::zeros({vocabulary, columns}, at::kDouble);
      embedding_backward(expected, rows, values.exact);
      const auto run = [&] {
        at::Tensor gradient = at::zeros({vocabulary, columns}, at::TensorOptions().device(at::kCUDA).dtype(at::kFloat));
        embedding_backward(gradient, gpu_rows, values.gpu);
        return gradient;
      };
      const at::Tensor gradient = run();
      CHECK(relative_error(gradient, expected) < 1e-5);
      CHECK(bitwise_equal(run(), gradient));
      // Into a non-empty bf16 gradient, also at an address that does not allow vector access.
      for (const int64_t offset : {0, 1}) {
        const Pair before({vocabulary * columns + offset}, at::kBFloat16);
        const at::Tensor sum = before.gpu.narrow(0, offset, vocabulary * columns).view({vocabulary, columns});
        embedding_backward(sum, gpu_rows, values.gpu);
        const at::Tensor exact = before.exact.narrow(0, offset, vocabulary * columns).view({vocabulary, columns});
        CHECK(relative_error(sum, exact + expected) < 1.2e-2);
      }
    }
  }
}

TEST_CASE("attention on the GPU") {
  if (!has_gpu()) return;
  struct Case {
    AttentionKernel kernel;
    at::ScalarType type;
    double tolerance;
  };
  for (const auto& [kernel, type, tolerance] : std::vector<Case>{{AttentionKernel::kMath, at::kFloat, 2e-5},
                                                                 {AttentionKernel::kEfficient, at::kFloat, 2e-5},
                                                                 {AttentionKernel::kCudnn, at::kBFloat16, 2e-2},
                                                                 {AttentionKernel::kFlash, at::kBFloat16, 2e-2},
                                                                 {AttentionKernel::kMath, at::kBFloat16, 2e-2}}) {
    for (const auto& [batch, length, heads, kv_heads, head_dim] : std::vector<std::array<int64_t, 5>>{
             {2, 64, 4, 2, 64}, {1, 300, 6, 2, 128}, {3, 129, 8, 8, 64}, {1, 1024, 4, 1, 128}}) {
      INFO("kernel " << static_cast<int>(kernel) << " length " << length << " head_dim " << head_dim);
      const Pair packed({batch, length, heads + 2 * kv_heads, head_dim}, type);
      const Pair q = packed.narrow(2, 0, heads), k = packed.narrow(2, heads, kv_heads),
                 v = packed.narrow(2, heads + kv_heads, kv_heads);
      const Pair dout({batch, length, heads, head_dim}, type);
      const AttentionOutput expected = attention_forward(AttentionKernel::kMath, q.exact, k.exact, v.exact);
      const AttentionGradients expected_gradients =
          attention_backward(AttentionKernel::kMath, dout.exact, q.exact, k.exact, v.exact, expected);
      const AttentionOutput out = attention_forward(kernel, q.gpu, k.gpu, v.gpu);
      const AttentionGradients gradients = attention_backward(kernel, dout.gpu, q.gpu, k.gpu, v.gpu, out);
      CHECK(relative_error(out.out, expected.out) < tolerance);
      CHECK(relative_error(gradients.dq, expected_gradients.dq) < tolerance);
      CHECK(relative_error(gradients.dk, expected_gradients.dk) < tolerance);
      CHECK(relative_error(gradients.dv, expected_gradients.dv) < tolerance);
    }
  }
}

// The oracle: ATen's operators in fp64, document by document.
TEST_CASE("attention of packed documents on the GPU") {
  if (!has_gpu()) return;
  const std::vector<std::vector<int32_t>> packings{{0, 1, 2, 300}, {0, 128, 256, 300}, {0, 1, 130, 131, 300}};
  for (const auto& [kernel, type, tolerance] : {std::tuple(AttentionKernel::kEfficient, at::kFloat, 2e-5),
                                                std::tuple(AttentionKernel::kFlash, at::kBFloat16, 2e-2),
                                                std::tuple(AttentionKernel::kMath, at::kBFloat16, 2e-2)}) {
    for (const std::vector<int32_t>& ends : packings) {
      for (const bool causal : {true, false}) {
        for (const auto& [heads, kv_heads, head_dim] : {std::array{4, 2, 64}, std::array{2, 2, 128}}) {
          INFO("kernel " << static_cast<int>(kernel) << " documents " << ends.size() - 1 << " head_dim " << head_dim);
          const Pair packed({1, 300, heads + 2 * kv_heads, head_dim}, type);
          const Pair q = packed.narrow(2, 0, heads), k = packed.narrow(2, heads, kv_heads),
                     v = packed.narrow(2, heads + kv_heads, kv_heads);
          const Pair dout({1, 300, heads, head_dim}, type);
          const AttentionMask exact{causal, documents_on(at::kCPU, ends, 300)};
          const AttentionMask mask{causal, documents_on(at::kCUDA, ends, 300)};
          const AttentionOutput expected = attention_forward(AttentionKernel::kMath, q.exact, k.exact, v.exact, exact);
          const AttentionGradients expected_gradients =
              attention_backward(AttentionKernel::kMath, dout.exact, q.exact, k.exact, v.exact, expected, exact);
          const AttentionOutput out = attention_forward(kernel, q.gpu, k.gpu, v.gpu, mask);
          const AttentionGradients gradients = attention_backward(kernel, dout.gpu, q.gpu, k.gpu, v.gpu, out, mask);
          CHECK(relative_error(out.out, expected.out) < tolerance);
          CHECK(relative_error(gradients.dq, expected_gradients.dq) < tolerance);
          CHECK(relative_error(gradients.dk, expected_gradients.dk) < tolerance);
          CHECK(relative_error(gradients.dv, expected_gradients.dv) < tolerance);
        }
      }
    }
  }
}

TEST_CASE("deterministic attention has reproducible bits on long sequences") {
  if (!has_gpu()) return;
  const Deterministic on(true);
  const at::Tensor packed = at::randn({1, 8192, 8, 128}).to(at::kBFloat16).to(at::kCUDA);
  const at::Tensor q = packed.narrow(2, 0, 4), k = packed.narrow(2, 4, 2), v = packed.narrow(2, 6, 2);
  const at::Tensor dout = at::randn({1, 8192, 4, 128}).to(at::kBFloat16).to(at::kCUDA);
  for (const auto& documents :
       {std::shared_ptr<const Documents>(), documents_on(at::kCUDA, {0, 700, 701, 5000, 8192}, 8192)}) {
    const AttentionMask mask{.documents = documents};
    const AttentionKernel kernel = choose_attention_kernel(q, mask);
    const AttentionOutput out = attention_forward(kernel, q, k, v, mask);
    const AttentionGradients first = attention_backward(kernel, dout, q, k, v, out, mask);
    for (int i = 0; i < 5; ++i) {
      const AttentionGradients again = attention_backward(kernel, dout, q, k, v, out, mask);
      CHECK(bitwise_equal(again.dq, first.dq));
      CHECK(bitwise_equal(again.dk, first.dk));
      CHECK(bitwise_equal(again.dv, first.dv));
    }
  }
}

TEST_CASE("attention with relative positions on the GPU", "[kernels]") {
  if (!has_gpu()) return;
  constexpr int64_t kBatch = 3, kHeads = 4;
  const auto gpu_options = at::TensorOptions().dtype(at::kFloat).device(at::kCUDA);
  for (const auto& [type, tolerance] : kPrecisions) {
    for (const auto& [queries, keys, head_dim, causal, biased, padded] :
         std::vector<std::tuple<int64_t, int64_t, int64_t, bool, bool, bool>>{{64, 64, 64, false, true, false},
                                                                              {50, 50, 16, true, true, false},
                                                                              {1, 77, 64, true, true, false},
                                                                              {300, 300, 64, true, true, false},
                                                                              {40, 333, 64, false, false, true},
                                                                              {200, 200, 128, false, true, true},
                                                                              {30, 30, 20, false, true, true}}) {
      INFO(type << " " << queries << " x " << keys << " of " << head_dim << ", causal " << causal << ", padded "
                << padded);
      // Unscaled scores, of a few units as in a model.
      const Pair q({kBatch, queries, kHeads, head_dim}, type, 0.3), k({kBatch, keys, kHeads, head_dim}, type),
          v({kBatch, keys, kHeads, head_dim}, type), dout({kBatch, queries, kHeads, head_dim}, type),
          table({32, kHeads}, type);
      RelativeAttention exact{.causal = causal}, gpu = exact;
      if (biased) exact.table = table.exact, gpu.table = table.gpu;
      if (padded) {
        exact.padding = at::zeros({kBatch, keys}, at::kBool);
        exact.padding[1].narrow(0, keys - 7, 7).fill_(true);
        gpu.padding = exact.padding.to(at::kCUDA);
      }
      // What a kernel leaves unwritten is NaN.
      for (const int64_t size : {1, 1024, 1 << 18, 1 << 20}) at::full({size}, NAN, gpu_options);
      const AttentionOutput expected = relative_attention_forward(q.exact, k.exact, v.exact, exact),
                            actual = relative_attention_forward(q.gpu, k.gpu, v.gpu, gpu);
      CHECK(relative_error(actual.out, expected.out) < tolerance);
      const RelativeAttentionGradients of_exact =
          relative_attention_backward(dout.exact, q.exact, k.exact, v.exact, expected, exact);
      const RelativeAttentionGradients of_gpu = relative_attention_backward(dout.gpu, q.gpu, k.gpu, v.gpu, actual, gpu);
      CHECK(relative_error(of_gpu.dq, of_exact.dq) < tolerance);
      CHECK(relative_error(of_gpu.dk, of_exact.dk) < tolerance);
      CHECK(relative_error(of_gpu.dv, of_exact.dv) < tolerance);
      REQUIRE(of_gpu.dtable.defined() == biased);
      if (biased) CHECK(relative_error(of_gpu.dtable, of_exact.dtable) < tolerance);
    }
  }
}

}  // namespace mpzero::model
