// Gradients are compared in tests/model/test_t5.cpp.
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include "model/kernels/relative_attention.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/tensor_file.hpp"

namespace mpzero::model {

TEST_CASE("the buckets of relative positions match transformers") {
  const auto tensors =
      read_tensor_file(std::filesystem::path(MPZERO_SOURCE_DIR) / "tests/model/fixtures/t5.safetensors");
  for (const auto& [buckets, farthest] : {std::pair(32, 128), std::pair(8, 20)}) {
    for (const bool causal : {false, true}) {
      const std::string name = fmt::format("buckets.{}.{}.{}", buckets, farthest, causal ? "causal" : "both");
      CHECK(relative_buckets(301, 301, buckets, farthest, causal).equal(tensors.at(name)));
    }
  }
}

TEST_CASE("the last queries of causal attention give the same results as in full attention") {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor q = at::randn({2, 7, 3, 4}, options), k = at::randn({2, 7, 3, 4}, options),
                   v = at::randn({2, 7, 3, 4}, options);
  const RelativeAttention call{.causal = true, .table = at::randn({8, 3}, options), .max_distance = 20};
  const at::Tensor all = relative_attention_forward(q, k, v, call).out;
  const at::Tensor last = relative_attention_forward(q.narrow(1, 5, 2), k, v, call).out;
  CHECK(relative_error(last, all.narrow(1, 5, 2)) < 1e-12);
}

}  // namespace mpzero::model
