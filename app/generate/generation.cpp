#include "app/generate/generation.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.hpp"

namespace mpzero {
namespace {

using Clock = std::chrono::steady_clock;

at::Tensor ids_on(at::Device device, std::span<const int64_t> ids) {
  return at::tensor(at::ArrayRef<int64_t>(ids.data(), ids.size()), at::kLong).to(device);
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Generated generate(model::CachedModel& decoder, at::Device device, std::span<const int64_t> prompt,
                   const GenerationLimits& limits, Sampler& sampler, const std::function<void(int64_t)>& on_token) {
  Generated done;
  auto start = Clock::now();
  at::Tensor logits = decoder.begin(ids_on(device, prompt));
  while (true) {
    const at::Tensor row = logits.narrow(0, 0, limits.ids).to(at::kCPU, at::kFloat).contiguous();
    const std::span<const float> values(row.const_data_ptr<float>(), static_cast<size_t>(row.numel()));
    if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) {
      throw_user_error(
          "the logits after {} tokens are not finite: the weights are damaged or training diverged; select an earlier "
          "checkpoint with --tag.",
          decoder.length());
    }
    const int64_t token = sampler.pick(values);
    if (decoder.length() == static_cast<int64_t>(prompt.size())) {
      done.prompt_seconds = seconds_since(start);
      start = Clock::now();
    }
    done.ended = std::find(limits.end_of_text.begin(), limits.end_of_text.end(), token) != limits.end_of_text.end();
    if (!done.ended) {
      on_token(token);
      ++done.tokens;
    }
    if (done.ended || done.tokens == limits.max_tokens) break;
    logits = decoder.append(ids_on(device, std::span(&token, 1)));
  }
  done.seconds = seconds_since(start);
  return done;
}

}  // namespace mpzero
