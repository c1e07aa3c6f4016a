#include <ATen/ops/randn.h>

#include "model/fp8/cast.hpp"
#include "model/fp8/operand.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"

namespace mpzero::model {

TEST_CASE("narrows an operand to some columns") {
  const at::Tensor x = at::randn({16, 48}).to(at::kBFloat16);
  for (const auto scaling : {fp8::Scaling::kTensorwise, fp8::Scaling::kRowwise}) {
    const fp8::CastMatrix both = fp8::cast(x, fp8::Format::kE4m3, scaling, fp8::Forms::kBoth);
    const at::Tensor expected = fp8::values(both.columns).narrow(0, 16, 8);
    const Operand operand(both.rows, both.columns);
    CHECK(operand.size(0) == 16);
    CHECK(operand.size(1) == 48);
    const Operand part = operand.narrow_columns(16, 8);
    CHECK(part.size(0) == 16);
    CHECK(part.size(1) == 8);
    CHECK(bitwise_equal(fp8::values(part.columns()), expected));
  }
  const Operand plain = x;
  CHECK_FALSE(plain.is_fp8());
  CHECK(bitwise_equal(plain.narrow_columns(16, 8).tensor(), x.narrow(1, 16, 8)));
}

}  // namespace mpzero::model
