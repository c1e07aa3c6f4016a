// The run of an operation runs that operation.
#include <string>
#include <vector>

#include "app/measure/operation_run.hpp"
#include "app/simulation/unit_record.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::measure {
namespace {

using model::Operation;
using model::Recompute;
using plan::MicroBatchShape;

// What the run of an operation runs.
std::string ran(const Operation& operation, model::Matmuls& matmuls) {
  const Body body = run_of(operation, matmuls, at::kCPU, 2);
  model::OperationRecorder recorder;
  body(1);
  REQUIRE(recorder.seen.size() == 1);
  return describe(recorder.seen.front());
}

std::vector<Operation> all_operations(const model::ModelConfig& config, const MicroBatchShape& shape) {
  std::vector<Operation> all;
  const auto add = [&](const plan::UnitCall& call) {
    all.insert(all.end(), call.operations.begin(), call.operations.end());
  };
  plan::UnitRecorder recorder(config, shape, at::kCPU, 5 * config.vocab_size);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective}) {
    const plan::UnitRecorder::Layer layer = recorder.layer(recompute);
    add(layer.forward);
    add(layer.backward);
  }
  add(recorder.head());
  add(recorder.embedding_forward());
  add(recorder.embedding_backward());
  return all;
}

}  // namespace

TEST_CASE("each operation of a step can be run by itself") {
  model::Matmuls matmuls;
  for (const auto& config : model::small_models()) {
    for (const bool accumulates : {false, true}) {
      const MicroBatchShape shape{.sequences = 2, .length = 6, .gradient_type = at::kFloat, .accumulates = accumulates};
      for (const Operation& operation : all_operations(config, shape)) {
        // ATen's own operators are not mpzero's kernels.
        if (operation.kind == model::OperationKind::kEmbeddingForward ||
            operation.kind == model::OperationKind::kZero) {
          continue;
        }
        INFO(config.model_type);
        CHECK(ran(operation, matmuls) == describe(operation));
      }
    }
  }
}

TEST_CASE("each product and cast of a layer in FP8 can be run by itself") {
  for (const auto scaling : {model::fp8::Scaling::kTensorwise, model::fp8::Scaling::kRowwise}) {
    for (const auto& config : {model::small_qwen3(), model::small_qwen2()}) {
      for (const bool accumulates : {false, true}) {
        for (const plan::WeightCasts casts : {plan::WeightCasts::kFirstUse, plan::WeightCasts::kCodes}) {
          if (casts == plan::WeightCasts::kCodes && scaling == model::fp8::Scaling::kRowwise) continue;
          model::Fp8Options fp8;
          fp8.recipe.scaling = scaling;
          const MicroBatchShape shape{.sequences = 2,
                                      .length = 6,
                                      .gradient_type = at::kFloat,
                                      .accumulates = accumulates,
                                      .fp8 = fp8,
                                      .casts = casts};
          for (const Operation& operation : all_operations(config, shape)) {
            const bool is_product = operation.matmul.fp8.has_value();
            if (!is_product && !is_fp8_cast(operation.kind)) continue;
            INFO(config.model_type);
            model::Matmuls matmuls(is_product && operation.matmul.fp8->fast_accumulation
                                       ? model::fp8::FastAccumulation::kAll
                                       : model::fp8::FastAccumulation::kNone);
            CHECK(ran(operation, matmuls) == describe(operation));
          }
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
