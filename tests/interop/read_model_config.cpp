// read_model_config CONFIG.json LENGTH: mpzero's interpretation of a model's config.json, as JSON. For
// test_model_configs.py.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "model/architecture/config.hpp"
#include "model/rope_table.hpp"

int main(int argc, char** argv) {
  using namespace mpzero;
  try {
    if (argc != 3) throw_user_error("give one config.json and a length");
    const model::ModelConfig config = model::ModelConfig::from_file(argv[1]);
    const at::Tensor frequencies = model::rope_frequencies(config, std::stoll(argv[2]));
    const auto* begin = frequencies.const_data_ptr<float>();
    const nlohmann::json seen = {{"num_parameters", model::num_parameters(config)},
                                 {"tie_word_embeddings", config.tie_word_embeddings},
                                 {"rms_norm_eps", config.rms_norm_eps},
                                 {"rope_magnitude", model::rope_magnitude(config)},
                                 {"rope_frequencies", std::vector<float>(begin, begin + frequencies.numel())}};
    fmt::print("{}\n", seen.dump());
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
