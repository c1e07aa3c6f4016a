#include <sstream>

#include "app/config/run_config.hpp"
#include "app/flags/help.hpp"
#include "app/flags/options.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

std::string error_of(const std::vector<std::string>& arguments) {
  return error_from([&] { parse_command_line(arguments); });
}

// The text that --help prints for a flag, without line breaks.
std::string help_of(const std::string& flag) {
  std::istringstream lines(command_line_help());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const bool starts_a_flag = line.rfind("  --", 0) == 0;
    if (starts_a_flag && !text.empty()) break;
    if (line.rfind("  --" + flag + " ", 0) == 0 || (!text.empty() && !starts_a_flag)) {
      const size_t begin = line.find_first_not_of(' ');
      if (begin != std::string::npos) text += line.substr(begin) + (line.back() == ' ' ? "" : " ");
    }
  }
  return text;
}

TEST_CASE("an unset flag is empty") {
  const CommandLine line = parse_command_line({});
  CHECK_FALSE(line.help);
  CHECK_FALSE(line.gives("max_steps"));
  CHECK_FALSE(line.gives("bf16"));
  CHECK(line == CommandLine{});
  CHECK_FALSE(line.model_overrides.vocab_size.has_value());
}

TEST_CASE("all flags of mpzero and of the former training script are parsed") {
  const CommandLine line = parse_command_line({"--model_type=qwen3_0_6b",
                                               "--model_config=c.json",
                                               "--init_from=weights",
                                               "--recompute=full",
                                               "--tokenizer=Qwen/Qwen3-0.6B",
                                               "--vocab_size=151936",
                                               "--hidden_size=1024",
                                               "--intermediate_size=3072",
                                               "--num_hidden_layers=28",
                                               "--num_attention_heads=16",
                                               "--num_key_value_heads=8",
                                               "--head_dim=128",
                                               "--max_position_embeddings=40960",
                                               "--rms_norm_eps=1e-6",
                                               "--rope_theta=1e6",
                                               "--dataset=allenai/c4",
                                               "--dataset_config_name=en",
                                               "--local_dataset=false",
                                               "--train_batch_size=16",
                                               "--train_micro_batch_size_per_gpu=2",
                                               "--gradient_accumulation_steps=4",
                                               "--learning_rate=5e-5",
                                               "--max_steps=1000",
                                               "--epochs=1",
                                               "--logging_freq=10",
                                               "--validation_freq=100",
                                               "--validation_sequences=40",
                                               "--checkpoint_freq=500",
                                               "--checkpoint_dir=checkpoints",
                                               "--beta1=0.9",
                                               "--beta2=0.95",
                                               "--weight_decay=0.1",
                                               "--grad_clip=1.0",
                                               "--warmup_steps=100",
                                               "--bf16",
                                               "--deepspeed_config=ds_config.json",
                                               "--resume_from_checkpoint=checkpoints/",
                                               "--seq_length=2048",
                                               "--seed=7",
                                               "--shuffle=false",
                                               "--train_data=t.h5",
                                               "--validation_data=v.h5",
                                               "--keep_last=3",
                                               "--async_save=false",
                                               "--resume_strict",
                                               "--checkpoint_format=hdf5",
                                               "--metrics_file=m.jsonl",
                                               "--device=cpu",
                                               "--grace_period=30",
                                               "--stuck_after=0.5",
                                               "--local_rank=3"});
  CHECK(line.model_type == "qwen3_0_6b");
  CHECK(line.model_config == "c.json");
  CHECK(line.init_from == "weights");
  CHECK(line.recompute == Recomputation::kFull);
  CHECK(line.tokenizer == "Qwen/Qwen3-0.6B");
  CHECK(line.model_overrides.vocab_size == 151936);
  CHECK(line.model_overrides.hidden_size == 1024);
  CHECK(line.model_overrides.intermediate_size == 3072);
  CHECK(line.model_overrides.num_hidden_layers == 28);
  CHECK(line.model_overrides.num_attention_heads == 16);
  CHECK(line.model_overrides.num_key_value_heads == 8);
  CHECK(line.model_overrides.head_dim == 128);
  CHECK(line.model_overrides.max_position_embeddings == 40960);
  CHECK(line.model_overrides.rms_norm_eps == 1e-6);
  CHECK(line.model_overrides.rope_theta == 1e6);
  CHECK(line.dataset == "allenai/c4");
  CHECK(line.dataset_config_name == "en");
  CHECK(line.local_dataset == false);
  CHECK(line.train_batch_size == 16);
  CHECK(line.micro_batch_size == 2);
  CHECK(line.gradient_accumulation_steps == 4);
  CHECK(line.optimizer.lr == 5e-5);
  CHECK(line.max_steps == 1000);
  CHECK(line.epochs == 1);
  CHECK(line.logging_freq == 10);
  CHECK(line.validation_freq == 100);
  CHECK(line.grace_period == 30.0);
  CHECK(line.stuck_after == 0.5);
  CHECK(line.validation_sequences == 40);
  CHECK(line.checkpoint_freq == 500);
  CHECK(line.checkpoint_dir == "checkpoints");
  CHECK(line.optimizer.beta1 == 0.9);
  CHECK(line.optimizer.beta2 == 0.95);
  CHECK(line.optimizer.weight_decay == 0.1);
  CHECK(line.gradient_clipping == 1.0);
  CHECK(line.warmup_steps == 100);
  CHECK(line.dtype == "bf16");
  CHECK(line.deepspeed_config == "ds_config.json");
  CHECK(line.resume_from_checkpoint == "checkpoints/");
  CHECK(line.seq_length == 2048);
  CHECK(line.seed == 7u);
  CHECK(line.shuffle == false);
  CHECK(line.train_data == "t.h5");
  CHECK(line.validation_data == std::vector<ValidationFile>{{.name = "", .path = "v.h5"}});
  CHECK(line.keep_last == 3);
  CHECK(line.async_save == false);
  CHECK(line.resume_strict == true);
  CHECK(line.metrics_file == "m.jsonl");
  CHECK(line.device == "cpu");
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

TEST_CASE("--help fits the terminal and lists the actual defaults") {
  std::istringstream lines(command_line_help());
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 110);
  for (const char* title : {"Model:", "Data:", "Training loop:", "Checkpoints:"}) {
    CHECK_THAT(command_line_help(), Contains(title));
  }
  const RunConfig config;
  const auto has_default = [](const std::string& flag, const auto& value) {
    INFO(flag << ": " << help_of(flag));
    CHECK_THAT(help_of(flag), Contains(fmt::format("(default: {}", value)));
  };
  has_default("model_type", config.model_type);
  has_default("seq_length", config.seq_length);
  has_default("seed", config.seed);
  has_default("shuffle", config.shuffle);
  has_default("max_steps", config.max_steps);
  has_default("logging_freq", config.logging_freq);
  has_default("validation_freq", config.validation_freq);
  has_default("grace_period", static_cast<int64_t>(config.grace_period));
  has_default("stuck_after", static_cast<int64_t>(config.stuck_after));
  has_default("validation_sequences", config.validation_sequences);
  has_default("checkpoint_dir", config.checkpoint_dir);
  has_default("checkpoint_freq", config.checkpoint_freq);
  has_default("keep_last", config.keep_last);
  has_default("device", config.device);
  has_default("beta1", config.optimizer.beta1);
  has_default("beta2", config.optimizer.beta2);
  has_default("weight_decay", config.optimizer.weight_decay);
  CHECK_THAT(help_of("learning_rate"), Contains("(default: 5e-5)"));
  CHECK(config.optimizer.lr == 5e-5);
  CHECK_THAT(help_of("bf16"), Contains("(default: true)"));
  CHECK(config.dtype == "bf16");
  CHECK_THAT(help_of("tokenizer"), Contains("(default: Qwen/Qwen3-0.6B)"));
}

}  // namespace
}  // namespace mpzero
