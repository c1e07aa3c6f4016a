// Biases, recomputation and the memory of a layer on the GPU.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <cmath>

#include "model/kernels/column_sum.hpp"
#include "model/kernels/cuda.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/swiglu.hpp"
#include "model/matmuls.hpp"
#include "model/operation/launch.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"
#include "tests/model/storages.hpp"

namespace mpzero::model {
namespace {

const std::vector<at::ScalarType> kTypes{at::kFloat, at::kBFloat16};

at::Tensor random(at::IntArrayRef shape, at::ScalarType type, double scale = 1.0) {
  return at::randn(shape, at::kDouble).mul_(scale).to(type).to(at::kCUDA);
}

}  // namespace

TEST_CASE("sums over columns on the GPU", "[kernels]") {
  if (!has_gpu()) return;
  for (const at::ScalarType type : kTypes) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {1, 8}, {3, 7}, {17, 1152}, {2048, 1152}, {16384, 1152}, {8192, 4608}, {999, 4097}, {40, 70000}}) {
      INFO(type << " " << rows << "x" << columns);
      const at::Tensor x = random({rows, columns}, type).add_(0.5);
      REQUIRE(has_kernels(x));
      const at::Tensor parts = column_sum_rows(x);
      const at::Tensor expected = x.to(at::kCPU, at::kDouble).sum(0);
      CHECK(parts.scalar_type() == at::kFloat);
      CHECK(relative_error(parts.to(at::kDouble).sum(0), expected) < 1e-5);
      CHECK(bitwise_equal(column_sum_rows(x), parts));
    }
    // An address that does not allow vector loads.
    const at::Tensor apart = random({33 * 16 + 1}, type).narrow(0, 1, 33 * 16).view({33, 16});
    CHECK(relative_error(column_sum_rows(apart).sum(0), apart.to(at::kCPU, at::kDouble).sum(0)) < 1e-5);
  }
  CHECK(column_sum_rows(random({0, 5}, at::kFloat)).size(0) == 0);
}

TEST_CASE("matmuls with a bias on the GPU") {
  if (!has_gpu()) return;
  Matmuls matmuls;
  for (const at::ScalarType type : kTypes) {
    for (const auto& [rows, in, out] :
         std::vector<std::array<int64_t, 3>>{{1, 8, 16}, {7, 9, 11}, {100, 64, 136}, {513, 896, 1152}}) {
      INFO(type << " " << rows << "x" << in << "x" << out);
      const at::Tensor a = random({rows, in}, type), weight = random({out, in}, type);
      const auto wide = [](const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); };
      for (int turn = 0; turn < 3; ++turn) {  // the first one tunes; each has its own bias
        const at::Tensor bias = random({out}, type, 30.0);
        const at::Tensor expected = wide(a).matmul(wide(weight).t()) + wide(bias);
        CHECK(relative_error(matmuls.forward(a, weight, bias), expected) < (type == at::kFloat ? 2e-5 : 1.2e-2));
      }
      CHECK(relative_error(matmuls.forward(a, weight), wide(a).matmul(wide(weight).t())) <
            (type == at::kFloat ? 2e-5 : 1.2e-2));
    }
  }
}

TEST_CASE("backward passes on the GPU recompute the forward pass's result with the same bits", "[kernels]") {
  if (!has_gpu()) return;
  for (const at::ScalarType type : kTypes) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {5, 33}, {257, 128}, {1000, 896}, {999, 4096}, {65, 14336}}) {
      for (const double scale : {1.0, 200.0}) {
        INFO(type << " " << rows << "x" << columns << " scale " << scale);
        const at::Tensor gate_up = random({rows, 2 * columns}, type, scale), d = random({rows, columns}, type);
        const SwigluRecomputed both = swiglu_backward_recompute(d, gate_up);
        CHECK(bitwise_equal(both.y, swiglu_forward(gate_up)));
        CHECK(bitwise_equal(both.d_gate_up, swiglu_backward(d, gate_up)));

        const at::Tensor x = random({rows, columns}, type, scale), weight = random({columns}, type).add_(1.0);
        const RmsNormOutput out = rms_norm_forward(x, weight, 1e-6);
        for (const at::Tensor& residual : {at::Tensor(), d}) {
          const RmsNormGradients with_y = rms_norm_backward(d, x, weight, out.rstd, residual, /*with_y=*/true);
          const RmsNormGradients without = rms_norm_backward(d, x, weight, out.rstd, residual);
          CHECK(bitwise_equal(with_y.y, out.y));
          CHECK(bitwise_equal(with_y.dx, without.dx));
          CHECK(bitwise_equal(with_y.dweight_rows, without.dweight_rows));
          CHECK_FALSE(without.y.defined());
        }
      }
    }
  }
}

}  // namespace mpzero::model
