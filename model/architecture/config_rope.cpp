#include "model/architecture/config_rope.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace mpzero::model {
namespace {

using nlohmann::json;

constexpr const char* kFullAttention = "full_attention";

// rope_theta and the path of its key, if the file has it.
struct Theta {
  double value;
  std::string place;
};

struct Rope {
  std::optional<Theta> theta;
  std::optional<Llama3RopeScaling> scaling;
};

std::optional<Theta> read_theta(ConfigReader& reader) {
  if (reader.find("rope_theta") == nullptr) return std::nullopt;
  return Theta{.value = reader.number("rope_theta"), .place = reader.path_of("rope_theta")};
}

std::string read_type(ConfigReader& reader) {
  const std::string old_spelling = reader.text("type", "default");
  const std::string type = reader.text("rope_type", old_spelling);
  if (reader.find("type") != nullptr && type != old_spelling) {
    throw_user_error("{}: {} is \"{}\" and {} is \"{}\"; remove one of them.", reader.source(),
                     reader.path_of("rope_type"), type, reader.path_of("type"), old_spelling);
  }
  return type;
}

Rope read_flat(ConfigReader reader) {
  Rope rope{.theta = read_theta(reader), .scaling = {}};
  reader.only("partial_rotary_factor", 1.0, "use a model that rotates all of each head");
  const std::string type = read_type(reader);
  if (type == "default") {
    reader.only("factor", 1.0, "remove it, or set rope_type to say how the frequencies are scaled");
  } else if (type == "llama3") {
    rope.scaling =
        Llama3RopeScaling{.factor = reader.number("factor"),
                          .low_freq_factor = reader.number("low_freq_factor"),
                          .high_freq_factor = reader.number("high_freq_factor"),
                          .original_max_position_embeddings = reader.integer("original_max_position_embeddings")};
  } else {
    throw_user_error("{}: {} \"{}\" is not supported; use \"default\" or \"llama3\".", reader.source(),
                     reader.path_of("rope_type"), type);
  }
  reader.finish();
  return rope;
}

// One entry for each type of layer. All layers of the supported models have one type (layer_types), so entries for
// other types have no effect.
Rope read_by_layer_type(ConfigReader reader) {
  reader.harmless({"sliding_attention", "chunked_attention", "linear_attention"});
  std::optional<ConfigReader> own = reader.section(kFullAttention);
  reader.finish();
  if (!own) {
    throw_user_error("{}: {} is missing, which is the entry for the model's layers; add it.", reader.source(),
                     reader.path_of(kFullAttention));
  }
  return read_flat(*own);
}

std::optional<Rope> read_section(ConfigReader& reader, const char* key) {
  std::optional<ConfigReader> section = reader.section(key);
  if (!section) return std::nullopt;
  const json& object = section->object();
  const bool by_layer_type = std::any_of(object.begin(), object.end(), [](const json& v) { return v.is_object(); });
  return by_layer_type ? read_by_layer_type(*section) : read_flat(*section);
}

}  // namespace

void read_rope(ConfigReader& reader, const Architecture& architecture, ModelConfig& config) {
  reader.only("partial_rotary_factor", 1.0, "use a model that rotates all of each head");
  std::vector<Theta> thetas;
  const auto add = [&](const std::optional<Theta>& theta) {
    if (theta) thetas.push_back(*theta);
  };
  add(read_theta(reader));
  const std::optional<Rope> rope = read_section(reader, "rope_parameters");
  const std::optional<Rope> old_spelling = read_section(reader, "rope_scaling");
  if (rope) add(rope->theta);
  if (old_spelling) add(old_spelling->theta);
  if (rope && old_spelling && rope->scaling != old_spelling->scaling) {
    throw_user_error("{}: rope_parameters and rope_scaling scale the frequencies differently; remove one of them.",
                     reader.source());
  }
  for (const Theta& theta : thetas) {
    if (theta.value == thetas.front().value) continue;
    throw_user_error("{}: {} is {} and {} is {}; remove one of them.", reader.source(), thetas.front().place,
                     thetas.front().value, theta.place, theta.value);
  }
  config.rope_theta = thetas.empty() ? architecture.default_rope_theta : thetas.front().value;
  if (rope) {
    config.rope_scaling = rope->scaling;
  } else if (old_spelling) {
    config.rope_scaling = old_spelling->scaling;
  }
}

}  // namespace mpzero::model
