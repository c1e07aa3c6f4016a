#include "app/flags/options.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

std::string error_of(const std::vector<std::string>& arguments) {
  return error_from([&] { parse_command_line(arguments); });
}

TEST_CASE("an unset flag is empty") {
  const CommandLine line = parse_command_line({});
  CHECK_FALSE(line.help);
  CHECK_FALSE(line.gives("max_steps"));
  CHECK_FALSE(line.gives("bf16"));
  CHECK(line == CommandLine{});
  CHECK_FALSE(line.model_overrides.vocab_size.has_value());
}

TEST_CASE("values follow a space or an equals sign, and Booleans may omit them") {
  CHECK(parse_command_line({"--max_steps", "7"}).max_steps == 7);
  CHECK(parse_command_line({"--max_steps=7"}).max_steps == 7);
  CHECK(parse_command_line({"--bf16"}).gives("bf16"));
  CHECK(parse_command_line({"--bf16", "--max_steps", "7"}).dtype == "bf16");
  CHECK(parse_command_line({"--bf16", "--max_steps", "7"}).max_steps == 7);
  CHECK(parse_command_line({"--bf16", "false"}).dtype == "fp32");
  CHECK(parse_command_line({"--bf16=false"}).dtype == "fp32");
  CHECK(parse_command_line({"--shuffle", "true", "--bf16=true"}).shuffle == true);
  CHECK(parse_command_line({"--help"}).help);
  CHECK(parse_command_line({"-h"}).help);
  CHECK(parse_command_line({"--dataset", "with a=blank"}).dataset == "with a=blank");
  CHECK(parse_command_line({"--local_rank=3"}) == CommandLine{});
}

TEST_CASE("an invalid flag is reported with valid alternatives") {
  CHECK(error_of({"--lerning_rate", "1"}) == "--lerning_rate is not a known flag; did you mean --learning_rate?");
  CHECK(error_of({"--learning-rate=1"}) == "--learning-rate is not a known flag; did you mean --learning_rate?");
  CHECK(error_of({"--micro_batch_size=1"}) ==
        "--micro_batch_size is not a known flag; did you mean --train_micro_batch_size_per_gpu?");
  CHECK(error_of({"--xyzzy"}) == "--xyzzy is not a known flag; mpzero train --help lists all flags.");
  // No abbreviations: --max would silently change its meaning when a second flag of that beginning appears.
  CHECK_THAT(error_of({"--max", "3"}), Contains("--max is not a known flag"));
  CHECK(error_of({"train"}) == "\"train\" is not a flag; write --name value or --name=value.");
  CHECK_THAT(error_of({"--max_steps", "3", "4"}), Contains("\"4\" is not a flag"));
  CHECK_THAT(error_of({"--max_steps"}), Contains("--max_steps needs a value"));
  CHECK_THAT(error_of({"--max_steps="}), Contains("--max_steps needs a value"));
  CHECK_THAT(error_of({"--bf16="}), Contains("--bf16 needs a value"));
  CHECK_THAT(error_of({"--model_type", "--bf16"}), Contains("--model_type needs a value"));
  // One error for an unknown flag and its value, and others after it.
  CHECK(error_of({"--xyzzy", "3", "--max_steps", "--seed=-1"}).find("\"3\"") == std::string::npos);
  CHECK_THAT(error_of({"--xyzzy", "3", "--max_steps", "--seed=-1"}),
             Contains("--xyzzy is not") && Contains("--max_steps needs") && Contains("--seed must be"));
  CHECK(error_of({"--max_steps=3", "--max_steps=4"}) == "--max_steps is given twice; keep one of the two.");
  CHECK(error_of({"--max_steps=3", "--max_steps=4", "--max_steps=5"}) == error_of({"--max_steps=3", "--max_steps=4"}));
  CHECK(error_of({"--max_steps=1.5"}) == "--max_steps must be an integer, not \"1.5\".");
  CHECK(error_of({"--max_steps=3x"}) == "--max_steps must be an integer, not \"3x\".");
  CHECK(error_of({"--max_steps=0"}) == "--max_steps 0 is too small; it must be 1 or more.");
  CHECK_THAT(error_of({"--max_steps=99999999999999999999"}),
             Contains("--max_steps 99999999999999999999 is out of range"));
  CHECK_THAT(error_of({"--weight_decay", "-1"}), Contains("--weight_decay -1 is out of range"));
  CHECK_THAT(error_of({"--learning_rate=nan"}), Contains("--learning_rate nan is out of range"));
  CHECK_THAT(error_of({"--learning_rate=inf"}), Contains("--learning_rate inf is out of range"));
  CHECK_THAT(error_of({"--beta1=1"}), Contains("--beta1 1 is out of range"));
  CHECK_THAT(error_of({"--rope_theta=0"}), Contains("--rope_theta 0 is out of range"));
  CHECK_THAT(error_of({"--seed=-1"}), Contains("--seed must be an integer, 0 or more"));
  CHECK(error_of({"--bf16", "maybe"}) == "--bf16 must be true or false, not \"maybe\".");
  CHECK(error_of({"--device=tpu"}) == "--device must be one of auto, cuda, cpu, not \"tpu\".");
  CHECK_THAT(
      error_of({"--recompute=some"}),
      Contains("--recompute must be one of none, selective, attention, full, tiled, host_attention, host, auto"));
  CHECK_THAT(error_of({"--checkpoint_format=zip"}), Contains("--checkpoint_format must be one of hdf5, deepspeed"));
  CHECK(parse_command_line({"--checkpoint_format=deepspeed"}).deepspeed_format);
  CHECK(error_of({"--help=3"}) == "--help takes no value; remove the value.");
}

TEST_CASE("conflicting flags are refused") {
  CHECK_THAT(error_of({"--local_dataset"}), Contains("--local_dataset true requires --dataset"));
  CHECK_THAT(error_of({"--seq_length=4096", "--max_position_embeddings=2048"}),
             Contains("--seq_length 4096 is longer than --max_position_embeddings 2048"));
  CHECK_THAT(error_of({"--num_attention_heads=6", "--num_key_value_heads=4"}), Contains("is not a multiple of"));
}

}  // namespace
}  // namespace mpzero
