#include "app/flags/help.hpp"
#include "app/flags/options.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"

// Flags as the Hugging Face Trainer's users write them.
namespace mpzero {
namespace {

using Catch::Contains;

std::string parse_error(const std::vector<std::string>& arguments) {
  return error_from([&] { parse_command_line(arguments); });
}

RunConfig with_data(Result result, int64_t num_windows) {
  apply_epochs(result.config, num_windows, result.warnings);
  return result.config;
}

std::string data_error(const std::string& json, const std::vector<std::string>& flags, int64_t num_windows) {
  return error_from([&] { with_data(run(json, flags), num_windows); });
}

TEST_CASE("the Trainer's flag names are accepted") {
  const CommandLine line = parse_command_line(
      {"--per_device_train_batch_size=4", "--gradient_accumulation_steps=2", "--adam_beta1=0.8", "--adam_beta2=0.999",
       "--adam_epsilon=1e-6", "--weight_decay=0.01", "--max_grad_norm=0.5", "--lr_scheduler_type=cosine",
       "--warmup_steps=0", "--num_train_epochs=2.5", "--logging_steps=5", "--save_steps=50", "--save_total_limit=2",
       "--save_strategy=steps", "--gradient_checkpointing", "True", "--bf16", "True"});
  CHECK(line.micro_batch_size == 4);
  CHECK(line.gradient_accumulation_steps == 2);
  CHECK(line.optimizer.beta1 == 0.8);
  CHECK(line.optimizer.beta2 == 0.999);
  CHECK(line.optimizer.eps == 1e-6);
  CHECK(line.optimizer.weight_decay == 0.01);
  CHECK(line.gradient_clipping == 0.5);
  CHECK(line.lr_scheduler_type == "cosine");
  CHECK(line.warmup_steps == 0);
  CHECK(line.num_train_epochs == 2.5);
  CHECK(line.logging_freq == 5);
  CHECK(line.checkpoint_freq == 50);
  CHECK(line.keep_last == 2);
  CHECK(line.save_strategy == SaveStrategy::kSteps);
  CHECK(line.gradient_checkpointing == true);
  CHECK(line.dtype == "bf16");
  for (const char* name : {"per_device_train_batch_size", "adam_beta2", "max_grad_norm", "save_steps"}) {
    CHECK_THAT(command_line_help(), Contains(std::string("--") + name));
  }
}

TEST_CASE("Booleans accept the words of the Trainer's parser") {
  for (const char* word : {"true", "True", "TRUE", "t", "yes", "Y", "1"}) {
    CHECK(parse_command_line({"--gradient_checkpointing", word}).gradient_checkpointing == true);
  }
  for (const char* word : {"false", "False", "f", "no", "N", "0"}) {
    CHECK(parse_command_line({std::string("--gradient_checkpointing=") + word}).gradient_checkpointing == false);
  }
  CHECK(parse_command_line({"--gradient_checkpointing", "--max_steps=3"}).gradient_checkpointing == true);
  CHECK(parse_error({"--gradient_checkpointing=2"}) == "--gradient_checkpointing must be true or false, not \"2\".");
}

TEST_CASE("aliases of a setting must agree") {
  CHECK(parse_command_line({"--grad_clip=1", "--max_grad_norm=1.0"}).gradient_clipping == 1.0);
  CHECK_THAT(parse_error({"--grad_clip=1", "--max_grad_norm=2"}), Contains("--grad_clip 1 and --max_grad_norm 2"));
  CHECK_THAT(parse_error({"--save_steps=10", "--checkpoint_freq=20"}),
             Contains("--save_steps 10 and --checkpoint_freq 20"));
  CHECK(parse_error({"--max_grad_norm=2", "--max_grad_norm=2"}) ==
        "--max_grad_norm is given twice; keep one of the two.");
  CHECK(parse_error({"--max_grad_norm=-2"}) == "--max_grad_norm -2 is out of range; it must be 0 or more and finite.");
  CHECK_THAT(parse_error({"--max_grad_nrom=2"}), Contains("did you mean --max_grad_norm?"));
}

TEST_CASE("a conflict with the file is reported with the flag name as given") {
  const std::string json = R"({"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.5,
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8}}})";
  const std::string error = error_of(
      json, {"--max_grad_norm=1", "--adam_beta2=0.999", "--adam_epsilon=1e-6", "--per_device_train_batch_size=2"});
  for (const char* part :
       {"--max_grad_norm 1 but gradient_clipping 0.5", "--adam_beta2 0.999 but optimizer.params.betas[1] 0.95",
        "--adam_epsilon 1e-06 but optimizer.params.eps 1e-08",
        "--per_device_train_batch_size 2 but train_micro_batch_size_per_gpu 1"}) {
    CHECK_THAT(error, Contains(part));
  }
}

TEST_CASE("gradient_checkpointing selects full recomputation or none") {
  CHECK(run("", {"--gradient_checkpointing"}).config.recompute == Recomputation::kFull);
  CHECK(run("", {"--gradient_checkpointing=false"}).config.recompute == Recomputation::kNone);
  CHECK(run("", {"--gradient_checkpointing", "--recompute=full"}).config.recompute == Recomputation::kFull);
  CHECK(run("", {"--gradient_checkpointing", "--recompute=host"}).config.recompute == Recomputation::kHost);
  CHECK_THAT(parse_error({"--gradient_checkpointing=false", "--recompute=host"}), Contains("--recompute host"));
  CHECK_THAT(parse_error({"--gradient_checkpointing", "--recompute=selective"}),
             Contains("--recompute selective and --gradient_checkpointing true (--recompute full)"));
}

// The walk-through's file leaves to the Trainer what is "auto" or missing.
const std::string kAuto = R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}})";
const std::string kMissing = R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "bf16": {"enabled": true},
    "zero_optimization": {"stage": 3}})";

TEST_CASE("the Trainer's flags set values that the file leaves open") {
  for (const std::string& json : {kAuto, kMissing}) {
    const auto [config, warnings] =
        run(json,
            {"--per_device_train_batch_size=4", "--gradient_accumulation_steps=4", "--learning_rate=2e-5",
             "--adam_beta1=0.85", "--adam_beta2=0.999", "--adam_epsilon=1e-6", "--weight_decay=0",
             "--max_grad_norm=0.7", "--lr_scheduler_type=linear", "--max_steps=50", "--bf16=True"},
            16);
    CHECK(warnings.empty());
    CHECK(config.train_batch_size == 256);
    CHECK(config.optimizer.lr == 2e-5);
    CHECK(config.optimizer.beta1 == 0.85);
    CHECK(config.optimizer.beta2 == 0.999);
    CHECK(config.optimizer.eps == 1e-6);
    CHECK(config.optimizer.weight_decay == 0.0);
    CHECK(config.gradient_clipping == 0.7);
    CHECK(config.dtype == "bf16");
    CHECK(config.schedule.lr(1) == 2e-5);
    CHECK(config.schedule.lr(26) == Approx(1e-5));
    CHECK(config.schedule.lr(50) == Approx(2e-5 / 50));
  }
}

TEST_CASE("warns of defaults that differ from the Trainer's, with the flags that set them") {
  const Result missing = run(kMissing, {"--per_device_train_batch_size=4"});
  REQUIRE(missing.warnings.size() == 2);
  CHECK_THAT(missing.warnings[0], Contains("ds.json: optimizer is missing") &&
                                      Contains(": beta2 0.95, weight decay 0.1. ") &&
                                      Contains("would use 0.999, 0. ") && Contains("--adam_beta2, --weight_decay"));
  CHECK_THAT(missing.warnings[1], Contains("ds.json: scheduler is missing") && Contains("stays at 5e-05") &&
                                      Contains("--lr_scheduler_type linear"));
  const Result open = run(kAuto, {"--learning_rate=2e-5", "--adam_beta2=0.999", "--lr_scheduler_type=constant"});
  REQUIRE(open.warnings.size() == 3);
  CHECK_THAT(open.warnings[0], Contains("optimizer.params.weight_decay is \"auto\"") && Contains("weight decay 0.1.") &&
                                   !Contains("beta2"));
  CHECK_THAT(open.warnings[1], Contains("micro-batch 1") && Contains("--per_device_train_batch_size"));
  CHECK_THAT(open.warnings[2], Contains("bf16.enabled is \"auto\"") && Contains("--bf16"));
  const Result warmup = run(R"({"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}})");
  REQUIRE(warmup.warnings.size() == 1);
  CHECK_THAT(warmup.warnings[0],
             Contains("warmup_num_steps is \"auto\"") && Contains("100 warm-up steps") && Contains("--warmup_steps"));
  // --help tells its defaults.
  CHECK(run("").warnings.empty());
}

TEST_CASE("lr_scheduler_type selects the Trainer's schedule") {
  using parallel::TrainerDecay;
  const auto rates = [](const std::vector<std::string>& flags) { return run("", flags).config.schedule; };
  const auto same = [](const parallel::LrSchedule& schedule, const parallel::TrainerLr& expected) {
    for (int64_t update = 1; update <= 20; ++update) {
      CHECK(schedule.lr(update) == parallel::LrSchedule(expected).lr(update));
    }
  };
  same(rates({"--lr_scheduler_type=linear", "--max_steps=20"}), {TrainerDecay::kLinear, 5e-5, 0, 20});
  same(rates({"--lr_scheduler_type=linear", "--max_steps=20", "--warmup_steps=6"}),
       {TrainerDecay::kLinear, 5e-5, 6, 20});
  same(rates({"--lr_scheduler_type=cosine", "--max_steps=20", "--warmup_ratio=0.11"}),
       {TrainerDecay::kCosine, 5e-5, 3, 20});
  same(rates({"--lr_scheduler_type=cosine", "--max_steps=20", "--warmup_steps=0.11"}),
       {TrainerDecay::kCosine, 5e-5, 3, 20});
  same(rates({"--lr_scheduler_type=linear", "--max_steps=20", "--warmup_steps=0", "--warmup_ratio=0.1"}),
       {TrainerDecay::kLinear, 5e-5, 2, 20});
  same(rates({"--lr_scheduler_type=constant", "--max_steps=20"}), {TrainerDecay::kConstant, 5e-5, 0, 20});
  same(rates({"--lr_scheduler_type=constant_with_warmup", "--max_steps=20", "--warmup_steps=4"}),
       {TrainerDecay::kConstant, 5e-5, 4, 20});
  // None, said as a share, is none, where mpzero's own default has some.
  CHECK(parse_command_line({"--warmup_ratio=0"}).warmup_steps == 0);
  CHECK(parse_command_line({"--warmup_ratio=0.0", "--warmup_steps=6"}).warmup_steps == 6);
  CHECK(parse_command_line({"--warmup_steps=10.0"}).warmup_steps == 10);
  // Also with a file without a scheduler, and as long as the epochs say.
  const std::string json = R"({"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})";
  same(with_data(run(json, {"--lr_scheduler_type=linear", "--epochs=2", "--warmup_ratio=0.1"}), 20).schedule,
       {TrainerDecay::kLinear, 1e-3, 2, 20});
  same(with_data(run(json, {"--lr_scheduler_type=step_lr", "--lr_gamma=0.7", "--num_train_epochs=3"}), 13).schedule,
       {TrainerDecay::kInSteps, 1e-3, 0, 18, 6, 0.7});
  same(with_data(run(json, {"--lr_scheduler_type=step_lr", "--lr_gamma=0.7", "--epochs=2"}), 9).schedule,
       {TrainerDecay::kInSteps, 1e-3, 0, 9, 4.5, 0.7});
  same(rates({"--lr_scheduler_type=step_lr", "--lr_gamma=0.5", "--max_steps=20", "--num_decay_steps=4"}),
       {TrainerDecay::kInSteps, 5e-5, 0, 20, 4, 0.5});
}

TEST_CASE("step_lr requires a factor and a length, and no other schedule accepts a factor") {
  const std::string type = "--lr_scheduler_type=step_lr", gamma = "--lr_gamma=0.7";
  CHECK_THAT(parse_error({type, "--num_train_epochs=2"}), Contains("--lr_gamma"));
  CHECK_THAT(parse_error({type, gamma, "--max_steps=9"}), Contains("--num_decay_steps"));
  CHECK_THAT(parse_error({"--lr_scheduler_type=linear", gamma}), Contains("--lr_gamma 0.7"));
}

// Oracle: DeepSpeed's classes (0.13), which take max(2, warmup_num_steps).
TEST_CASE("DeepSpeed's schedules treat 0 warm-up steps as 2, with a warning") {
  const auto with_warmup = [](int steps) {
    return fmt::format(
        R"({{"train_batch_size": 2, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": {}}}}}}})",
        steps);
  };
  const std::string two = with_warmup(2), none = with_warmup(0);
  for (const Result& result :
       {run(none), run("", {"--warmup_ratio=0", "--max_steps=10"}), run("", {"--warmup_steps=0"})}) {
    CHECK(warnings_with(result, " 0: this run warms up for two steps").size() == 1);
    CHECK(result.config.schedule.lr(2) == 0);
    CHECK(result.config.schedule.lr(3) == result.config.optimizer.lr);
  }
  CHECK(run(none).config.schedule.lr(3) == run(two).config.schedule.lr(3));
  CHECK(warnings_with(run(two), "this run warms up for two steps").empty());
}

TEST_CASE("a warm-up that is missing or set twice is refused") {
  CHECK_THAT(parse_error({"--lr_scheduler_type=polynomial"}),
             Contains("--lr_scheduler_type must be one of linear, cosine, constant, constant_with_warmup"));
  CHECK_THAT(
      parse_error({"--lr_scheduler_type=constant", "--warmup_steps=3"}),
      Contains("--lr_scheduler_type constant") && Contains("--warmup_steps") && Contains("constant_with_warmup"));
  CHECK(parse_error({"--lr_scheduler_type=constant", "--warmup_steps=0"}) == "no error");
  CHECK_THAT(parse_error({"--warmup_steps=3", "--warmup_ratio=0.1"}),
             Contains("--warmup_steps 3 and --warmup_ratio 0.1 both set the warm-up"));
  CHECK_THAT(parse_error({"--warmup_steps=0.2", "--warmup_ratio=0.1"}),
             Contains("--warmup_steps 0.2") && Contains("--warmup_ratio 0.1"));
  CHECK(parse_error({"--warmup_steps=1.5"}) == "--warmup_steps must be an integer, not \"1.5\".");
  CHECK_THAT(parse_error({"--warmup_ratio=1.5"}), Contains("--warmup_ratio 1.5 is out of range"));
  CHECK_THAT(error_of(trio(2, 0, 0), {"--warmup_ratio=0.1"}), Contains("--warmup_ratio 0.1 but scheduler is missing"));
}

TEST_CASE("lr_scheduler_type and a scheduler section conflict") {
  const auto scheduled = [](const std::string& params) {
    return R"({"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto")" +
           params + "}}}";
  };
  CHECK_THAT(error_of(scheduled(""), {"--lr_scheduler_type=linear"}),
             Contains("--lr_scheduler_type linear but scheduler.type WarmupDecayLR"));
  // The section's warm-up may be a share of the run, which the Trainer rounds up.
  const std::string is_auto =
      scheduled(R"(, "warmup_num_steps": "auto", "total_num_steps": "auto", "warmup_type": "linear")");
  const parallel::LrSchedule expected = parallel::WarmupDecayLr{0.0, 1e-3, 3, 20, parallel::WarmupType::kLinear};
  const RunConfig config = run(is_auto, {"--warmup_ratio=0.11", "--max_steps=20"}).config;
  for (int64_t update = 1; update <= 20; ++update) CHECK(config.schedule.lr(update) == expected.lr(update));
  CHECK(run(is_auto, {"--warmup_steps=0"}).config.schedule.lr(50) > 0);
  const std::string given = scheduled(R"(, "warmup_num_steps": 3)");
  CHECK(error_of(given, {"--warmup_ratio=0.11", "--max_steps=20"}) == "no error");
  CHECK_THAT(error_of(given, {"--warmup_ratio=0.2", "--max_steps=20"}),
             Contains("ds.json") && Contains("--warmup_ratio 0.2 of 20 steps is 4") &&
                 Contains("scheduler.params.warmup_num_steps is 3") && Contains("--deepspeed_config_yields true"));
}

TEST_CASE("num_train_epochs counts whole global batches per epoch, rounded up over all epochs") {
  const std::string json = trio(0, 4, 2);  // 16 sequences a step
  const auto steps = [&](const std::string& epochs) {
    return with_data(run(json, {"--num_train_epochs=" + epochs}), 110).max_steps;
  };
  CHECK(steps("1") == 6);
  CHECK(steps("3") == 18);  // --epochs 3 is 20: what fills no step goes to the next epoch
  CHECK(steps("2.5") == 15);
  CHECK(steps("0.1") == 1);
  CHECK_THAT(data_error(json, {"--num_train_epochs=3"}, 15),
             Contains("--num_train_epochs 3 ") && Contains("15 sequences"));
  CHECK_THAT(parse_error({"--num_train_epochs=0"}), Contains("must be greater than 0"));
}

TEST_CASE("num_train_epochs must be consistent with max_steps and epochs") {
  const std::string json = trio(0, 4, 2);
  CHECK(data_error(json, {"--num_train_epochs=3", "--max_steps=18"}, 110) == "no error");
  CHECK_THAT(data_error(json, {"--num_train_epochs=3", "--max_steps=20"}, 110),
             Contains("--num_train_epochs 3 (18 steps of 16 sequences) and --max_steps 20"));
  CHECK(data_error(json, {"--num_train_epochs=3", "--epochs=3"}, 96) == "no error");
  CHECK_THAT(data_error(json, {"--num_train_epochs=3", "--epochs=3"}, 110),
             Contains("--num_train_epochs 3 (18 steps") && Contains("--epochs 3 (20 steps)"));
}

TEST_CASE("no_decay accepts parts of names") {
  CHECK(run("", {"--no_decay=norm,bias"}).config.optimizer.no_decay == std::vector<std::string>{"norm", "bias"});
  CHECK(run("", {"--no_decay", "norm"}).config.optimizer.no_decay == std::vector<std::string>{"norm"});
  CHECK(run("", {"--no_decay", "norm, bias"}).config.optimizer.no_decay == std::vector<std::string>{"norm", "bias"});
  CHECK(run("").config.optimizer.no_decay.empty());
  for (const char* names : {"norm,,bias", ",", "norm,"}) {
    CHECK_THAT(error_of("", {std::string("--no_decay=") + names}), Contains("an empty name"));
  }
  CHECK_THAT(error_of("", {"--no_decay=norm,bias", "--checkpoint_format=deepspeed"}),
             Contains("--no_decay norm,bias") && Contains("--checkpoint_format deepspeed"));
}

TEST_CASE("warns that DeepSpeed's format cannot store the Trainer's schedule") {
  const auto num_warnings = [](const std::string& flag) {
    return warnings_with(run("", {"--checkpoint_format=deepspeed", flag}), "load_lr_scheduler_states=False").size();
  };
  CHECK(num_warnings("--lr_scheduler_type=linear") == 1);
  CHECK(num_warnings("--max_steps=500") == 0);
}

TEST_CASE("save_strategy selects when checkpoints are saved") {
  CHECK(run("", {"--save_strategy=steps"}).config.checkpoint_freq == 500);
  CHECK(run("", {"--save_strategy=steps", "--save_steps=7"}).config.checkpoint_freq == 7);
  CHECK(with_data(run(trio(0, 4, 2), {"--save_strategy=epoch"}), 110).checkpoint_freq == 6);
  CHECK(with_data(run(trio(0, 4, 2), {"--save_strategy=epoch", "--num_train_epochs=2"}), 110).checkpoint_freq == 6);
  CHECK(run("", {"--save_strategy=epoch"}).config.save_final);
  CHECK(run("", {"--save_strategy=no"}).config.checkpoint_freq == 0);
  CHECK_FALSE(run("", {"--save_strategy=no"}).config.save_final);
  CHECK(parse_error({"--save_strategy=no", "--save_final=false", "--checkpoint_freq=0"}) == "no error");
  CHECK_THAT(parse_error({"--save_strategy=no", "--save_final"}), Contains("--save_strategy no and --save_final true"));
  CHECK_THAT(parse_error({"--save_strategy=no", "--save_steps=7"}), Contains("--save_strategy no and --save_steps 7"));
  CHECK_THAT(data_error(trio(0, 4, 2), {"--save_strategy=epoch"}, 15), Contains("--train_data has 15 sequences"));
  CHECK(parse_error({"--save_strategy=epoch", "--save_steps=7"}) ==
        "--save_strategy epoch and --save_steps 7 conflict; keep one of the two.");
  CHECK_THAT(parse_error({"--save_strategy=best"}), Contains("--save_strategy must be one of no, steps, epoch"));
}

}  // namespace
}  // namespace mpzero
