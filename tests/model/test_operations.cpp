// The lists of operations against what Decoder runs, which torch's observers of functions see.
#include <ATen/core/ivalue.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/operations.hpp"
#include "tests/catch.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::model {
namespace {

constexpr std::string_view kPrefix = "mpzero::";

// Where the observer, which has no state of its own, writes.
thread_local std::vector<std::string>* seen_operations = nullptr;

MatmulShape matmul_of(c10::ArrayRef<const c10::IValue> inputs) {
  const at::Tensor& out = inputs[0].toTensor();
  const at::Tensor& a = inputs[1].toTensor();
  const int64_t layout = inputs[4].toInt();  // 0: a b, 1: a b^T, 2: a^T b
  const bool a_transposed = layout == 2;
  const at::Tensor& addend = inputs[3].toTensor();
  return {.rows = out.size(0),
          .columns = out.size(1),
          .inner = a.size(a_transposed ? 0 : 1),
          .a_transposed = a_transposed,
          .b_transposed = layout == 1,
          .type = a.scalar_type(),
          .bias = addend.defined() && addend.dim() == 1,
          .out_type = out.scalar_type()};
}

Operation operation_of(OperationKind kind, c10::ArrayRef<const c10::IValue> inputs) {
  using enum OperationKind;
  const at::Tensor& first = inputs[0].toTensor();
  Operation made{.kind = kind, .type = first.scalar_type()};
  switch (kind) {
    case kMatmul:
      made.matmul = matmul_of(inputs);
      made.type = made.matmul.type;
      made.adds = inputs[3].toTensor().defined() && !made.matmul.bias;
      break;
    case kAttentionForward:
    case kAttentionBackward:
      made.attention = {first.size(0), first.size(1), first.size(2), inputs[1].toTensor().size(2), first.size(3)};
      break;
    case kQkRopeForward:
    case kQkRopeBackward:
    case kQkNormRopeForward:
    case kQkNormRopeBackward:
      made.attention = {first.size(0), first.size(1), inputs[1].toInt(), inputs[2].toInt(), first.size(3)};
      break;
    case kRowSums:
      for (const c10::IValue& out : inputs) made.sums.push_back(out.toTensor().numel());
      break;
    case kSwigluForward:
    case kSwigluBackward:
    case kSwigluBackwardRecompute:
      made.rows = first.size(0);
      made.columns = first.size(1) / 2;
      break;
    case kEmbeddingForward:
      made.rows = inputs[1].toTensor().numel();
      made.columns = first.size(1);
      break;
    case kEmbeddingBackward:
      made.type = inputs[1].toTensor().scalar_type();
      made.rows = inputs[1].toTensor().size(0);
      made.columns = first.size(1);
      break;
    default:
      made.rows = first.size(0);
      made.columns = first.size(1);
  }
  if (kind == kRmsNormBackward) {
    made.residual = inputs[1].toTensor().defined();
    made.with_y = inputs[2].toBool();
  }
  return made;
}

std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (seen_operations == nullptr || !name.starts_with(kPrefix)) return nullptr;
  const auto kind = model::operation_of(name.substr(kPrefix.size()));
  seen_operations->push_back(kind ? describe(operation_of(*kind, function.inputs()))
                                  : "of no kind: " + std::string(name));
  return nullptr;
}

// The operations that `work` runs in this thread.
template <typename Work>
std::vector<std::string> run(const Work& work) {
  std::vector<std::string> seen;
  seen_operations = &seen;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(observe).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  work();
  at::removeCallback(handle);
  seen_operations = nullptr;
  return seen;
}

std::vector<std::string> described(const std::vector<Operation>& operations) {
  std::vector<std::string> all;
  for (const Operation& operation : operations) {
    all.insert(all.end(), static_cast<size_t>(operation.calls), describe(operation));
  }
  return all;
}

void check_lists(const ModelConfig& config, at::ScalarType type, at::ScalarType gradient_type, bool accumulates) {
  const Decoder decoder(config, {.max_logits = 5 * config.vocab_size});
  const MicroBatchShape shape{
      .sequences = 2, .length = 13, .type = type, .gradient_type = gradient_type, .accumulates = accumulates};
  FlatModel model(decoder, at::TensorOptions().dtype(type), gradient_type);
  const auto begin = [&] {
    if (!accumulates) return model.reset_gradients();
    for (auto& unit : model.gradients) {
      for (Gradient& gradient : unit) gradient = Gradient(gradient.view(), /*empty=*/false);
    }
  };
  const at::Tensor tokens = at::randint(config.vocab_size, {2, 13}, at::kLong);
  const size_t head = decoder.head_unit();
  begin();
  at::Tensor x;
  CHECK(run([&] { x = decoder.embed_forward(model.weights[0], tokens); }) ==
        described(embedding_forward_operations(config, shape)));
  const at::Tensor& output = decoder.tied_head() ? model.weights[0][0] : model.weights[head][1];
  Gradient& output_gradient = decoder.tied_head() ? model.gradients[0][0] : model.gradients[head][1];
  const auto sorted = [](std::vector<std::string> all) {
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto seen = run([&] {
    decoder.head_forward_backward(model.weights[head], output, x, tokens, 1, model.gradients[head], output_gradient);
  });
  // The list has the same chunks together.
  CHECK(sorted(seen) == sorted(described(head_operations(config, shape, decoder.tokens_per_chunk(26, at::kCPU)))));
  CHECK(run([&] { decoder.embed_backward(x, tokens, model.gradients[0]); }) ==
        described(embedding_backward_operations(config, shape)));
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    INFO("recompute " << name(recompute));
    begin();
    LayerActivations kept;
    CHECK(run([&] { decoder.layer_forward(model.weights[1], x, &kept, recompute); }) ==
          described(layer_forward_operations(config, shape)));
    CHECK(run([&] { decoder.layer_backward(model.weights[1], x, kept, model.gradients[1]); }) ==
          described(layer_backward_operations(config, shape, recompute)));
  }
}

}  // namespace

TEST_CASE("the lists of operations are what runs") {
  for (const ModelConfig& config : {small_qwen3(), small_llama(), small_qwen2()}) {
    for (const bool accumulates : {false, true}) {
      INFO(config.model_type << (accumulates ? ", accumulating" : ""));
      check_lists(config, at::kFloat, at::kFloat, accumulates);
      check_lists(config, at::kBFloat16, at::kBFloat16, accumulates);
      check_lists(config, at::kBFloat16, at::kFloat, accumulates);
    }
  }
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
