#include "io/deepspeed/client_state.hpp"

#include <charconv>

namespace mpzero::io {

void write_client_state(pickle::Writer& out, const TrainingProgress& progress) {
  const auto write = [&](const char* key, const auto& value, auto method) {
    out.text(key);
    (out.*method)(value);
  };
  out.begin_dict();
  write("tokens_seen", progress.tokens_seen, &pickle::Writer::integer);
  write("windows_seen", progress.sequences_seen, &pickle::Writer::integer);
  // As a string, because an unsigned 64-bit number may not fit a signed one.
  write("seed", std::to_string(progress.seed), &pickle::Writer::text);
  write("data_order", progress.data_order, &pickle::Writer::text);
  write("lr", progress.lr, &pickle::Writer::number);
  write("model_config", progress.model_config_json, &pickle::Writer::text);
  write("ds_config", progress.run_config_json, &pickle::Writer::text);
  if (!progress.settings_json.empty()) write("settings", progress.settings_json, &pickle::Writer::text);
  out.end_dict();
}

bool is_of_save(const pickle::Value& state, int64_t global_samples) {
  return state.at("windows_seen").integer() == global_samples;
}

void read_client_state(const pickle::Value& state, TrainingProgress& progress) {
  progress.tokens_seen = state.at("tokens_seen").integer();
  progress.sequences_seen = state.at("windows_seen").integer();
  const pickle::Value seed = state.at("seed");
  const std::string& digits = seed.text();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), progress.seed);
  if (error != std::errc{} || end != digits.data() + digits.size()) seed.throw_unexpected("a number");
  progress.data_order = state.at("data_order").text();
  progress.lr = state.at("lr").number();
  progress.model_config_json = state.at("model_config").text();
  progress.run_config_json = state.at("ds_config").text();
  if (const auto settings = state.find("settings")) progress.settings_json = settings->text();
}

}  // namespace mpzero::io
