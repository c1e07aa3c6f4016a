#include "model/architecture/config_rope.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace mpzero::model {
namespace {

using nlohmann::json;

// rope_theta and the path of its key.
struct Theta {
  double value;
  std::string place;
};

struct Rope {
  std::optional<Theta> theta;
  std::optional<RopeScaling> scaling;
};

// Values from the top level of config.json. `max`: default of a scaling's original_max_position_embeddings; `original`:
// overrides the scaling's value.
struct Positions {
  int64_t max;
  std::optional<int64_t> original;
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

// Returns YaRN's magnitude scale, as in transformers' get_mscale.
double yarn_magnitude(double factor, double mscale) { return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1.0; }

YarnRopeScaling read_yarn(ConfigReader& reader, const Positions& positions) {
  YarnRopeScaling yarn;
  yarn.original_max_position_embeddings =
      positions.original.value_or(reader.integer(kOriginalPositions, positions.max));
  // A null value, unlike a missing key, means max_position_embeddings / original_max_position_embeddings.
  yarn.factor = reader.object().contains("factor") && reader.find("factor") == nullptr
                    ? static_cast<double>(positions.max) / static_cast<double>(yarn.original_max_position_embeddings)
                    : reader.number("factor");
  const double mscale = reader.number("mscale", 0.0), all_dim = reader.number("mscale_all_dim", 0.0);
  const double magnitude = mscale != 0 && all_dim != 0
                               ? yarn_magnitude(yarn.factor, mscale) / yarn_magnitude(yarn.factor, all_dim)
                               : yarn_magnitude(yarn.factor, 1);
  yarn.attention_factor = reader.number("attention_factor", magnitude);
  yarn.beta_fast = reader.number("beta_fast", yarn.beta_fast);
  yarn.beta_slow = reader.number("beta_slow", yarn.beta_slow);
  yarn.truncate = reader.boolean("truncate", yarn.truncate);
  reader.harmless({"attn_factor", "finetuned"});  // ignored by transformers, with a warning
  return yarn;
}

std::vector<double> read_factors(ConfigReader& reader, const char* key) {
  const json* list = reader.find(key);
  if (list == nullptr || !list->is_array() || !std::ranges::all_of(*list, &json::is_number)) {
    reader.wrong(key, list == nullptr ? json() : *list, "a list of numbers");
  }
  return list->get<std::vector<double>>();
}

LongRopeScaling read_longrope(ConfigReader& reader, const Positions& positions) {
  LongRopeScaling made{.short_factor = read_factors(reader, "short_factor"),
                       .long_factor = read_factors(reader, "long_factor")};
  made.original_max_position_embeddings =
      positions.original.value_or(reader.integer(kOriginalPositions, positions.max));
  const auto original = static_cast<double>(made.original_max_position_embeddings);
  const double factor = reader.number("factor", static_cast<double>(positions.max) / original);
  made.attention_factor =
      reader.number("attention_factor", factor > 1 ? std::sqrt(1 + std::log(factor) / std::log(original)) : 1.0);
  return made;
}

Rope read_flat(ConfigReader reader, const Positions& positions) {
  Rope rope{.theta = read_theta(reader), .scaling = {}};
  reader.only("partial_rotary_factor", 1.0, "use a model that applies RoPE to all dimensions of a head");
  const std::string type = read_type(reader);
  if (type == "default") {
    reader.only("factor", 1.0, "remove it, or set rope_type to select the scaling");
  } else if (type == "llama3") {
    Llama3RopeScaling llama3{.factor = reader.number("factor"),
                             .low_freq_factor = reader.number("low_freq_factor"),
                             .high_freq_factor = reader.number("high_freq_factor")};
    llama3.original_max_position_embeddings =
        positions.original ? *positions.original : reader.integer(kOriginalPositions);
    reader.harmless({kOriginalPositions});
    rope.scaling = llama3;
  } else if (type == "linear") {
    rope.scaling = LinearRopeScaling{reader.number("factor")};
  } else if (type == "dynamic") {
    rope.scaling = DynamicRopeScaling{reader.number("factor")};
  } else if (type == "yarn") {
    rope.scaling = read_yarn(reader, positions);
  } else if (type == "longrope") {
    rope.scaling = read_longrope(reader, positions);
  } else {
    throw_user_error(
        "{}: {} \"{}\" is not supported; use \"default\", \"llama3\", \"linear\", \"dynamic\", \"yarn\" or "
        "\"longrope\".",
        reader.source(), reader.path_of("rope_type"), type);
  }
  reader.finish();
  return rope;
}

std::optional<Rope> read_section(ConfigReader& reader, const char* key, const Positions& positions) {
  std::optional<ConfigReader> section = reader.section(key);
  if (!section) return std::nullopt;
  return read_flat(*section, positions);
}

}  // namespace

void read_rope(ConfigReader& reader, const Architecture& architecture, ModelConfig& config) {
  reader.only("partial_rotary_factor", 1.0, "use a model that applies RoPE to all dimensions of a head");
  std::vector<Theta> thetas;
  const auto add = [&](const std::optional<Theta>& theta) {
    if (theta) thetas.push_back(*theta);
  };
  add(read_theta(reader));
  Positions positions{.max = config.max_position_embeddings, .original = {}};
  if (reader.find(kOriginalPositions) != nullptr) positions.original = reader.integer(kOriginalPositions);
  const std::optional<Rope> rope = read_section(reader, "rope_parameters", positions);
  const std::optional<Rope> old_spelling = read_section(reader, "rope_scaling", positions);
  if (rope) add(rope->theta);
  if (old_spelling) add(old_spelling->theta);
  if (rope && old_spelling && rope->scaling != old_spelling->scaling) {
    throw_user_error("{}: rope_parameters and rope_scaling disagree; remove one of them.", reader.source());
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

json rope_json(const RopeScaling& scaling) {
  if (const auto* linear = std::get_if<LinearRopeScaling>(&scaling)) {
    return {{"rope_type", "linear"}, {"factor", linear->factor}};
  }
  if (const auto* dynamic = std::get_if<DynamicRopeScaling>(&scaling)) {
    return {{"rope_type", "dynamic"}, {"factor", dynamic->factor}};
  }
  if (const auto* yarn = std::get_if<YarnRopeScaling>(&scaling)) {
    return {{"rope_type", "yarn"},
            {"factor", yarn->factor},
            {kOriginalPositions, yarn->original_max_position_embeddings},
            {"attention_factor", yarn->attention_factor},
            {"beta_fast", yarn->beta_fast},
            {"beta_slow", yarn->beta_slow},
            {"truncate", yarn->truncate}};
  }
  if (const auto* longrope = std::get_if<LongRopeScaling>(&scaling)) {
    return {{"rope_type", "longrope"},
            {"short_factor", longrope->short_factor},
            {"long_factor", longrope->long_factor},
            {kOriginalPositions, longrope->original_max_position_embeddings},
            {"attention_factor", longrope->attention_factor}};
  }
  const auto& llama3 = std::get<Llama3RopeScaling>(scaling);
  return {{"rope_type", "llama3"},
          {"factor", llama3.factor},
          {"low_freq_factor", llama3.low_freq_factor},
          {"high_freq_factor", llama3.high_freq_factor},
          {kOriginalPositions, llama3.original_max_position_embeddings}};
}

void validate_rope(const ModelConfig& config, const std::string& source) {
  if (!config.rope_scaling) return;
  const json scaling = rope_json(*config.rope_scaling);
  for (const auto& [key, value] : scaling.items()) {
    if (value.is_number() && !(value.get<double>() > 0)) {
      throw_user_error("{}: {} in the RoPE scaling is {}, but must be greater than 0.", source, key, value.dump());
    }
  }
  const auto positive = [](const json& entry) { return entry.get<double>() > 0; };
  for (const char* key : {"short_factor", "long_factor"}) {
    if (!scaling.contains(key)) continue;
    const json& list = scaling[key];
    if (std::ssize(list) == config.head_dim / 2 && std::ranges::all_of(list, positive)) continue;
    throw_user_error("{}: {} in the RoPE scaling must have {} entries (half of head_dim), all greater than 0.", source,
                     key, config.head_dim / 2);
  }
  const auto in_order = [&](const char* lower, const char* upper) {
    if (!scaling.contains(lower) || scaling[lower] < scaling[upper]) return;
    throw_user_error("{}: {} in the RoPE scaling is {}, but must be less than {} {}.", source, lower,
                     scaling[lower].dump(), upper, scaling[upper].dump());
  };
  in_order("low_freq_factor", "high_freq_factor");
  in_order("beta_slow", "beta_fast");
  if (std::holds_alternative<YarnRopeScaling>(*config.rope_scaling) && config.rope_theta <= 1) {
    throw_user_error("{}: rope_theta is {}, but must be greater than 1 for yarn.", source, config.rope_theta);
  }
  if (std::holds_alternative<DynamicRopeScaling>(*config.rope_scaling) && config.head_dim <= 2) {
    throw_user_error("{}: head_dim is {}, but must be greater than 2 for dynamic RoPE scaling.", source,
                     config.head_dim);
  }
}

}  // namespace mpzero::model
