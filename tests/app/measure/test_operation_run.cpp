// The run of an operation runs that operation: what torch's observers of functions see of it.
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/measure/operation_run.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::measure {
namespace {

using model::MicroBatchShape;
using model::Operation;
using model::Recompute;

thread_local std::vector<std::string>* seen_names = nullptr;

std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& function) {
  const std::string name = function.name();
  if (seen_names == nullptr || !name.starts_with("mpzero::")) return nullptr;
  std::string shapes;
  for (const c10::IValue& input : function.inputs()) {
    if (!input.isTensor() || !input.toTensor().defined()) continue;
    shapes += " [";
    for (const int64_t size : input.toTensor().sizes()) shapes += std::to_string(size) + " ";
    shapes += std::string("]") + c10::toString(input.toTensor().scalar_type());
  }
  seen_names->push_back(name + shapes);
  return nullptr;
}

std::vector<std::string> seen_in(const Body& body, int set) {
  std::vector<std::string> seen;
  seen_names = &seen;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(observe).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  body(set);
  at::removeCallback(handle);
  seen_names = nullptr;
  return seen;
}

std::vector<Operation> all_operations(const model::ModelConfig& config, const MicroBatchShape& shape) {
  std::vector<Operation> all;
  const auto add = [&](const std::vector<Operation>& own) { all.insert(all.end(), own.begin(), own.end()); };
  add(layer_forward_operations(config, shape));
  add(layer_backward_operations(config, shape, Recompute::kNone));
  add(layer_backward_operations(config, shape, Recompute::kSelective));
  add(head_operations(config, shape, 5));
  add(embedding_forward_operations(config, shape));
  add(embedding_backward_operations(config, shape));
  return all;
}

}  // namespace

TEST_CASE("each operation of a step can be run by itself") {
  model::Matmuls matmuls;
  for (const auto& config : {model::small_qwen3(), model::small_llama(), model::small_qwen2()}) {
    for (const bool accumulates : {false, true}) {
      const MicroBatchShape shape{.sequences = 2, .length = 6, .gradient_type = at::kFloat, .accumulates = accumulates};
      for (const Operation& operation : all_operations(config, shape)) {
        INFO(config.model_type << ": " << describe(operation));
        const Body body = run_of(operation, matmuls, at::kCPU, 2);
        const std::vector<std::string> seen = seen_in(body, 1);
        // ATen's own operators have no name of mpzero's.
        const bool by_aten =
            operation.kind == model::OperationKind::kEmbeddingForward || operation.kind == model::OperationKind::kZero;
        REQUIRE(seen.size() == (by_aten ? 0 : 1));
        if (by_aten) continue;
        const std::string name = fmt::format("mpzero::{} ", model::name(operation.kind));
        CHECK(seen.front().starts_with(name));
        if (operation.kind != model::OperationKind::kMatmul) continue;
        const model::MatmulShape& s = operation.matmul;
        const std::string out = fmt::format("[{} {} ]{}", s.rows, s.columns, c10::toString(s.out_type));
        CHECK(seen.front().starts_with(name + out));
        // The result, when it is added to.
        const size_t tensors = static_cast<size_t>(std::count(seen.front().begin(), seen.front().end(), '['));
        CHECK(tensors == (operation.adds || s.bias ? 4U : 3U));
      }
    }
  }
}

TEST_CASE("each product and cast of a layer in FP8 can be run by itself") {
  model::Fp8Layer fp8{.recipe = {}, .weights = model::Fp8Layer::Weights::kFirstUse};
  fp8.products.fill(true);
  for (const auto scaling : {model::fp8::Scaling::kTensorwise, model::fp8::Scaling::kRowwise}) {
    fp8.recipe.scaling = scaling;
    for (const auto& config : {model::small_qwen3(), model::small_qwen2()}) {
      for (const bool accumulates : {false, true}) {
        const MicroBatchShape shape{
            .sequences = 2, .length = 6, .gradient_type = at::kFloat, .accumulates = accumulates, .fp8 = fp8};
        std::vector<Operation> operations = all_operations(config, shape);
        MicroBatchShape of_codes = shape;
        of_codes.fp8->weights = model::Fp8Layer::Weights::kCodes;
        for (const Operation& operation : all_operations(config, of_codes)) operations.push_back(operation);
        for (const Operation& operation : operations) {
          const bool is_product = operation.matmul.fp8.has_value();
          if (!is_product && !is_fp8_cast(operation.kind)) continue;
          INFO(config.model_type << ": " << describe(operation));
          model::Matmuls matmuls(is_product && operation.matmul.fp8->fast_accumulation
                                     ? model::fp8::FastAccumulation::kAll
                                     : model::fp8::FastAccumulation::kNone);
          const std::vector<std::string> seen = seen_in(run_of(operation, matmuls, at::kCPU, 2), 1);
          REQUIRE(seen.size() == 1);
          const bool transposes = operation.kind == model::OperationKind::kFp8Transpose;
          CHECK(seen.front().starts_with(is_product   ? "mpzero::fp8_matmul ["
                                         : transposes ? "mpzero::fp8_transpose ["
                                                      : "mpzero::fp8_cast ["));
          if (!is_product) continue;
          const model::MatmulShape& s = operation.matmul;
          const std::string start = fmt::format(
              "mpzero::fp8_matmul [{} {} ]{} [{} {} ]{} [{} {} ]{}", s.rows, s.columns, c10::toString(s.out_type),
              s.rows, s.inner, c10::toString(s.type), s.columns, s.inner, c10::toString(at::kFloat8_e4m3fn));
          CHECK(seen.front().starts_with(start));
          const auto tensors = static_cast<size_t>(std::count(seen.front().begin(), seen.front().end(), '['));
          CHECK(tensors == (operation.adds || s.bias ? 4U : 3U));
        }
      }
    }
  }
}

TEST_CASE("runs of one set do not touch another") {
  model::Matmuls matmuls;
  const Operation swiglu{.kind = model::OperationKind::kSwigluForward, .type = at::kFloat, .rows = 3, .columns = 4};
  const Body body = run_of(swiglu, matmuls, at::kCPU, 2);
  const at::Tensor first = body(0).front().clone(), second = body(1).front().clone();
  CHECK_FALSE(first.equal(second));
  CHECK(body(0).front().equal(first));
}

}  // namespace mpzero::measure
