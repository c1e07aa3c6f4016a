#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/architecture/config.hpp"
#include "tests/catch.hpp"

namespace mpzero::model {
namespace {

using nlohmann::json;

ModelConfig parse(const json& object) { return ModelConfig::from_json(object.dump(), "x/config.json"); }

// google-t5/t5-small's.
json small() {
  return {{"model_type", "t5"},
          {"vocab_size", 32128},
          {"d_model", 512},
          {"d_kv", 64},
          {"d_ff", 2048},
          {"num_heads", 8},
          {"num_layers", 6},
          {"decoder_start_token_id", 0},
          {"eos_token_id", 1},
          {"pad_token_id", 0},
          {"n_positions", 512},
          {"is_encoder_decoder", true},
          {"output_past", true},
          {"dropout_rate", 0.1},
          {"layer_norm_epsilon", 1e-6},
          {"initializer_factor", 1.0}};
}

// google/flan-t5-small's.
json flan_small() {
  json object = small();
  object.update({{"d_ff", 1024},
                 {"num_heads", 6},
                 {"num_layers", 8},
                 {"num_decoder_layers", 8},
                 {"feed_forward_proj", "gated-gelu"},
                 {"tie_word_embeddings", false}});
  return object;
}

std::string error(const std::function<void(json&)>& change) {
  json object = small();
  change(object);
  try {
    parse(object);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("T5 has the published number of parameters") {
  CHECK(num_parameters(parse(small())) == 60'506'624);
  CHECK(num_parameters(parse(flan_small())) == 76'961'152);
}

TEST_CASE("T5's config.json round-trips") {
  for (const json& object : {small(), flan_small()}) {
    const ModelConfig config = parse(object);
    const std::string written = config.to_json();
    CHECK(ModelConfig::from_json(written, "written") == config);
    CHECK(json::parse(written)["architectures"] == json({"T5ForConditionalGeneration"}));
  }
  // As transformers 5 saves it.
  json saved = flan_small();
  saved.update({{"tie_word_embeddings", true}, {"scale_decoder_outputs", false}});
  CHECK(parse(saved) == parse(flan_small()));
  CHECK(json::parse(parse(saved).to_json())["scale_decoder_outputs"] == false);
}

TEST_CASE("each matrix of T5 counts for the tokens that pass through it") {
  const double source = 512, target = 128, of_encoder = 4 * 512 * 512 + 2 * 512 * 2048, cross = 2 * 512 * 512;
  const double products =
      6 * (6 * of_encoder * source + 6 * ((of_encoder + cross) * target + cross * source) + 32128.0 * 512 * target);
  const double attention = 6 * 6 * 512 * (2 * source * source + target * target + 2 * target * source);
  CHECK(flops_per_token(parse(small()), 640, 512) * 640 == Approx(products + attention));
}

TEST_CASE("refuses keys that would change T5's results") {
  for (const auto& [key, value] :
       {std::pair("decoder_start_token_id", json(nullptr)), std::pair("feed_forward_proj", json("gated-silu")),
        std::pair("relative_attention_num_buckets", json(6)), std::pair("relative_attention_max_distance", json(8)),
        std::pair("num_decoder_layers", json(0)), std::pair("pad_token_id", json(-1)),
        std::pair("is_encoder_decoder", json(false)), std::pair("rope_theta", json(1.0))}) {
    const std::string text = error([&](json& object) { object[key] = value; });
    INFO(key << ": " << text);
    CHECK(text.find(key) != std::string::npos);
  }
  // transformers scales the logits although the head is not tied.
  const std::string text =
      error([](json& object) { object.update({{"tie_word_embeddings", false}, {"scale_decoder_outputs", true}}); });
  CHECK(text.find("scale_decoder_outputs") != std::string::npos);
}

}  // namespace mpzero::model
