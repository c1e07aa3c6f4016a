#include "app/flags/trainer_hints.hpp"
#include "app/flags/training_flags.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("a flag of the Trainer that mpzero lacks gets what to do instead, and no other flag does") {
  CHECK(trainer_hint("report_to").value_or("").find("app/follow.py") != std::string::npos);
  CHECK_FALSE(trainer_hint("report_too"));
  for (const FlagGroup& group : training_flags()) {
    for (const Flag& flag : group.flags) {
      for (const std::string& name : flag.names()) CHECK_FALSE(trainer_hint(name));
    }
  }
  const std::string refused = error_from([] { parse_command_line({"--eval_steps", "5"}); });
  CHECK(refused.find("--eval_steps is a flag of the Hugging Face Trainer") != std::string::npos);
  CHECK(refused.find("the same is --validation_freq") != std::string::npos);
}

}  // namespace mpzero
