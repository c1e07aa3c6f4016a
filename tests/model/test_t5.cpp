// T5 against transformers: the fixtures t5 (v1.0) and t5_v1_1 of fixtures/make_fixtures.py.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "tests/catch.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/tensor_file.hpp"

namespace mpzero::model {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(MPZERO_SOURCE_DIR) / "tests/model/fixtures";
using Tensors = std::map<std::string, at::Tensor>;

// transformers' labels, of which -100 is none.
Batch batch_of(const Tensors& tensors) {
  const at::Tensor labels = tensors.at("labels"), given = labels.ge(0), targets = labels.clamp_min(0);
  const at::Tensor start = at::zeros({labels.size(0), 1}, at::kLong);
  // The mean is over the given labels, and a mask's over all.
  const at::Tensor weight = given.to(at::kFloat).mul(static_cast<double>(labels.numel()) / given.sum().item<double>());
  return {.tokens = at::cat({start, targets.narrow(1, 0, labels.size(1) - 1)}, 1),
          .targets = targets,
          .loss_mask = weight,
          .source = tensors.at("source")};
}

// As TrainingPass runs the units. Sets the model's gradients.
at::Tensor forward_backward(const Decoder& decoder, FlatModel& model, const Batch& batch, Recompute recompute) {
  const std::vector<LayerValues> graph = decoder.graph();
  std::vector<LayerActivations> saved(graph.size());
  Values values = decoder.embed(model.weights[0], batch), gradients(100);
  values.resize(gradients.size());
  const auto weights_of = [&](size_t layer) {
    Weights weights(model.weights[layer + 1]);
    weights.layer = static_cast<int64_t>(layer);
    return weights;
  };
  for (size_t layer = 0; layer < graph.size(); ++layer) {
    Values inputs;
    for (const size_t value : graph[layer].inputs) inputs.push_back(values[value]);
    const Values outputs = decoder.run_layer(weights_of(layer), inputs, &saved[layer], recompute, batch);
    for (size_t i = 0; i < outputs.size(); ++i) values[graph[layer].outputs[i]] = outputs[i];
  }
  const size_t head = decoder.head_unit(), last = graph.back().outputs.front();
  const bool tied = decoder.tied_head();
  const at::Tensor& output = tied ? model.weights[0][0] : model.weights[head][1];
  Gradient& output_gradient = tied ? model.gradients[0][0] : model.gradients[head][1];
  const auto result = decoder.head_forward_backward(model.weights[head], output, values[last], batch.targets, 1.0,
                                                    model.gradients[head], output_gradient, batch.loss_mask);
  CHECK(relative_error(decoder.head_loss(model.weights[head], output, values[last], batch.targets, batch.loss_mask),
                       result.loss) < 1e-6);
  gradients[last] = result.dx;
  for (size_t layer = graph.size(); layer-- > 0;) {
    Values outputs;
    for (const size_t value : graph[layer].outputs) outputs.push_back(gradients[value]);
    const Values inputs =
        decoder.run_layer_backward(weights_of(layer), outputs, saved[layer], model.gradients[layer + 1]);
    for (size_t i = 0; i < inputs.size(); ++i) {
      at::Tensor& sum = gradients[graph[layer].inputs[i]];
      sum = sum.defined() ? sum.add(inputs[i]) : inputs[i];
    }
  }
  decoder.add_embedding_gradient(gradients, batch, model.gradients[0]);
  return result.loss;
}

// `padding`: with this id and that of padding in the fixture, 0, exchanged.
void check_fixture(const std::string& name, at::ScalarType type, double loss_tolerance, double gradient_tolerance,
                   int64_t padding = 0) {
  ModelConfig config = ModelConfig::from_file(kFixtures / (name + ".json"));
  config.t5->pad_token_id = config.t5->decoder_start_token_id = padding;
  const auto decoder = make_model(config, {.max_logits = 48 * 50});
  Tensors tensors = read_tensor_file(kFixtures / (name + ".safetensors"));
  Batch batch = batch_of(tensors);
  if (padding != 0) {
    const at::Tensor ids = at::arange(config.vocab_size);
    ids[0] = padding;
    ids[padding] = 0;
    for (at::Tensor* tokens : {&batch.tokens, &batch.targets, &batch.source}) {
      *tokens = ids.index_select(0, tokens->flatten()).view_as(*tokens);
    }
    for (auto& [of, tensor] : tensors) {
      if (of.ends_with("shared.weight") || of.ends_with("lm_head.weight")) tensor = tensor.index_select(0, ids);
    }
  }
  std::vector<at::Tensor> first;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    FlatModel model(*decoder, at::TensorOptions().dtype(type), at::kFloat);
    for (const std::string& weight : model.names()) model.weight(weight).copy_(tensors.at(weight));
    const at::Tensor loss = forward_backward(*decoder, model, batch, recompute);
    CHECK(relative_error(loss, tensors.at("loss")) < loss_tolerance);
    for (const std::string& weight : model.names()) {
      INFO(name << " " << weight);
      CHECK(relative_error(model.gradient(weight), tensors.at("gradient." + weight)) < gradient_tolerance);
    }
    if (first.empty()) first = model.flat_gradients;
    for (size_t unit = 0; unit < first.size(); ++unit) CHECK(bitwise_equal(model.flat_gradients[unit], first[unit]));
  }
}

}  // namespace

TEST_CASE("T5's loss and gradients agree with transformers, with the same bits at each recompute level") {
  SECTION("v1.0 in fp64") { check_fixture("t5", at::kDouble, 1e-6, 2e-5); }
  SECTION("v1.0 in fp32") { check_fixture("t5", at::kFloat, 1e-6, 1e-4); }
  SECTION("v1.1 in fp64") { check_fixture("t5_v1_1", at::kDouble, 1e-6, 2e-5); }
  SECTION("v1.1 in fp32") { check_fixture("t5_v1_1", at::kFloat, 1e-6, 1e-4); }
  SECTION("another padding id") { check_fixture("t5_v1_1", at::kDouble, 1e-6, 2e-5, 7); }
}

}  // namespace mpzero::model
