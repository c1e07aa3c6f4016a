#include "app/config/zero_options.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

constexpr const char* kFile = R"({"train_micro_batch_size_per_gpu": 1)";

std::string refusal_of(const std::vector<std::string>& flags, const std::string& more = "") {
  return error_from([&] {
    check_frozen_parameters(run(std::string(kFile) + more + "}", flags).config, model::small_qwen3(), "model");
  });
}

}  // namespace

TEST_CASE("frozen parameters are set by the file or by the flag, which must agree") {
  const std::vector<std::string> expected{"embed_tokens", "layers\\.0\\."};
  const auto frozen = [](const std::string& more, const std::vector<std::string>& flags) {
    return zero_options(run(std::string(kFile) + more + "}", flags).config, at::kCPU).frozen;
  };
  CHECK(frozen("", {}).empty());
  CHECK(frozen(R"(, "freeze": ["embed_tokens", "layers\\.0\\."])", {}) == expected);
  CHECK(frozen("", {"--freeze_parameters=embed_tokens,layers\\.0\\."}) == expected);
  CHECK_THAT(error_of(std::string(kFile) + R"(, "freeze": ["norm"]})", {"--freeze_parameters=mlp"}),
             Contains("--freeze_parameters") && Contains("freeze [\"norm\"]"));
}

TEST_CASE("an invalid expression, one without matches, and one that freezes all parameters are refused") {
  CHECK(refusal_of({"--freeze_parameters=embed_tokens,layers\\.0\\.,mlp"}) == "no error");
  CHECK_THAT(refusal_of({"--freeze_parameters=mlp,layer_0"}), Contains("layer_0") && Contains("matches no parameter"));
  CHECK_THAT(refusal_of({"--freeze_parameters=("}), Contains("regular expression"));
  CHECK_THAT(refusal_of({"--freeze_parameters=."}), Contains("all parameters"));
}

TEST_CASE("weights of a fused matmul are frozen together") {
  for (const char* part : {"q_proj", "v_proj", "gate_proj"}) {
    CHECK_THAT(refusal_of({std::string("--freeze_parameters=") + part}), Contains(part) && Contains("one matmul"));
  }
  CHECK(refusal_of({"--freeze_parameters=[qkv]_proj"}) == "no error");
  CHECK(refusal_of({"--freeze_parameters=o_proj,down_proj,norm"}) == "no error");
}

TEST_CASE("DeepSpeed's format does not support frozen parameters") {
  CHECK_THAT(error_of("", {"--freeze_parameters=mlp", "--checkpoint_format=deepspeed"}),
             Contains("--freeze_parameters mlp") && Contains("--checkpoint_format deepspeed"));
}

}  // namespace mpzero
