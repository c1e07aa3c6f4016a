#include <ATen/ops/ones.h>

#include <vector>

#include "model/fp8/cast.hpp"
#include "model/fp8/codes.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/row_sum.hpp"
#include "model/kernels/swiglu.hpp"
#include "model/operation/operation.hpp"
#include "tests/catch.hpp"

namespace mpzero::model {

TEST_CASE("operations are observed only on this thread, and only during the observer's lifetime") {
  const at::Tensor gate_up = at::ones({3, 8}, at::kFloat);
  OperationRecorder outer;
  swiglu_forward(gate_up);
  {
    OperationRecorder inner;
    swiglu_backward(at::ones({3, 4}, at::kFloat), gate_up);
    REQUIRE(inner.seen.size() == 1);
    CHECK(inner.seen.front().name == "swiglu_backward");
  }
  swiglu_forward(gate_up);
  REQUIRE(outer.seen.size() == 2);
  CHECK(describe(outer.seen[0]) == describe(outer.seen[1]));
  CHECK(outer.seen[0].sizes == std::vector<int64_t>{3, 4});
}

TEST_CASE("operations that move different bytes have different descriptions") {
  const at::Tensor x = at::ones({2, 4}, at::kFloat), weight = at::ones({4}, at::kFloat), rstd = at::ones({2});
  const at::Tensor bias = at::ones({4}, at::kFloat);
  OperationRecorder recorder;
  for (const int64_t partials : {3, 5}) row_sum(at::ones({partials, 4}), bias, true);
  for (const bool with_y : {false, true}) rms_norm_backward(x, x, weight, rstd, at::Tensor(), with_y);
  rms_norm_backward(x, x, weight, rstd, x, false);
  REQUIRE(recorder.seen.size() == 5);
  CHECK(describe(recorder.seen[0]) != describe(recorder.seen[1]));
  CHECK(describe(recorder.seen[2]) != describe(recorder.seen[3]));
  // Reads the residual's gradient instead of writing y: the same bytes.
  CHECK(describe(recorder.seen[3]) == describe(recorder.seen[4]));
}

TEST_CASE("casts move the bytes they read and write, and read twice to find the amax") {
  using namespace fp8;
  const at::Tensor x = at::ones({3, 5}, at::kBFloat16), known = maximum(x);
  OperationRecorder recorder;
  for (const auto& [scaling, forms, largest] :
       std::vector<std::tuple<Scaling, Forms, at::Tensor>>{{Scaling::kTensorwise, Forms::kRows, known},
                                                           {Scaling::kTensorwise, Forms::kBoth, known},
                                                           {Scaling::kTensorwise, Forms::kColumns, {}},
                                                           {Scaling::kRowwise, Forms::kBoth, {}}}) {
    cast(x, Format::kE4m3, scaling, forms, largest);
  }
  transposed(x.to(at::kFloat8_e4m3fn));
  const std::vector<std::pair<std::string_view, double>> expected{{"fp8_cast", (2 + 1) * 15},
                                                                  {"fp8_cast", (2 + 2) * 15},
                                                                  {"fp8_cast_maximum", (4 + 1) * 15},
                                                                  {"fp8_cast_rowwise", (4 + 2) * 15},
                                                                  {"fp8_transpose", 2 * 15}};
  REQUIRE(recorder.seen.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(recorder.seen[i].name == expected[i].first);
    CHECK(recorder.seen[i].bytes == expected[i].second);
  }
}

}  // namespace mpzero::model
