#include "model/inference/cached_t5.hpp"
#include "tests/catch.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/tensor_file.hpp"

namespace mpzero::model {
namespace {

// The mean loss that transformers has computed, by logits of one token after another.
void check_fixture(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(MPZERO_SOURCE_DIR) / "tests/model/fixtures";
  const T5 model(ModelConfig::from_file(folder / (name + ".json")));
  const auto tensors = read_tensor_file(folder / (name + ".safetensors"));
  FlatModel flat(model, at::TensorOptions().dtype(at::kDouble), at::kDouble);
  for (const std::string& weight : flat.names()) flat.weight(weight).copy_(tensors.at(weight));
  CachedT5 cached(model.config(), flat.weights);
  double sum = 0, count = 0;
  for (int64_t b = 0; b < tensors.at("source").size(0); ++b) {
    const at::Tensor source = tensors.at("source")[b], labels = tensors.at("labels")[b];
    at::Tensor logits = cached.begin(source);
    CHECK(cached.length() == source.size(0));
    for (int64_t t = 0; t < labels.size(0); ++t) {
      const auto label = labels[t].item<int64_t>();
      if (label >= 0) {
        sum -= logits.log_softmax(0)[label].item<double>();
        ++count;
      }
      logits = cached.append(labels.narrow(0, t, 1).clamp_min(0));
    }
  }
  INFO(name);
  CHECK(sum / count == Approx(tensors.at("loss").item<double>()).epsilon(1e-6));
}

}  // namespace

TEST_CASE("T5 with a KV cache matches the loss of transformers") {
  check_fixture("t5");
  check_fixture("t5_v1_1");
}

}  // namespace mpzero::model
