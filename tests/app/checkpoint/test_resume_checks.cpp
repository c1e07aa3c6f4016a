#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/checkpoint/resume_checks.hpp"
#include "app/config/model_changes.hpp"
#include "app/config/recorded_settings.hpp"
#include "model/architecture/config.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"
#include "tests/io/stub_checkpoint.hpp"

namespace mpzero {
namespace {

using Catch::Contains;
using nlohmann::json;
using Strings = std::vector<std::string>;

constexpr const char* kDsConfig = R"({"train_batch_size": 8, "gradient_clipping": 1.0, "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 4, "cos_min_ratio": 0.1,
  "total_num_steps": 20}}})";

model::ModelConfig llama() {
  return model::ModelConfig::from_json(
      R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 96, "intermediate_size": 48, "num_hidden_layers": 2,
          "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64,
          "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true})",
      "a test");
}

DataIdentity some_data() {
  return {.train = {.num_tokens = 1000, .tokens_xxh3 = "1111111122222222", .documents_xxh3 = {}}, .validation = {}};
}

RunSetup setup_of(const std::string& json = kDsConfig, const Strings& flags = {}) {
  RunSetup setup;
  setup.config = run(json, flags).config;
  setup.model = llama();
  setup.data_order = "62 sequences of 16 tokens, tokenizer bytes, shuffled";
  setup.data = some_data();
  return setup;
}

// What a run of this setup saves after step 5; only its progress and parameters are there.
struct Saved final : io::testing::StubCheckpoint {
  explicit Saved(const RunSetup& setup) {
    for (const UnitSpec& unit : model::model_units(setup.model)) {
      specs.insert(specs.end(), unit.parameters.begin(), unit.parameters.end());
    }
    made.step = 5;
    made.seed = setup.config.seed;
    made.data_order = setup.data_order;
    made.lr = setup.config.schedule.lr(5);
    made.dtype = setup.config.dtype;
    made.model_config_json = setup.model.to_json();
    made.run_config_json = kDsConfig;
    made.settings_json = recorded_settings(setup).dump();
  }
};

std::string refusal(const Saved& saved, const RunSetup& now) {
  return error_from([&] { check_resumable(saved, now, model::model_units(now.model)); });
}

// The line of changes without its beginning; empty: there is none.
std::string changes(const Saved& saved, const RunSetup& now) {
  CHECK(refusal(saved, now) == "no error");
  const Continuation notes = continue_run(saved, now);
  const std::string beginning = "Changed since the checkpoint: ";
  for (const std::string& line : notes.changes) {
    if (line.starts_with(beginning)) return line.substr(beginning.size());
  }
  return "";
}

Strings warnings(const Saved& saved, const RunSetup& now) { return continue_run(saved, now).warnings; }

TEST_CASE("resuming with the same settings reports nothing") {
  for (const Strings& flags : {Strings{}, {"--max_steps=20"}, {"--no_decay=norm,bias"}, {"--seq_length=16"}}) {
    const RunSetup setup = setup_of(kDsConfig, flags);
    const Saved saved(setup);
    CHECK(refusal(saved, setup) == "no error");
    CHECK(continue_run(saved, setup).changes.empty());
    CHECK(continue_run(saved, setup).warnings.empty());
  }
  // Without a file, with all that it would say by default.
  const RunSetup plain = setup_of("");
  CHECK(continue_run(Saved(plain), plain).changes.empty());
}

TEST_CASE("a changed layout is reported, but never refused") {
  const auto refused = [](const Saved& saved, const RunSetup& now) {
    return error_from([&] { check_unfinished(saved, now, continue_run(saved, now)); });
  };
  // Resolved for two ranks, with a global batch of 8 and five steps, all of which the checkpoint has.
  const Strings five_steps{"--max_steps=5", "--recompute=none"};
  RunSetup then = setup_of(kDsConfig, five_steps);
  then.layout = {.nodes = 1, .ranks_per_node = 2};
  const Saved saved(then);
  RunSetup now = then;
  CHECK(changes(saved, now).empty());
  now.config = run(kDsConfig, {"--max_steps=5", "--gradient_accumulation_steps=2", "--recompute=full"}, 4).config;
  now.layout = {.nodes = 2, .ranks_per_node = 2};
  now.hosts = 2;
  now.device = "NVIDIA L4";
  CHECK(changes(saved, now) ==
        "device cpu -> NVIDIA L4, ranks 2 -> 4, hosts 1 -> 2, train_micro_batch_size_per_gpu 4 -> 1, "
        "gradient_accumulation_steps 1 -> 2, recompute none -> full");
  CHECK(continue_run(saved, now).differences.empty());
  CHECK(continue_run(saved, now).warnings.empty());
  CHECK(refused(saved, now) == "no error");

  // The stage and offload of a file, beside a change of the numbers, which is refused.
  const std::string offloads = R"(, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
      "offload_param": {"device": "cpu"}}})";
  RunSetup other = setup_of(std::string(kDsConfig).substr(0, std::string(kDsConfig).rfind('}')) + offloads,
                            {"--max_steps=5", "--recompute=none"});
  other.layout = then.layout;
  CHECK(changes(saved, other) == "zero_stage 0 -> 3, offload_optimizer none -> cpu, offload_param none -> cpu");
  CHECK(refused(saved, other) == "no error");
  other.data->train.tokens_xxh3 = "3333333322222222";
  const std::string refusal = refused(saved, other);
  CHECK_THAT(refusal, Contains("train_data") && !Contains("zero_stage"));

  // What is open at the resume is compared by the run once it is chosen.
  RunSetup automatic = setup_of(kDsConfig, {"--max_steps=5"});
  automatic.layout = then.layout;
  CHECK(changes(saved, automatic).empty());
  CHECK(continue_run(saved, automatic).recompute == "none");

  // A record without the layout, as older versions wrote it, or with less of it.
  Saved old(then);
  json settings = json::parse(old.made.settings_json);
  settings["layout"].erase("hosts");
  old.made.settings_json = settings.dump();
  CHECK_THAT(changes(old, now), !Contains("hosts") && Contains("ranks 2 -> 4"));
  settings["layout"] = "something else";
  old.made.settings_json = settings.dump();
  CHECK(changes(old, now).empty());
  settings.erase("layout");
  old.made.settings_json = settings.dump();
  CHECK(continue_run(old, now).changes.empty());
  CHECK(!continue_run(old, now).recompute);
}

TEST_CASE("changed settings are refused only if no steps remain") {
  const auto refused = [](const Saved& saved, const RunSetup& now) {
    return error_from([&] { check_unfinished(saved, now, continue_run(saved, now)); });
  };
  const RunSetup setup = setup_of(kDsConfig, {"--max_steps=5"});
  const Saved saved(setup);
  CHECK(refused(saved, setup) == "no error");
  CHECK_THAT(refused(saved, setup_of(kDsConfig, {"--max_steps=4"})), Contains("max_steps 5 -> 4"));
  CHECK(refused(saved, setup_of(kDsConfig, {"--max_steps=6"})) == "no error");
  RunSetup now = setup;
  now.data->train.tokens_xxh3 = "3333333322222222";
  CHECK_THAT(refused(saved, now), Contains("train_data") && Contains("raise --max_steps above 5"));
  // As many tokens without a checksum may be the same.
  now.data->train.tokens_xxh3 = "";
  CHECK(refused(saved, now) == "no error");
  now = setup;
  now.model.max_position_embeddings = 32;
  CHECK_THAT(refused(saved, now), Contains("max_position_embeddings 64 -> 32"));
}

TEST_CASE("before the data is prepared, everything except the data is compared") {
  const Saved saved(setup_of(kDsConfig, {"--max_steps=20"}));
  RunSetup now = setup_of(kDsConfig, {"--max_steps=20"});
  now.data.reset();
  now.data_order.clear();
  CHECK(changes(saved, now).find("train_data") == std::string::npos);
  CHECK(warnings(saved, now).empty());
  now.config = run(R"({"train_batch_size": 8, "gradient_clipping": 0.5})", {"--epochs=2"}).config;
  CHECK_THAT(changes(saved, now), Contains("gradient_clipping 1 -> 0.5") && !Contains("max_steps"));
}

TEST_CASE("each model key has a rule for changes") {
  using model::ModelConfig;
  const ModelConfig before = llama();
  const auto change = [&](auto&& edit) {
    ModelConfig now = before;
    edit(now);
    return model_changes(before, now);
  };
  using List = std::vector<ModelChange>;
  CHECK(model_changes(before, before).empty());
  CHECK(change([](ModelConfig& now) { now.model_type = "qwen2"; }) == List{{"model_type", "llama", "qwen2"}});
  CHECK(change([](ModelConfig& now) { now.vocab_size = 65; }) == List{{"vocab_size", "64", "65"}});
  CHECK(change([](ModelConfig& now) { now.hidden_size = 32; }) == List{{"hidden_size", "96", "32"}});
  CHECK(change([](ModelConfig& now) { now.intermediate_size = 32; }) == List{{"intermediate_size", "48", "32"}});
  CHECK(change([](ModelConfig& now) { now.num_hidden_layers = 3; }) == List{{"num_hidden_layers", "2", "3"}});
  CHECK(change([](ModelConfig& now) { now.num_attention_heads = 12; }) == List{{"num_attention_heads", "6", "12"}});
  CHECK(change([](ModelConfig& now) { now.num_key_value_heads = 4; }) == List{{"num_key_value_heads", "2", "4"}});
  CHECK(change([](ModelConfig& now) { now.head_dim = 8; }) == List{{"head_dim", "16", "8"}});
  CHECK(change([](ModelConfig& now) { now.tie_word_embeddings = false; }) ==
        List{{"tie_word_embeddings", "true", "false"}});
  CHECK(change([](ModelConfig& now) { now.rms_norm_eps = 1e-5; }) ==
        List{{"rms_norm_eps", "1e-06", "1e-05", ChangeRule::kOnPurpose}});
  CHECK(change([](ModelConfig& now) { now.rope_theta = 5e5; }) ==
        List{{"rope_theta", "10000", "500000", ChangeRule::kOnPurpose}});
  CHECK(change([](ModelConfig& now) { now.rope_scaling = model::Llama3RopeScaling{}; }) ==
        List{{"rope_scaling", "none",
              "llama3 (factor 8.0; high_freq_factor 4.0; low_freq_factor 1.0; original_max_position_embeddings 8192)",
              ChangeRule::kOnPurpose}});
  CHECK(change([](ModelConfig& now) { now.max_position_embeddings = 128; }) ==
        List{{"max_position_embeddings", "64", "128", ChangeRule::kFree}});
  CHECK(change([](ModelConfig& now) { now.initializer_range = 0.01; }) ==
        List{{"initializer_range", "0.02", "0.01", ChangeRule::kFree}});
  CHECK(change([](ModelConfig& now) { now.bos_token_id = 1; }) ==
        List{{"bos_token_id", "none", "1", ChangeRule::kFree}});
  CHECK(change([](ModelConfig& now) { now.eos_token_ids = {1, 2}; }) ==
        List{{"eos_token_id", "none", "1 2", ChangeRule::kFree}});
  // Keys of one family need no rule of their own.
  const auto fixture = [](const char* name) {
    return ModelConfig::from_file(std::string(MPZERO_SOURCE_DIR "/tests/model/fixtures/") + name);
  };
  ModelConfig granite = fixture("granite.json"), smollm3 = fixture("smollm3.json");
  granite.embedding_multiplier = granite.residual_multiplier = 2;
  smollm3.rotated_layers[0] = !smollm3.rotated_layers[0];
  const List multipliers = model_changes(fixture("granite.json"), granite);
  REQUIRE(multipliers.size() == 2);
  CHECK((multipliers[0].key == "embedding_multiplier" && multipliers[0].now == "2.0"));
  CHECK((multipliers[1].key == "residual_multiplier" && multipliers[1].rule == ChangeRule::kRefused));
  const List rotated = model_changes(fixture("smollm3.json"), smollm3);
  REQUIRE(rotated.size() == 1);
  CHECK((rotated[0].key == "no_rope_layers" && rotated[0].rule == ChangeRule::kRefused));
  const ModelConfig t5 = ModelConfig::from_file(MPZERO_SOURCE_DIR "/tests/model/fixtures/t5.json");
  ModelConfig now = t5;
  now.t5->dropout_rate = 0.1;
  CHECK(model_changes(t5, now) == List{{"dropout_rate", "0", "0.1", ChangeRule::kFree}});
  // What a checkpoint holds is what the run had.
  CHECK(model_changes(ModelConfig::from_json(before.to_json(), "a test"), before).empty());
}

TEST_CASE("a different number of heads with the same shapes is a different model") {
  const Saved saved(setup_of());
  RunSetup now = setup_of();
  now.model.num_attention_heads = 12;
  now.model.num_key_value_heads = 4;
  now.model.head_dim = 8;
  const std::string sentence = refusal(saved, now);
  CHECK_THAT(sentence,
             Contains("checkpoints/tiny-5steps is a checkpoint of a different model: num_attention_heads was 6 "
                      "but is now 12, num_key_value_heads was 2 but is now 4, head_dim was 16 but is now 8; "));
  now.config.allow_changed = {"rope_theta", "rope_scaling", "rms_norm_eps"};
  CHECK(refusal(saved, now) == sentence);
}

TEST_CASE("RoPE settings and eps may change with --allow_changed") {
  const Saved saved(setup_of());
  RunSetup now = setup_of();
  now.model.rope_theta = 5e5;
  now.model.rms_norm_eps = 1e-5;
  CHECK(refusal(saved, now) ==
        "checkpoints/tiny-5steps was trained with rms_norm_eps 1e-06 and rope_theta 10000, but this run has 1e-05 "
        "and 500000; use the same value, or pass --allow_changed rms_norm_eps,rope_theta if the change is intended");
  now.config.allow_changed = {"rope_theta"};
  CHECK_THAT(refusal(saved, now), Contains("with rms_norm_eps 1e-06, but this run has 1e-05"));
  now.config.allow_changed = {"rope_theta", "rms_norm_eps"};
  CHECK(changes(saved, now) ==
        "rms_norm_eps 1e-06 -> 1e-05 (--allow_changed), rope_theta 10000 -> 500000 (--allow_changed)");
  // Once there is a checkpoint of it, the flag has nothing left to allow.
  CHECK(continue_run(Saved(now), now).changes ==
        Strings{"--allow_changed rope_theta has no effect: the value is the same as in the checkpoint",
                "--allow_changed rms_norm_eps has no effect: the value is the same as in the checkpoint"});
}

TEST_CASE("changed compression between nodes is reported") {
  const auto with = [](const std::string& keys, const Strings& flags = {}) {
    std::string json = kDsConfig;
    json.insert(1, R"("zero_optimization": {"stage": 2)" + keys + "}, ");
    return setup_of(json, flags);
  };
  const std::string both = R"(, "zero_quantized_gradients": true, "zero_quantized_weights": true)";
  const std::string gradients = R"(, "zero_quantized_gradients": true)";
  CHECK(changes(Saved(with("")), with(both)) ==
        "zero_quantized_gradients none -> int8, zero_quantized_weights none -> int8");
  CHECK(changes(Saved(with(both)), with("")) ==
        "zero_quantized_gradients int8 -> none, zero_quantized_weights int8 -> none");
  CHECK(changes(Saved(with(both)), with(gradients)) == "zero_quantized_weights int8 -> none");
  CHECK(changes(Saved(with(gradients)), with(gradients, {"--quantized_gradient_bits=4"})) ==
        "zero_quantized_gradients int8 -> int4");
  CHECK(changes(Saved(with(both)), with(both)).empty());
  // Where settings were not recorded, this one is not known.
  Saved older(with(""));
  older.made.settings_json.clear();
  CHECK(changes(older, with(both)).empty());
}

TEST_CASE("--allow_changed accepts the keys that require it") {
  CHECK(run("", {"--allow_changed=rope_theta, rms_norm_eps"}).config.allow_changed ==
        Strings{"rope_theta", "rms_norm_eps"});
  CHECK(error_of("", {"--allow_changed=rope_theta,head_dim"}) ==
        "--allow_changed head_dim is not supported; the supported keys are rope_theta, rope_scaling, rms_norm_eps, "
        "tokenizer (docs/runs.md).");
  CHECK_THAT(error_of("", {"--allow_changed=rope_theta,"}), Contains("an empty name"));
}

TEST_CASE("changed settings are listed with old and new value, in the table's order") {
  const Saved saved(setup_of());
  RunSetup now =
      setup_of(R"({"train_batch_size": 16, "gradient_clipping": 0, "data_types": {"grad_accum_dtype": "bf16"},
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.8, 0.999], "eps": 1e-6, "weight_decay": 0,
    "bias_correction": false}}})",
               {"--no_decay=norm,bias", "--max_steps=2000", "--seq_length=512", "--shuffle=false"});
  now.data->validation[""] = {.num_tokens = 5, .tokens_xxh3 = "abcdef0123456789", .documents_xxh3 = {}};
  now.model.max_position_embeddings = 4096;
  CHECK(changes(saved, now) ==
        "max_position_embeddings 64 -> 4096, lr 0.001 -> 0.002, beta1 0.9 -> 0.8, beta2 0.95 -> 0.999, "
        "eps 1e-08 -> 1e-06, weight_decay 0.1 -> 0, no_decay none -> bias,norm, bias_correction true -> false, "
        "scheduler WarmupCosineLR -> constant, warmup_type log -> none, warmup_min_ratio 0 -> none, "
        "cos_min_ratio 0.1 -> none, warmup_num_steps 4 -> none, total_num_steps 20 -> none, max_steps 1000 -> 2000, "
        "gradient_clipping 1 -> 0, train_batch_size 8 -> 16, dtype bf16 -> fp32, "
        "communication_data_type bf16 -> fp32, grad_accum_dtype fp32 -> bf16, seq_length 2048 -> 512, "
        "shuffle true -> false, validation_data none -> 5 tokens (abcdef01), "
        "train_micro_batch_size_per_gpu 4 -> 8");
  CHECK(changes(saved, setup_of(R"({"train_batch_size": 8, "gradient_clipping": 1.0, "bf16": {"enabled": true,
    "bf16_optimizer_states": true, "bf16_master_weights_and_grads": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 4, "cos_min_ratio": 0.1,
    "total_num_steps": 40}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})")) ==
        "total_num_steps 20 -> 40, grad_accum_dtype fp32 -> bf16, optimizer_states_dtype fp32 -> bf16, "
        "zero_stage 0 -> 2, offload_optimizer none -> cpu");
}

TEST_CASE("a run continues with tokens of a different tokenizer only on request") {
  const auto with = [](const std::string& name, const std::string& hash, const Strings& flags = {}) {
    RunSetup setup = setup_of(kDsConfig, flags);
    setup.data->train.tokenization.tokenizer = name;
    setup.data->train.tokenization.tokenizer_hash = hash;
    return setup;
  };
  const std::string a = "xxh3:aaaaaaaaaaaaaaaa", b = "xxh3:bbbbbbbbbbbbbbbb";
  const Strings allowed{"--allow_changed=tokenizer"};
  CHECK(refusal(Saved(with("one", a)), with("other", b)) ==
        "checkpoints/tiny-5steps was trained with tokenizer one (" + a + "), but this run has other (" + b +
            ") in --train_data t.h5; use the same value, or pass --allow_changed tokenizer if the change is intended");
  CHECK_THAT(refusal(Saved(with("bytes", "")), with("one", a)), Contains("tokenizer bytes") && Contains(a));
  CHECK_THAT(refusal(Saved(with("one", a)), with("bytes", "")), Contains(a) && Contains("this run has bytes"));
  CHECK_THAT(changes(Saved(with("one", a)), with("one", b, allowed)),
             Contains("tokenizer one (" + a + ") -> one (" + b + ")") && Contains("(--allow_changed)"));
  // The same tokenizer elsewhere; names without a hash; a checkpoint that records none; data that is not there.
  for (const auto& [before, now] : {std::pair(with("one", a), with("moved/one", a)),
                                    {with("one", ""), with("other", a)},
                                    {with("one", ""), with("bytes", "")},
                                    {setup_of(), with("one", a)}}) {
    CHECK(changes(Saved(before), now).empty());
  }
  RunSetup gone = with("other", b);
  gone.data.reset();
  CHECK(refusal(Saved(with("one", a)), gone) == "no error");
}

TEST_CASE("data without a common checksum is reported as not compared") {
  RunSetup before = setup_of();
  before.data->train = {.num_tokens = 1000, .tokens_xxh3 = {}, .documents_xxh3 = "3333333344444444"};
  const RunSetup now = setup_of();
  REQUIRE(continue_run(Saved(before), now).changes.size() == 1);
  const std::string line = continue_run(Saved(before), now).changes.front(), end = "no checksum in common";
  CHECK_THAT(line, Contains("train_data") && Contains("checkpoints/tiny-5steps") && Contains(end));
  CHECK(warnings(Saved(before), now).empty());
  RunSetup both = now;
  both.data->validation[""] = before.data->train;
  before.data->validation[""] = now.data->train;
  REQUIRE(continue_run(Saved(before), both).changes.size() == 1);
  CHECK_THAT(continue_run(Saved(before), both).changes.front(),
             Contains("train_data and validation_data") && Contains(end));
}

TEST_CASE("each validation set is compared with the checkpoint's set of the same name") {
  const auto with = [](const Strings& sets, const std::string& hash) {
    RunSetup setup = setup_of();
    for (const std::string& set : sets) {
      setup.data->validation[set] = {.num_tokens = 5, .tokens_xxh3 = hash + "0123456789", .documents_xxh3 = {}};
    }
    return setup;
  };
  const std::string first = "abcdef", second = "123456";
  CHECK(changes(Saved(with({"code", "wiki"}, first)), with({"wiki", "code"}, first)).empty());
  CHECK(changes(Saved(with({"code", "wiki"}, first)), with({"wiki"}, second)) ==
        "validation_data code 5 tokens (abcdef01) -> none, "
        "validation_data wiki 5 tokens (abcdef01) -> 5 tokens (12345601)");
  CHECK(changes(Saved(with({""}, first)), with({"wiki"}, first)) ==
        "validation_data 5 tokens (abcdef01) -> none, validation_data wiki none -> 5 tokens (abcdef01)");
  CHECK(changes(Saved(with({}, first)), with({"wiki"}, first)) == "validation_data wiki none -> 5 tokens (abcdef01)");
  RunSetup unhashed = with({"wiki"}, first);
  unhashed.data->validation["wiki"] = {.num_tokens = 5, .tokens_xxh3 = {}, .documents_xxh3 = "3333333344444444"};
  CHECK(changes(Saved(with({"wiki"}, first)), unhashed).empty());
  CHECK_THAT(continue_run(Saved(with({"wiki"}, first)), unhashed).changes.at(0), Contains("validation_data wiki"));
}

TEST_CASE("a changed number of validation sequences is reported") {
  const Strings data = {"--validation_data=v.h5"};
  const auto with = [&](const std::string& flag) {
    Strings flags = data;
    if (!flag.empty()) flags.push_back(flag);
    RunSetup setup = setup_of(kDsConfig, flags);
    setup.data->validation[""] = {.num_tokens = 5, .tokens_xxh3 = "abcdef0123456789", .documents_xxh3 = {}};
    return setup;
  };
  CHECK(changes(Saved(with("")), with("")).empty());
  CHECK(changes(Saved(with("")), with("--validation_sequences=0")) == "validation_sequences 128 -> 0");
  // kDsConfig's 8 sequences on 2 ranks: 10 micro-batches of 4.
  REQUIRE(with("--validation_batches=10").config.validation_sequences == 80);
  CHECK(changes(Saved(with("--validation_batches=10")), with("--validation_sequences=80")).empty());
  const Continuation same = continue_run(Saved(with("--validation_batches=10")), with("--validation_batches=10"));
  CHECK(same.changes.empty());
  CHECK(same.config.validation_sequences == 80);
  RunSetup on_one_rank = with("--validation_batches=10");
  on_one_rank.config.validation_sequences = 40;
  const Continuation kept = continue_run(Saved(with("--validation_batches=10")), on_one_rank);
  CHECK(kept.config.validation_sequences == 80);
  REQUIRE(kept.changes.size() == 1);
  CHECK_THAT(kept.changes[0], Contains("80 sequences"));
  // Where the number was not recorded, a line says so.
  Saved older(with(""));
  json settings = json::parse(older.made.settings_json);
  settings.erase("validation_sequences");
  older.made.settings_json = settings.dump();
  CHECK_THAT(continue_run(older, with("")).changes.at(0), Contains("does not record the validation size"));
  CHECK(continue_run(older, setup_of()).changes.size() == 1);  // that the data is gone
}

TEST_CASE("settings that an older mpzero or DeepSpeed did not record are compared as far as possible") {
  Saved saved(setup_of());
  saved.made.settings_json.clear();
  RunSetup now = setup_of(kDsConfig, {"--max_steps=2000", "--no_decay=norm"});
  CHECK(changes(saved, now).empty());
  CHECK(continue_run(saved, now).changes ==
        Strings{"checkpoints/tiny-5steps does not record its settings (saved by an older mpzero version), so only "
                "ds_config.json was compared"});
  now.config.optimizer.beta2 = 0.999;
  now.config.dtype = "fp32";
  CHECK(changes(saved, now) == "beta2 0.95 -> 0.999, dtype bf16 -> fp32");
  // "auto" is no value, and no file says nothing.
  saved.made.run_config_json =
      R"({"optimizer": {"type": "Adam", "params": {"lr": "auto", "betas": "auto"}}, "gradient_clipping": "auto",
          "scheduler": {"type": "auto", "params": 3}})";
  CHECK(changes(saved, now) == "dtype bf16 -> fp32");
  saved.made.run_config_json.clear();
  CHECK(changes(saved, now) == "dtype bf16 -> fp32");

  // DeepSpeed's optimizer knows better than its file.
  saved.by_mpzero = false;
  saved.made.model_config_json.clear();
  saved.made.run_config_json = kDsConfig;
  saved.made.settings_json = R"({"beta2": 0.98})";
  CHECK(changes(saved, now) == "beta2 0.98 -> 0.999, dtype bf16 -> fp32");
  CHECK(continue_run(saved, now).changes.size() == 1);
  CHECK_THAT(warnings(saved, now).front(),
             Contains("does not record a model configuration") && Contains("heads, rope_theta, rope_scaling"));
}

TEST_CASE("a global batch size that changes with the number of ranks causes a warning with flags that keep it") {
  constexpr const char* kMicro = R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1})";
  const auto on = [&](int ranks) {
    RunSetup setup = setup_of(kMicro);
    setup.config = run(kMicro, {}, ranks).config;
    return setup;
  };
  const auto warning = [&](const Saved& saved, int ranks) {
    for (const std::string& text : warnings(saved, on(ranks))) {
      if (text.starts_with("the global batch size")) return text;
    }
    return std::string("none");
  };
  Saved saved(on(2));
  CHECK(warning(saved, 2) == "none");
  CHECK_THAT(warning(saved, 1),
             Contains("from 8 to 4 sequences") && Contains("--train_batch_size 8 --deepspeed_config_yields true"));
  CHECK_THAT(warning(saved, 3), Contains("from 8 to 12 sequences") && !Contains("--") && Contains("divides 8"));
  // DeepSpeed records only the numbers of steps and sequences.
  saved.by_mpzero = false;
  saved.made.settings_json.clear();
  saved.made.run_config_json = kMicro;
  saved.made.sequences_seen = 40;
  CHECK(warning(saved, 2) == "none");
  CHECK_THAT(warning(saved, 1), Contains("from 8 to 4 sequences"));
  CHECK_THAT(changes(saved, on(3)), Contains("train_batch_size 8 -> 12"));
}

TEST_CASE("states of a different optimizer are refused") {
  Saved saved(setup_of());
  saved.made.settings_json.clear();
  saved.made.run_config_json = R"({"optimizer": {"type": "Lamb", "params": {}}})";
  CHECK_THAT(refusal(saved, setup_of()), Contains("checkpoints/tiny-5steps was trained with the optimizer \"Lamb\"") &&
                                             Contains("zero_to_fp32") && Contains("--init_from"));
  for (const char* type : {"Adam", "adam", "AdamW", "adamw"}) {
    saved.made.run_config_json = fmt::format(R"({{"optimizer": {{"type": "{}"}}}})", type);
    CHECK(refusal(saved, setup_of()) == "no error");
  }
}

TEST_CASE("moments that include weight decay are refused") {
  Saved saved(setup_of());
  saved.made.settings_json.clear();
  const auto refused = [&](const std::string& optimizer) {
    saved.made.run_config_json = R"({"optimizer": )" + optimizer + "}";
    return refusal(saved, setup_of());
  };
  CHECK_THAT(refused(R"({"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}})"),
             Contains("with the optimizer \"Adam with adam_w_mode false\""));
  CHECK(refused(R"({"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0}})") == "no error");
  CHECK(refused(R"({"type": "Adam", "params": {"adam_w_mode": false}})") == "no error");
  CHECK(refused(R"({"type": "AdamW", "params": {"adam_w_mode": false, "weight_decay": 0.1}})") == "no error");
  CHECK(refused(R"({"type": "Adam", "params": null})") == "no error");
}

TEST_CASE("invalid settings are refused by name") {
  Saved saved(setup_of());
  saved.made.settings_json = "[1]";
  CHECK(refusal(saved, setup_of()) ==
        "the settings of checkpoints/tiny-5steps is not a JSON object; choose a different checkpoint.");
  saved.made.settings_json = "{";
  CHECK_THAT(refusal(saved, setup_of()), Contains("the settings of checkpoints/tiny-5steps"));
  // Any value of a key is shown, and one that is too long is cut.
  saved.made.settings_json = R"({"beta2": {"a": 1}, "lr": ")" + std::string(5000, 'x') + R"(", "later": 1})";
  CHECK(changes(saved, setup_of()) ==
        "lr " + std::string(100, 'x') + " -> 0.001, beta2 {\"a\":1} -> 0.95, later 1 -> unknown to this version");
}

TEST_CASE("training data is identified by its tokens") {
  const Saved saved(setup_of());
  RunSetup now = setup_of();
  now.data_order = "62 sequences of 16 tokens, tokenizer /elsewhere/bytes, shuffled";
  CHECK(warnings(saved, now).empty());
  CHECK(changes(saved, now).empty());

  now.data->train.tokens_xxh3 = "3333333344444444";
  CHECK(changes(saved, now).empty());
  CHECK(warnings(saved, now) ==
        Strings{"the training data differs from that of checkpoints/tiny-5steps (before: 62 sequences of 16 tokens, "
                "tokenizer bytes, shuffled, 1000 tokens (11111111); now: 62 sequences of 16 tokens, tokenizer "
                "/elsewhere/bytes, "
                "shuffled, 1000 tokens (33333333)): the run continues at sequence 0 of the new order and may repeat "
                "sequences; for a new run, use a different --checkpoint_dir."});
  // Nothing is known of the tokens but how many there are: the order's description decides.
  now.data->train = {.num_tokens = 1000, .tokens_xxh3 = {}, .documents_xxh3 = "5555555566666666"};
  CHECK(warnings(saved, now).size() == 1);
  now.data_order = saved.progress().data_order;
  CHECK(warnings(saved, now).empty());

  RunSetup in_order = setup_of(kDsConfig, {"--shuffle=false", "--seq_length=16"});
  in_order.data_order = "62 sequences of 16 tokens, tokenizer bytes, in the file's order";
  in_order.train_tokens = 1000;
  CHECK(warnings(saved, in_order).empty());  // nothing has been seen
  Saved later(setup_of(kDsConfig, {"--seq_length=16"}));
  later.made.sequences_seen = 20;
  CHECK(warnings(later, in_order).size() == 1);
  Saved older = saved;
  older.made.settings_json.clear();
  CHECK(warnings(older, setup_of()).empty());
  CHECK(warnings(older, in_order).size() == 1);
}

TEST_CASE("a jump of the learning rate causes a warning") {
  Saved saved(setup_of());
  RunSetup now = setup_of();
  saved.made.step = 15;
  saved.made.lr = now.config.schedule.lr(15);
  now.config.schedule = now.config.schedule.with_peak_lr(1e-2);
  now.config.optimizer.lr = 1e-2;
  REQUIRE(warnings(saved, now).size() == 1);
  CHECK_THAT(warnings(saved, now).front(), Contains("the schedule differs from that of") && Contains("step 15 had"));
  CHECK(changes(saved, now) == "lr 0.001 -> 0.01");
}

TEST_CASE("a changed schedule length is reported without a warning") {
  Saved saved(setup_of());
  RunSetup now = setup_of();
  saved.made.step = 15;
  saved.made.lr = now.config.schedule.lr(15);
  now.config.schedule = now.config.schedule.with_total_num_steps(40);
  CHECK(warnings(saved, now).empty());
  CHECK(changes(saved, now) == "total_num_steps 20 -> 40");
  const Continuation run = continue_run(saved, now);
  CHECK_THAT(run.changes.back(), Contains("--schedule_on_resume"));
  CHECK(run.config.resumed_schedule);
}

TEST_CASE("a longer run that keeps the schedule's end does not report another end") {
  const auto cosine = [](const char* steps) {
    return setup_of(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 4, "cos_min_ratio": 0.1}}})",
                    {std::string("--max_steps=") + steps});
  };
  Saved saved(cosine("20"));
  const RunSetup now = cosine("40");
  saved.made.step = 15;
  saved.made.lr = cosine("20").config.schedule.lr(15);
  CHECK(changes(saved, now) == "max_steps 20 -> 40");
  saved.made.step = 2;  // both schedules agree, so the end moves
  saved.made.lr = now.config.schedule.lr(2);
  CHECK(changes(saved, now) == "total_num_steps 20 -> 40, max_steps 20 -> 40");
}

TEST_CASE("settings are plain values by key") {
  const json settings = json::parse(recorded_settings(setup_of()).dump());
  CHECK(settings["lr"] == 1e-3);
  CHECK(settings["scheduler"] == "WarmupCosineLR");
  CHECK(settings["total_num_steps"] == 20);
  CHECK(settings["no_decay"].is_null());
  CHECK(settings["train_data"] == json({{"num_tokens", 1000}, {"tokens_xxh3", "1111111122222222"}}));
  // Bytes that JSON does not hold are the same in the checkpoint and in the next start.
  RunSetup odd = setup_of();
  odd.config.optimizer.no_decay = {"norm\xff"};
  CHECK(changes(Saved(odd), odd).empty());
}

}  // namespace
}  // namespace mpzero
