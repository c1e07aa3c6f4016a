#include "app/generate/generate_options.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

std::string error(const std::vector<std::string>& arguments) {
  return error_from([&] { parse_generate_options(arguments); });
}

}  // namespace

TEST_CASE("parses the flags of mpzero generate") {
  const GenerateOptions plain = parse_generate_options({"run", "--prompt", "Once upon"});
  CHECK((plain.folder == "run" && plain.prompt == "Once upon" && !plain.prompt_tokens && !plain.max_tokens));
  CHECK((plain.temperature == 0.8 && plain.top_k == 0 && plain.seed == 42 && plain.device == "auto"));
  CHECK((plain.dtype.empty() && plain.tag.empty() && !plain.untrained && !plain.describe));
  const GenerateOptions full = parse_generate_options({"--prompt_tokens=3,0,70000",
                                                       "--max_tokens",
                                                       "9",
                                                       "--temperature",
                                                       "0",
                                                       "--top_k=4",
                                                       "--seed",
                                                       "18446744073709551615",
                                                       "--device",
                                                       "cpu",
                                                       "run",
                                                       "--dtype",
                                                       "bf16",
                                                       "--tag",
                                                       "a-3steps",
                                                       "--untrained",
                                                       "--tokenizer",
                                                       "bytes",
                                                       "--model_config",
                                                       "c.json"});
  CHECK(full.prompt_tokens == std::vector<int64_t>{3, 0, 70000});
  CHECK((full.max_tokens == 9 && full.temperature == 0 && full.top_k == 4 && full.seed == UINT64_MAX));
  CHECK((full.device == "cpu" && full.dtype == "bf16" && full.tag == "a-3steps" && full.untrained));
  CHECK((full.folder == "run" && full.tokenizer == "bytes" && full.model_config == "c.json"));
  CHECK(parse_generate_options({"run", "--prompt=--x"}).prompt == "--x");
  CHECK(parse_generate_options({"run", "--prompt", "-x"}).prompt == "-x");
  CHECK(parse_generate_options({"run", "--describe"}).describe);
}

TEST_CASE("refuses invalid flags of mpzero generate") {
  CHECK_THAT(error({"--prompt", "a"}), Catch::Contains("the model is missing"));
  CHECK_THAT(error({"run"}), Catch::Contains("--prompt TEXT") && Catch::Contains("--prompt_tokens IDS"));
  CHECK_THAT(error({"run", "--prompt="}), Catch::Contains("--prompt needs a value"));
  CHECK_THAT(error({"run", "--prompt", "a", "--prompt_tokens", "1"}), Catch::Contains("--prompt and --prompt_tokens"));
  CHECK_THAT(error({"run", "--prompt", "Once", "upon"}),
             Catch::Contains("\"run\" and \"upon\"") && Catch::Contains("quote"));
  CHECK(error({"run", "--prompt", "a", "--prompt=b"}) == "--prompt is given twice; keep one of the two.");
  CHECK_THAT(error({"run", "--prompt"}),
             Catch::Contains("--prompt needs a value") && Catch::Contains("--prompt=VALUE"));
  CHECK(error({"run", "--prompt", "--untrained"}) == error({"run", "--prompt"}));
  CHECK(error({"run", "--untrained=true"}) == "--untrained takes no value; remove the value.");
  CHECK(error({"run", "--temprature", "1"}) ==
        "--temprature is not a flag of mpzero generate; did you mean --temperature?");
  CHECK(error({"run", "-p"}) == "-p is not a flag of mpzero generate; did you mean --prompt?");
  CHECK(error({"run", "-z"}) == "-z is not a flag of mpzero generate; see `mpzero generate --help`.");
  CHECK(error({"run", "--temperature", "-1"}) ==
        "--temperature -1 is out of range; it must be 0 or more and less than 100.");
  CHECK(error({"run", "--temperature", "nan"}) ==
        "--temperature nan is out of range; it must be 0 or more and less than 100.");
  CHECK(error({"run", "--temperature", "warm"}) == "--temperature must be a number, not \"warm\".");
  CHECK(error({"run", "--max_tokens", "0"}) == "--max_tokens 0 is too small; it must be 1 or more.");
  CHECK(error({"run", "--top_k", "-3"}) == "--top_k -3 is too small; it must be 0 or more.");
  CHECK(error({"run", "--seed", "-3"}) == "--seed must be an integer, 0 or more, not \"-3\".");
  CHECK(error({"run", "--prompt_tokens", "1,,2"}) == "--prompt_tokens must be an integer, not \"\".");
  CHECK(error({"run", "--prompt_tokens", "1,2,"}) == "--prompt_tokens must be an integer, not \"\".");
  CHECK(error({"run", "--prompt_tokens", "-1"}) == "--prompt_tokens -1 is too small; it must be 0 or more.");
  CHECK(error({"run", "--device", "tpu"}) == "--device must be one of auto, cpu, cuda, not \"tpu\".");
  CHECK(error({"run", "--dtype", "fp16"}) == "--dtype must be one of fp32, bf16, not \"fp16\".");
  CHECK_THAT(error({"run", "--tokenizer", "Qwen/Qwen3-0.6B"}),
             Catch::Contains("--tokenizer Qwen/Qwen3-0.6B") && Catch::Contains("app/generate.py"));
}

TEST_CASE("the help lists every flag of mpzero generate") {
  for (const char* flag : {"prompt", "prompt_tokens", "max_tokens", "temperature", "top_k", "seed", "device", "dtype",
                           "tag", "tokenizer", "model_config", "untrained", "describe"}) {
    CHECK_THAT(generate_help(), Catch::Contains("  --" + std::string(flag) + " "));
  }
}

}  // namespace mpzero
