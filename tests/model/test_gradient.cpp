#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "model/gradient.hpp"
#include "model/matmuls.hpp"
#include "model/rows.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"

namespace mpzero::model {
namespace {

at::Tensor poisoned(at::IntArrayRef shape, at::ScalarType type) {
  return at::full(shape, std::numeric_limits<double>::quiet_NaN(), type);
}

}  // namespace

TEST_CASE("the first contribution overwrites, later ones are added, and reset() starts again") {
  const at::Tensor g = at::randn({3, 4});
  Gradient gradient(poisoned({3, 4}, at::kFloat));
  gradient.add(g);
  CHECK(gradient.view().equal(g));
  gradient.add(g.to(at::kDouble));
  CHECK(gradient.view().equal(g * 2));
  gradient.reset();
  gradient.add(g);
  CHECK(gradient.view().equal(g));
}

TEST_CASE("matmuls write to the view, in the same dtype or a wider one") {
  for (const auto& [operands, view, tolerance] :
       std::vector<std::tuple<at::ScalarType, at::ScalarType, double>>{{at::kDouble, at::kDouble, 1e-13},
                                                                       {at::kFloat, at::kFloat, 1e-5},
                                                                       {at::kBFloat16, at::kBFloat16, 2e-2},
                                                                       {at::kBFloat16, at::kFloat, 1e-2}}) {
    const at::Tensor a = at::randn({9, 5}).to(operands), b = at::randn({9, 7}).to(operands);
    const at::Tensor expected = a.to(at::kDouble).t().matmul(b.to(at::kDouble));
    Matmuls matmuls;
    for (Matmuls* tuned : {static_cast<Matmuls*>(nullptr), &matmuls}) {
      at::Tensor flat = poisoned({5 * 7 + 3}, view);
      Gradient gradient(flat.narrow(0, 1, 35).view({5, 7}));
      gradient.add_matmul(a, b, tuned);
      CHECK(relative_error(gradient.view(), expected) < tolerance);
      gradient.add_matmul(a, b, tuned);
      CHECK(relative_error(gradient.view(), expected * 2) < tolerance);
      CHECK(flat[0].isnan().item<bool>());
      CHECK(flat[36].isnan().item<bool>());
    }
  }
}

TEST_CASE("a group of weights uses one matmul if the views are adjacent, with the same values otherwise") {
  const at::Tensor a = at::randn({9, 8}, at::kDouble), b = at::randn({9, 3}, at::kDouble);
  const at::Tensor expected = a.t().matmul(b);
  const at::Tensor flat = poisoned({8 * 3}, at::kDouble);
  const at::Tensor apart = poisoned({5, 3}, at::kDouble);
  const auto adjacent_rows = [&](int64_t begin, int64_t rows) {
    return flat.narrow(0, begin * 3, rows * 3).view({rows, 3});
  };
  CHECK(rows_adjacent(std::vector<at::Tensor>{adjacent_rows(0, 3), adjacent_rows(3, 5)}));
  CHECK_FALSE(rows_adjacent(std::vector<at::Tensor>{adjacent_rows(0, 3), adjacent_rows(4, 4)}));
  CHECK_FALSE(rows_adjacent(std::vector<at::Tensor>{adjacent_rows(0, 3), apart}));
  for (const at::Tensor& second : {adjacent_rows(3, 5), apart}) {
    std::vector<Gradient> gradients{Gradient(adjacent_rows(0, 3)), Gradient(second)};
    // One of them has a contribution already: the two can no longer share a product.
    for (const bool uneven : {false, true}) {
      for (Gradient& gradient : gradients) gradient.reset();
      if (uneven) gradients[0].add(at::zeros({3, 3}, at::kDouble));
      add_matmul(gradients, a, b);
      CHECK(relative_error(gradients[0].view(), expected.narrow(0, 0, 3)) < 1e-13);
      CHECK(relative_error(gradients[1].view(), expected.narrow(0, 3, 5)) < 1e-13);
      add_matmul(gradients, a, b);
      CHECK(relative_error(gradients[1].view(), expected.narrow(0, 3, 5) * 2) < 1e-13);
    }
  }
}

TEST_CASE("a group of vectors uses one row sum if they are adjacent, with the same values otherwise") {
  const at::Tensor rows = at::randn({9, 8});
  const at::Tensor expected = rows.to(at::kDouble).sum(0);
  const at::Tensor flat = poisoned({10}, at::kFloat), apart = poisoned({5}, at::kFloat);
  for (const at::Tensor& second : {flat.narrow(0, 4, 5), apart}) {
    std::vector<Gradient> gradients{Gradient(flat.narrow(0, 1, 3)), Gradient(second)};
    for (int times = 1; times <= 3; ++times) {
      // The third time one of them is reset.
      if (times == 3) gradients[0].reset();
      RowSums sums;
      sums.add(gradients, rows);
      sums.run();
      CHECK(relative_error(gradients[0].view(), expected.narrow(0, 0, 3) * (times == 2 ? 2 : 1)) < 1e-6);
      CHECK(relative_error(gradients[1].view(), expected.narrow(0, 3, 5) * times) < 1e-6);
      CHECK_FALSE((gradients[0].empty() || gradients[1].empty()));
    }
    CHECK(flat[0].isnan().item<bool>());
    CHECK(flat[9].isnan().item<bool>());
  }
}

TEST_CASE("bf16 pieces are summed in fp32 and rounded once, and other dtypes are summed in place") {
  const at::Tensor one = at::full({2, 3}, 1.0, at::kFloat), small = at::full({2, 3}, 0x1p-9, at::kFloat);
  const at::Tensor exact = at::full({2, 3}, 0.5, at::kFloat);
  std::vector<Gradient> gradients{Gradient(poisoned({2, 3}, at::kBFloat16)), Gradient::unwanted({2, 3}),
                                  Gradient(one.to(at::kBFloat16), /*empty=*/false),
                                  Gradient(poisoned({2, 3}, at::kFloat)),
                                  Gradient(exact.to(at::kBFloat16), /*empty=*/false)};
  const std::vector<size_t> summed{1, 2, 0, 3};
  PiecewiseGradients pieces(gradients, summed);
  CHECK(pieces.pieces()[3].view().is_same(gradients[3].view()));
  CHECK_FALSE(pieces.pieces()[1].wanted());
  CHECK(rows_adjacent(std::vector{pieces.pieces()[2].view(), pieces.pieces()[0].view()}));
  for (Gradient& piece : pieces.pieces().first(4)) piece.add(one);
  for (int i = 0; i < 128; ++i) {
    for (Gradient& piece : pieces.pieces().first(4)) piece.add(small);  // each alone would be rounded away
  }
  pieces.finish();
  CHECK(gradients[0].view().equal(at::full({2, 3}, 1.25, at::kBFloat16)));
  CHECK(gradients[2].view().equal(at::full({2, 3}, 2.25, at::kBFloat16)));
  CHECK(gradients[3].view().equal(at::full({2, 3}, 1.25, at::kFloat)));
  CHECK(gradients[4].view().equal(exact.to(at::kBFloat16)));
  for (const size_t i : summed) CHECK(gradients[i].empty() == !gradients[i].wanted());
}

TEST_CASE("pieces are at most the given size, equal except for the last, and multiples of matmul tiles") {
  CHECK(rows_of_piece(100, 32) == 25);
  CHECK(rows_of_piece(101, 32) == 26);
  CHECK(rows_of_piece(32, 32) == 32);
  CHECK(rows_of_piece(1, 32) == 1);
  CHECK(rows_of_piece(131072, 8192) == 8192);
  CHECK(rows_of_piece(10000, 8192) == 5120);
}

TEST_CASE("rows of an embedding are summed, and untouched rows become zero") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor rows = at::randint(4, {50}, at::kLong);
    const at::Tensor values = at::randn({50, 6}).to(type);
    const at::Tensor expected = at::zeros({9, 6}, at::kDouble).index_add(0, rows, values.to(at::kDouble));
    Gradient gradient(poisoned({9, 6}, at::kFloat));
    gradient.add_rows(rows, values);
    CHECK(relative_error(gradient.view(), expected) < 1e-6);
    CHECK(gradient.view().narrow(0, 4, 5).eq(0).all().item<bool>());
    gradient.add_rows(rows, values);
    CHECK(relative_error(gradient.view(), expected * 2) < 1e-6);
  }
}

TEST_CASE("in a group, only the frozen weight gets no gradient") {
  const at::Tensor a = at::randn({9, 8}, at::kDouble), b = at::randn({9, 3}, at::kDouble);
  const at::Tensor expected = a.t().matmul(b), sums = a.sum(0);
  const at::Tensor matrices = poisoned({8, 3}, at::kDouble), vectors = poisoned({8}, at::kDouble);
  for (const size_t frozen : {size_t{0}, size_t{1}, size_t{2}}) {
    std::vector<Gradient> of_matrices, of_vectors;
    int64_t begin = 0;
    for (const int64_t rows : {4, 1, 3}) {
      const bool wanted = of_matrices.size() != frozen;
      of_matrices.push_back(wanted ? Gradient(matrices.narrow(0, begin, rows)) : Gradient::unwanted({rows, 3}));
      of_vectors.push_back(wanted ? Gradient(vectors.narrow(0, begin, rows)) : Gradient::unwanted({rows}));
      begin += rows;
    }
    add_matmul(of_matrices, a, b);
    RowSums all;
    all.add(of_vectors, a);
    all.run();
    begin = 0;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t rows = of_matrices[i].view().size(0);
      CHECK(of_matrices[i].wanted() == (i != frozen));
      if (i != frozen) {
        CHECK(relative_error(of_matrices[i].view(), expected.narrow(0, begin, rows)) < 1e-13);
        CHECK(relative_error(of_vectors[i].view(), sums.narrow(0, begin, rows)) < 1e-13);
      }
      begin += rows;
    }
  }
  Gradient frozen = Gradient::unwanted({8});
  frozen.add(sums);
  frozen.add_row_sum(a);
  CHECK_FALSE(frozen.wanted());
}

}  // namespace mpzero::model
