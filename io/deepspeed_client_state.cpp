#include "io/deepspeed_client_state.hpp"

#include <charconv>

namespace mpzero::io {

void read_client_state(const pickle::Value& state, TrainingProgress& progress) {
  progress.tokens_seen = state.at("tokens_seen").integer();
  progress.windows_seen = state.at("windows_seen").integer();
  // A text, because a Python int of 64 bits need not fit a signed one.
  const pickle::Value seed = state.at("seed");
  const std::string& digits = seed.text();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), progress.seed);
  if (error != std::errc{} || end != digits.data() + digits.size()) seed.throw_unexpected("a number");
  progress.data_order = state.at("data_order").text();
  progress.lr = state.at("lr").number();
  progress.model_config_json = state.at("model_config").text();
  progress.run_config_json = state.at("ds_config").text();
}

}  // namespace mpzero::io
