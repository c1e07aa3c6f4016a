#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include "model/kernels/cpu/matmul.hpp"
#include "model/kernels/cpu/pack.hpp"
#include "tests/catch.hpp"
#include "tests/skip.hpp"

namespace mpzero::model::cpu {
namespace {

// The place of element (k, n) of a panel, as pack.hpp has it.
template <typename T>
int64_t place(int64_t k, int64_t n, int64_t width) {
  return sizeof(T) == 4 ? k * width + n : (k / 2 * width + n) * 2 + k % 2;
}

template <typename T>
at::Tensor numbers(int64_t rows, int64_t columns) {
  return at::randn({rows, columns}).to(at::CppTypeToScalarType<T>::value);
}

template <typename T>
void check_panels(int64_t depth, int64_t columns, int64_t width) {
  CAPTURE(depth, columns, width);
  const at::ScalarType type = at::CppTypeToScalarType<T>::value;
  const int64_t padded = depth + depth % 2;
  // Twice as wide as what is packed: the rows have a distance.
  const at::Tensor b = numbers<T>(depth, 2 * columns), transposed = numbers<T>(columns, 2 * depth);
  for (const bool from_transpose : {false, true}) {
    const at::Tensor panel = at::full({padded * width}, 7.0, type);
    T* const out = panel.mutable_data_ptr<T>();
    if (from_transpose) {
      pack_transposed(transposed.const_data_ptr<T>(), 2 * depth, depth, columns, width, out);
    } else {
      pack_rows(b.const_data_ptr<T>(), 2 * columns, depth, columns, width, out);
    }
    int64_t wrong = 0;
    const int64_t rows = sizeof(T) == 4 ? depth : padded;
    for (int64_t k = 0; k < rows; ++k) {
      for (int64_t n = 0; n < width; ++n) {
        T expected(0.0F);
        if (k < depth && n < columns) {
          expected = from_transpose ? transposed.const_data_ptr<T>()[n * 2 * depth + k]
                                    : b.const_data_ptr<T>()[k * 2 * columns + n];
        }
        wrong += out[place<T>(k, n, width)] != expected ? 1 : 0;
      }
    }
    CHECK(wrong == 0);
  }
}

template <typename T>
void check_transpose(int64_t depth, int64_t rows) {
  CAPTURE(depth, rows);
  const int64_t padded = (depth + 31) / 32 * 32;
  const at::Tensor source = numbers<T>(depth, rows + 5);
  const at::Tensor block = at::full({rows, padded}, 7.0, at::CppTypeToScalarType<T>::value);
  transpose(source.const_data_ptr<T>(), rows + 5, depth, rows, padded, block.mutable_data_ptr<T>());
  CHECK(block.narrow(1, 0, depth).equal(source.narrow(1, 0, rows).t()));
  CHECK(block.narrow(1, depth, padded - depth).count_nonzero().item<int64_t>() == 0);
}

}  // namespace

TEST_CASE("panels and transposed blocks place each element correctly and pad with zeros", "[avx512]") {
  if (!has_matmul(at::kFloat)) {
    skip_test("this CPU has no AVX-512");
    return;
  }
  for (const int64_t depth : {1, 2, 15, 16, 31, 32, 33, 64, 77}) {
    for (const auto& [columns, width] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 16}, {16, 16}, {17, 64}, {64, 64}, {45, 48}}) {
      check_panels<float>(depth, columns, width);
      check_panels<c10::BFloat16>(depth, columns, width);
    }
    for (const int64_t rows : {1, 7, 16, 40}) {
      check_transpose<float>(depth, rows);
      check_transpose<c10::BFloat16>(depth, rows);
    }
  }
}

}  // namespace mpzero::model::cpu
