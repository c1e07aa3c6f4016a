// Matrix products on the GPU against the same in fp64 on the CPU, and the effects of tuning.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <limits>
#include <map>

#include "model/gradient.hpp"
#include "model/kernels/cublas_lt.hpp"
#include "model/matmuls.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/compare.hpp"

namespace mpzero::model {
namespace {

using Sizes = std::array<int64_t, 3>;  // rows, in, out

// 16 bytes are 8 elements of bf16: most of these sizes break cuBLASLt's alignment in some operand.
const std::vector<Sizes> kSizes{{1, 8, 16},   {7, 9, 11},      {16, 24, 1},       {100, 64, 136},  {33, 72, 40},
                                {65, 130, 8}, {257, 896, 252}, {513, 1024, 3072}, {4096, 256, 512}};

struct Types {
  at::ScalarType operands, gradient;
  double tolerance;  // relative to the largest value
};
const std::vector<Types> kTypes{
    {at::kFloat, at::kFloat, 2e-5}, {at::kBFloat16, at::kBFloat16, 1.2e-2}, {at::kBFloat16, at::kFloat, 2e-5}};

at::Tensor on_gpu(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape, at::kDouble).to(type).to(at::kCUDA);
}

// Small integers: their products and sums are exact in bf16 operands and fp32 results, in any order.
at::Tensor whole_numbers(at::IntArrayRef shape) {
  return at::randint(-2, 3, shape, at::kDouble).to(at::kBFloat16).to(at::kCUDA);
}

at::Tensor exact(const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); }

at::Tensor poisoned(at::IntArrayRef shape, at::ScalarType type) {
  return at::full(shape, std::numeric_limits<double>::quiet_NaN(), at::TensorOptions().dtype(type).device(at::kCUDA));
}

}  // namespace

TEST_CASE("matmuls of all layouts, dtypes and odd shapes on the GPU") {
  if (!has_gpu()) return;
  for (const bool deterministic : {false, true}) {
    const Deterministic scope(deterministic);
    Matmuls matmuls;
    for (const auto& [type, gradient_type, tolerance] : kTypes) {
      for (const auto& [rows, in, out] : kSizes) {
        INFO(type << " into " << gradient_type << " " << rows << "x" << in << "x" << out << " deterministic "
                  << deterministic);
        const double forward_tolerance = type == at::kFloat ? 2e-5 : 1.2e-2;
        const at::Tensor a = on_gpu({rows, in}, type), weight = on_gpu({out, in}, type);
        const at::Tensor dy = on_gpu({rows, out}, type), bias = on_gpu({out}, type);
        const at::Tensor product = exact(a).matmul(exact(weight).t());
        const at::Tensor d_weight = exact(dy).t().matmul(exact(a));
        at::Tensor gradient = poisoned({out, in}, gradient_type), d_a = poisoned({rows, in}, type);
        for (int turn = 0; turn < 2; ++turn) {  // the first one tunes; the second tunes products that accumulate
          CHECK(relative_error(matmuls.forward(a, weight), product) < forward_tolerance);
          CHECK(relative_error(matmuls.forward(a, weight, bias), product + exact(bias)) < forward_tolerance);
          CHECK(relative_error(matmuls.forward(a, weight, dy), product + exact(dy)) < forward_tolerance);
          const at::Tensor expected_d_a = exact(dy).matmul(exact(weight));
          matmuls.data_gradient_out(d_a, dy, weight);
          CHECK(relative_error(d_a, expected_d_a) < forward_tolerance);
          CHECK(relative_error(matmuls.data_gradient(dy, weight), expected_d_a) < forward_tolerance);
          matmuls.weight_gradient_out(gradient, dy, a);
          CHECK(relative_error(gradient, d_weight) < tolerance);
          for (int times = 2; times <= 3; ++times) {
            matmuls.weight_gradient_out(gradient, dy, a, /*accumulate=*/true);
            CHECK(relative_error(gradient, d_weight * times) < tolerance * times);
          }
        }
      }
    }
    CHECK(matmuls.tuned().empty() == deterministic);
  }
}

TEST_CASE("addresses that cuBLASLt cannot use are supported") {
  if (!has_gpu()) return;
  Matmuls matmuls;
  for (const int64_t offset : {1, 8, 64}) {  // in elements: 2 bytes, the least alignment, half the full one
    INFO("offset " << offset);
    const int64_t rows = 64, in = 128, out = 72;
    const at::Tensor dy = on_gpu({rows, out}, at::kBFloat16);
    const at::Tensor x = on_gpu({rows * in + offset}, at::kBFloat16).narrow(0, offset, rows * in).view({rows, in});
    const at::Tensor flat = poisoned({out * in + 2 * offset}, at::kFloat);
    at::Tensor gradient = flat.narrow(0, offset, out * in).view({out, in});
    const at::Tensor expected = exact(dy).t().matmul(exact(x));
    for (int turn = 0; turn < 2; ++turn) {
      matmuls.weight_gradient_out(gradient, dy, x);
      CHECK(relative_error(gradient, expected) < 2e-5);
      matmuls.weight_gradient_out(gradient, dy, x, /*accumulate=*/true);
      CHECK(relative_error(gradient, expected * 2) < 4e-5);
    }
    CHECK(flat.narrow(0, 0, offset).isnan().all().item<bool>());
    CHECK(flat.narrow(0, offset + out * in, offset).isnan().all().item<bool>());
  }
}

TEST_CASE("tuning does not change accumulated sums") {
  if (!has_gpu()) return;
  const int64_t rows = 512, in = 256, out = 384;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Matmuls matmuls;
    // In bf16, integers are exact up to 256 only: few terms.
    const at::Tensor dy = type == at::kFloat ? whole_numbers({rows, out}) : whole_numbers({8, out});
    const at::Tensor x = whole_numbers({dy.size(0), in});
    const at::Tensor expected = exact(dy).t().matmul(exact(x));
    const at::Tensor start = whole_numbers({out, in}).to(type);
    Gradient gradient(start.clone(), /*empty=*/false);
    const auto check = [&](const at::Tensor& sum) {
      CHECK(exact(gradient.view()).equal(sum));
      gradient.add_matmul(dy, x, &matmuls);
    };
    INFO(type);
    // A product that accumulates before any tuning.
    check(exact(start));
    check(exact(start) + expected);
    for (int step = 0; step < 3; ++step) {
      gradient.reset();
      gradient.add_matmul(dy, x, &matmuls);
      for (int micro_batch = 1; micro_batch < 4; ++micro_batch) check(expected * micro_batch);
    }
    // Once for products that overwrite, once for products that accumulate.
    std::map<bool, int> tuned;
    for (const TunedMatmul& matmul : matmuls.tuned()) {
      ++tuned[matmul.adds];
      CHECK(matmul.shape.out_type == type);
      CHECK(matmul.seconds > 0);
      CHECK(matmul.seconds <= 1.0101 * matmul.aten_seconds);
      CHECK(matmul.tried > 1);
      CHECK(matmul.tuning_seconds > 0);
    }
    CHECK(tuned == std::map<bool, int>{{false, 1}, {true, 1}});
  }
}

TEST_CASE("every algorithm that cuBLASLt proposes gives correct results") {
  if (!has_gpu()) return;
  const int64_t rows = 384, columns = 256, inner = 4096;
  for (const auto& [a_transposed, b_transposed] :
       std::vector<std::pair<bool, bool>>{{false, false}, {false, true}, {true, false}}) {
    for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
      for (const auto candidates : {LtMatmul::Candidates::kAll, LtMatmul::Candidates::kRepeatable}) {
        const LtMatmul matmul({.rows = rows,
                               .columns = columns,
                               .inner = inner,
                               .a_transposed = a_transposed,
                               .b_transposed = b_transposed,
                               .out_type = type},
                              24, candidates);
        REQUIRE(matmul.algorithms() > 0);
        CHECK(matmul.algorithms() <= 24);
        const at::Tensor a = on_gpu({rows, inner}, at::kBFloat16), b = on_gpu({inner, columns}, at::kBFloat16);
        const at::Tensor stored_a = a_transposed ? a.t().contiguous() : a;
        const at::Tensor stored_b = b_transposed ? b.t().contiguous() : b;
        const at::Tensor addend = on_gpu({rows, columns}, type), product = exact(a).matmul(exact(b));
        const double tolerance = type == at::kFloat ? 2e-5 : 1.2e-2;
        for (size_t algorithm = 0; algorithm < matmul.algorithms(); ++algorithm) {
          INFO(type << " transposed " << a_transposed << b_transposed << ": " << matmul.describe(algorithm));
          at::Tensor out = poisoned({rows, columns}, type);
          matmul.run(stored_a, stored_b, at::Tensor(), out, algorithm);
          CHECK(relative_error(out, product) < tolerance);
          if (candidates == LtMatmul::Candidates::kRepeatable) {
            at::Tensor again = poisoned({rows, columns}, type);
            matmul.run(stored_a, stored_b, at::Tensor(), again, algorithm);
            CHECK(bitwise_equal(again, out));
          }
          matmul.run(stored_a, stored_b, addend, out, algorithm);
          CHECK(relative_error(out, product + exact(addend)) < tolerance);
          out.copy_(addend);
          matmul.run(stored_a, stored_b, out, out, algorithm);
          CHECK(relative_error(out, product + exact(addend)) < tolerance);
        }
      }
    }
  }
}

TEST_CASE("deterministic matmuls have the same bits in every instance") {
  if (!has_gpu()) return;
  const Deterministic scope(true);
  const int64_t rows = 8192, in = 1024, out = 512;
  const at::Tensor a = on_gpu({rows, in}, at::kBFloat16), weight = on_gpu({out, in}, at::kBFloat16);
  const at::Tensor dy = on_gpu({rows, out}, at::kBFloat16);
  const auto run = [&] {
    Matmuls matmuls;
    at::Tensor gradient = poisoned({out, in}, at::kFloat);
    matmuls.weight_gradient_out(gradient, dy, a);
    matmuls.weight_gradient_out(gradient, dy, a, /*accumulate=*/true);
    CHECK(matmuls.tuned().empty());
    return std::vector<at::Tensor>{matmuls.forward(a, weight), matmuls.forward(a, weight, dy),
                                   matmuls.data_gradient(dy, weight), gradient};
  };
  const std::vector<at::Tensor> first = run();
  for (int times = 0; times < 3; ++times) {
    const std::vector<at::Tensor> again = run();
    for (size_t i = 0; i < first.size(); ++i) CHECK(bitwise_equal(again[i], first[i]));
  }
}

TEST_CASE("tuning uses no memory beyond a matmul's workspace") {
  if (!has_gpu()) return;
  using c10::CachingAllocator::StatType;
  const auto allocated = [] {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[static_cast<size_t>(StatType::AGGREGATE)];
  };
  const int64_t rows = 2048, in = 4096, out = 8192;
  const at::Tensor dy = on_gpu({rows, out}, at::kBFloat16), x = on_gpu({rows, in}, at::kBFloat16);
  at::Tensor gradient = poisoned({out, in}, at::kFloat);
  for (const bool accumulate : {false, true}) {  // allocates what cuBLAS keeps
    Matmuls::aten_weight_gradient_out(gradient, dy, x, accumulate);
  }
  Matmuls matmuls;
  matmuls.weight_gradient_out(gradient, dy, x, /*accumulate=*/true);
  const int64_t before = allocated().current;
  c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  matmuls.weight_gradient_out(gradient, dy, x);  // tunes both
  CHECK(matmuls.tuned().size() == 2);
  CHECK(allocated().current == before);
  CHECK(allocated().peak - before <= LtMatmul::kWorkspaceBytes + (1 << 20));
}

}  // namespace mpzero::model
