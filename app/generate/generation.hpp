#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "app/generate/sampler.hpp"
#include "model/inference/cached_decoder.hpp"

namespace mpzero {

struct GenerationLimits {
  int64_t max_tokens = 0;
  int64_t ids = 0;                         // only ids below this are sampled
  std::span<const int64_t> end_of_text{};  // ids that end the text; not passed to on_token
};

struct Generated {
  int64_t tokens = 0;         // passed to on_token
  bool ended = false;         // the model ended the text
  double prompt_seconds = 0;  // until the first token is known
  double seconds = 0;         // of the tokens after it
};

// Completes `prompt` (at least one id) and calls `on_token` for each new token. The model's cache must hold the prompt
// and all new tokens but the last. Throws UserError if logits are not finite.
Generated generate(model::CachedModel& decoder, at::Device device, std::span<const int64_t> prompt,
                   const GenerationLimits& limits, Sampler& sampler, const std::function<void(int64_t)>& on_token);

}  // namespace mpzero
