#include "app/train/same_settings.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/base/thread_group.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

constexpr const char* kFile =
    R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}})";

RunSetup setup_of(const std::string& file, const std::vector<std::string>& flags) {
  RunSetup setup;
  setup.config = run(file, flags).config;
  setup.model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_tiny.json");
  setup.train_windows = 100;
  return setup;
}

// Checks three ranks, of which the last has another setup. Returns the error, the same on all ranks; empty if none.
std::string compare(const RunSetup& setup, const RunSetup& last) {
  ThreadGroup group(3);
  const std::vector<std::string> errors =
      group.run([&](ProcessGroup& ranks) { check_same_settings(ranks.rank() == 2 ? last : setup, ranks); });
  CHECK(errors == std::vector<std::string>(3, errors.front()));
  return errors.front();
}

TEST_CASE("refuses ranks with different settings, and reports the setting, both values and the ranks") {
  const RunSetup setup = setup_of(kFile, {"--seed=1"});
  CHECK_THAT(
      compare(
          setup,
          setup_of(R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})",
                   {"--seed=1"})),
      Contains("rank 2: ds_config.json: optimizer.params.lr is 0.01 ") && Contains("0.001 on rank 0"));
  CHECK_THAT(compare(setup, setup_of("", {"--seed=1", "--learning_rate=0.001"})), Contains("rank 2: --bf16 is true "));
  CHECK_THAT(compare(setup_of("", {}), setup_of(kFile, {})), Contains("optimizer.params.lr is 0.001"));
  CHECK_THAT(compare(setup, setup_of(kFile, {"--seed=2"})), Contains("--seed is 2 ") && Contains("1 on rank 0"));
  RunSetup other = setup;
  other.model.rope_theta = 500;
  CHECK_THAT(compare(setup, other), Contains("rope_theta is 500.0 "));
  other = setup;
  other.train_windows = 99;
  CHECK_THAT(compare(setup, other), Contains("--train_data is 99 "));
  other = setup;
  other.validation.push_back({.file = {}, .sequences = 7});
  CHECK_THAT(compare(setup, other), Contains("--validation_data") && Contains("is 7 "));
}

TEST_CASE("accepts different paths, ports, addresses, spacing and unused keys of the model") {
  const RunSetup setup = setup_of(kFile, {"--model_config=/a/tiny.json"});
  RunSetup other = setup_of(std::string(kFile) + "\n", {"--metrics_port=9", "--metrics_address=10.0.0.1",
                                                        "--checkpoint_dir=/mnt/b", "--model_config=/b/tiny.json"});
  other.model.unused = {.json = R"({"_name_or_path": "b"})"};
  CHECK(compare(setup, other).empty());
}

}  // namespace
}  // namespace mpzero
