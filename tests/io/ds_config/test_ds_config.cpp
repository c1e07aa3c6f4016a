#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/words.hpp"
#include "io/ds_config/ds_config.hpp"
#include "tests/catch.hpp"

namespace mpzero::io {
namespace {

using Catch::Contains;
using nlohmann::json;

DsConfig parse(const std::string& text) { return parse_ds_config(text, "ds.json"); }

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

json fixture(const std::string& name) {
  std::ifstream file(std::string(MPZERO_SOURCE_DIR) + "/tests/io/fixtures/" + name);
  REQUIRE(file.good());
  return json::parse(file);
}

TEST_CASE("a single error lists all problems, one per key") {
  const std::string error = error_of(R"({"train_batch_size": "many", "gradient_clippin": 1,
      "fp16": {"enabled": true}, "optimizer": {"type": 7, "params": {}}, "scheduler": {"type": "WarmupLr", "params": {}},
      "zero_optimization": {"stage": 4, "overlap_com": true, "offload_optimizer": {"device": "nvme"}},
      "amp": {"enabled": true}})");
  CHECK_THAT(error, Contains("train_batch_size is \"many\"") && Contains("did you mean gradient_clipping?"));
  CHECK_THAT(error, Contains("fp16.enabled") && Contains("optimizer.type is 7") && Contains("zero_optimization.stage"));
  CHECK_THAT(error,
             Contains("offload_optimizer.device is \"nvme\"") && Contains("overlap_com;") && Contains("amp enables"));
  size_t problems = 1;
  for (size_t at = error.find("Also: "); at != std::string::npos; at = error.find("Also: ", at + 1)) ++problems;
  CHECK(problems == 8);
  // The keys after a problem are known all the same.
  CHECK_THAT(error_of(R"({"communication_data_type": "fp16", "prescale_gradients": false, "bf16": {}, "bfloat16": {},
      "fp16": {"enabled": false}})"),
             Contains("communication_data_type") && Contains("remove bfloat16") && !Contains("unknown key"));
}

TEST_CASE("an empty ds_config has DeepSpeed's defaults") {
  const DsConfig config = parse("{}");
  CHECK(config.given());
  CHECK(config.train_batch_size.missing());
  CHECK(config.gradient_clipping.value == 1.0);
  CHECK_FALSE(config.bf16_enabled.value);
  CHECK_FALSE(config.optimizer.present);
  CHECK(config.optimizer.lr.value == 1e-3);
  CHECK(config.optimizer.betas.value == std::pair(0.9, 0.999));
  CHECK(config.optimizer.eps.value == 1e-8);
  CHECK(config.optimizer.weight_decay.value == 0.0);
  CHECK(config.optimizer.bias_correction.value);
  CHECK(config.scheduler.type == SchedulerType::kNone);
  CHECK(config.scheduler.warmup_num_steps.value == 1000);
  CHECK(config.scheduler.cos_min_ratio.value == 1e-4);
  CHECK(config.warnings.empty());
  CHECK_FALSE(DsConfig{}.given());
}

// Reference: the sections of the installed DeepSpeed, see make_deepspeed_schema.py.
TEST_CASE("the defaults of the ZeRO section are those of DeepSpeed's own classes") {
  const json sections = fixture("deepspeed_schema.json")["sections"];
  const json& zero = sections["zero_optimization"];
  const ZeroSection ours = parse("{}").zero;
  CHECK(ours.stage.value == zero["stage"].get<int64_t>());
  CHECK(ours.reduce_bucket_size.value == zero["reduce_bucket_size"].get<int64_t>());
  CHECK(ours.allgather_bucket_size.value == zero["allgather_bucket_size"].get<int64_t>());
  CHECK(ours.prefetch_bucket_size.value == zero["prefetch_bucket_size"].get<int64_t>());
  CHECK(ours.param_persistence_threshold.value == zero["param_persistence_threshold"].get<int64_t>());
  CHECK(ours.max_live_parameters.value == zero["max_live_parameters"].get<int64_t>());
  CHECK(ours.max_reuse_distance.value == zero["max_reuse_distance"].get<int64_t>());
  CHECK(ours.sub_group_size.value == zero["sub_group_size"].get<int64_t>());
  CHECK(ours.offload_optimizer.pin_memory.value ==
        sections["zero_optimization.offload_optimizer"]["pin_memory"].get<bool>());
  CHECK(ours.offload_optimizer.ratio.value == sections["zero_optimization.offload_optimizer"]["ratio"].get<double>());
  CHECK(ours.offload_param.pin_memory.value == sections["zero_optimization.offload_param"]["pin_memory"].get<bool>());
}

TEST_CASE("every key of DeepSpeed's typed sections is accepted with its default") {
  const json sections = fixture("deepspeed_schema.json")["sections"];
  REQUIRE(sections.size() == 12);
  for (const auto& [path, keys] : sections.items()) {
    for (const auto& [key, value] : keys.items()) {
      json document = {{"train_micro_batch_size_per_gpu", 1}};
      json* section = &document;
      std::string rest = path;
      while (!rest.empty()) {
        const size_t dot = rest.find('.');
        section = &(*section)[rest.substr(0, dot)];
        rest = dot == std::string::npos ? "" : rest.substr(dot + 1);
      }
      (*section)[key] = value;
      INFO(document.dump());
      CHECK_NOTHROW(parse(document.dump()));
    }
  }
}

TEST_CASE("integers are accepted in any notation") {
  const auto bucket = [](const std::string& value) {
    return parse(R"({"zero_optimization": {"reduce_bucket_size": )" + value + "}}").zero.reduce_bucket_size.value;
  };
  CHECK(bucket("5e8") == 500'000'000);
  CHECK(bucket("2.0") == 2);
  const auto error = [](const std::string& value) { return error_of(R"({"train_batch_size": )" + value + "}"); };
  CHECK(error("1.5") == "ds.json: train_batch_size is 1.5; it must be an integer.");
  CHECK(error("\"5e8\"") == "ds.json: train_batch_size is \"5e8\"; it must be an integer.");
  CHECK(error("true") == "ds.json: train_batch_size is true; it must be an integer.");
  CHECK(error("0") == "ds.json: train_batch_size is 0; it must be 1 or more.");
  CHECK(error("-4") == "ds.json: train_batch_size is -4; it must be 1 or more.");
  CHECK_THAT(error("18446744073709551615"), Contains("too large"));
  CHECK_THAT(error("1e30"), Contains("must be an integer"));
}

TEST_CASE("null is equivalent to missing") {
  CHECK(parse(R"({"train_batch_size": null})").train_batch_size.missing());
  CHECK_FALSE(parse(R"({"optimizer": null})").optimizer.present);
}

TEST_CASE("both spellings of cos_min_ratio are read and must not conflict") {
  const auto with = [](const std::string& params) {
    return R"({"scheduler": {"type": "WarmupCosineLR", "params": {)" + params + "}}}";
  };
  CHECK(parse(with(R"("cos_min_ratio": 0.25)")).scheduler.cos_min_ratio.value == 0.25);
  CHECK(parse(with(R"("cosine_min_ratio": 0.25)")).scheduler.cos_min_ratio.value == 0.25);
  CHECK(parse(with(R"("cosine_min_ratio": 0.25, "cos_min_ratio": 0.25)")).scheduler.cos_min_ratio.value == 0.25);
  const std::string error = error_of(with(R"("cosine_min_ratio": 0.25, "cos_min_ratio": 0.5)"));
  CHECK_THAT(error, Contains("scheduler.params.cosine_min_ratio is 0.25"));
  CHECK_THAT(error, Contains("is 0.5"));
}

TEST_CASE("JSON errors that other programs accept are refused with an explanation") {
  CHECK_THAT(error_of("{\n  // the batch\n}"),
             Contains("ds.json, line 2, column 3") && Contains("comments are not allowed"));
  CHECK_THAT(error_of("{} # done"), Contains("line 1, column 4") && Contains("comments are not allowed"));
  CHECK_THAT(error_of(R"({"gradient_clipping": 1e400})"), Contains("ds.json: number overflow parsing '1e400'; "));
  CHECK_THAT(error_of(R"({"gradient_clipping": NaN})"), Contains("line 1, column 23"));
  CHECK_THAT(error_of(std::string("\xFF\xFE{\0}\0", 6)), Contains("ds.json: UTF-16"));
  CHECK(error_of("\xEF\xBB\xBF{}") == "no error");
}

// With a beta of 1 the bias correction divides by zero.
TEST_CASE("a beta of 1 is refused") {
  CHECK_THAT(error_of(R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 1.0]}}})"),
             Contains("optimizer.params.betas is [0.9, 1]") && Contains("less than 1"));
}

TEST_CASE("a duplicate key is refused with its full path") {
  CHECK(error_of(R"({"bf16": {"enabled": true}, "bf16": {"enabled": false}})") ==
        "ds.json: key bf16 appears twice; remove one of the two.");
  CHECK(error_of(R"({"scheduler": {"params": {"a": [{"b": 1}], "warmup_num_steps": 1, "warmup_num_steps": 1}}})") ==
        "ds.json: key scheduler.params.warmup_num_steps appears twice; remove one of the two.");
  CHECK_NOTHROW(parse(R"({"bf16": {"enabled": false}, "fp16": {"enabled": false}})"));
}

TEST_CASE("an unknown key is refused at every level with the most similar known key") {
  CHECK(error_of(R"({"train_bach_size": 8})") ==
        "ds.json: unknown key train_bach_size; did you mean train_batch_size?");
  CHECK(error_of(R"({"micro_batch_size": 8})") ==
        "ds.json: unknown key micro_batch_size; did you mean train_micro_batch_size_per_gpu?");
  CHECK(error_of(R"({"zero_optimization": {"stgae": 2}})") ==
        "ds.json: unknown key zero_optimization.stgae; did you mean zero_optimization.stage?");
  CHECK_THAT(error_of(R"({"zero_optimization": {"offload_optimizer": {"devise": "cpu"}}})"),
             Contains("zero_optimization.offload_optimizer.devise; did you mean") && Contains(".device?"));
  CHECK_THAT(error_of(R"({"optimizer": {"type": "AdamW", "params": {"weightdecay": 0.1}}})"),
             Contains("optimizer.params.weightdecay; did you mean optimizer.params.weight_decay?"));
  CHECK(error_of(R"({"quite_something_else": 1})") ==
        "ds.json: unknown key quite_something_else; remove it, or correct its name.");
  // A parameter of another scheduler is unknown to this one.
  CHECK_THAT(error_of(R"({"scheduler": {"type": "WarmupLR", "params": {"total_num_steps": 5}}})"),
             Contains("unknown key scheduler.params.total_num_steps"));
}

TEST_CASE("syntax errors are reported with file, line and column") {
  CHECK_THAT(error_of("{\n  \"bf16\": {\n    \"enabled\": true,\n  }\n}"), Contains("ds.json, line 4, column 3: "));
  CHECK_THAT(error_of("{\"a\" 1}"), Contains("ds.json, line 1, column 6: "));
  CHECK_THAT(error_of("{\n\"a\": tru\n}"), Contains("ds.json, line 2, column "));
  CHECK_THAT(error_of(" \n"), Contains("ds.json: no JSON"));
  CHECK_THAT(error_of("[1]"), Contains("must be a JSON object {...}, not array"));
  CHECK_THAT(error_of("{\"a\": 1"), Contains("ds.json, line 1, column "));
}

TEST_CASE("settings that would change the result of training are refused by name") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"fp16": {"enabled": true}})", "fp16.enabled is true"},
      {R"({"amp": {"enabled": true}})", "amp enables"},
      {R"({"torch_autocast": {"enabled": true}})", "torch_autocast enables"},
      {R"({"optimizer": {"type": "Lamb"}})", "optimizer.type is \"Lamb\""},
      {R"({"optimizer": {"params": {"lr": 1}}})", "optimizer.type is missing"},
      {R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})", "optimizer.params.adam_w_mode is false"},
      {R"({"optimizer": {"type": "AdamW", "params": {"fp32_optimizer_states": false}}})",
       "optimizer.params.fp32_optimizer_states is false"},
      {R"({"optimizer": {"type": "AdamW", "params": {"amsgrad": true}}})", "optimizer.params.amsgrad is true"},
      {R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9]}}})", "optimizer.params.betas is [0.9]"},
      {R"({"optimizer": {"type": "AdamW", "params": {"lr": "5e-5"}}})", "optimizer.params.lr is \"5e-5\""},
      {R"({"scheduler": {"type": "OneCycle", "params": {}}})", "scheduler.type is \"OneCycle\""},
      {R"({"scheduler": {"type": "LRRangeTest"}})", "scheduler.type is \"LRRangeTest\""},
      {R"({"scheduler": {"type": "Cosine"}})", "scheduler.type is \"Cosine\""},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": -1}}})", "warmup_num_steps is -1"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cosine"}}})", "warmup_type is \"cosine\""},
      {R"({"zero_optimization": {"stage": 4}})", "zero_optimization.stage is 4"},
      {R"({"zero_optimization": {"stage": "auto"}})", "zero_optimization.stage cannot be \"auto\""},
      {R"({"zero_optimization": true})", "zero_optimization is true"},
      {R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})", "offload_optimizer.device is \"nvme\""},
      {R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})", "offload_param.device is \"nvme\""},
      {R"({"zero_optimization": {"cpu_offload": true, "offload_optimizer": {"device": "cpu"}}})", "remove cpu_offload"},
      {R"({"zero_optimization": {"zero_quantized_weights": "int8"}})", "zero_quantized_weights is \"int8\""},
      {R"({"zero_optimization": {"zero_quantized_gradients": "auto"}})", "zero_quantized_gradients cannot be \"auto\""},
      {R"({"zero_optimization": {"zero_quantized_nontrainable_weights": true}})",
       "zero_quantized_nontrainable_weights is true"},
      {R"({"zero_optimization": {"zero_hpz_partition_size": 0}})", "zero_hpz_partition_size is 0"},
      {R"({"zero_optimization": {"mics_shard_size": 0}})", "mics_shard_size is 0"},
      {R"({"zero_optimization": {"mics_shard_size": -2}})", "mics_shard_size is -2"},
      {R"({"zero_optimization": {"mics_shard_size": 4, "zero_hpz_partition_size": "auto"}})", "keep one"},
      {R"({"zero_optimization": {"mics_hierarchical_params_gather": true}})",
       "mics_hierarchical_params_gather is true"},
      {R"({"zero_optimization": {"zenflow": {"topk_ratio": 0.1}}})", "zero_optimization.zenflow is"},
      {R"({"bf16": {"enabled": true}, "bfloat16": {"enabled": true}})", "bfloat16 is the old name"},
      {R"({"data_types": {"param_dtype": "bf16"}})", "data_types.param_dtype is bf16"},
      {R"({"prescale_gradients": true})", "prescale_gradients is true"},
      {R"({"gradient_predivide_factor": 2})", "gradient_predivide_factor is 2"},
      {R"({"gradient_allreduce_op": "sum"})", "gradient_allreduce_op is \"sum\""},
      {R"({"communication_data_type": "fp16"})", "communication_data_type is \"fp16\""},
      {R"({"sparse_attention": {"mode": "fixed"}})", "sparse_attention is"},
      {R"({"sparse_gradients": true})", "sparse_gradients is true"},
      {R"({"elasticity": {"enabled": true}})", "elasticity enables"},
      {R"({"data_efficiency": {"enabled": true}})", "data_efficiency enables"},
      {R"({"curriculum_learning": {"enabled": true}})", "curriculum_learning enables"},
      {R"({"progressive_layer_drop": {"enabled": true}})", "progressive_layer_drop enables"},
      {R"({"gradient_clipping": -1})", "gradient_clipping is -1"},
  };
  for (const auto& [text, message] : cases) {
    INFO(text);
    CHECK_THAT(error_of(text), Contains("ds.json: ") && Contains(message) && !Contains("Also: "));
  }
}

TEST_CASE("reads the settings of compression between nodes") {
  const DsConfig off = parse(R"({"zero_optimization": {"stage": 3}})");
  CHECK(!off.zero.quantized_gradients.value);
  CHECK(!off.zero.quantized_weights.value);
  const DsConfig on =
      parse(R"({"zero_optimization": {"zero_quantized_gradients": true, "zero_quantized_weights": true}})");
  CHECK(on.zero.quantized_gradients.value);
  CHECK(on.zero.quantized_weights.value);
  CHECK(joined(on.warnings) == "");
}

TEST_CASE("settings that are off or match mpzero's behavior cause no warning") {
  for (const char* text :
       {R"({"fp16": {"enabled": false, "loss_scale": 0}})", R"({"fp16": {"enabled": "auto"}})",
        R"({"amp": {"enabled": false, "opt_level": "O1"}})",
        R"({"elasticity": {"enabled": false, "max_train_batch_size": 2}})",
        R"({"optimizer": {"type": "Adam", "params": {"torch_adam": true, "adam_w_mode": true}}})",
        R"({"data_types": {"grad_accum_dtype": "fp32"}})", R"({"tensorboard": {"enabled": false, "job_name": "x"}})",
        R"({"comet": {"enabled": false, "an_unknown_key": "x"}})",
        R"({"wall_clock_breakdown": false, "dump_state": false, "prescale_gradients": false})",
        R"({"zero_optimization": {"zero_quantized_weights": false, "zero_hpz_partition_size": 1}})",
        R"({"zero_optimization": {"zero_hpz_partition_size": 8, "mics_shard_size": -1}})",
        R"({"zero_optimization": {"zero_hpz_partition_size": 1, "mics_shard_size": "auto"}})",
        R"({"communication_data_type": "FP32"})"}) {
    INFO(text);
    CHECK(joined(parse(text).warnings) == "");
  }
}

TEST_CASE("a known but ignored key is reported with mpzero's behavior") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"zero_optimization": {"contiguous_gradients": true}})",
       "zero_optimization.contiguous_gradients: mpzero gathers"},
      {R"({"bf16": {"bf16_master_weights_and_grads": true}})",
       "bf16.bf16_master_weights_and_grads: gradients accumulate in bf16, but master weights"},
      {R"({"wandb": {"enabled": true, "project": "p"}})", "wandb: metrics are written to --metrics_file"},
      {R"({"memory_breakdown": true})", "memory_breakdown: throughput"},
      {R"({"activation_checkpointing": {"partition_activations": true}})",
       "activation_checkpointing.partition_activations: use --recompute"},
      {R"({"checkpoint": {"load_universal": true}})", "checkpoint.load_universal: checkpoints"},
      {R"({"bf16": {"check_grad_overflow": true}})", "bf16.check_grad_overflow: a non-finite loss"},
      {R"({"aio": {"block_size": 1048576}})", "aio: this setting affects only NVMe offload"},
  };
  for (const auto& [text, line] : cases) {
    INFO(text);
    CHECK_THAT(joined(parse(text).warnings), Contains("ds.json: mpzero ignores " + line));
  }
  // Keys with the same reason share a line.
  const auto warnings =
      parse(R"({"zero_optimization": {"reduce_scatter": true, "contiguous_gradients": true}})").warnings;
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("zero_optimization.contiguous_gradients, zero_optimization.reduce_scatter: "));
}

TEST_CASE("activation_checkpointing can request layer inputs in host memory") {
  CHECK_FALSE(parse("{}").cpu_checkpointing.value);
  CHECK(parse(R"({"activation_checkpointing": {"cpu_checkpointing": "auto"}})").cpu_checkpointing.is_auto());
  const DsConfig on = parse(R"({"activation_checkpointing": {"cpu_checkpointing": true, "number_checkpoints": null}})");
  CHECK(on.cpu_checkpointing.value);
  CHECK(joined(on.warnings) == "");
  CHECK_THAT(error_of(R"({"activation_checkpointing": {"cpu_checkpointing": 1}})"), Contains("cpu_checkpointing"));
}

TEST_CASE("the old offload keys and the unprefixed stage 3 names are accepted") {
  const ZeroSection zero =
      parse(
          R"({"zero_optimization": {"stage": 3, "cpu_offload": true, "cpu_offload_param": true, "prefetch_bucket_size": 7}})")
          .zero;
  CHECK(zero.offload_optimizer.device.value == OffloadDevice::kCpu);
  CHECK(zero.offload_param.device.value == OffloadDevice::kCpu);
  CHECK(zero.prefetch_bucket_size.value == 7);
  CHECK_THAT(error_of(R"({"zero_optimization": {"max_reuse_distance": 1, "stage3_max_reuse_distance": 2}})"),
             Contains("an alias of stage3_max_reuse_distance"));
}

TEST_CASE("reads the fp8 section") {
  const Fp8Section none = parse("{}").fp8;
  CHECK_FALSE(none.present);
  const Fp8Section plain = parse(R"({"fp8": {}})").fp8;
  CHECK(plain.present);
  CHECK(plain.enabled.value);
  CHECK(plain.recipe.value == "tensorwise");
  const Fp8Section all = parse(R"({"fp8": {"enabled": false, "recipe": "rowwise", "format": "e4m3",
                                           "fast_accumulation": "all", "cache_weights": false,
                                           "filter_fqns": ["first", "down_proj"]}})")
                             .fp8;
  CHECK_FALSE(all.enabled.value);
  CHECK(all.recipe.value == "rowwise");
  CHECK(all.format.value == "e4m3");
  CHECK(all.fast_accumulation.value == "all");
  CHECK(all.cache_weights.given());
  CHECK_FALSE(all.cache_weights.value);
  CHECK_FALSE(plain.cache_weights.given());
  CHECK_FALSE(parse(R"({"fp8": {"cache_weights": "auto"}})").fp8.cache_weights.given());
  CHECK(all.filter_fqns.value == std::vector<std::string>{"first", "down_proj"});
  CHECK_THAT(error_of(R"({"fp8": {"recipe": "delayed"}})"), Contains("fp8.recipe is \"delayed\"; it must be one of"));
  CHECK_THAT(error_of(R"({"fp8": {"enabled": "auto"}})"), Contains("fp8.enabled"));
  CHECK_THAT(error_of(R"({"fp8": {"filter": ["first"]}})"), Contains("fp8.filter"));
  for (const char* list : {R"("first")", R"([""])", "[1]", "{}"}) {
    CHECK_THAT(error_of(fmt::format(R"({{"fp8": {{"filter_fqns": {}}}}})", list)),
               Contains("fp8.filter_fqns is ") && Contains("it must be a list of names such as"));
  }
}

TEST_CASE("an unreadable file is reported") {
  CHECK_THROWS_WITH(read_ds_config("/nowhere/ds.json"), Contains("/nowhere/ds.json cannot be read"));
  CHECK_THROWS_AS(read_ds_config(std::filesystem::temp_directory_path()), UserError);
}

TEST_CASE("the suggested name is the intended one, or none") {
  const std::vector<std::string> known = {"learning_rate", "max_steps", "train_micro_batch_size_per_gpu",
                                          "train_batch_size"};
  CHECK(nearest_name("lerning_rate", known) == "learning_rate");
  CHECK(nearest_name("max_stpes", known) == "max_steps");
  CHECK(nearest_name("micro_batch_size", known) == "train_micro_batch_size_per_gpu");
  CHECK(nearest_name("learning-rate", known) == "learning_rate");
  CHECK_FALSE(nearest_name("tokenizer", known).has_value());
  CHECK_FALSE(nearest_name("x", {}).has_value());
  CHECK(nearest_name("tpo", {"top"}) == "top");
  CHECK_FALSE(nearest_name("dpo", {"top"}).has_value());
}

}  // namespace
}  // namespace mpzero::io
