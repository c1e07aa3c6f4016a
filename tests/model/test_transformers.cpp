// Loss and gradients of full models against transformers: the fixtures of this folder (written by
// fixtures/make_fixtures.py), and the first step of the DeepSpeed runs in tests/golden.
#include <ATen/ops/stack.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/tensor_file.hpp"

namespace mpzero::model {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(MPZERO_SOURCE_DIR) / "tests/model/fixtures";

void copy_weights(FlatModel& model, const std::map<std::string, at::Tensor>& tensors) {
  for (const std::string& name : model.names()) {
    at::Tensor weight = model.weight(name);
    REQUIRE(tensors.at(name).sizes() == weight.sizes());
    weight.copy_(tensors.at(name));
  }
}

// Attention hardly changes when one vector is added to all keys, so the tokens' contributions to the gradient of such a
// bias nearly cancel: it is exact to the size of these terms, which the gradient of the corresponding weight shows.
double size_of_terms(const std::string& weight, const std::map<std::string, at::Tensor>& tensors) {
  const size_t bias = weight.find("k_proj.bias");
  if (bias == std::string::npos) return 0.0;
  return tensors.at("gradient." + weight.substr(0, bias) + "k_proj.weight").abs().max().item<double>();
}

void check_fixture(const std::string& name, at::ScalarType type, double loss_tolerance, double gradient_tolerance) {
  const Decoder decoder(ModelConfig::from_file(kFixtures / (name + ".json")), {.max_logits = 48 * 50});
  const auto tensors = read_tensor_file(kFixtures / (name + ".safetensors"));
  FlatModel model(decoder, at::TensorOptions().dtype(type), at::kFloat);
  copy_weights(model, tensors);
  const at::Tensor loss = model.forward_backward(tensors.at("tokens"));
  CHECK(relative_error(loss, tensors.at("loss")) < loss_tolerance);
  CHECK(relative_error(model.loss(tensors.at("tokens")), tensors.at("loss")) < loss_tolerance);
  for (const std::string& weight : model.names()) {
    INFO(name << " " << weight);
    const double scale = type == at::kBFloat16 ? size_of_terms(weight, tensors) : 0.0;
    CHECK(relative_error(model.gradient(weight), tensors.at("gradient." + weight), scale) < gradient_tolerance);
  }
}

// The mean loss and the norm of the mean gradient over the first step's micro-batches, over all ranks.
void check_golden(const std::string& name, int64_t windows_per_step, int64_t micro_batch, at::ScalarType type,
                  double tolerance) {
  const std::filesystem::path folder = std::filesystem::path(MPZERO_SOURCE_DIR) / "tests/golden" / name;
  std::ifstream file(folder / "trace.json");
  const auto trace = nlohmann::json::parse(file);
  const int64_t length = trace["seq_length"].get<int64_t>();
  const Decoder decoder(ModelConfig::from_file(folder / "init/config.json"));
  FlatModel model(decoder, at::TensorOptions().dtype(type), at::kFloat);
  copy_weights(model, read_tensor_file(folder / "init/model.safetensors"));
  const at::Tensor stream = read_uint16_npy(folder / "tokens.npy");
  const int64_t micro_batches = windows_per_step / micro_batch;
  double loss = 0;
  for (int64_t m = 0; m < micro_batches; ++m) {
    std::vector<at::Tensor> rows;
    for (int64_t b = 0; b < micro_batch; ++b) {
      rows.push_back(stream.narrow(0, (m * micro_batch + b) * length, length + 1));
    }
    const double scale = 1.0 / static_cast<double>(micro_batches);
    loss += model.forward_backward(at::stack(rows), scale, static_cast<Recompute>(m % 3)).item<double>() * scale;
  }
  double squares = 0;
  for (const at::Tensor& gradient : model.flat_gradients)
    squares += gradient.to(at::kDouble).square().sum().item<double>();
  const auto& first = trace["trace"][0];
  CHECK(loss == Approx(first["loss"].get<double>()).epsilon(tolerance));
  CHECK(std::sqrt(squares) == Approx(first["grad_norm"].get<double>()).epsilon(tolerance));
}

}  // namespace

TEST_CASE("Qwen3 agrees with transformers") {
  SECTION("fp64") { check_fixture("qwen3", at::kDouble, 1e-6, 2e-5); }
  SECTION("fp32") { check_fixture("qwen3", at::kFloat, 1e-6, 2e-5); }
  SECTION("bf16 with fp32 gradients") { check_fixture("qwen3", at::kBFloat16, 1e-2, 6e-2); }
}

TEST_CASE("Qwen2 agrees with transformers") {
  SECTION("fp64") { check_fixture("qwen2", at::kDouble, 1e-6, 2e-5); }
  SECTION("fp32") { check_fixture("qwen2", at::kFloat, 1e-6, 2e-5); }
  SECTION("bf16 with fp32 gradients") { check_fixture("qwen2", at::kBFloat16, 1e-2, 6e-2); }
}

TEST_CASE("Llama 3.1 agrees with transformers") {
  SECTION("fp64") { check_fixture("llama31", at::kDouble, 1e-6, 2e-5); }
  SECTION("fp32") { check_fixture("llama31", at::kFloat, 1e-6, 2e-5); }
  SECTION("bf16 with fp32 gradients") { check_fixture("llama31", at::kBFloat16, 1e-2, 6e-2); }
}

TEST_CASE("the other families agree with transformers") {
  for (const char* name : {"mistral", "granite", "olmo2", "phi3", "seed_oss", "smollm3"}) {
    check_fixture(name, at::kDouble, 1e-6, 2e-5);
    check_fixture(name, at::kFloat, 1e-6, 2e-5);
    check_fixture(name, at::kBFloat16, 1e-2, 6e-2);
  }
}

TEST_CASE("the first step matches the golden runs") {
  SECTION("qwen3 fp32") { check_golden("qwen3-zero2-fp32", 8, 2, at::kFloat, 5e-6); }
  SECTION("qwen3 bf16") { check_golden("qwen3-zero2-bf16", 8, 2, at::kBFloat16, 5e-3); }
  SECTION("llama fp32") { check_golden("llama-zero3-fp32", 6, 1, at::kFloat, 5e-6); }
}

}  // namespace mpzero::model
