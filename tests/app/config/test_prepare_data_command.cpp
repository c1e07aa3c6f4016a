#include "app/config/prepare_data_command.hpp"
#include "tests/catch.hpp"

namespace mpzero {

using Catch::Contains;

TEST_CASE("the command that creates missing data uses the user's file names") {
  const std::string program = ".venv/bin/python app/prepare_data.py --dataset ";
  const CommandLine c4 =
      parse_command_line({"--dataset=allenai/c4", "--dataset_config_name=en", "--train_data=data/t.h5",
                          "--validation_data=data/absent.h5", "--tokenizer=bytes"});
  CHECK(prepare_data_command(c4, "data/t.h5") ==
        program +
            "allenai/c4 --dataset_config_name en --tokenizer bytes --output data/t.h5 "
            "--validation_output data/absent.h5");
  CHECK(prepare_data_command(c4, "data/absent.h5") ==
        program + "allenai/c4 --dataset_config_name en --split validation --tokenizer bytes --output data/absent.h5");
  const CommandLine local =
      parse_command_line({"--dataset=texts", "--local_dataset", "--train_data=t.h5", "--validation_data=absent.h5"});
  CHECK(prepare_data_command(local, "absent.h5") ==
        program + "PATH_OF_VALIDATION_TEXT --local_dataset true --tokenizer Qwen/Qwen3-0.6B --output absent.h5");
  const CommandLine configured = parse_command_line({"--dataset=texts", "--dataset_config_name=en", "--local_dataset",
                                                     "--train_data=t.h5", "--validation_data=absent.h5"});
  CHECK_THAT(prepare_data_command(configured, "t.h5"), Contains("--dataset texts --dataset_config_name en "));
  CHECK_THAT(prepare_data_command(configured, "absent.h5"), !Contains("--dataset_config_name"));
  // The tokenizer of another model than the default is not known here.
  CHECK_THAT(prepare_data_command(parse_command_line({"--model_type=llama_3_8b"}), "t.h5"),
             Contains("--tokenizer TOKENIZER "));
  CHECK(prepare_data_command(parse_command_line({}), "t.h5") ==
        program + "NAME_OR_PATH --tokenizer Qwen/Qwen3-0.6B --output t.h5");
}

TEST_CASE("the command that rewrites data supports any path") {
  CHECK(rewrite_data_command("data/t.h5") == ".venv/bin/python app/prepare_data.py --rewrite data/t.h5");
  CHECK(rewrite_data_command("my data/t's.h5") ==
        ".venv/bin/python app/prepare_data.py --rewrite 'my data/t'\\''s.h5'");
}

}  // namespace mpzero
