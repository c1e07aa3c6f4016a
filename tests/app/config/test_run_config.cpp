#include <filesystem>
#include <limits>
#include <sstream>

#include "app/checkpoint/run_folder.hpp"
#include "app/config/own_values.hpp"
#include "app/config/run_config.hpp"
#include "app/config/run_setup.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

struct Batch {
  int64_t total, micro, accumulation;
  bool operator==(const Batch&) const = default;
};

Batch batch_of(const std::string& json, const std::vector<std::string>& flags = {}, int world_size = 2) {
  const RunConfig config = run(json, flags, world_size).config;
  return {config.train_batch_size, config.micro_batch_size, config.gradient_accumulation_steps};
}

TEST_CASE("the recorded path of initial weights is absolute and normalized, even if they do not exist") {
  RunConfig config;
  const std::string here = std::filesystem::canonical(".").string();
  for (const char* path : {"gone/weights", "gone/weights/", "./gone/../gone/weights", "gone//weights"}) {
    config.init_from = path;
    CHECK(recorded_init_from(config) == here + "/gone/weights");
    config.init_from = here + "/" + path;
    CHECK(recorded_init_from(config) == here + "/gone/weights");
  }
  config.init_from = "./";
  CHECK(recorded_init_from(config) == here);
}

// Oracle: the cases of DeepSpeed's own batch configuration test, and each subset of two and of one.
TEST_CASE("the batch trio follows DeepSpeed's table") {
  for (const Batch& batch : {Batch{32, 16, 1}, Batch{32, 8, 2}}) {
    CHECK(batch_of(trio(batch.total, batch.micro, batch.accumulation)) == batch);
    CHECK(batch_of(trio(batch.total, batch.micro, 0)) == batch);
    CHECK(batch_of(trio(batch.total, 0, batch.accumulation)) == batch);
    CHECK(batch_of(trio(0, batch.micro, batch.accumulation)) == batch);
  }
  CHECK(batch_of(trio(32, 0, 0)) == Batch{32, 16, 1});
  CHECK(batch_of(trio(0, 16, 0)) == Batch{32, 16, 1});
  CHECK(error_of(trio(33, 17, 2)) ==
        "ds.json: train_batch_size 33 is not equal to train_micro_batch_size_per_gpu 17 x gradient_accumulation_steps "
        "2 x 2 ranks; change one of these values.");
  CHECK_THAT(error_of(trio(32, 18, 1)), Contains("train_batch_size 32 is not"));
  CHECK_THAT(error_of(trio(32, 18, 0)), Contains("train_batch_size 32 is not"));
  CHECK_THAT(error_of(trio(32, 0, 3)), Contains("train_batch_size 32 is not"));
  // What was not given is not named, and the remedy is a number.
  CHECK(error_of(trio(1, 0, 0)) ==
        "ds.json: train_batch_size 1 is not a multiple of 2 ranks; make it a multiple of 2, or change the number of "
        "ranks.");
  CHECK_THAT(error_of(trio(32, 0, 3)), Contains("not a multiple of gradient_accumulation_steps 3 x 2 ranks; make it a "
                                                "multiple of 6"));
  CHECK_THAT(error_of(trio(32, 18, 0)),
             Contains("train_micro_batch_size_per_gpu 18 x 2 ranks; make it a multiple of 36, or change "
                      "train_micro_batch_size_per_gpu or the number of ranks."));
  CHECK_THAT(error_of(trio(32, int64_t{1} << 62, 0)), Contains(" ranks; change train_micro_batch_size_per_gpu or"));
  CHECK_THAT(error_of(trio(0, 0, 2)), Contains("neither train_micro_batch_size_per_gpu nor train_batch_size"));
  CHECK_THAT(error_of("{}"), Contains("sets neither"));
  CHECK_THAT(error_of(trio(0, int64_t{1} << 40, int64_t{1} << 40)), Contains("batch size is too large"));
}

TEST_CASE("the batch trio may be split between file and flags, and auto values are computed") {
  CHECK(batch_of(trio(0, 4, 0), {"--gradient_accumulation_steps=3"}) == Batch{24, 4, 3});
  CHECK(batch_of(trio(0, 4, 0), {"--train_batch_size=24"}) == Batch{24, 4, 3});
  const std::string all_auto =
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})";
  CHECK(batch_of(all_auto) == Batch{2, 1, 1});
  CHECK(batch_of(all_auto, {"--train_micro_batch_size_per_gpu=4", "--gradient_accumulation_steps=4"}, 16) ==
        Batch{256, 4, 4});
  CHECK(batch_of(all_auto, {"--train_batch_size=8"}) == Batch{8, 4, 1});
  CHECK(batch_of("") == Batch{2, 1, 1});
  CHECK(batch_of("", {"--gradient_accumulation_steps=5"}) == Batch{10, 1, 5});
  CHECK_THAT(error_of("", {"--train_batch_size=3"}), Contains("the command line: --train_batch_size 3 is not"));
}

TEST_CASE("a refused batch size reports the flag and how it can override the file") {
  const std::string error = error_of(trio(0, 4, 1), {"--train_batch_size=8"}, 1);
  CHECK_THAT(error, Contains("the command line and ds.json: --train_batch_size 8 is not equal to "
                             "train_micro_batch_size_per_gpu 4") &&
                        Contains("x 1 rank;") && Contains("--deepspeed_config_yields true"));
  CHECK_THAT(error_of(trio(0, 3, 0), {"--train_batch_size=8"}, 1), Contains("--deepspeed_config_yields true"));
  // 3 ranks cannot share 8 sequences, whatever the file says.
  CHECK_THAT(error_of(trio(0, 4, 1), {"--train_batch_size=8"}, 3), !Contains("--deepspeed_config_yields"));
  CHECK_THAT(error_of("", {"--train_batch_size=8", "--per_device_train_batch_size=3"}, 1),
             Contains("the command line: --train_batch_size 8") && Contains("--per_device_train_batch_size 3") &&
                 !Contains("--deepspeed_config_yields"));
}

TEST_CASE("the suggested flags that keep a global batch size are accepted") {
  const auto words = [](const std::string& text) {
    std::vector<std::string> flags;
    std::istringstream in(text);
    for (std::string word; in >> word;) flags.push_back(word);
    return flags;
  };
  // `flags` are of the run with the new number of ranks; those of the same name in the advice replace them.
  const auto check = [&](const std::string& json, const std::vector<std::string>& flags, int ranks, int64_t total) {
    const RunConfig now = run(json, flags, ranks).config;
    const auto advice = flags_for_batch(now, total);
    INFO(json << ", ranks " << ranks << ", total " << total << ": " << advice.value_or("none"));
    REQUIRE(advice.has_value() == (total % ranks == 0));
    if (!advice) return;
    std::vector<std::string> all = words(*advice);
    for (const std::string& flag : flags) {
      if (advice->find(flag.substr(0, flag.find('=')) + " ") == std::string::npos) all.push_back(flag);
    }
    const Batch batch = batch_of(json, all, ranks);
    CHECK(batch.total == total);
    CHECK(batch.micro <= now.micro_batch_size);
  };
  const std::vector<std::string> micro{"--per_device_train_batch_size=4"},
      accumulation{"--gradient_accumulation_steps=2"}, yields{"--deepspeed_config_yields=true"};
  const std::string all_auto = R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2})";
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int64_t total : {1, 4, 6, 8, 12, 16, 24}) {
      for (const std::string& json : {std::string(), trio(0, 4, 1), trio(0, 4, 0), trio(0, 2, 3), all_auto}) {
        check(json, {}, ranks, total);
        if (!json.empty()) check(json, yields, ranks, total);
      }
      for (const auto& flags : {micro, accumulation}) check("", flags, ranks, total);
      check(trio(0, 4, 0), accumulation, ranks, total);
      check("", {micro[0], accumulation[0]}, ranks, total);
    }
  }
  CHECK(flags_for_batch(run(trio(0, 4, 1), {}, 1).config, 8) == "--train_batch_size 8 --deepspeed_config_yields true");
  CHECK(flags_for_batch(run(trio(0, 4, 0), {}, 1).config, 8) == "--train_batch_size 8");
  CHECK(!flags_for_batch(run(trio(0, 4, 1), {}, 3).config, 4));
  CHECK(!flags_for_batch(run(trio(0, 4, 1), {}, 1).config, 0));
}

TEST_CASE("the suggested flags for a faster dtype are accepted") {
  const auto note = [](const std::string& json, const std::vector<std::string>& flags = {}, bool is_cpu = true) {
    return slow_dtype(run(json, flags).config, is_cpu, /*multiplies_bf16=*/false).value_or("");
  };
  const std::string bf16 = R"({"train_batch_size": 2, "bf16": {"enabled": true})", plain = trio(2, 0, 0);
  CHECK_THAT(note(""), Contains("--bf16 false to"));
  CHECK_THAT(note(plain, {"--bf16"}), Contains("--bf16 false to"));
  CHECK_THAT(note(bf16 + "}"), Contains("--bf16 false --deepspeed_config_yields true to"));
  CHECK(run(bf16 + "}", {"--bf16=false", "--deepspeed_config_yields=true"}).config.dtype == "fp32");
  CHECK_THAT(note(bf16 + "}", {"--deepspeed_config_yields=true"}), Contains("--bf16 false to"));
  const std::string fp8 = bf16 + R"(, "fp8": {"enabled": true}})";
  CHECK_THAT(note(fp8), Contains("--bf16 false --fp8 none --deepspeed_config_yields true to"));
  CHECK(run(fp8, {"--bf16=false", "--fp8=none", "--deepspeed_config_yields=true"}).config.dtype == "fp32");
  CHECK(note("", {"--bf16=false"}).empty());
  CHECK(!slow_dtype(run("").config, /*is_cpu=*/true, /*multiplies_bf16=*/true));
  // DeepSpeed's default is fp32, with and without a section; "auto" and a run without a file use bf16.
  CHECK_THAT(note(plain, {}, false), Contains("ds.json") && Contains("bf16.enabled") && Contains("--bf16 true"));
  CHECK(run(plain, {"--bf16=true"}).config.dtype == "bf16");
  CHECK_FALSE(note(R"({"train_batch_size": 2, "bf16": {}})", {}, false).empty());
  CHECK(note(R"({"train_batch_size": 2, "bf16": {"enabled": "auto"}})", {}, false).empty());
  CHECK(note(R"({"train_batch_size": 2, "bf16": {"enabled": false}})", {}, false).empty());
  CHECK(note("", {}, false).empty());
  CHECK(run(R"({"train_batch_size": 2, "bf16": {"enabled": "auto"}})").config.dtype == "bf16");
}

TEST_CASE("a single message lists all conflicts between flags and file") {
  const std::string json = R"({
    "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 0.5,
    "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 5e-5, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 10, "cosine_min_ratio": 0}}})";
  CHECK(error_of(json) == "no error");
  CHECK(error_of(json, {"--learning_rate=5e-5", "--beta1=0.9", "--beta2=0.95", "--weight_decay=0.1", "--grad_clip=0.5",
                        "--warmup_steps=10", "--bf16", "--train_batch_size=2"}) == "no error");
  const std::string error = error_of(json, {"--learning_rate=1e-4", "--beta1=0.8", "--beta2=0.99", "--weight_decay=0.2",
                                            "--grad_clip=1", "--warmup_steps=100", "--bf16=false",
                                            "--train_micro_batch_size_per_gpu=2", "--gradient_accumulation_steps=8"});
  for (const char* part :
       {"the command line and ds.json conflict", "--deepspeed_config_yields true",
        "--learning_rate 0.0001 but optimizer.params.lr 5e-05", "--beta1 0.8 but optimizer.params.betas[0] 0.9",
        "--beta2 0.99 but optimizer.params.betas[1] 0.95", "--weight_decay 0.2 but optimizer.params.weight_decay 0.1",
        "--grad_clip 1 but gradient_clipping 0.5", "--warmup_steps 100 but scheduler.params.warmup_num_steps 10",
        "--bf16 false but bf16.enabled true", "--train_micro_batch_size_per_gpu 2 but train_micro_batch_size_per_gpu 1",
        "--gradient_accumulation_steps 8 but gradient_accumulation_steps 1"}) {
    CHECK_THAT(error, Contains(part));
  }
  CHECK_THAT(error_of(trio(0, 1, 0), {"--warmup_steps=5"}), Contains("--warmup_steps 5 but scheduler is missing"));
  CHECK_THAT(
      error_of(R"({"train_batch_size": 2, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}}})",
               {"--learning_rate=1e-4"}),
      Contains("--learning_rate 0.0001 but scheduler.params.warmup_max_lr 0.001"));
}

TEST_CASE("with --deepspeed_config_yields flags override the file, and the run reports the replaced values") {
  const std::string json = R"({
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 5e-5, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 10}}})";
  const auto yields = [&](std::vector<std::string> flags) {
    flags.emplace_back("--deepspeed_config_yields");
    return run(json, flags).config;
  };
  const RunConfig config = yields({"--learning_rate=1e-4", "--bf16=false", "--warmup_steps=20", "--beta1=0.9"});
  CHECK(config.optimizer.lr == 1e-4);
  CHECK(config.dtype == "fp32");
  CHECK(config.schedule.warmup_num_steps() == 20);
  CHECK(config.optimizer.weight_decay == 0.1);
  CHECK(config.replaced == std::vector<std::string>{"--bf16 false (bf16.enabled true)",
                                                    "--learning_rate 0.0001 (optimizer.params.lr 5e-05)",
                                                    "--warmup_steps 20 (scheduler.params.warmup_num_steps 10)"});
  CHECK(
      table_of(config).back() ==
      "  ds.json is overridden by flags: --bf16 false (bf16.enabled true), --learning_rate 0.0001 (optimizer.params.lr "
      "5e-05), --warmup_steps 20 (scheduler.params.warmup_num_steps 10)");
  CHECK(yields({"--warmup_ratio=0.5", "--max_steps=60"}).schedule.warmup_num_steps() == 30);
  CHECK(yields({"--lr_scheduler_type=constant"}).schedule.lr(1) == 5e-5);
  CHECK(yields({}).replaced.empty());
  CHECK(table_of(yields({})).back().find("yields") == std::string::npos);

  const auto batch = [&](const std::vector<std::string>& flags) {
    const RunConfig in_force = yields(flags);
    return Batch{in_force.train_batch_size, in_force.micro_batch_size, in_force.gradient_accumulation_steps};
  };
  CHECK(batch({}) == Batch{8, 4, 1});
  CHECK(batch({"--train_batch_size=64"}) == Batch{64, 4, 8});
  CHECK(batch({"--train_batch_size=4"}) == Batch{4, 2, 1});
  CHECK(batch({"--train_micro_batch_size_per_gpu=2"}) == Batch{4, 2, 1});
  CHECK(batch({"--gradient_accumulation_steps=3"}) == Batch{24, 4, 3});
  CHECK(yields({"--train_batch_size=4"}).replaced ==
        std::vector<std::string>{"train_micro_batch_size_per_gpu 4 is replaced by a computed value"});
  CHECK(yields({"--train_batch_size=4"}).origins.of("gradient_accumulation_steps").kind == Origin::Kind::kFile);
  CHECK(yields({"--train_batch_size=64"}).origins.of("gradient_accumulation_steps").kind == Origin::Kind::kComputed);
  CHECK_THAT(error_of(json, {"--deepspeed_config_yields", "--train_batch_size=3"}),
             Contains("train_batch_size 3 is not"));
}

TEST_CASE("without a file, the defaults of --help apply") {
  const auto [config, warnings] = run("");
  CHECK(warnings.empty());
  CHECK(config.optimizer.lr == 5e-5);
  CHECK(config.optimizer.beta1 == 0.9);
  CHECK(config.optimizer.beta2 == 0.95);
  CHECK(config.optimizer.eps == 1e-8);
  CHECK(config.optimizer.weight_decay == 0.1);
  CHECK(config.gradient_clipping == 1.0);
  CHECK(config.dtype == "bf16");
  CHECK(config.communication_dtype == "bf16");
  CHECK(config.zero.stage == 2);
  CHECK(config.zero.offload_optimizer);
  CHECK(config.max_steps == 1000);
  CHECK(config.schedule.lr(101) == Approx(5e-5));
  CHECK(config.schedule.lr(1001) == Approx(0.0).margin(1e-18));
  CHECK(config.schedule.lr(900) > 0.0);
}

TEST_CASE("a missing key has DeepSpeed's default, a missing section or auto mpzero's; a flag overrides both") {
  const auto optimizer = [](const std::string& section, const std::vector<std::string>& flags = {}) {
    return run(R"({"train_batch_size": 2)" + section + "}", flags).config.optimizer;
  };
  const std::string missing_key = R"(, "optimizer": {"type": "AdamW"})";
  const std::string is_auto =
      R"(, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}})";
  CHECK(optimizer(missing_key).lr == 1e-3);
  CHECK(optimizer(missing_key).beta2 == 0.999);
  CHECK(optimizer(missing_key).weight_decay == 0.0);
  CHECK(optimizer("").lr == 5e-5);
  CHECK(optimizer("").beta2 == 0.95);
  CHECK(optimizer(is_auto).lr == 5e-5);
  CHECK(optimizer(is_auto).beta2 == 0.95);
  CHECK(optimizer(is_auto).weight_decay == 0.1);
  for (const std::string& section : {missing_key, is_auto, std::string()}) {
    const OptimizerConfig chosen = optimizer(section, {"--learning_rate=3e-4", "--beta2=0.98", "--weight_decay=0.01"});
    CHECK(chosen.lr == 3e-4);
    CHECK(chosen.beta1 == 0.9);
    CHECK(chosen.beta2 == 0.98);
    CHECK(chosen.weight_decay == 0.01);
  }
}

TEST_CASE("the dtype of the weights is set by the file, else by --bf16") {
  const auto dtype = [](const std::string& section, const std::vector<std::string>& flags = {}) {
    return run(R"({"train_batch_size": 2)" + section + "}", flags).config.dtype;
  };
  CHECK(dtype("") == "fp32");
  CHECK(dtype("", {"--bf16"}) == "bf16");
  CHECK(dtype(R"(, "bf16": {"enabled": true})") == "bf16");
  CHECK(dtype(R"(, "bf16": {"enabled": "auto"})") == "bf16");
  CHECK(dtype(R"(, "bf16": {"enabled": "auto"})", {"--bf16=false"}) == "fp32");
  CHECK(run("", {"--bf16=false"}).config.dtype == "fp32");
  CHECK(run("", {"--bf16=false"}).config.communication_dtype == "fp32");
  CHECK(run(R"({"train_batch_size": 2, "bf16": {"enabled": true}, "communication_data_type": "fp32"})")
            .config.communication_dtype == "fp32");
}

TEST_CASE("--recompute selects the level, and auto is the default") {
  CHECK(run("").config.recompute == Recomputation::kAuto);
  CHECK(run("", {"--recompute=auto"}).config.recompute == Recomputation::kAuto);
  CHECK(run("", {"--recompute=none"}).config.recompute == Recomputation::kNone);
  CHECK(run("", {"--recompute=selective"}).config.recompute == Recomputation::kSelective);
  CHECK(run("", {"--recompute=full"}).config.recompute == Recomputation::kFull);
  CHECK(run("", {"--recompute=tiled"}).config.recompute == Recomputation::kTiled);
  CHECK(run("", {"--recompute=host"}).config.recompute == Recomputation::kHost);
  CHECK(run("", {"--recompute=host_attention"}).config.recompute == Recomputation::kHostAttention);
}

TEST_CASE("cpu_checkpointing is equivalent to --recompute host and must not conflict with flags") {
  const auto file = [](const char* value) {
    return R"({"train_batch_size": 2, "activation_checkpointing": {"cpu_checkpointing": )" + std::string(value) + "}}";
  };
  const auto of = [&](const char* value, const std::vector<std::string>& flags = {}) {
    return run(file(value), flags).config;
  };
  CHECK(of("true").recompute == Recomputation::kHost);
  CHECK(of("true").origins.of("recompute").kind == Origin::Kind::kFile);
  CHECK(of("true", {"--recompute=host"}).recompute == Recomputation::kHost);
  CHECK(of("true", {"--recompute=host_attention"}).recompute == Recomputation::kHostAttention);
  CHECK(of("true", {"--gradient_checkpointing"}).recompute == Recomputation::kHost);
  for (const char* value : {"false", "\"auto\"", "null"}) {
    CHECK(of(value).recompute == Recomputation::kAuto);
    CHECK(of(value, {"--recompute=tiled"}).recompute == Recomputation::kTiled);
    CHECK(of(value, {"--gradient_checkpointing=false"}).recompute == Recomputation::kNone);
  }
  CHECK(of("\"auto\"", {"--recompute=host"}).recompute == Recomputation::kHost);
  const std::string key = "activation_checkpointing.cpu_checkpointing ";
  CHECK_THAT(error_of(file("true"), {"--recompute=full"}), Contains("--recompute full but " + key + "true"));
  CHECK_THAT(error_of(file("true"), {"--recompute=auto"}), Contains("--recompute auto but " + key + "true"));
  CHECK_THAT(error_of(file("true"), {"--gradient_checkpointing=false"}),
             Contains("--gradient_checkpointing false but " + key + "true"));
  CHECK_THAT(error_of(file("false"), {"--recompute=host"}), Contains("--recompute host but " + key + "false"));
  CHECK_THAT(error_of(file("false"), {"--recompute=host_attention"}), Contains("host_attention but " + key + "false"));
  const RunConfig yields = of("true", {"--recompute=full", "--deepspeed_config_yields=true"});
  CHECK(yields.recompute == Recomputation::kFull);
  CHECK(yields.replaced.size() == 1);
}

TEST_CASE("overlap and the dtypes of moments and accumulation are set by the file") {
  const auto of = [](const std::string& keys) { return run(R"({"train_batch_size": 2, )" + keys + "}").config; };
  CHECK(of(R"("zero_optimization": {"stage": 2})").zero.overlap_comm);
  CHECK(of(R"("zero_optimization": {"overlap_comm": "auto"})").zero.overlap_comm);
  CHECK_FALSE(of(R"("zero_optimization": {"overlap_comm": false})").zero.overlap_comm);
  const RunConfig exact = of(R"("bf16": {"enabled": true})");
  CHECK(exact.moment_dtype == "fp32");
  CHECK(exact.accumulation_dtype == "fp32");
  CHECK(of(R"("bf16": {"enabled": true, "bf16_optimizer_states": true})").moment_dtype == "bf16");
  CHECK(of(R"("data_types": {"grad_accum_dtype": "bfloat16"})").accumulation_dtype == "bf16");
  CHECK(of(R"("bf16": {"bf16_master_weights_and_grads": true})").accumulation_dtype == "bf16");
}

TEST_CASE("sizes in the file are used unchanged") {
  const ZeroConfig zero = run(R"({"train_batch_size": 2, "zero_optimization": {"stage": 3, "reduce_bucket_size": 12345,
      "stage3_prefetch_bucket_size": 23456, "stage3_param_persistence_threshold": 34567,
      "stage3_max_live_parameters": 45678}})")
                              .config.zero;
  CHECK(zero.limits.reduce_bucket_size == 12345);
  CHECK(zero.limits.gather.prefetch_bucket_size == 23456);
  CHECK(zero.limits.gather.param_persistence_threshold == 34567);
  CHECK(zero.limits.gather.max_live_parameters == 45678);
}

TEST_CASE("--overwrite starts a new run unless a checkpoint is selected") {
  CHECK(run("").config.resume_from_checkpoint.empty());
  CHECK(run("", {"--overwrite"}).config.resume_from_checkpoint == "none");
  CHECK(run("", {"--overwrite", "--resume_from_checkpoint=a/b"}).config.resume_from_checkpoint == "a/b");
}

TEST_CASE("sizes set to auto are computed from the model's width, as in the Trainer") {
  const ZeroConfig zero = run(R"({"train_batch_size": 2, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
      "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
      "stage3_max_live_parameters": 5e8, "offload_param": {"device": "cpu", "pin_memory": false},
      "offload_optimizer": {"device": "cpu", "ratio": 0.5}}})")
                              .config.zero;
  CHECK(zero.stage == 3);
  CHECK(zero.limits.reduce_bucket_size == 1024 * 1024);
  CHECK(zero.limits.gather.prefetch_bucket_size == 943718);  // int(0.9 * 1024 * 1024)
  CHECK(zero.limits.gather.param_persistence_threshold == 10240);
  CHECK(zero.limits.gather.max_live_parameters == 500'000'000);
  CHECK_FALSE(zero.gather_limits_automatic);
  CHECK(run(R"({"train_batch_size": 2, "zero_optimization": {"stage": 3}})").config.zero.gather_limits_automatic);
  CHECK(zero.offload_param);
  CHECK(zero.offload_optimizer);
  CHECK(zero.offload_optimizer_ratio == 0.5);
  CHECK_FALSE(zero.pin_memory);

  CHECK_FALSE(zero.offload_ratio_automatic);

  const auto with_ratio = [](int stage, const std::string& ratio) {
    return run(fmt::format(R"({{"train_batch_size": 2, "zero_optimization": {{"stage": {},
        "offload_optimizer": {{"device": "cpu", "ratio": {}}}}}}})",
                           stage, ratio));
  };
  CHECK(with_ratio(3, R"("auto")").config.zero.offload_ratio_automatic);
  CHECK(with_ratio(3, R"("auto")").config.zero.offload_optimizer_ratio == 1);
  const std::string words = "DeepSpeed applies it only at stage 3";
  CHECK(warnings_with(with_ratio(3, "0.5"), words).empty());
  CHECK(warnings_with(with_ratio(2, "1"), words).empty());
  for (const std::string ratio : {"0.5", R"("auto")"}) CHECK(warnings_with(with_ratio(2, ratio), words).size() == 1);
  CHECK(with_ratio(2, "0.5").config.zero.offload_optimizer_ratio == 0.5);

  const auto with_release = [](const std::string& device, const std::string& release, int accumulation) {
    return run(
        fmt::format(R"({{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": {}, "zero_optimization":
        {{"offload_optimizer": {{"device": "{}", "release_gradients": {}}}}}}})",
                    accumulation, device, release));
  };
  CHECK(with_release("cpu", "true", 1).config.zero.release_gradients == true);
  CHECK(with_release("cpu", "false", 4).config.zero.release_gradients == false);
  CHECK_FALSE(with_release("cpu", R"("auto")", 4).config.zero.release_gradients);
  CHECK_THROWS_WITH(with_release("cpu", "true", 2),
                    Catch::Contains("release_gradients") && Catch::Contains("gradient_accumulation_steps"));
  CHECK_THROWS_WITH(with_release("none", "true", 1), Catch::Contains("release_gradients") && Catch::Contains("device"));
  // A run that restarts on fewer ranks accumulates gradients to keep its global batch.
  const auto on_ranks = [](int ranks) {
    return run(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "zero_optimization":
        {"offload_optimizer": {"device": "cpu", "release_gradients": true}}})",
               {}, ranks);
  };
  CHECK(on_ranks(4).config.zero.release_gradients == true);
  CHECK(warnings_with(on_ranks(4), "release_gradients").empty());
  CHECK(on_ranks(2).config.gradient_accumulation_steps == 2);
  CHECK_FALSE(on_ranks(2).config.zero.release_gradients.value_or(false));
  CHECK(warnings_with(on_ranks(2), "release_gradients").size() == 1);

  const Result stage2 =
      run(R"({"train_batch_size": 2, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})");
  CHECK_FALSE(stage2.config.zero.offload_param);
  CHECK(warnings_with(stage2, "zero_optimization.offload_param").size() == 1);
}

TEST_CASE("the schedule ends at total_num_steps, else at --max_steps") {
  const auto scheduled = [](const std::string& type, const std::string& params, const std::vector<std::string>& flags) {
    return run(
        R"({"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "scheduler": {"type": ")" +
            type + R"(", "params": {)" + params + "}}}",
        flags);
  };
  const std::string cosine = R"("warmup_num_steps": 4, "cos_min_ratio": 0.1)";
  const Result from_flag = scheduled("WarmupCosineLR", cosine, {"--max_steps=20"});
  const Result from_file = scheduled("WarmupCosineLR", cosine + R"(, "total_num_steps": 20)", {"--max_steps=12"});
  CHECK(from_flag.warnings.empty());
  CHECK(from_flag.config.schedule_ends_at_max_steps);
  CHECK(from_file.config.max_steps == 12);
  CHECK_FALSE(from_file.config.schedule_ends_at_max_steps);
  REQUIRE(from_file.warnings.size() == 1);
  CHECK_THAT(from_file.warnings[0], Contains("total_num_steps is 20") && Contains("--max_steps 12"));
  const parallel::LrSchedule expected = parallel::WarmupCosineLr{1e-3, 0.0, 0.1, 4, 20, parallel::WarmupType::kLog};
  for (int64_t update = 1; update <= 22; ++update) {
    CHECK(from_flag.config.schedule.lr(update) == expected.lr(update));
    CHECK(from_file.config.schedule.lr(update) == expected.lr(update));
  }
  CHECK(scheduled("WarmupCosineLR", R"("warmup_num_steps": "auto", "total_num_steps": "auto")",
                  {"--max_steps=300", "--warmup_steps=7"})
            .config.schedule.lr(8) == Approx(1e-3));

  // WarmupLR rises to the optimizer's rate, WarmupDecayLR to a default of its own, of which the user hears.
  const Result warmup = scheduled("WarmupLR", R"("warmup_num_steps": 4)", {});
  CHECK(warmup.config.schedule.lr(500) == 1e-3);
  CHECK(warmup.warnings.empty());
  const Result decay = run(R"({"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 2e-5}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 4, "warmup_type": "linear"}}})",
                           {"--max_steps=20"});
  CHECK(decay.config.schedule.lr(6) == Approx(1e-3));
  CHECK_THAT(decay.warnings.at(0), Contains("warmup_max_lr is not set") && Contains("0.001"));
  CHECK(run(R"({"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}, "scheduler": {"type":
      "WarmupDecayLR", "params": {"warmup_num_steps": 4, "warmup_max_lr": "auto"}}})",
            {"--max_steps=20"})
            .config.schedule.lr(6) == Approx(2e-5));

  CHECK(
      run(R"({"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}})").config.schedule.lr(1) ==
      2e-5);
  CHECK_THAT(run("", {"--max_steps=50"}).warnings.at(0), Contains("100 warm-up steps but only 50 steps"));
}

TEST_CASE("epochs are converted to whole steps; the smaller of epochs and steps ends the run") {
  Result result = run(trio(0, 4, 2), {"--epochs=3"});  // 16 sequences a step
  CHECK(result.config.max_steps == std::numeric_limits<int64_t>::max());
  apply_epochs(result.config, 100, result.warnings);
  CHECK(result.config.max_steps == 18);  // 300 sequences
  CHECK(warnings_with(result, "--epochs").empty());

  result = run("", {"--epochs=2", "--warmup_steps=3"}, 1);
  apply_epochs(result.config, 10, result.warnings);
  CHECK(result.config.max_steps == 20);
  CHECK(result.config.schedule.lr(21) == Approx(0.0).margin(1e-18));
  CHECK(result.config.schedule.lr(18) > 1e-7);

  for (const auto& [max_steps, end] : {std::pair<int64_t, int64_t>{15, 15}, {30, 20}}) {
    result = run("", {"--epochs=2", "--warmup_steps=3", fmt::format("--max_steps={}", max_steps)}, 1);
    apply_epochs(result.config, 10, result.warnings);
    CHECK(result.config.max_steps == end);
    CHECK_THAT(result.warnings.at(0),
               Contains(fmt::format("the run ends at the smaller limit, {}", end == 20 ? "--epochs" : "--max_steps")));
  }

  result = run("", {"--epochs=1"}, 8);
  CHECK_THROWS_WITH(apply_epochs(result.config, 7, result.warnings), Contains("less than one optimizer step"));
  result = run("", {"--num_train_epochs=20"}, 8);  // no number of epochs suffices
  CHECK_THROWS_WITH(apply_epochs(result.config, 7, result.warnings), Contains("use --epochs"));
  result = run("", {"--max_steps=5", "--warmup_steps=2"});
  apply_epochs(result.config, 7, result.warnings);
  CHECK(result.config.max_steps == 5);
}

TEST_CASE("epochs end with their sequences, from any position and with any batch size") {
  const auto steps = [](const std::vector<std::string>& flags, int world_size, const RunPosition& at) {
    Result result = run("", flags, world_size);
    apply_epochs(result.config, 97, result.warnings, at);
    return result.config.max_steps;
  };
  const RunPosition at{.step = 10, .sequences_seen = 40};  // with 4 ranks
  CHECK(steps({"--epochs=1"}, 4, {}) == 24);
  CHECK(steps({"--epochs=1"}, 4, at) == 24);
  CHECK(steps({"--epochs=1"}, 2, at) == 10 + 28);
  CHECK(steps({"--epochs=1"}, 8, at) == 10 + 7);
  CHECK(steps({"--epochs=2"}, 8, at) == 10 + 19);
  CHECK(steps({"--epochs=1"}, 8, {.step = 30, .sequences_seen = 120}) == 30);
  // The Trainer's epochs are whole steps: 3 x 24 of 4 sequences, 3 x 48 of 2.
  CHECK(steps({"--num_train_epochs=3"}, 4, {}) == 72);
  CHECK(steps({"--num_train_epochs=3"}, 2, at) == 10 + (3 * 96 - 40) / 2);
  CHECK(steps({"--num_train_epochs=0.5"}, 4, {}) == 12);
  CHECK(steps({"--epochs=1", "--max_steps=20"}, 2, at) == 20);
  CHECK(steps({"--max_steps=20"}, 2, at) == 20);
}

TEST_CASE("a run saves after the sequences of each epoch") {
  const auto saves = [](int world_size, RunPosition at, int64_t steps) {
    Result result = run("", {"--save_strategy=epoch", "--max_steps=1000"}, world_size);
    apply_epochs(result.config, 96, result.warnings, at);
    std::vector<int64_t> saved;
    for (int64_t i = 0; i < steps; ++i) {
      const std::optional<int64_t> next = steps_to_next_save(result.config, at);
      REQUIRE(next);
      ++at.step;
      at.sequences_seen += world_size;
      CHECK(saves_at(result.config, at) == (*next == 1));
      if (saves_at(result.config, at)) saved.push_back(at.step);
    }
    return saved;
  };
  CHECK(saves(4, {}, 80) == std::vector<int64_t>{24, 48, 72});
  CHECK(saves(2, {.step = 10, .sequences_seen = 40}, 100) == std::vector<int64_t>{38, 86});
  CHECK(saves(5, {.step = 10, .sequences_seen = 40}, 40) == std::vector<int64_t>{21, 40});  // 95 sequences each
}

TEST_CASE("if an epoch is smaller than the first batch, a run saves after each pass over its sequences") {
  // Begun with a batch of 8; a longer seq_length has left 6 sequences.
  Result result = run("", {"--save_strategy=epoch", "--max_steps=1000"}, 2);
  result.config.epoch_batch = 8;
  RunPosition at{.step = 10, .sequences_seen = 12};
  apply_epochs(result.config, 6, result.warnings, at);
  CHECK(steps_to_next_save(result.config, at) == 3);
  std::vector<int64_t> saved;
  while (saved.size() < 2) {
    ++at.step;
    at.sequences_seen += 2;
    if (saves_at(result.config, at)) saved.push_back(at.step);
  }
  CHECK(saved == std::vector<int64_t>{13, 16});
}

TEST_CASE("the shipped configurations resolve to the expected runs") {
  const std::string folder = std::string(MPZERO_SOURCE_DIR) + "/configs/";
  std::vector<std::string> warnings;
  const auto from_file = [&](const char* name, int world_size, std::vector<std::string> flags = {}) {
    flags.emplace_back("--train_data=t.h5");
    warnings.clear();
    return resolve(parse_command_line(flags), io::read_ds_config(folder + name), world_size, kModel, warnings);
  };
  const RunConfig qwen = from_file("ds_config.json", 16, {"--max_steps=200", "--bf16", "--learning_rate=5e-5"});
  CHECK(warnings.empty());
  CHECK(qwen.train_batch_size == 16);
  CHECK(qwen.zero.stage == 2);
  CHECK(qwen.zero.offload_optimizer);
  CHECK(qwen.dtype == "bf16");
  CHECK(qwen.gradient_clipping == 1.0);
  CHECK(qwen.schedule.warmup_num_steps() == 10);
  CHECK(qwen.schedule.lr(11) == Approx(5e-5));
  CHECK(qwen.schedule.lr(201) == Approx(0.0).margin(1e-18));

  const RunConfig llama = from_file("ds_config_llama3_8b_zero3_offload.json", 16, {"--max_steps=50"});
  CHECK(warnings_with({.config = llama, .warnings = warnings}, "zero_optimization.contiguous_gradients").size() == 1);
  CHECK(llama.train_batch_size == 256);
  CHECK(llama.micro_batch_size == 4);
  CHECK(llama.gradient_accumulation_steps == 4);
  CHECK(llama.zero.stage == 3);
  CHECK(llama.zero.offload_param);
  CHECK(llama.zero.offload_optimizer);
  CHECK(llama.gradient_clipping == 1.0);
  CHECK(llama.logging_freq == 10);
  CHECK(llama.schedule.lr(1) == 2e-5);

  const RunConfig tiny = from_file("ds_config_tiny.json", 2, {"--max_steps=200"});
  CHECK(warnings.empty());
  CHECK(tiny.dtype == "fp32");
  CHECK(tiny.zero.stage == 2);
  CHECK_FALSE(tiny.zero.offload_optimizer);
  CHECK(tiny.optimizer.lr == 3e-3);
}

TEST_CASE("the log interval is set by --logging_freq, else by steps_per_print") {
  const std::string json = R"({"train_batch_size": 2, "steps_per_print": 25})";
  CHECK(run(json).config.logging_freq == 25);
  CHECK(run(json, {"--logging_freq=5"}).config.logging_freq == 5);
  CHECK(run(trio(2, 0, 0)).config.logging_freq == 10);
}

TEST_CASE("the step time breakdown is logged if --wall_clock_breakdown or the file requests it") {
  const std::string json = R"({"train_batch_size": 2, "wall_clock_breakdown": true})";
  CHECK(run(json).config.wall_clock_breakdown);
  CHECK_FALSE(run(json, {"--wall_clock_breakdown=false"}).config.wall_clock_breakdown);
  CHECK_FALSE(run(trio(2, 0, 0)).config.wall_clock_breakdown);
  CHECK(run(trio(2, 0, 0), {"--wall_clock_breakdown"}).config.wall_clock_breakdown);
}

// The Trainer's examples of ds_config.json have steps_per_print 2000, which does not concern the Trainer's own log.
TEST_CASE("an interval that logs only the last step causes a warning, unless it is the default") {
  const std::string json = R"({"train_batch_size": 2, "steps_per_print": 2000})";
  const auto given = [](Result result) { return warnings_with(result, "logging_freq 10"); };
  CHECK_THAT(given(run(json)).at(0), Contains("steps_per_print 2000") && Contains("1000 steps"));
  CHECK_THAT(given(run(trio(2, 0, 0), {"--logging_steps=5", "--max_steps=5"})).at(0), Contains("--logging_steps 5"));
  CHECK(given(run(json, {"--max_steps=2001"})).empty());
  CHECK(given(run(trio(2, 0, 0), {"--max_steps=5"})).empty());
  CHECK(given(run(trio(2, 0, 0), {"--logging_freq=1", "--max_steps=1"})).empty());
  Result result = run(json, {"--epochs=1"});
  CHECK(given(result).empty());
  apply_epochs(result.config, 100, result.warnings);
  CHECK(given(result).size() == 1);
}

TEST_CASE("a run without data suggests a command to create it") {
  std::vector<std::string> warnings;
  const CommandLine line = parse_command_line(
      {"--dataset", "my texts/it's", "--dataset_config_name=en", "--tokenizer=bytes", "--max_steps=3"});
  CHECK_THROWS_WITH(
      resolve(line, io::DsConfig{}, 1, kModel, warnings),
      Contains("--train_data is missing") &&
          Contains("app/prepare_data.py --dataset 'my texts/it'\\''s' --dataset_config_name en --tokenizer bytes"));
  CHECK_THAT(run("", {"--validation_freq=5"}).warnings.at(0), Contains("--validation_freq 5 has no effect"));
}

TEST_CASE("a model is named after its preset or the folder of its config.json") {
  CHECK(run("").config.model_type == "qwen3_0_6b");
  CHECK(run("", {"--model_config=some/where/Llama-3/config.json"}).config.model_type == "Llama-3");
  CHECK(run("", {"--init_from=weights/Qwen3-0.6B/"}).config.model_type == "Qwen3-0.6B");
  CHECK(run("", {"--model_config=models/small.json"}).config.model_type == "small");
  CHECK(run("", {"--model_config=models/small.json", "--model_type=mine"}).config.model_type == "mine");
}

// Otherwise the first checkpoint would be refused, hours later.
TEST_CASE("FP8 can be enabled by flag, by file and by both") {
  using model::fp8::Format;
  using model::fp8::Scaling;
  CHECK_FALSE(run("", {}).config.fp8_options.has_value());
  CHECK(run("", {"--fp8"}).config.fp8 == "tensorwise");
  CHECK(run("", {"--fp8", "rowwise"}).config.fp8_options->recipe.scaling == Scaling::kRowwise);
  const auto of = [](const std::string& fp8, const std::vector<std::string>& flags = {}, int stage = 2) {
    return run(fmt::format(R"({{"train_micro_batch_size_per_gpu": 1, "bf16": {{"enabled": true}}, "fp8": {},
                                "zero_optimization": {{"stage": {}}}}})",
                           fp8, stage),
               flags)
        .config;
  };
  CHECK(of("{}").fp8 == "tensorwise");
  CHECK(of("{}").fp8_options->recipe.gradients == Format::kE5m2);
  CHECK(of(R"({"format": "e4m3"})").fp8_options->recipe.gradients == Format::kE4m3);
  CHECK(of(R"({"filter_fqns": ["last"]})").fp8_options->filter_fqns == std::vector<std::string>{"last"});
  CHECK_FALSE(of(R"({"enabled": false})").fp8_options.has_value());
  CHECK(of(R"({"recipe": "rowwise"})", {"--fp8=rowwise"}).fp8 == "rowwise");
  using model::KeptCasts;
  CHECK(of("{}").fp8_options->kept_casts == KeptCasts::kAsToldLater);
  CHECK(of(R"({"cache_weights": "auto"})").fp8_options->kept_casts == KeptCasts::kAsToldLater);
  CHECK(of(R"({"cache_weights": true})").fp8_options->kept_casts == KeptCasts::kAll);
  CHECK(of(R"({"cache_weights": false})").fp8_options->kept_casts == KeptCasts::kNone);
  CHECK(of("{}", {}, /*stage=*/3).fp8_options->kept_casts == KeptCasts::kNone);
  const char* ratio = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "fp8": {},
                          "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": "auto"}}})";
  CHECK(run(ratio).config.fp8_options->kept_casts == KeptCasts::kNone);
  const char* stage_3 = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
                            "fp8": {"cache_weights": true}, "zero_optimization": {"stage": 3}})";
  CHECK(warnings_with(run(stage_3), "fp8.cache_weights has no effect at ZeRO stage 3").size() == 1);
  const char* odd = "FP8 on GPUs requires a multiple of 16";
  CHECK(warnings_with(run("", {"--fp8", "--seq_length=1000"}), odd).size() == 1);
  CHECK(warnings_with(run("", {"--fp8", "--seq_length=1024"}), odd).empty());
  CHECK(warnings_with(run("", {"--seq_length=1000"}), odd).empty());
  CHECK(of("{}", {"--fp8=rowwise"}).fp8 == "rowwise");
  CHECK(of(R"({"enabled": true})", {"--fp8=rowwise"}).fp8 == "rowwise");
  CHECK(of(R"({"filter_fqns": ["last"]})", {"--fp8=none"}).fp8 == "none");
  CHECK_THROWS_AS(of(R"({"recipe": "tensorwise"})", {"--fp8=rowwise"}), UserError);
  CHECK_THROWS_AS(of(R"({"enabled": true})", {"--fp8=none"}), UserError);
  CHECK_THROWS_AS(of(R"({"enabled": false})", {"--fp8"}), UserError);
  CHECK_THROWS_AS(run("", {"--fp8", "--bf16=false"}), UserError);
}

TEST_CASE("a model name that is not a valid folder name is refused") {
  for (const char* name : {"meta-llama/Llama-3", ".hidden"}) {
    CHECK_THAT(error_of("", {"--model_config=small.json", std::string("--model_type=") + name}),
               Contains(fmt::format("--model_type {} ", name)));
  }
}

TEST_CASE("each source of a mixture is described with its share and epochs") {
  RunSetup setup;
  setup.config.train_batch_size = 4;
  setup.train_files = {{.path = "a.h5", .weight = 3, .num_windows = 900}};
  CHECK(describe_mixture(setup, 300).empty());
  setup.train_files.push_back({.path = "b.h5", .weight = 1, .num_windows = 100});
  const std::vector<std::string> lines = describe_mixture(setup, 300);
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], Contains("a.h5") && Contains("75%") && Contains(" 1 epochs"));  // 300 * 4 * 3/4 of 900
  CHECK_THAT(lines[1], Contains("b.h5") && Contains("25%") && Contains(" 3 epochs"));
}

}  // namespace
}  // namespace mpzero
