#include "app/flags/training_flags.hpp"
#include "app/flags/unknown_flags.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero {

using Catch::Contains;

TEST_CASE("flags of other programs are refused with a remedy, and no flag of mpzero is") {
  const auto refused = [](const char* flag) { return error_from([&] { parse_command_line({flag, "5"}); }); };
  CHECK_THAT(refused("--report_to"), Contains("app/follow.py"));
  for (const char* flag :
       {"--tensor_parallel_size", "--tensor_parallel", "--tp", "--grpo", "--tensor-model-parallel-size"}) {
    CHECK_THAT(refused(flag), Contains("mpzero does not") && Contains("docs/limits.md"));
  }
  const std::pair<const char*, const char*> meant[] = {
      {"--lr", "--learning_rate"},
      {"--steps", "--max_steps"},
      {"--resume", "--resume_from_checkpoint"},
      {"--deepspeed", "--deepspeed_config"},
      {"--output_dir", "--checkpoint_dir"},
      {"--eval_steps", "--validation_freq"},
      {"--output-dir", "--checkpoint_dir"},
      {"--train-micro-batch-size-per-gpu", "--train_micro_batch_size_per_gpu"},
  };
  for (const auto& [given, ours] : meant)
    CHECK_THAT(refused(given), Contains("did you mean " + std::string(ours) + "?"));
  CHECK_FALSE(unknown_flags().contains("report_too"));
  for (const auto& [name, sentence] : unknown_flags()) {
    CHECK(find_flag(name) == nullptr);
    if (const size_t at = sentence.find("did you mean --"); at != std::string::npos) {
      CHECK(find_flag(sentence.substr(at + 15, sentence.size() - at - 16)) != nullptr);
    }
  }
}

TEST_CASE("all invalid flags are reported at once") {
  const std::string refused = error_from([] {
    parse_command_line(
        {"--lr", "3", "--max_steps", "many", "--seed", "7", "--warmup_steps", "5", "--lr_scheduler_type", "constant"});
  });
  CHECK_THAT(refused, Contains("--learning_rate") && Contains("\"many\"") && Contains("constant_with_warmup"));
  CHECK_FALSE(refused.find("seed") != std::string::npos);
}

}  // namespace mpzero
