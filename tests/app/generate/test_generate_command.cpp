#include <ATen/Context.h>

#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "app/generate/generate_command.hpp"
#include "base/error.hpp"
#include "tests/app/captured_output.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/generate/stored_models.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero {
namespace {

using io::testing::TemporaryFolder;
using testing::save_model;

// With `arguments` after the folder, on the CPU: what it prints.
std::string printed(const std::filesystem::path& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), folder.string());
  const CapturedOutput output;
  CHECK(generate_command(arguments) == 0);
  return output.text();
}

std::string error(const std::filesystem::path& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), folder.string());
  return error_from([&] { generate_command(arguments); });
}

}  // namespace

TEST_CASE("completes a text and reports the speed") {
  const TemporaryFolder folder;
  save_model(folder.path(), {});
  const std::vector<std::string> flags = {"--prompt", "Prince", "--max_tokens", "20", "--device", "cpu"};
  const std::string text = printed(folder.path(), flags);
  CHECK_THAT(text, Catch::StartsWith("Prince"));
  CHECK_THAT(text, Catch::Contains("mpzero: step 7 of " + (folder / "small-7steps").string() + ": "));
  CHECK_THAT(text, Catch::Contains("; prompt of 6 tokens: ") && Catch::Contains(" tokens/s"));
  const auto until_speed = [](const std::string& output) { return output.substr(0, output.find("mpzero: step")); };
  CHECK(until_speed(printed(folder.path(), flags)) == until_speed(text));
  std::vector<std::string> other = flags;
  other.insert(other.end(), {"--seed", "7"});
  CHECK(until_speed(printed(folder.path(), other)) != until_speed(text));
  CHECK_THAT(printed(folder.path(), {"--prompt", "a", "--untrained", "--device=cpu", "--dtype=bf16"}),
             Catch::Contains("mpzero: step 0 of the run of "));
}

TEST_CASE("completes ids with ids, one per line") {
  const TemporaryFolder folder;
  save_model(folder.path(), {.tokenizer = "an-org/Model-1B"});
  const std::string text =
      printed(folder.path(), {"--prompt_tokens", "80,259", "--max_tokens=3", "--device=cpu", "--temperature=0"});
  int a = -1, b = -1, c = -1, end = 0;
  CHECK(std::sscanf(text.c_str(), "%d\n%d\n%d\nmpzero: %n", &a, &b, &c, &end) == 3);
  CHECK((a >= 0 && b >= 0 && c >= 0 && end > 0));
}

TEST_CASE("a model is described in JSON") {
  const TemporaryFolder folder;
  save_model(folder.path(), {.tokenizer = "an-org/Model-1B"});
  const auto facts = nlohmann::json::parse(printed(folder.path(), {"--describe"}));
  CHECK(facts == nlohmann::json({{"model", "step 7 of " + (folder / "small-7steps").string()},
                                 {"model_type", "qwen3"},
                                 {"parameters", num_parameters(testing::byte_model())},
                                 {"vocab_size", 260},
                                 {"positions", 64},
                                 {"tokenizer", "an-org/Model-1B"},
                                 {"eos_token_ids", {256}},
                                 {"bos_token_id", nullptr},
                                 {"chat_template", ""},
                                 {"add_bos", nullptr}}));
}

TEST_CASE("a prompt that the model cannot complete is refused in one sentence") {
  const TemporaryFolder folder, of_others, of_nobody, of_few, diverged;
  save_model(folder.path(), {});
  save_model(of_others.path(), {.tokenizer = "an-org/Model-1B"});
  save_model(of_nobody.path(), {.tokenizer = ""});
  model::ModelConfig few = testing::byte_model();
  few.vocab_size = 200;
  few.eos_token_ids = {};
  save_model(of_few.path(), {.config = few});
  save_model(diverged.path(), {.offset = std::numeric_limits<float>::quiet_NaN()});
  const auto name = [](const TemporaryFolder& run) { return "step 7 of " + (run / "small-7steps").string(); };
  const std::string text(64, 'a');
  using Catch::Contains, Catch::StartsWith;
  CHECK_THAT(error(folder.path(), {"--device=cpu", "--prompt", text}),
             StartsWith("the prompt has 64 tokens, but " + name(folder) + " has 64 positions; "));
  CHECK_THAT(
      error(folder.path(), {"--device=cpu", "--prompt", "ab", "--max_tokens=63"}),
      StartsWith("--max_tokens 63: ") && Contains("the 64 positions of " + name(folder)) && Contains("at most 62 "));
  CHECK_THAT(error(folder.path(), {"--device=cpu", "--prompt_tokens", "3,260"}),
             StartsWith("--prompt_tokens: id 260 is outside the vocabulary of " + name(folder)));
  CHECK_THAT(error(of_others.path(), {"--device=cpu", "--prompt", "ab"}),
             StartsWith("the tokenizer of " + name(of_others) + " is an-org/Model-1B") && Contains("app/generate.py"));
  CHECK(error(of_others.path(), {"--device=cpu", "--prompt", "ab", "--tokenizer=bytes"}) ==
        "--tokenizer bytes: the tokenizer of " + name(of_others) + " is an-org/Model-1B; omit the flag.");
  CHECK_THAT(error(of_nobody.path(), {"--device=cpu", "--prompt", "ab"}),
             StartsWith(name(of_nobody) + " does not record a tokenizer; ") && Contains("--tokenizer bytes"));
  CHECK_THAT(printed(of_nobody.path(), {"--device=cpu", "--prompt", "ab", "--tokenizer=bytes"}),
             Catch::StartsWith("ab"));
  CHECK(error(of_few.path(), {"--device=cpu", "--prompt", "ab"}) ==
        "the bytes tokenizer has 257 ids, but the vocabulary of " + name(of_few) + " has 200; use --prompt_tokens.");
  CHECK_THAT(error(diverged.path(), {"--device=cpu", "--prompt", "ab"}),
             Catch::StartsWith("the logits after 2 tokens are not finite"));
}

TEST_CASE("prints the help of mpzero generate") {
  const CapturedOutput output;
  CHECK(generate_command({"--help"}) == 0);
  CHECK_THAT(output.text(), Catch::StartsWith("Usage: mpzero generate CHECKPOINT"));
}

}  // namespace mpzero
