#include <nlohmann/json.hpp>

#include "app/config/settings_table.hpp"
#include "app/flags/training_flags.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

// The line of one setting, with single blanks.
std::string line_of(const std::vector<std::string>& table, const std::string& name) {
  for (const std::string& line : table) {
    if (!line.starts_with("  " + name + " ")) continue;
    std::string words;
    for (const char c : line.substr(2)) {
      if (c != ' ' || words.back() != ' ') words += c;
    }
    return words;
  }
  return "no line of " + name;
}

TEST_CASE("each setting has a line with its origin") {
  const Result result = run(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto",
      "gradient_clipping": 0.5, "bf16": {"enabled": true}, "communication_data_type": "fp32",
      "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.98], "weight_decay": "auto"}}})",
                            {"--learning_rate=2e-5", "--gradient_accumulation_steps=2", "--lr_scheduler_type=linear",
                             "--max_steps=50", "--warmup_ratio=0.1"});
  const std::vector<std::string> table = table_of(result.config);
  CHECK(table.front() == "Settings (file: ds.json)");
  for (const auto& [name, line] : std::vector<std::pair<std::string, std::string>>{
           {"optimizer", "optimizer AdamW file: optimizer.type"},
           {"learning rate", "learning rate 2e-05 flag: --learning_rate"},
           {"beta1", "beta1 0.9 file: optimizer.params.betas[0]"},
           {"beta2", "beta2 0.98 file: optimizer.params.betas[1]"},
           {"eps", "eps 1e-08 DeepSpeed's default (optimizer.params.eps is missing)"},
           {"weight decay", "weight decay 0.1 on all parameters default (optimizer.params.weight_decay is \"auto\")"},
           {"schedule", "schedule linear, lr 0 to 2e-05 to 0 flag: --lr_scheduler_type"},
           {"warm-up steps", "warm-up steps 5 flag: --warmup_ratio"},
           {"schedule end", "schedule end step 50 flag: --max_steps"},
           {"steps", "steps 50 flag: --max_steps"},
           {"clipping", "clipping norm 0.5 file: gradient_clipping"},
           {"micro-batch", "micro-batch 4 file: train_micro_batch_size_per_gpu"},
           {"accumulation", "accumulation 2 flag: --gradient_accumulation_steps"},
           {"global batch", "global batch 16 = 4 x 2 x 2 ranks from micro-batch x accumulation x ranks"},
           {"weights", "weights bf16, master copy in fp32 file: bf16.enabled"},
           {"communication", "communication fp32 file: communication_data_type"},
           {"accumulation dtype", "accumulation dtype fp32 default"},
           {"AdamW moments", "AdamW moments fp32 default"},
       }) {
    CHECK(line_of(table, name).starts_with(line));
  }
}

TEST_CASE("the FP8 line lists all settings that affect results, with their keys") {
  const auto run_of = [](const std::string& fp8, const std::vector<std::string>& flags = {}) {
    return run(R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "fp8": )" + fp8 + "}", flags).config;
  };
  const auto line = [&](const std::string& fp8, const std::vector<std::string>& flags = {}) {
    return line_of(table_of(run_of(fp8, flags)), "FP8 matmuls");
  };
  CHECK(line("{}") == "FP8 matmuls tensorwise hybrid file: fp8");
  CHECK(line(R"({"enabled": true})") == "FP8 matmuls tensorwise hybrid file: fp8.enabled");
  CHECK(line(R"({"recipe": "rowwise", "format": "e4m3"})") == "FP8 matmuls rowwise e4m3 file: fp8.recipe, fp8.format");
  CHECK(line(R"({"fast_accumulation": "all", "filter_fqns": ["last"]})") ==
        "FP8 matmuls tensorwise hybrid, fast accumulation all without last file: fp8.fast_accumulation, "
        "fp8.filter_fqns");
  CHECK(line(R"({"enabled": false, "format": "e4m3"})", {"--fp8=rowwise", "--deepspeed_config_yields"}) ==
        "FP8 matmuls rowwise e4m3 flag: --fp8, fp8.format");
  CHECK(line_of(table_of(run("", {"--fp8"}).config), "FP8 matmuls") == "FP8 matmuls tensorwise hybrid flag: --fp8");
  const auto at_stage_3 = [&](const std::string& offload, const std::string& recipe) {
    const RunConfig config = run(R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
                                     "zero_optimization": {"stage": 3)" +
                                     offload + "}}",
                                 {"--fp8=" + recipe})
                                 .config;
    CHECK(settings_record(config)["fp8"] == recipe + " hybrid");
    return line_of(table_of(config), "FP8 matmuls");
  };
  CHECK_THAT(at_stage_3("", "tensorwise"), Contains("tensorwise hybrid, weights gathered in FP8 within a shard group"));
  CHECK_THAT(at_stage_3("", "rowwise"), Contains("rowwise hybrid, weights gathered in bf16"));
  CHECK_THAT(at_stage_3(R"(, "offload_param": {"device": "cpu"})", "tensorwise"),
             Contains("tensorwise hybrid, weights gathered in bf16"));
  // What runs of earlier versions have recorded stays as it is.
  CHECK(settings_record(run_of(R"({"fast_accumulation": "forward"})"))["fp8"] == "tensorwise hybrid");
  CHECK(settings_record(run_of(R"({"fast_accumulation": "none"})"))["fp8"] ==
        "tensorwise hybrid, fast accumulation none");
}

TEST_CASE("the columns of the table are aligned, and flags have the names as given") {
  const std::vector<std::string> table =
      table_of(run("", {"--max_grad_norm=2", "--per_device_train_batch_size=3", "--adam_beta2=0.9"}).config);
  CHECK(table.front() == "Settings");
  CHECK_THAT(line_of(table, "clipping"), Contains("flag: --max_grad_norm"));
  CHECK_THAT(line_of(table, "micro-batch"), Contains("flag: --per_device_train_batch_size"));
  CHECK_THAT(line_of(table, "beta2"), Contains("flag: --adam_beta2"));
  CHECK_THAT(line_of(table_of(run("", {"--no_decay=norm,bias"}).config), "weight decay"),
             Contains("weight decay 0.1 on all but norm, bias default"));
  CHECK_THAT(line_of(table, "schedule"), Contains("WarmupCosineLR (log), lr 0 to 5e-05 to 0 default"));
  CHECK_THAT(line_of(table, "warm-up steps"), Contains("100 default"));
  size_t column = std::string::npos;
  for (const std::string& line : table) {
    if (const size_t at = line.find("flag: "); at != std::string::npos) {
      if (column == std::string::npos) column = at;
      CHECK(at == column);
    }
  }
}

TEST_CASE("a schedule from the file is shown with its learning rates and end") {
  const Result result = run(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
      "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 4, "cos_min_ratio": 0.5,
      "total_num_steps": 20}}, "data_types": {"grad_accum_dtype": "bf16"}})",
                            {"--max_steps=20"});
  const std::vector<std::string> table = table_of(result.config);
  CHECK(line_of(table, "schedule") == "schedule WarmupCosineLR (log), lr 0 to 0.001 to 0.0005 file: scheduler.type");
  CHECK(line_of(table, "schedule end") == "schedule end step 20 file: scheduler.params.total_num_steps");
  RunConfig resumed = result.config;
  resumed.resumed_schedule = result.config.schedule.held_from(20);
  resumed.schedule = resumed.schedule.with_total_num_steps(40);
  CHECK(line_of(table_of(resumed), "schedule end") == "schedule end step 20 checkpoint");
  CHECK(line_of(table, "accumulation dtype") == "accumulation dtype bf16 file: data_types.grad_accum_dtype");
  CHECK_THAT(line_of(table, "micro-batch"), Contains("4 from global batch"));
  CHECK(line_of(table, "weights") == "weights fp32 DeepSpeed's default (bf16.enabled is missing)");

  Result epochs = run(trio(0, 4, 2), {"--num_train_epochs=2", "--lr_scheduler_type=cosine"});
  apply_epochs(epochs.config, 110, epochs.warnings);
  CHECK(line_of(table_of(epochs.config), "steps") == "steps 12 flag: --num_train_epochs");
  CHECK_THAT(line_of(table_of(epochs.config), "schedule end"), Contains("step 12 flag: --num_train_epochs"));
}

TEST_CASE("compression is shown with several nodes, and reported as unused otherwise") {
  const RunConfig config = run(R"({"train_batch_size": 8, "zero_optimization": {"stage": 2,
      "zero_quantized_gradients": true, "zero_quantized_weights": true}})",
                               {"--quantized_gradient_bits=4"})
                               .config;
  const std::vector<std::string> two = table_of(config, 2), one = table_of(config);
  const std::string of_gradients = " file: zero_optimization.zero_quantized_gradients";
  const std::string of_weights = " file: zero_optimization.zero_quantized_weights";
  CHECK(line_of(two, "gradients between nodes") == "gradients between nodes int4" + of_gradients);
  CHECK(line_of(two, "parameters between nodes") == "parameters between nodes int8" + of_weights);
  const std::string none = " not compressed: one shard group";
  CHECK(line_of(one, "gradients between nodes") == "gradients between nodes" + none + of_gradients);
  CHECK(line_of(one, "parameters between nodes") == "parameters between nodes" + none + of_weights);
  CHECK(settings_record(config)["zero_quantized_gradients"] == "int4");
  CHECK(!settings_record(run("").config).contains("zero_quantized_gradients"));
}

TEST_CASE("the validation row shows the setting, and the first lines of a run count the sequences of each file") {
  RunSetup setup;
  const auto line = [&](const std::string& data, const std::string& sequences) {
    setup.config = run("", {"--validation_data=" + data, "--validation_sequences=" + sequences}).config;
    return line_of(settings_table(setup), "validation sequences");
  };
  const std::string origin = " flag: --validation_sequences";
  CHECK(line("v.h5", "0") == "validation sequences all" + origin);
  CHECK(line("v.h5", "128") == "validation sequences at most 128" + origin);
  CHECK(line("a=a.h5,b=b.h5", "128") == "validation sequences at most 128 of each set" + origin);
  setup.validation = {{.file = {.name = "a", .path = "a.h5"}, .sequences = 23},
                      {.file = {.name = "b", .path = "b.h5"}, .sequences = 227}};
  const std::vector<std::string> lines = describe_validation(setup);
  CHECK_THAT(lines.at(0), Contains(": all 23 sequences"));
  CHECK_THAT(lines.at(1), Contains(": the first 128 of 227 sequences"));
}

TEST_CASE("counts of one are singular") {
  RunSetup setup;
  setup.config = run("", {"--validation_data=v.h5", "--validation_freq=1", "--seq_length=16"}).config;
  setup.validation = {{.file = {.name = "", .path = "v.h5"}, .sequences = 1}};
  CHECK(describe_validation(setup) == std::vector<std::string>{"every step: all 1 sequence of 16 tokens in v.h5"});
}

TEST_CASE("ranks assumed by a dry run are described by their flag") {
  RunSetup setup;
  setup.config = run("", {"--dry_run", "--world_size=2"}).config;
  CHECK(line_of(settings_table(setup), "ranks") == "ranks 2 on 1 host flag: --world_size");
}

TEST_CASE("the layout has separate lines and a separate record") {
  RunSetup setup;
  setup.config = run(R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "cpu", "ratio": "auto"}, "offload_param": {"device": "cpu"}}})",
                     {}, /*world_size=*/8)
                     .config;
  setup.layout = {.nodes = 2, .ranks_per_node = 4};
  setup.hosts = 2;
  setup.device = "NVIDIA L4";
  const std::vector<std::string> table = settings_table(setup);
  CHECK(line_of(table, "device") == "device NVIDIA L4 default");
  CHECK(line_of(table, "ranks") == "ranks 8 on 2 hosts from the launcher");
  CHECK(line_of(table, "shard group").starts_with("shard group 4 ranks"));
  CHECK(line_of(table, "ZeRO stage") == "ZeRO stage 3 file: zero_optimization.stage");
  CHECK(line_of(table, "offload").starts_with("offload optimizer (ratio auto), parameters file: "));
  CHECK(line_of(table, "recomputation") == "recomputation auto default");
  CHECK(settings_rows(setup).size() == table.size() - 1);

  nlohmann::json expected = {{"device", "NVIDIA L4"},
                             {"ranks", 8},
                             {"hosts", 2},
                             {"shard_group", 4},
                             {"train_micro_batch_size_per_gpu", 1},
                             {"gradient_accumulation_steps", 2},
                             {"zero_stage", 3},
                             {"offload_optimizer", "cpu"},
                             {"offload_param", "cpu"}};
  CHECK(nlohmann::json(layout_record(setup)) == expected);
  // Once they have been chosen.
  setup.recompute = "none x 20, full x 8";
  setup.host_ratio = 0.25;
  expected["recompute"] = "none x 20, full x 8";
  expected["offload_optimizer_ratio"] = 0.25;
  CHECK(nlohmann::json(layout_record(setup)) == expected);
  CHECK(line_of(settings_table(setup), "recomputation") == "recomputation auto (none x 20, full x 8) default");
  for (const char* key : {"ranks", "zero_stage", "train_micro_batch_size_per_gpu", "recompute", "device"}) {
    CHECK(!settings_record(setup.config).contains(key));
  }

  RunSetup plain;
  plain.config = run("", {"--recompute=full"}).config;
  CHECK(layout_record(plain)["recompute"] == "full");
  CHECK(layout_record(plain)["offload_optimizer_ratio"] == 1);
  CHECK(line_of(settings_table(plain), "ZeRO stage") == "ZeRO stage 2 default");
  plain.config = run(R"({"train_micro_batch_size_per_gpu": 1})", {"--recompute=full"}).config;
  CHECK(line_of(settings_table(plain), "ZeRO stage") ==
        "ZeRO stage 0 DeepSpeed's default (zero_optimization.stage is missing)");
  CHECK(line_of(settings_table(plain), "recomputation") == "recomputation full flag: --recompute");

  RunSetup on_cpu;
  on_cpu.config =
      run(R"({"train_batch_size": 1, "activation_checkpointing": {"cpu_checkpointing": true}})", {}, 1).config;
  CHECK(line_of(settings_table(on_cpu), "recomputation").starts_with("recomputation host (tiled on the CPU) file: "));
  CHECK(line_of(settings_table(on_cpu), "global batch").starts_with("global batch 1 = 1 x 1 x 1 rank "));
  on_cpu.device = "NVIDIA L4";
  CHECK(line_of(settings_table(on_cpu), "recomputation").starts_with("recomputation host file: "));
}

TEST_CASE("each recorded flag is in the record and in the table under its label") {
  const RunConfig config = run("").config;
  const std::vector<std::string> table = table_of(config);
  const nlohmann::ordered_json record = settings_record(config);
  for (const FlagGroup& group : training_flags()) {
    for (const Flag& flag : group.flags) {
      if (!flag.recorded) continue;
      INFO(flag.name);
      const auto& [section, label, key] = *flag.recorded;
      CHECK((!label.empty() || !key.empty()));
      if (!label.empty()) CHECK_THAT(line_of(table, label), Contains(label + " " + flag.show(config)));
      if (!key.empty()) CHECK(record.at(key) == flag.to_json(config));
    }
  }
}

}  // namespace
}  // namespace mpzero
