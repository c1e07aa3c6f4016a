#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "app/generate/sampler.hpp"
#include "model/inference/cached_decoder.hpp"

namespace mpzero {

struct GenerationLimits {
  int64_t max_tokens = 0;
  int64_t ids = 0;                         // upper limit (exclusive) of sampled ids
  std::span<const int64_t> end_of_text{};  // stop tokens; not passed to on_token
};

struct Generated {
  int64_t tokens = 0;         // number of tokens passed to on_token
  bool ended = false;         // a stop token was sampled
  double prompt_seconds = 0;  // time to first token
  double seconds = 0;         // time for the remaining tokens
};

// Completes `prompt` (at least one id) and calls `on_token` for each new token. The model's KV cache must have room for
// the prompt and all new tokens except the last. Throws UserError if logits are not finite.
Generated generate(model::CachedModel& decoder, at::Device device, std::span<const int64_t> prompt,
                   const GenerationLimits& limits, Sampler& sampler, const std::function<void(int64_t)>& on_token);

}  // namespace mpzero
