#include <ATen/ops/ones.h>

#include "model/kernels/swiglu.hpp"
#include "model/operation/operation.hpp"
#include "tests/catch.hpp"

namespace mpzero::model {

TEST_CASE("operations are seen by this thread's observer, and only while it exists") {
  const at::Tensor gate_up = at::ones({3, 8}, at::kFloat);
  OperationRecorder outer;
  swiglu_forward(gate_up);
  {
    OperationRecorder inner;
    swiglu_backward(at::ones({3, 4}, at::kFloat), gate_up);
    REQUIRE(inner.seen.size() == 1);
    CHECK(inner.seen.front().kind == OperationKind::kSwigluBackward);
  }
  swiglu_forward(gate_up);
  REQUIRE(outer.seen.size() == 2);
  CHECK(describe(outer.seen[0]) == describe(outer.seen[1]));
  CHECK(outer.seen[0].rows == 3);
  CHECK(outer.seen[0].columns == 4);
}

}  // namespace mpzero::model
