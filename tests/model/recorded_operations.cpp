#include "tests/model/recorded_operations.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/ops/randint.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "model/decoder.hpp"
#include "model/operations.hpp"
#include "tests/model/coded_weights.hpp"
#include "tests/model/flat_model.hpp"

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

// Of FP8: the codes and what decides how they are multiplied, or the matrix that is cast and how.
Operation fp8_operation_of(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  using enum OperationKind;
  if (name == "fp8_cast") {
    const at::Tensor& x = inputs[0].toTensor();
    const bool rowwise = inputs[2].toBool(), known = inputs[3].toBool();
    return {.kind = rowwise ? kFp8CastRowwise
                    : known ? kFp8Cast
                            : kFp8CastMaximum,
            .type = x.scalar_type(),
            .rows = x.size(0),
            .columns = x.size(1),
            .forms = static_cast<fp8::Forms>(inputs[1].toInt())};
  }
  if (name == "fp8_transpose") {
    const at::Tensor& codes = inputs[0].toTensor();
    // As listed: the type is the weight's.
    return {.kind = kFp8Transpose, .type = at::kBFloat16, .rows = codes.size(0), .columns = codes.size(1)};
  }
  const at::Tensor &out = inputs[0].toTensor(), &a = inputs[1].toTensor(), &b = inputs[2].toTensor();
  const at::Tensor& addend = inputs[3].toTensor();
  const bool bias = addend.defined() && addend.dim() == 1;
  return {.kind = kMatmul,
          .type = a.scalar_type(),
          .matmul = {.rows = out.size(0),
                     .columns = out.size(1),
                     .inner = a.size(1),
                     .b_transposed = true,
                     .type = a.scalar_type(),
                     .bias = bias,
                     .out_type = out.scalar_type(),
                     .fp8 = Fp8Shape{.b_type = b.scalar_type(),
                                     .rowwise = inputs[4].toBool(),
                                     .fast_accumulation = inputs[5].toBool()}},
          .adds = addend.defined() && !bias};
}

std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (seen_operations == nullptr || !name.starts_with(kPrefix)) return nullptr;
  const std::string_view own = name.substr(kPrefix.size());
  if (own == "fp8_cast" || own == "fp8_matmul" || own == "fp8_transpose") {
    seen_operations->push_back(describe(fp8_operation_of(own, function.inputs())));
    return nullptr;
  }
  const auto kind = model::operation_of(own);
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

// A decoder of the config on the device, and a comparison of what its units run with the lists.
class Comparison {
 public:
  Comparison(const ModelConfig& config, at::Device device, const MicroBatchShape& shape,
             const std::optional<Fp8Options>& fp8)
      : decoder_(config, {.max_logits = 5 * config.vocab_size, .fp8 = fp8}),
        model_(decoder_, at::TensorOptions().dtype(shape.type).device(device), shape.gradient_type),
        shape_(with_fp8(shape, decoder_, fp8, device)),
        chunk_(decoder_.tokens_per_chunk(shape.tokens(), device)),
        tokens_(at::randint(config.vocab_size, {shape.sequences, shape.length},
                            at::TensorOptions().dtype(at::kLong).device(device))) {}

  std::vector<std::string> differences() {
    const ModelConfig& config = decoder_.config();
    const size_t head = decoder_.head_unit();
    const bool tied = decoder_.tied_head();
    begin();
    at::Tensor x;
    compare("embedding forward", run([&] { x = decoder_.embed_forward(model_.weights[0], tokens_); }),
            embedding_forward_operations(config, shape_));
    const at::Tensor& output = tied ? model_.weights[0][0] : model_.weights[head][1];
    Gradient& output_gradient = tied ? model_.gradients[0][0] : model_.gradients[head][1];
    const auto seen = run([&] {
      decoder_.head_forward_backward(model_.weights[head], output, x, tokens_, 1, model_.gradients[head],
                                     output_gradient);
    });
    compare("head", seen, head_operations(config, shape_, chunk_));
    compare("embedding backward", run([&] { decoder_.embed_backward(x, tokens_, model_.gradients[0]); }),
            embedding_backward_operations(config, shape_));
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      const std::string level = ", recompute " + std::string(name(recompute));
      begin();
      LayerActivations kept;
      Weights weights(model_.weights[1]);
      weights.layer = 0;
      MicroBatchShape shape = shape_;
      if (shape_.fp8 && shape_.fp8->weights == Fp8Layer::Weights::kFirstUse) {
        weights.version = static_cast<uint64_t>(recompute);
        compare("layer forward, first use" + level, run([&] { decoder_.layer_forward(weights, x, &kept, recompute); }),
                layer_forward_operations(config, shape_, recompute));
        shape.fp8->weights = Fp8Layer::Weights::kKept;
      } else if (shape_.fp8) {
        compare("layer forward, each use" + level, run([&] { decoder_.layer_forward(weights, x, &kept, recompute); }),
                layer_forward_operations(config, shape_, recompute));
        compare("layer backward, each use" + level,
                run([&] { decoder_.layer_backward(weights, x, kept, model_.gradients[1]); }),
                layer_backward_operations(config, shape_, recompute));
        begin();
        weights.version = static_cast<uint64_t>(recompute);
        const bool by_tensor = shape_.fp8->recipe.scaling == fp8::Scaling::kTensorwise;
        shape.fp8->weights = by_tensor ? Fp8Layer::Weights::kFirstMaxima : Fp8Layer::Weights::kEachUse;
        compare("layer forward, first maxima" + level,
                run([&] { decoder_.layer_forward(weights, x, &kept, recompute); }),
                layer_forward_operations(config, shape, recompute));
        if (by_tensor) shape.fp8->weights = Fp8Layer::Weights::kKnownMaxima;
        if (by_tensor) compare_codes(x, recompute, level);
      }
      compare("layer forward" + level, run([&] { decoder_.layer_forward(weights, x, &kept, recompute); }),
              layer_forward_operations(config, shape, recompute));
      compare("layer backward" + level, run([&] { decoder_.layer_backward(weights, x, kept, model_.gradients[1]); }),
              layer_backward_operations(config, shape, recompute));
    }
    return differences_;
  }

 private:
  static MicroBatchShape with_fp8(MicroBatchShape shape, const Decoder& decoder, const std::optional<Fp8Options>& fp8,
                                  at::Device device) {
    if (!fp8) return shape;
    using enum Fp8Layer::Weights;
    shape.fp8 = Fp8Layer{.recipe = fp8->recipe,
                         .products = decoder.fp8_products().front(),
                         .weights = fp8->kept_casts == KeptCasts::kAll ? kFirstUse : kEachUse,
                         .known_maxima = device.is_cuda()};
    return shape;
  }
  // Of weights that come as codes.
  void compare_codes(const at::Tensor& x, Recompute recompute, const std::string& level) {
    const CodedWeights codes(decoder_, model_.weights[1]);
    MicroBatchShape shape = shape_;
    shape.fp8->weights = Fp8Layer::Weights::kCodes;
    LayerActivations kept;
    begin();
    compare("layer forward, codes" + level, run([&] { decoder_.layer_forward(codes.weights(), x, &kept, recompute); }),
            layer_forward_operations(decoder_.config(), shape, recompute));
    compare("layer backward, codes" + level,
            run([&] { decoder_.layer_backward(codes.weights(), x, kept, model_.gradients[1]); }),
            layer_backward_operations(decoder_.config(), shape, recompute));
    begin();
  }
  // Gradients that the next contribution overwrites, or those of an earlier micro-batch.
  void begin() {
    model_.reset_gradients();
    if (!shape_.accumulates) return;
    for (auto& unit : model_.gradients) {
      for (Gradient& gradient : unit) gradient = Gradient(gradient.view(), /*empty=*/false);
    }
  }
  void compare(const std::string& unit, std::vector<std::string> seen, const std::vector<Operation>& listed) {
    std::vector<std::string> expected = described(listed);
    // The list of the head has the same chunks together.
    if (unit == "head") {
      std::sort(seen.begin(), seen.end());
      std::sort(expected.begin(), expected.end());
    }
    if (seen == expected) return;
    differences_.push_back(
        fmt::format("{}:\nran\n  {}\nlisted\n  {}\n", unit, fmt::join(seen, "\n  "), fmt::join(expected, "\n  ")));
  }

  Decoder decoder_;
  FlatModel model_;
  const MicroBatchShape shape_;
  const int64_t chunk_;
  const at::Tensor tokens_;
  std::vector<std::string> differences_;
};

}  // namespace

std::vector<std::string> unlisted_operations(const ModelConfig& config, at::Device device, const MicroBatchShape& shape,
                                             const std::optional<Fp8Options>& fp8) {
  return Comparison(config, device, shape, fp8).differences();
}

}  // namespace mpzero::model
