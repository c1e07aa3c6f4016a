// The lists of operations against what Decoder runs, which torch's observers of functions see.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/operations.hpp"
#include "tests/catch.hpp"
#include "tests/model/recorded_operations.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::model {

TEST_CASE("the lists of operations are what runs") {
  for (const ModelConfig& config : {small_qwen3(), small_llama(), small_qwen2()}) {
    for (const bool accumulates : {false, true}) {
      INFO(config.model_type << (accumulates ? ", accumulating" : ""));
      for (const auto& [type, gradient_type] : std::vector<std::pair<at::ScalarType, at::ScalarType>>{
               {at::kFloat, at::kFloat}, {at::kBFloat16, at::kBFloat16}, {at::kBFloat16, at::kFloat}}) {
        const MicroBatchShape shape{
            .sequences = 2, .length = 13, .type = type, .gradient_type = gradient_type, .accumulates = accumulates};
        CHECK(unlisted_operations(config, at::kCPU, shape) == std::vector<std::string>());
      }
    }
  }
}

TEST_CASE("the lists of operations are what runs in FP8, with casts kept and not") {
  using fp8::FastAccumulation;
  const std::vector<Fp8Options> all{
      {},
      {.recipe = {}, .filter_fqns = {}, .kept_casts = KeptCasts::kNone},
      {.recipe = {.scaling = fp8::Scaling::kRowwise, .gradients = fp8::Format::kE4m3}, .filter_fqns = {}},
      {.recipe = {.fast_accumulation = FastAccumulation::kAll},
       .filter_fqns = {"gate_proj"},
       .kept_casts = KeptCasts::kNone},
      {.recipe = {.fast_accumulation = FastAccumulation::kNone}, .filter_fqns = {"self_attn", "down_proj"}}};
  for (const ModelConfig& config : {small_qwen3(), small_llama(), small_qwen2()}) {
    for (size_t i = 0; i < all.size(); ++i) {
      INFO(config.model_type << ", options " << i);
      for (const at::ScalarType gradient_type : {at::kBFloat16, at::kFloat}) {
        const MicroBatchShape shape{
            .sequences = 2, .length = 13, .gradient_type = gradient_type, .accumulates = gradient_type == at::kFloat};
        CHECK(unlisted_operations(config, at::kCPU, shape, all[i]) == std::vector<std::string>());
      }
    }
  }
}

TEST_CASE("casts move what they read and write, and twice what they read where they look for a largest magnitude") {
  const auto bytes = [](OperationKind kind, fp8::Forms forms) {
    return Operation{.kind = kind, .rows = 3, .columns = 5, .forms = forms}.bytes();
  };
  CHECK(bytes(OperationKind::kFp8Cast, fp8::Forms::kRows) == (2 + 1) * 15);
  CHECK(bytes(OperationKind::kFp8Cast, fp8::Forms::kBoth) == (2 + 2) * 15);
  CHECK(bytes(OperationKind::kFp8CastMaximum, fp8::Forms::kColumns) == (4 + 1) * 15);
  CHECK(bytes(OperationKind::kFp8CastRowwise, fp8::Forms::kBoth) == (4 + 2) * 15);
  CHECK(bytes(OperationKind::kFp8Transpose, fp8::Forms::kBoth) == 2 * 15);
}

TEST_CASE("floating-point operations of the lists are those of a token") {
  // The oracle is flops_per_token(), which counts weights; attention's backward is 2.5 times its forward here, twice
  // there.
  for (const ModelConfig& config : {small_qwen3(), small_llama(), small_qwen2()}) {
    const MicroBatchShape shape{.sequences = 3, .length = 16};
    double products = 0, forward_attention = 0, backward_attention = 0;
    const auto add = [&](const std::vector<Operation>& operations, double times) {
      for (const Operation& o : operations) {
        const double flops = times * static_cast<double>(o.calls) * o.flops();
        (o.kind == OperationKind::kMatmul             ? products
         : o.kind == OperationKind::kAttentionForward ? forward_attention
                                                      : backward_attention) += flops;
      }
    };
    const auto layers = static_cast<double>(config.num_hidden_layers);
    add(layer_forward_operations(config, shape), layers);
    add(layer_backward_operations(config, shape, Recompute::kNone), layers);
    add(head_operations(config, shape, 7), 1);
    CHECK(backward_attention == Approx(2.5 * forward_attention));
    CHECK(products + 3 * forward_attention == Approx(48 * flops_per_token(config, 16)));
  }
}

TEST_CASE("bytes by hand") {
  const MicroBatchShape shape{.sequences = 2, .length = 5, .gradient_type = at::kFloat, .accumulates = true};
  const auto bytes = [](const std::vector<Operation>& operations, std::string_view name, OperationKind kind) {
    for (const Operation& o : operations) {
      if (o.name == name && o.kind == kind) return o.bytes();
    }
    return -1.0;
  };
  const ModelConfig config = small_qwen3();  // hidden 28, inner 44, 6 and 2 heads of 10
  const auto forward = layer_forward_operations(config, shape);
  const auto backward = layer_backward_operations(config, shape, Recompute::kSelective);
  using enum OperationKind;
  CHECK(bytes(forward, "input rms_norm", kRmsNormForward) == 2 * 2 * 10 * 28);
  CHECK(bytes(forward, "swiglu", kSwigluForward) == 2 * 3 * 10 * 44);
  CHECK(bytes(backward, "swiglu", kSwigluBackwardRecompute) == 2 * 6 * 10 * 44);
  // dy, x, the residual's gradient in; dx and y out.
  CHECK(bytes(backward, "input rms_norm", kRmsNormBackward) == 2 * 5 * 10 * 28);
  CHECK(bytes(forward, "q, k, v", kMatmul) == 2 * (10 * 28 + 28 * 100 + 10 * 100));
  CHECK(bytes(backward, "down, weight gradient", kMatmul) == 2 * (10 * 28 + 10 * 44) + 4 * 2 * 28 * 44);
  CHECK(bytes(forward, "norm and rotation of q, k", kQkNormRopeForward) == 2 * 2 * 10 * 80);
}

TEST_CASE("kinds have names") {
  for (int i = 0; i < static_cast<int>(OperationKind::kCount); ++i) {
    const auto kind = static_cast<OperationKind>(i);
    CHECK(operation_of(name(kind)) == kind);
  }
  CHECK_FALSE(operation_of("softmax").has_value());
}

}  // namespace mpzero::model
