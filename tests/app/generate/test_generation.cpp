#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>

#include "app/generate/generation.hpp"
#include "model/decoder.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero {
namespace {

using model::CachedDecoder;

struct Run {
  std::vector<int64_t> tokens;
  Generated done;
};

Run run(const std::vector<std::vector<at::Tensor>>& weights, const std::vector<int64_t>& prompt,
        const GenerationLimits& limits, Sampler sampler) {
  CachedDecoder decoder(model::small_qwen3(), weights, 30);
  Run result;
  result.done =
      generate(decoder, at::kCPU, prompt, limits, sampler, [&](int64_t token) { result.tokens.push_back(token); });
  return result;
}

// One begin() for each token, without a cache that grows.
std::vector<int64_t> greedy_without_cache(const std::vector<std::vector<at::Tensor>>& weights,
                                          std::vector<int64_t> tokens, int64_t count) {
  const size_t prompt = tokens.size();
  CachedDecoder decoder(model::small_qwen3(), weights, 30);
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(decoder.begin(at::tensor(tokens, at::kLong)).argmax().item<int64_t>());
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
}

}  // namespace

TEST_CASE("completes a text token by token up to its limits") {
  const model::Decoder decoder(model::small_qwen3());
  const model::FlatModel model(decoder, at::TensorOptions().dtype(at::kFloat), at::kFloat);
  const auto& weights = model.weights;
  const Sampler greedy(0, 0, 1);
  const std::vector<int64_t> prompt = {4, 8, 15};
  const std::vector<int64_t> expected = greedy_without_cache(weights, prompt, 28);
  const Run all = run(weights, prompt, {.max_tokens = 28, .ids = 53}, greedy);
  CHECK(all.tokens == expected);
  CHECK((all.done.tokens == 28 && !all.done.ended && all.done.seconds >= 0 && all.done.prompt_seconds >= 0));

  SECTION("an id that ends the text is not passed on") {
    const std::vector<int64_t> end = {52, expected[5]};
    const auto first = std::find(expected.begin(), expected.end(), expected[5]);
    const Run ended = run(weights, prompt, {.max_tokens = 28, .ids = 53, .end_of_text = end}, greedy);
    CHECK(ended.done.ended);
    CHECK(ended.tokens == std::vector<int64_t>(expected.begin(), first));
    CHECK(ended.done.tokens == static_cast<int64_t>(ended.tokens.size()));
  }
  SECTION("ids from the limit on are not chosen") {
    const Run few = run(weights, prompt, {.max_tokens = 28, .ids = 3}, Sampler(50, 0, 1));
    CHECK(few.tokens.size() == 28);
    CHECK(std::all_of(few.tokens.begin(), few.tokens.end(), [](int64_t id) { return id < 3; }));
  }
  SECTION("one token needs no second pass") {
    CachedDecoder exact(model::small_qwen3(), weights, 3);
    Sampler sampler(0, 0, 1);
    CHECK(generate(exact, at::kCPU, prompt, {.max_tokens = 1, .ids = 53}, sampler, [](int64_t) {}).tokens == 1);
  }
  SECTION("the same seed draws the same text") {
    const GenerationLimits limits{.max_tokens = 20, .ids = 53};
    const std::vector<int64_t> drawn = run(weights, prompt, limits, Sampler(1, 0, 9)).tokens;
    CHECK(run(weights, prompt, limits, Sampler(1, 0, 9)).tokens == drawn);
    CHECK(run(weights, prompt, limits, Sampler(1, 0, 10)).tokens != drawn);
  }
}

TEST_CASE("non-finite weights end the completion with an error") {
  const model::Decoder decoder(model::small_qwen3());
  model::FlatModel model(decoder, at::TensorOptions().dtype(at::kFloat), at::kFloat);
  model.weight("model.norm.weight").fill_(std::numeric_limits<float>::quiet_NaN());
  CHECK_THAT(error_from([&] { run(model.weights, {1, 2}, {.max_tokens = 3, .ids = 53}, Sampler(1, 0, 1)); }),
             Catch::Contains("the logits after 2 tokens are not finite") && Catch::Contains("--tag"));
}

}  // namespace mpzero
