#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/parameter_spec.hpp"
#include "model/architecture/architectures.hpp"
#include "model/architecture/config_options.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {
namespace {

using nlohmann::json;

// Relative position buckets do not limit the sequence length.
constexpr int64_t kAnyLength = int64_t{1} << 31;

ModelConfig read(ConfigReader& reader) {
  check_common_options(reader, /*encoder_decoder=*/true);
  reader.harmless({"classifier_dropout", "n_positions", "output_past", "is_gated_act", "dense_act_fn"});
  ModelConfig config;
  T5Config t5;
  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("d_model");
  config.intermediate_size = reader.integer("d_ff");
  config.head_dim = reader.integer("d_kv");
  config.num_attention_heads = config.num_key_value_heads = reader.integer("num_heads");
  t5.encoder_layers = reader.integer("num_layers");
  const int64_t decoder_layers = reader.integer("num_decoder_layers", t5.encoder_layers);
  if (t5.encoder_layers < 1) reader.wrong("num_layers", t5.encoder_layers, "at least 1");
  if (decoder_layers < 1) reader.wrong("num_decoder_layers", decoder_layers, "at least 1");
  config.num_hidden_layers = t5.encoder_layers + decoder_layers;
  config.max_position_embeddings = kAnyLength;
  config.rms_norm_eps = reader.number("layer_norm_epsilon", 1e-6);
  config.initializer_range = reader.number("initializer_factor", 1.0);
  t5.buckets = reader.integer("relative_attention_num_buckets", 32);
  t5.max_distance = reader.integer("relative_attention_max_distance", 128);
  // An encoder uses half of the buckets per direction. Half of the buckets of a direction encode a single distance
  // each.
  if (t5.buckets < 4 || t5.buckets % 4 != 0 || t5.buckets > kAnyLength) {
    reader.wrong("relative_attention_num_buckets", t5.buckets, "a positive multiple of 4");
  }
  if (t5.max_distance <= t5.buckets / 2 || t5.max_distance > kAnyLength) {
    reader.wrong("relative_attention_max_distance", t5.max_distance, "greater than half of the buckets");
  }
  const std::string projection = reader.text("feed_forward_proj", "relu");
  if (projection != "relu" && projection != "gated-gelu") {
    reader.wrong("feed_forward_proj", projection, "relu or gated-gelu");
  }
  t5.gated = projection == "gated-gelu";
  t5.dropout_rate = reader.number("dropout_rate", 0.1);
  if (t5.dropout_rate < 0 || t5.dropout_rate >= 1) {
    reader.wrong("dropout_rate", t5.dropout_rate, "at least 0 and less than 1");
  }
  t5.pad_token_id = reader.integer("pad_token_id", 0);
  t5.decoder_start_token_id = reader.integer("decoder_start_token_id");
  for (const auto& [key, id] :
       {std::pair("pad_token_id", t5.pad_token_id), std::pair("decoder_start_token_id", t5.decoder_start_token_id)}) {
    if (id < 0 || id >= config.vocab_size) reader.wrong(key, id, "a token ID in the vocabulary");
  }
  // transformers 5 saves an untied model with tie_word_embeddings true and scale_decoder_outputs false.
  const bool tied = reader.boolean("tie_word_embeddings", true), scaled = reader.boolean("scale_decoder_outputs", true);
  if (!tied && reader.find("scale_decoder_outputs") != nullptr && scaled) {
    reader.wrong("scale_decoder_outputs", true, "false or missing if tie_word_embeddings is false");
  }
  config.tie_word_embeddings = tied && scaled;
  if (config.tie_word_embeddings) config.logits_scaling = std::sqrt(static_cast<double>(config.hidden_size));
  config.t5 = t5;
  return config;
}

json write(const ModelConfig& config) {
  const T5Config& t5 = *config.t5;
  return {{"d_ff", config.intermediate_size},
          {"d_kv", config.head_dim},
          {"d_model", config.hidden_size},
          {"decoder_start_token_id", t5.decoder_start_token_id},
          {"dropout_rate", t5.dropout_rate},
          {"feed_forward_proj", t5.gated ? "gated-gelu" : "relu"},
          {"initializer_factor", config.initializer_range},
          {"is_encoder_decoder", true},
          {"layer_norm_epsilon", config.rms_norm_eps},
          {"num_decoder_layers", config.num_hidden_layers - t5.encoder_layers},
          {"num_heads", config.num_attention_heads},
          {"num_layers", t5.encoder_layers},
          {"pad_token_id", t5.pad_token_id},
          {"relative_attention_max_distance", t5.max_distance},
          {"relative_attention_num_buckets", t5.buckets},
          {"scale_decoder_outputs", config.tie_word_embeddings},
          {"tie_word_embeddings", config.tie_word_embeddings},
          {"vocab_size", config.vocab_size}};
}

std::vector<UnitSpec> units(const ModelConfig& config) {
  const int64_t d = config.hidden_size, heads = config.query_size(), inner = config.intermediate_size;
  std::vector<UnitSpec> units{{"embedding", {{kSharedEmbedding, {config.vocab_size, d}}}}};
  for (int64_t index = 0; index < config.num_hidden_layers; ++index) {
    const T5Layer layer = t5_layer(config, index);
    const int64_t of_stack = layer.decoder ? index - config.t5->encoder_layers : index;
    const std::string stack = layer.decoder ? "decoder" : "encoder";
    const std::string block = fmt::format("{}.block.{}", stack, of_stack);
    UnitSpec unit{block, {}};
    const auto add = [&](int sublayer, std::string_view name, std::vector<int64_t> shape) {
      unit.parameters.push_back({fmt::format("{}.layer.{}.{}.weight", block, sublayer, name), std::move(shape)});
    };
    const auto add_attention = [&](int sublayer, const std::string& name, bool biased) {
      for (const char* of : {".q", ".k", ".v"}) add(sublayer, name + of, {heads, d});
      add(sublayer, name + ".o", {d, heads});
      if (biased) add(sublayer, name + ".relative_attention_bias", {config.t5->buckets, config.num_attention_heads});
      add(sublayer, "layer_norm", {d});
    };
    add_attention(0, "SelfAttention", layer.first);
    if (layer.decoder) add_attention(1, "EncDecAttention", false);
    const int last = layer.decoder ? 2 : 1;
    for (const char* of : config.t5->gated ? std::vector{"wi_0", "wi_1"} : std::vector{"wi"}) {
      add(last, fmt::format("DenseReluDense.{}", of), {inner, d});
    }
    add(last, "DenseReluDense.wo", {d, inner});
    add(last, "layer_norm", {d});
    if (layer.last_of_encoder) unit.parameters.push_back({"encoder.final_layer_norm.weight", {d}});
    units.push_back(std::move(unit));
  }
  UnitSpec head{"head", {{"decoder.final_layer_norm.weight", {d}}}};
  if (!config.tie_word_embeddings) head.parameters.push_back({kOutputWeight, {config.vocab_size, d}});
  units.push_back(std::move(head));
  return units;
}

// Matches transformers, except that norm weights are 1 for any initializer_factor.
double deviation(const ModelConfig& config, std::string_view name) {
  const auto d = static_cast<double>(config.hidden_size);
  const auto is = [&](std::string_view end) { return name.ends_with(end); };
  double variance = 1 / d;  // k, v, wi and the relative position table
  if (name == kSharedEmbedding || name == kOutputWeight) variance = 1;
  if (is(".q.weight")) variance = 1 / (d * static_cast<double>(config.head_dim));
  if (is(".o.weight")) variance = 1 / static_cast<double>(config.query_size());
  if (is(".wo.weight")) variance = 1 / static_cast<double>(config.intermediate_size);
  return config.initializer_range * std::sqrt(variance);
}

// Counts FLOPs as for decoders, but each matrix counts only for the tokens that it processes, and non-causal attention
// counts all pairs.
double flops_of_token(const ModelConfig& config, int64_t seq_length, int64_t source_length) {
  const auto source = static_cast<double>(source_length), target = static_cast<double>(seq_length - source_length);
  const auto heads = static_cast<double>(config.query_size());
  double flops = 6 * target * static_cast<double>(config.vocab_size * config.hidden_size);
  const std::vector<UnitSpec> all = units(config);
  for (int64_t index = 0; index < config.num_hidden_layers; ++index) {
    const bool decoder = t5_layer(config, index).decoder;
    flops += 6 * heads * (decoder ? target * (target + 2 * source) : 2 * source * source);
    for (const ParameterSpec& parameter : all[static_cast<size_t>(index) + 1].parameters) {
      if (parameter.shape.size() != 2 || parameter.name.ends_with("relative_attention_bias.weight")) continue;
      const bool of_source = !decoder || parameter.name.ends_with("EncDecAttention.k.weight") ||
                             parameter.name.ends_with("EncDecAttention.v.weight");
      flops += 6 * static_cast<double>(parameter.numel()) * (of_source ? source : target);
    }
  }
  return flops / static_cast<double>(seq_length);
}

}  // namespace

T5Layer t5_layer(const ModelConfig& config, int64_t layer) {
  const int64_t encoder = config.t5->encoder_layers;
  return {
      .decoder = layer >= encoder, .first = layer == 0 || layer == encoder, .last_of_encoder = layer == encoder - 1};
}

// T5 v1.0, v1.1 and FLAN. v1.1 and FLAN have a gated feed-forward network and an untied head.
const Architecture kT5{.model_type = "t5",
                       .causal_lm_class = "T5ForConditionalGeneration",
                       .layer_parameters = nullptr,
                       .read = read,
                       .write = write,
                       .units = units,
                       .deviation = deviation,
                       .flops_per_token = flops_of_token};

}  // namespace mpzero::model
