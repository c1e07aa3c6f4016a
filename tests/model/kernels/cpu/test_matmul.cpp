// The CPU's own products against ATen's in fp64, for all layouts of the operands.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "model/kernels/cpu/matmul.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"
#include "tests/skip.hpp"

namespace mpzero::model::cpu {
namespace {

enum class Added { kNothing, kItself, kBias, kMatrix };

struct Case {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
};

// Depths of a transposed A are arbitrary; of another they are multiples of 32. Beyond 1024 sums have several pieces.
const std::vector<Case> kCases{
    {1, 1, 32, false, false},     {70, 200, 64, false, true},   {130, 65, 2080, false, false},
    {64, 129, 1056, false, true}, {600, 96, 96, false, true},   {33, 47, 1, true, false},
    {200, 130, 77, true, false},  {65, 300, 1100, true, false}, {16, 48, 33, true, true}};

at::Tensor operand(int64_t rows, int64_t columns, bool transposed, at::ScalarType type) {
  return transposed ? at::randn({columns, rows}).to(type).t() : at::randn({rows, columns}).to(type);
}

void check(const Case& c, at::ScalarType type, at::ScalarType out_type, Added added) {
  CAPTURE(c.m, c.n, c.k, c.a_transposed, c.b_transposed, type, out_type, static_cast<int>(added));
  const at::Tensor a = operand(c.m, c.k, c.a_transposed, type), b = operand(c.k, c.n, c.b_transposed, type);
  const at::Tensor out = at::randn({c.m, c.n}).to(out_type);
  at::Tensor addend;
  if (added == Added::kItself) addend = out;
  if (added == Added::kBias) addend = at::randn({c.n}).to(out_type);
  if (added == Added::kMatrix) addend = at::randn({c.m, c.n}).to(out_type);
  at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  at::Tensor magnitude = at::mm(a.to(at::kDouble).abs(), b.to(at::kDouble).abs());
  if (addend.defined()) {
    expected = expected + addend.to(at::kDouble);
    magnitude = magnitude + addend.to(at::kDouble).abs();
  }
  const at::Tensor before = out.clone();
  matmul(a, b, addend, out);
  // Of k sums in fp32 (Higham, Accuracy and Stability of Numerical Algorithms, 3.5), and one rounding to bf16.
  const at::Tensor bound =
      magnitude * (static_cast<double>(c.k + 1) * 0x1p-24) + expected.abs() * (out_type == at::kFloat ? 0.0 : 0x1p-8);
  CHECK(((out.to(at::kDouble) - expected).abs() <= bound).all().item<bool>());
  const at::Tensor again = before.clone();
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 3 : 1);
  matmul(a, b, added == Added::kItself ? again : addend, again);
  at::set_num_threads(threads);
  CHECK(bitwise_equal(again, out));
}

void check_all(at::ScalarType type) {
  at::manual_seed(5);
  for (const Case& c : kCases) {
    for (const Added added : {Added::kNothing, Added::kItself, Added::kBias, Added::kMatrix}) {
      check(c, type, at::kFloat, added);
      if (type != at::kFloat) check(c, type, type, added);
    }
  }
}

}  // namespace

TEST_CASE("matmuls of all layouts agree with fp64 and do not depend on the number of threads", "[avx512]") {
  if (!has_matmul(at::kFloat)) {
    skip_test("this CPU has no AVX-512");
    return;
  }
  check_all(at::kFloat);
}

TEST_CASE("bf16 matmuls of all layouts agree with fp64 and do not depend on the number of threads", "[avx512bf16]") {
  if (!has_matmul(at::kBFloat16)) {
    skip_test("this CPU has no AVX512_BF16");
    return;
  }
  check_all(at::kBFloat16);
}

}  // namespace mpzero::model::cpu
