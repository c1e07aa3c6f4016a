#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/weights/initial_weights.hpp"
#include "io/weights/safetensors.hpp"
#include "tests/io/stub_checkpoint.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero::io::testing {

namespace fs = std::filesystem;

inline const std::string kProjection = "model.layers.0.self_attn.q_proj";

// Weights in memory.
class Values final : public ParameterSource {
 public:
  explicit Values(std::map<std::string, std::vector<float>> values) : values_(std::move(values)) {}
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    const std::vector<float>& all = values_.at(parameter.name);
    for (size_t i = 0; i < out.size(); ++i) out[i] = all.at(static_cast<size_t>(begin) + i);
  }

 private:
  std::map<std::string, std::vector<float>> values_;
};

// A model with an embedding and a projection [2, 3].
inline std::vector<ParameterSpec> base_parameters() {
  return {{"model.embed_tokens.weight", {2, 2}}, {kProjection + ".weight", {2, 3}}};
}

// The folder of a base model, and an in-memory checkpoint with its adapters (r 1, alpha 2).
class AdaptedCheckpoint final : public StubCheckpoint {
 public:
  AdaptedCheckpoint() {
    write_base(1);
    SingleProcess alone;
    record.init_from = base().string();
    record.init_from_hash =
        hash_of(*open_initial_weights(base()), std::vector<UnitSpec>{{"base", base_parameters()}}, alone);
    made.model_config_json =
        R"({"model_type": "llama", "mpzero_lora": {"r": 1, "lora_alpha": 2, "target_modules": ["q_proj"]}})";
    specs = {base_parameters()[0],
             base_parameters()[1],
             {kProjection + ".lora_A.weight", {1, 3}},
             {kProjection + ".lora_B.weight", {2, 1}}};
  }
  // Writes the base model. The elements of the projection are first, first + 1, ...
  void write_base(float first) const {
    std::vector<float> projection(6);
    for (size_t i = 0; i < projection.size(); ++i) projection[i] = first + static_cast<float>(i);
    fs::create_directories(base());
    write_safetensors(base(), base_parameters(),
                      Values({{"model.embed_tokens.weight", {1, 2, 3, 4}}, {kProjection + ".weight", projection}}),
                      int64_t{1} << 30);
  }
  fs::path base() const { return temporary_.path() / "base"; }
  fs::path path(const std::string& name) const { return temporary_.path() / name; }

 private:
  void read_values(const ParameterSpec& parameter, StateKind, int64_t begin, std::span<float> out) const override {
    adapters_.read(parameter, begin, out);
  }

  TemporaryFolder temporary_;
  Values adapters_{{{kProjection + ".lora_A.weight", {1, 10, 100}}, {kProjection + ".lora_B.weight", {1, -1}}}};
};

}  // namespace mpzero::io::testing
