#include "model/config.hpp"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "model/architectures.hpp"

namespace mpzero::model {
namespace {

using nlohmann::json;

// Typed look-ups in one JSON object; a key that is missing or null yields the default or is an error.
class Reader {
 public:
  Reader(const json& object, const std::string& source) : object_(object), source_(source) {}

  const json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  int64_t integer(const char* key, std::optional<int64_t> fallback = {}) const {
    const json* value = find(key);
    if (value == nullptr) {
      if (fallback) return *fallback;
      missing(key);
    }
    if (value->is_number_integer()) return value->get<int64_t>();
    if (value->is_number_float() && std::abs(value->get<double>()) < 1e15 &&
        value->get<double>() == std::floor(value->get<double>())) {
      return static_cast<int64_t>(value->get<double>());
    }
    wrong(key, *value, "a whole number");
  }

  double number(const char* key, std::optional<double> fallback = {}) const {
    const json* value = find(key);
    if (value == nullptr) {
      if (fallback) return *fallback;
      missing(key);
    }
    if (!value->is_number()) wrong(key, *value, "a number");
    return value->get<double>();
  }

  bool boolean(const char* key, bool fallback) const {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) wrong(key, *value, "true or false");
    return value->get<bool>();
  }

  std::string text(const char* key, std::optional<std::string> fallback = {}) const {
    const json* value = find(key);
    if (value == nullptr) {
      if (fallback) return *fallback;
      missing(key);
    }
    if (!value->is_string()) wrong(key, *value, "a string");
    return value->get<std::string>();
  }

  [[noreturn]] void missing(const char* key) const {
    throw_user_error("{}: the key \"{}\" is missing; add it, as in a Hugging Face config.json.", source_, key);
  }
  [[noreturn]] void wrong(const char* key, const json& value, const char* expected) const {
    throw_user_error("{}: {} is {}, but must be {}.", source_, key, value.dump(), expected);
  }

 private:
  const json& object_;
  const std::string& source_;
};

void read_rope(const Reader& reader, const Architecture& architecture, const std::string& source, ModelConfig& config) {
  config.rope_theta = reader.number("rope_theta", architecture.default_rope_theta);
  // transformers 5 writes rope_parameters with rope_theta in it, earlier versions rope_scaling beside rope_theta.
  const char* key = reader.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const json* object = reader.find(key);
  if (object == nullptr) return;
  if (!object->is_object()) reader.wrong(key, *object, "an object");
  const Reader rope(*object, source);
  config.rope_theta = rope.number("rope_theta", config.rope_theta);
  if (rope.number("partial_rotary_factor", 1.0) != 1.0) {
    throw_user_error("{}: {}.partial_rotary_factor other than 1 is not supported; use a model without it.", source,
                     key);
  }
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return;
  if (type != "llama3") {
    throw_user_error("{}: {}.rope_type \"{}\" is not supported; use \"default\" or \"llama3\".", source, key, type);
  }
  config.rope_scaling =
      Llama3RopeScaling{.factor = rope.number("factor"),
                        .low_freq_factor = rope.number("low_freq_factor"),
                        .high_freq_factor = rope.number("high_freq_factor"),
                        .original_max_position_embeddings = rope.integer("original_max_position_embeddings")};
}

void read_token_ids(const Reader& reader, ModelConfig& config) {
  if (reader.find("bos_token_id") != nullptr) config.bos_token_id = reader.integer("bos_token_id");
  const json* eos = reader.find("eos_token_id");
  if (eos == nullptr) return;
  if (!eos->is_array()) {
    config.eos_token_ids = {reader.integer("eos_token_id")};
    return;
  }
  for (const json& id : *eos) {
    if (!id.is_number_integer()) reader.wrong("eos_token_id", *eos, "a whole number or a list of whole numbers");
    config.eos_token_ids.push_back(id.get<int64_t>());
  }
}

void check_common_options(const Reader& reader, const json& object, const std::string& source) {
  reader.boolean("attention_bias", false);  // its meaning is the family's
  if (reader.number("attention_dropout", 0.0) != 0.0) {
    throw_user_error("{}: attention_dropout {} is not supported; set it to 0.", source,
                     object["attention_dropout"].dump());
  }
  const std::string activation = reader.text("hidden_act", "silu");
  if (activation != "silu") {
    throw_user_error("{}: hidden_act \"{}\" is not supported; only \"silu\" is.", source, activation);
  }
  if (const json* types = reader.find("layer_types"); types != nullptr && types->is_array()) {
    for (const json& type : *types) {
      if (type != "full_attention") {
        throw_user_error("{}: layer_types holds {}, which is not supported; only \"full_attention\" is.", source,
                         type.dump());
      }
    }
  }
}

}  // namespace

ModelConfig ModelConfig::from_json(std::string_view text, const std::string& source) {
  json object;
  try {
    object = json::parse(text);
  } catch (const json::parse_error& error) {
    throw_user_error("{}: not valid JSON near byte {}; mend the file or export it again.", source, error.byte);
  } catch (const json::out_of_range&) {
    throw_user_error("{}: holds a number too large for a double; mend the file or export it again.", source);
  }
  if (!object.is_object()) throw_user_error("{}: holds no JSON object; give a Hugging Face config.json.", source);

  const Reader reader(object, source);
  ModelConfig config;
  config.model_type = reader.text("model_type");
  const Architecture& architecture = find_architecture(config.model_type, source);
  check_common_options(reader, object, source);
  architecture.check_options(object, source);

  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("hidden_size");
  config.intermediate_size = reader.integer("intermediate_size");
  config.num_hidden_layers = reader.integer("num_hidden_layers");
  config.num_attention_heads = reader.integer("num_attention_heads");
  config.num_key_value_heads = reader.integer("num_key_value_heads", config.num_attention_heads);
  if (config.num_attention_heads < 1) {
    reader.wrong("num_attention_heads", object["num_attention_heads"], "at least 1");
  }
  config.head_dim = reader.integer("head_dim", architecture.default_head_dim(config));
  config.max_position_embeddings = reader.integer("max_position_embeddings");
  config.rms_norm_eps = reader.number("rms_norm_eps", architecture.default_rms_norm_eps);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", architecture.tied_by_default);
  config.initializer_range = reader.number("initializer_range", 0.02);
  read_rope(reader, architecture, source, config);
  read_token_ids(reader, config);
  config.validate(source);
  return config;
}

ModelConfig ModelConfig::from_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!file || std::filesystem::is_directory(path) || !(text << file.rdbuf())) {
    throw_user_error("The model configuration {} cannot be read; give a preset's name or the path of a config.json.",
                     path.string());
  }
  return from_json(text.str(), path.string());
}

void ModelConfig::validate(const std::string& source) const {
  find_architecture(model_type, source);
  const std::pair<const char*, int64_t> sizes[] = {{"vocab_size", vocab_size},
                                                   {"hidden_size", hidden_size},
                                                   {"intermediate_size", intermediate_size},
                                                   {"num_hidden_layers", num_hidden_layers},
                                                   {"num_attention_heads", num_attention_heads},
                                                   {"num_key_value_heads", num_key_value_heads},
                                                   {"head_dim", head_dim},
                                                   {"max_position_embeddings", max_position_embeddings}};
  for (const auto& [key, value] : sizes) {
    if (value < 1 || value > (int64_t{1} << 31)) {
      throw_user_error("{}: {} is {}, but must be at least 1 and below 2^31.", source, key, value);
    }
  }
  if (num_attention_heads % num_key_value_heads != 0) {
    throw_user_error("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}; change one of them.",
                     source, num_attention_heads, num_key_value_heads);
  }
  if (head_dim % 2 != 0) {
    throw_user_error("{}: head_dim {} is odd, but rotary embeddings turn pairs; use an even one.", source, head_dim);
  }
  const std::pair<const char*, double> positives[] = {{"rms_norm_eps", rms_norm_eps}, {"rope_theta", rope_theta}};
  for (const auto& [key, value] : positives) {
    if (!(value > 0) || !std::isfinite(value)) {
      throw_user_error("{}: {} is {}, but must be greater than 0.", source, key, value);
    }
  }
  if (!(initializer_range >= 0) || !std::isfinite(initializer_range)) {
    throw_user_error("{}: initializer_range is {}, but must be 0 or more.", source, initializer_range);
  }
  if (rope_scaling && !(rope_scaling->factor > 0 && rope_scaling->low_freq_factor > 0 &&
                        rope_scaling->high_freq_factor > rope_scaling->low_freq_factor &&
                        rope_scaling->original_max_position_embeddings > 0)) {
    throw_user_error(
        "{}: the rope scaling has factor {}, low_freq_factor {}, high_freq_factor {} and "
        "original_max_position_embeddings {}, but they must be positive and high_freq_factor the larger one.",
        source, rope_scaling->factor, rope_scaling->low_freq_factor, rope_scaling->high_freq_factor,
        rope_scaling->original_max_position_embeddings);
  }
}

std::string ModelConfig::to_json(std::string_view dtype) const {
  const Architecture& architecture = find_architecture(model_type, "model configuration");
  json rope = {{"rope_theta", rope_theta}, {"rope_type", "default"}};
  // The old spelling stands beside the new one, for transformers before version 5.
  json old_rope_scaling = nullptr;
  if (rope_scaling) {
    rope["rope_type"] = "llama3";
    rope["factor"] = rope_scaling->factor;
    rope["low_freq_factor"] = rope_scaling->low_freq_factor;
    rope["high_freq_factor"] = rope_scaling->high_freq_factor;
    rope["original_max_position_embeddings"] = rope_scaling->original_max_position_embeddings;
    old_rope_scaling = rope;
    old_rope_scaling.erase("rope_theta");
  }
  json object = {{"architectures", {architecture.causal_lm_class}},
                 {"attention_bias", false},
                 {"attention_dropout", 0.0},
                 {"bos_token_id", bos_token_id ? json(*bos_token_id) : json(nullptr)},
                 {"dtype", dtype},
                 {"head_dim", head_dim},
                 {"hidden_act", "silu"},
                 {"hidden_size", hidden_size},
                 {"initializer_range", initializer_range},
                 {"intermediate_size", intermediate_size},
                 {"max_position_embeddings", max_position_embeddings},
                 {"model_type", model_type},
                 {"num_attention_heads", num_attention_heads},
                 {"num_hidden_layers", num_hidden_layers},
                 {"num_key_value_heads", num_key_value_heads},
                 {"rms_norm_eps", rms_norm_eps},
                 {"rope_parameters", rope},
                 {"rope_scaling", old_rope_scaling},
                 {"rope_theta", rope_theta},
                 {"tie_word_embeddings", tie_word_embeddings},
                 {"torch_dtype", dtype},
                 {"use_cache", true},
                 {"vocab_size", vocab_size}};
  if (eos_token_ids.empty()) object["eos_token_id"] = nullptr;
  if (eos_token_ids.size() == 1) object["eos_token_id"] = eos_token_ids.front();
  if (eos_token_ids.size() > 1) object["eos_token_id"] = eos_token_ids;
  architecture.write_options(*this, object);
  return object.dump(2) + "\n";
}

std::vector<UnitSpec> model_units(const ModelConfig& config) {
  const Architecture& architecture = find_architecture(config.model_type, "model configuration");
  std::vector<UnitSpec> units;
  units.push_back({"embedding", {{"model.embed_tokens.weight", {config.vocab_size, config.hidden_size}}}});
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    UnitSpec unit{fmt::format("layers.{}", layer), {}};
    for (const LayerParameter& parameter : architecture.layer_parameters(config)) {
      unit.parameters.push_back({fmt::format("model.layers.{}.{}", layer, parameter.name), parameter.shape});
    }
    units.push_back(std::move(unit));
  }
  UnitSpec head{"head", {{"model.norm.weight", {config.hidden_size}}}};
  if (!config.tie_word_embeddings)
    head.parameters.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}});
  units.push_back(std::move(head));
  return units;
}

int64_t num_parameters(const ModelConfig& config) {
  int64_t sum = 0;
  for (const UnitSpec& unit : model_units(config)) sum += unit.numel();
  return sum;
}

double flops_per_token(const ModelConfig& config, int64_t seq_length) {
  int64_t multiplied = config.tie_word_embeddings ? 0 : -config.vocab_size * config.hidden_size;
  for (const UnitSpec& unit : model_units(config)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      if (parameter.shape.size() == 2) multiplied += parameter.numel();
    }
  }
  const double attention = static_cast<double>(config.num_hidden_layers) * static_cast<double>(config.query_size()) *
                           static_cast<double>(seq_length);
  return 6.0 * static_cast<double>(multiplied) + 6.0 * attention;
}

}  // namespace mpzero::model
