#include "model/architecture/config.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/config_keys.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/parameter_spec.hpp"
#include "model/architecture/architectures.hpp"
#include "model/architecture/config_options.hpp"
#include "model/architecture/config_reader.hpp"
#include "model/architecture/config_rope.hpp"

namespace mpzero::model {
namespace {

using nlohmann::json;

void read_token_ids(ConfigReader& reader, ModelConfig& config) {
  if (reader.find("bos_token_id") != nullptr) config.bos_token_id = reader.integer("bos_token_id");
  const json* eos = reader.find("eos_token_id");
  if (eos == nullptr) return;
  if (!eos->is_array()) {
    config.eos_token_ids = {reader.integer("eos_token_id")};
    return;
  }
  for (const json& id : *eos) {
    if (!id.is_number_integer()) reader.wrong("eos_token_id", *eos, "an integer or a list of integers");
    config.eos_token_ids.push_back(id.get<int64_t>());
  }
}

// Keys that to_json() writes from the fields of ModelConfig, and keys that describe only the original weights (storage
// dtype).
constexpr std::array kWrittenKeys = {"architectures",
                                     "bos_token_id",
                                     "dtype",
                                     "eos_token_id",
                                     "head_dim",
                                     "hidden_size",
                                     "initializer_range",
                                     "intermediate_size",
                                     "max_position_embeddings",
                                     "max_window_layers",
                                     "model_type",
                                     kLoraKey,
                                     kExportedTokenizer,
                                     "num_attention_heads",
                                     "num_hidden_layers",
                                     "num_key_value_heads",
                                     "rms_norm_eps",
                                     "rope_parameters",
                                     "rope_scaling",
                                     "rope_theta",
                                     "tie_word_embeddings",
                                     "torch_dtype",
                                     "vocab_size"};

UnusedKeys read_unused(json object, const Architecture& architecture, const ModelConfig& config) {
  for (const char* key : kWrittenKeys) object.erase(key);
  if (architecture.write != nullptr) {
    const json written = architecture.write(config);
    for (const auto& [key, value] : written.items()) object.erase(key);
  }
  return {.json = object.empty() ? "" : object.dump()};
}

// Upper limit far beyond existing models. Up to this limit, byte counts of model states fit in 64 bits, and per-layer
// planning takes less than a second.
constexpr double kMaxParameters = 1e16;
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxRank = 65'536;

// Estimates the number of parameters without biases and norms. Floating-point arithmetic avoids integer overflow.
double roughly_num_parameters(const ModelConfig& c) {
  const auto hidden = static_cast<double>(c.hidden_size);
  const double heads =
      2.0 * static_cast<double>(c.num_attention_heads) + 2.0 * static_cast<double>(c.num_key_value_heads);
  const double layer =
      hidden * (heads * static_cast<double>(c.head_dim) + 3.0 * static_cast<double>(c.intermediate_size));
  return static_cast<double>(c.vocab_size) * hidden + static_cast<double>(c.num_hidden_layers) * layer;
}

void read_lora(ConfigReader& reader, ModelConfig& config) {
  const json* section = reader.find(kLoraKey);
  if (section == nullptr) return;
  if (!section->is_object()) reader.wrong(kLoraKey, *section, "an object");
  config.lora = read_lora_config(*section, reader.source() + ": " + kLoraKey);
}

// transformers interprets null as the number of query heads. If the key is missing, transformers uses the family's
// default.
int64_t read_key_value_heads(ConfigReader& reader, const Architecture& architecture, int64_t num_attention_heads) {
  constexpr const char* kKey = "num_key_value_heads";
  if (reader.object().contains(kKey)) return reader.integer(kKey, num_attention_heads);
  return architecture.default_key_value_heads.value_or(num_attention_heads);
}

ModelConfig read_decoder(ConfigReader& reader, const Architecture& architecture) {
  ModelConfig config;
  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("hidden_size");
  config.intermediate_size = reader.integer("intermediate_size");
  config.num_hidden_layers = reader.integer("num_hidden_layers");
  config.num_attention_heads = reader.integer("num_attention_heads");
  config.num_key_value_heads = read_key_value_heads(reader, architecture, config.num_attention_heads);
  if (config.num_attention_heads < 1) {
    reader.wrong("num_attention_heads", reader.object()["num_attention_heads"], "at least 1");
  }
  config.head_dim = reader.integer(
      "head_dim", architecture.default_head_dim.value_or(config.hidden_size / config.num_attention_heads));
  config.max_position_embeddings = reader.integer("max_position_embeddings");
  config.rms_norm_eps = reader.number("rms_norm_eps", architecture.default_rms_norm_eps);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", architecture.tied_by_default);
  config.initializer_range = reader.number("initializer_range", 0.02);
  read_rope(reader, architecture, config);
  if (!architecture.attention_bias) reader.only("attention_bias", false, "use a model without attention biases");
  if (architecture.read_options != nullptr) architecture.read_options(reader, config);
  check_common_options(reader);
  return config;
}

void check_lora(const ModelConfig& config, const std::string& source) {
  const LoraConfig& lora = *config.lora;
  const std::vector<std::string> known = lora_targets(config, source);
  if (lora.r < 1 || lora.r > kMaxRank) {
    throw_user_error("{}: lora r is {}, but must be between 1 and {}.", source, lora.r, kMaxRank);
  }
  if (!(lora.alpha > 0) || !std::isfinite(lora.alpha)) {
    throw_user_error("{}: lora alpha is {}, but must be greater than 0.", source, lora.alpha);
  }
  for (const std::string& target : lora.targets) {
    if (std::ranges::find(known, target) != known.end()) continue;
    throw_user_error("{}: \"{}\" is not a valid adapter target (--lora_target_modules); choose from {}.", source,
                     target, fmt::join(known, ", "));
  }
  if (!(lora.dropout >= 0 && lora.dropout < 1)) {
    throw_user_error("{}: lora dropout is {}, but must be at least 0 and less than 1.", source, lora.dropout);
  }
  if (lora.targets.empty())
    throw_user_error("{}: lora targets must not be empty; choose from {}.", source, fmt::join(known, ", "));
}

}  // namespace

ModelConfig ModelConfig::from_json(std::string_view text, const std::string& source,
                                   std::optional<int64_t> max_position_embeddings) {
  json object = parse_user_json(text, source, kConfigurationLimits);
  if (!object.is_object()) throw_user_error("{} is not a JSON object; use a Hugging Face config.json.", source);
  if (max_position_embeddings) object["max_position_embeddings"] = *max_position_embeddings;

  ConfigReader reader(object, source);
  ModelConfig config;
  config.model_type = reader.text("model_type");
  const Architecture& architecture = find_architecture(config.model_type, source);
  config = architecture.read != nullptr ? architecture.read(reader) : read_decoder(reader, architecture);
  config.model_type = architecture.model_type;
  read_token_ids(reader, config);
  read_lora(reader, config);
  reader.finish();
  config.unused = read_unused(object, architecture, config);
  config.validate(source);
  return config;
}

std::filesystem::path config_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? path / "config.json" : path;
}

ModelConfig ModelConfig::from_file(const std::filesystem::path& path, std::optional<int64_t> max_position_embeddings) {
  const std::filesystem::path file = config_file(path);
  const std::optional<std::string> text = read_json_text(file, kConfigurationLimits);
  if (!text) {
    throw_user_error("cannot read the model configuration {}; pass a preset name or the path of a config.json.",
                     file.string());
  }
  return from_json(*text, file.string(), max_position_embeddings);
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
  if (num_hidden_layers > kMaxLayers) {
    throw_user_error("{}: num_hidden_layers is {}, but must be at most {}.", source, num_hidden_layers, kMaxLayers);
  }
  if (roughly_num_parameters(*this) > kMaxParameters) {
    throw_user_error(
        "{}: vocab_size {}, hidden_size {}, intermediate_size {}, num_attention_heads {}, head_dim {} and "
        "num_hidden_layers {} result in more than 10^16 parameters; reduce them.",
        source, vocab_size, hidden_size, intermediate_size, num_attention_heads, head_dim, num_hidden_layers);
  }
  if (num_attention_heads % num_key_value_heads != 0) {
    throw_user_error("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}; change one of them.",
                     source, num_attention_heads, num_key_value_heads);
  }
  if (!t5 && head_dim % 2 != 0) {
    throw_user_error("{}: head_dim {} is odd, but rotary embeddings require an even head_dim.", source, head_dim);
  }
  const std::pair<const char*, double> positives[] = {{"rms_norm_eps", rms_norm_eps},
                                                      {"rope_theta", t5 ? 1 : rope_theta},
                                                      {"embedding_multiplier", embedding_multiplier},
                                                      {"residual_multiplier", residual_multiplier},
                                                      {"logits_scaling", logits_scaling},
                                                      {"attention_multiplier", attention_multiplier.value_or(1.0)}};
  for (const auto& [key, value] : positives) {
    if (!(value > 0) || !std::isfinite(value)) {
      throw_user_error("{}: {} is {}, but must be greater than 0.", source, key, value);
    }
  }
  if (!(initializer_range >= 0) || !std::isfinite(initializer_range)) {
    throw_user_error("{}: initializer_range is {}, but must be at least 0.", source, initializer_range);
  }
  if (lora) check_lora(*this, source);
  if (sliding_window && *sliding_window < 1) {
    throw_user_error("{}: sliding_window is {}, but must be at least 1 or null.", source, *sliding_window);
  }
  if (const auto entries = static_cast<int64_t>(rotated_layers.size()); entries > 0 && entries != num_hidden_layers) {
    throw_user_error("{}: no_rope_layers has {} entries, but num_hidden_layers is {}; change one of them.", source,
                     entries, num_hidden_layers);
  }
  validate_rope(*this, source);
}

int64_t ModelConfig::positions() const {
  return std::min({max_position_embeddings, sliding_window.value_or(max_position_embeddings), rope_changes_after()});
}

int64_t ModelConfig::rope_changes_after() const {
  if (rope_scaling && std::holds_alternative<DynamicRopeScaling>(*rope_scaling)) return max_position_embeddings;
  const auto* longrope = rope_scaling ? std::get_if<LongRopeScaling>(&*rope_scaling) : nullptr;
  return longrope ? longrope->original_max_position_embeddings : std::numeric_limits<int64_t>::max();
}

std::string ModelConfig::to_json(std::string_view dtype) const {
  const Architecture& architecture = find_architecture(model_type, "model configuration");
  const auto finished = [&](json object) {
    object["eos_token_id"] = eos_token_ids;
    if (eos_token_ids.empty()) object["eos_token_id"] = nullptr;
    if (eos_token_ids.size() == 1) object["eos_token_id"] = eos_token_ids.front();
    if (lora) object[kLoraKey] = mpzero::to_json(*lora);
    if (!unused.json.empty()) object.update(json::parse(unused.json));
    // --num_hidden_layers may have changed the number of layers.
    if (const auto types = object.find("layer_types"); types != object.end() && types->is_array()) {
      *types = std::vector<std::string>(static_cast<size_t>(num_hidden_layers), "full_attention");
    }
    return object.dump(2) + "\n";
  };
  const json common = {{"architectures", {architecture.causal_lm_class}},
                       {"bos_token_id", bos_token_id ? json(*bos_token_id) : json(nullptr)},
                       {"dtype", dtype},
                       {"model_type", model_type},
                       {"torch_dtype", dtype},
                       {"use_cache", true}};
  if (architecture.write != nullptr) {
    json object = architecture.write(*this);
    object.update(common);
    return finished(object);
  }
  json rope = {{"rope_theta", rope_theta}, {"rope_type", "default"}};
  // transformers before version 5 reads only the old keys, so the file contains both formats.
  json old_rope_scaling = nullptr;
  if (rope_scaling) {
    old_rope_scaling = rope_json(*rope_scaling);
    rope.update(old_rope_scaling);
  }
  json object = {{"attention_bias", architecture.attention_bias},
                 {"attention_dropout", 0.0},
                 {"head_dim", head_dim},
                 {"hidden_act", "silu"},
                 {"hidden_size", hidden_size},
                 {"initializer_range", initializer_range},
                 {"intermediate_size", intermediate_size},
                 {"max_position_embeddings", max_position_embeddings},
                 {"num_attention_heads", num_attention_heads},
                 {"num_hidden_layers", num_hidden_layers},
                 {"num_key_value_heads", num_key_value_heads},
                 {"rms_norm_eps", rms_norm_eps},
                 {"rope_parameters", rope},
                 {"rope_scaling", old_rope_scaling},
                 {"rope_theta", rope_theta},
                 {"tie_word_embeddings", tie_word_embeddings},
                 {"vocab_size", vocab_size}};
  object.update(common);
  if (architecture.write_options != nullptr) architecture.write_options(*this, object);
  return finished(object);
}

ModelConfig ModelConfig::base() const {
  ModelConfig without = *this;
  without.lora.reset();
  return without;
}

std::vector<UnitSpec> model_units(const ModelConfig& config) {
  const Architecture& architecture = find_architecture(config.model_type, "model configuration");
  if (architecture.units != nullptr) return architecture.units(config);
  std::vector<UnitSpec> units;
  units.push_back({"embedding", {{kEmbeddingWeight, {config.vocab_size, config.hidden_size}}}});
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    UnitSpec unit{fmt::format("layers.{}", layer), {}};
    for (const LayerParameter& parameter : architecture.layer_parameters(config)) {
      unit.parameters.push_back({fmt::format("model.layers.{}.{}", layer, parameter.name), parameter.shape});
    }
    units.push_back(std::move(unit));
  }
  UnitSpec head{"head", {{"model.norm.weight", {config.hidden_size}}}};
  if (!config.tie_word_embeddings) head.parameters.push_back({kOutputWeight, {config.vocab_size, config.hidden_size}});
  units.push_back(std::move(head));
  if (!config.lora) return units;
  for (UnitSpec& unit : units) {
    for (ParameterSpec& parameter : unit.parameters) parameter.trainable = false;
  }
  const LoraLayout layout = lora_layout(*config.lora, architecture.layer_parameters(config));
  for (size_t u = 1; u + 1 < units.size(); ++u) append_adapters(*config.lora, layout, units[u]);
  return units;
}

int64_t num_parameters(const ModelConfig& config) {
  int64_t sum = 0;
  for (const UnitSpec& unit : model_units(config)) sum += unit.numel();
  return sum;
}

double flops_per_token(const ModelConfig& config, int64_t seq_length, int64_t source_length) {
  return flops_per_token(config, seq_length, source_length, model_units(config));
}

double flops_per_token(const ModelConfig& config, int64_t seq_length, int64_t source_length,
                       const std::vector<UnitSpec>& units) {
  const Architecture& architecture = find_architecture(config.model_type, "model configuration");
  if (architecture.flops_per_token != nullptr) return architecture.flops_per_token(config, seq_length, source_length);
  double products = 0;
  for (const UnitSpec& unit : units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      const bool is_multiplied = parameter.name != kEmbeddingWeight || config.tie_word_embeddings;
      if (parameter.shape.size() != 2 || !is_multiplied) continue;
      products += (parameter.trainable ? 6.0 : 4.0) * static_cast<double>(parameter.numel());
    }
  }
  const double attention = static_cast<double>(config.num_hidden_layers) * static_cast<double>(config.query_size()) *
                           static_cast<double>(seq_length);
  return products + 6.0 * attention;
}

}  // namespace mpzero::model
