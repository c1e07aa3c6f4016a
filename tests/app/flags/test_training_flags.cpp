#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "app/flags/help.hpp"
#include "app/flags/training_flags.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using nlohmann::json;

std::vector<Flag> all_flags() {
  std::vector<Flag> flags;
  for (const FlagGroup& group : training_flags()) flags.insert(flags.end(), group.flags.begin(), group.flags.end());
  return flags;
}

// What --help says of a flag, in one line.
std::string help_of(const Flag& flag) {
  const std::string help = command_line_help();
  const size_t begin = help.find("\n  --" + flag.name + " ");
  if (begin == std::string::npos) return "";
  std::string words;
  for (const char c : help.substr(begin, help.find("\n  --", begin + 1) - begin)) {
    const bool blank = c == ' ' || c == '\n';
    if (!blank || words.empty() || words.back() != ' ') words += blank ? ' ' : c;
  }
  return words;
}

// Formats numbers as --help does: 5e-5 instead of 5e-05.
std::string default_of(const Flag& flag) {
  std::string text = flag.show(Settings{});
  if (const size_t exponent = text.find("e-0"); exponent != std::string::npos) text.erase(exponent + 2, 1);
  return text;
}

// Valid values, as shown. For a Choice, all of them; for other types, one that is not the default.
std::vector<std::string> values_of(const Flag& flag) {
  static const std::map<std::string, std::string> kCustom = {{"validation_data", "a=b.h5"},
                                                             {"metrics_address", "0.0.0.0"},
                                                             {"profile_steps", "3-5"},
                                                             {"warmup_steps", "7"},
                                                             {"warmup_ratio", "0.25"}};
  if (const auto* value = std::get_if<Integer>(&flag.value)) return {std::to_string(value->minimum + 3)};
  if (const auto* value = std::get_if<Choice>(&flag.value)) return value->choices;
  if (std::holds_alternative<Unsigned>(flag.value)) return {"3"};
  if (std::holds_alternative<Real>(flag.value)) return {"0.25"};
  if (flag.is_boolean()) return {flag.show(Settings{}) == "true" ? "false" : "true"};
  if (std::holds_alternative<Names>(flag.value)) return {"x,y"};
  return {std::holds_alternative<Text>(flag.value) ? "x" : kCustom.at(flag.name)};
}

TEST_CASE("a flag sets its own value and no other flag's") {
  const std::vector<Flag> flags = all_flags();
  for (const Flag& flag : flags) {
    const std::vector<std::string> values = values_of(flag);
    CHECK((values.size() > 1 || values.front() != flag.show(Settings{})));
    for (const std::string& value : values) {
      INFO("--" << flag.name << "=" << value);
      CommandLine line;
      flag.read(line, flag.name, value);
      for (const Flag& other : flags) {
        INFO(other.name);
        CHECK(other.show(line) == (other.name == flag.name ? value : other.show(Settings{})));
      }
    }
  }
}

// Two swapped fields would pass the test above. The defaults of other flags of one type differ.
TEST_CASE("the flags of the model's dimensions set the fields of the same name") {
  const CommandLine line = parse_command_line(
      {"--vocab_size=151936", "--hidden_size=1024", "--intermediate_size=3072", "--num_hidden_layers=28",
       "--num_attention_heads=16", "--num_key_value_heads=8", "--head_dim=128", "--max_position_embeddings=40960",
       "--rms_norm_eps=1e-6", "--rope_theta=1e6", "--dropout_rate=0.5"});
  CHECK(line.model_overrides == ModelOverrides{.vocab_size = 151936,
                                               .hidden_size = 1024,
                                               .intermediate_size = 3072,
                                               .num_hidden_layers = 28,
                                               .num_attention_heads = 16,
                                               .num_key_value_heads = 8,
                                               .head_dim = 128,
                                               .max_position_embeddings = 40960,
                                               .rms_norm_eps = 1e-6,
                                               .rope_theta = 1e6,
                                               .dropout_rate = 0.5});
}

TEST_CASE("each name belongs to one flag") {
  std::set<std::string> names;
  for (const Flag& flag : all_flags()) {
    for (const std::string& name : flag.names()) {
      INFO(name);
      CHECK(names.insert(name).second);
      CHECK(find_flag(name)->name == flag.name);
    }
  }
  CHECK(find_flag("no_such_flag") == nullptr);
  CHECK_THROWS_AS(flag_named("no_such_flag"), Failure);
}

// So that the default which --help tells is one that can be typed, and means what is in force without it.
TEST_CASE("setting a flag to its default changes nothing") {
  int typed = 0;
  for (const Flag& flag : all_flags()) {
    const std::string text = flag.show(Settings{});
    // No default, and a batch of 0 sequences, which is none.
    if (text.empty() || flag.name == "train_batch_size") continue;
    INFO("--" << flag.name << " " << text);
    const CommandLine line = parse_command_line({"--" + flag.name + "=" + text});
    CHECK(static_cast<const Settings&>(line) == Settings{});
    CHECK(line.gives(flag.name));
    ++typed;
  }
  CHECK(typed > 30);
}

TEST_CASE("--help explains a flag's meaning, default, ds_config.json key and Trainer name") {
  for (const Flag& flag : all_flags()) {
    const std::string help = help_of(flag);
    INFO(help);
    CHECK_THAT(help, Catch::Contains(flag.help));
    if (flag.file) CHECK_THAT(help, Catch::Contains("ds_config: " + flag.file->name));
    if (flag.names().size() > 1) CHECK_THAT(help, Catch::Contains("Trainer: --" + flag.names().back()));
    if (flag.required) CHECK_THAT(help, Catch::Contains("(required)"));
    // Of these, 0 means none.
    if (default_of(flag).empty() || flag.name == "train_batch_size" || flag.name == "source_length") continue;
    CHECK_THAT(help, Catch::Contains("(default: " + default_of(flag)));
  }
  const auto has_default = [](const char* flag, const std::string& text) {
    CHECK_THAT(help_of(flag_named(flag)), Catch::Contains(fmt::format("(default: {})", text)));
  };
  has_default("learning_rate", "5e-5");
  has_default("bf16", "true");
  has_default("tokenizer", "Qwen/Qwen3-0.6B");
}

TEST_CASE("--help fits the terminal") {
  std::istringstream lines(command_line_help());
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 110);
  for (const char* title : {"Model:", "Data:", "Training loop:", "Checkpoints:"}) {
    CHECK_THAT(command_line_help(), Catch::Contains(title));
  }
}

TEST_CASE("--document_mask is auto, true or false, and true without a value") {
  const auto mask = [](const std::vector<std::string>& flags) { return parse_command_line(flags).document_mask; };
  CHECK_FALSE(mask({}).has_value());
  CHECK_FALSE(mask({"--document_mask=auto"}).has_value());
  CHECK(mask({"--document_mask=false"}) == false);
  CHECK(mask({"--document_mask=true"}) == true);
  CHECK(mask({"--document_mask"}) == true);
  CHECK(flag_named("document_mask").show(parse_command_line({})) == "auto");
}

TEST_CASE("--help=json lists each flag with its accepted values") {
  std::map<std::string, json> by_name;
  const json help = json::parse(command_line_help_json());
  for (const json& group : help["groups"]) {
    for (const json& flag : group["flags"]) by_name[flag["name"]] = flag;
  }
  CHECK(by_name.size() == all_flags().size());
  CHECK(by_name["beta2"].erase("help") == 1);
  CHECK(by_name["beta2"] == json::parse(R"({"name": "beta2", "takes": "X", "type": "number", "minimum": 0.0,
      "less_than": 1.0, "alone": false, "required": false, "default": "0.95",
      "ds_config": "optimizer.params.betas[1]", "trainer": "adam_beta2"})"));
  CHECK(by_name["device"]["choices"] == json({"auto", "cuda", "cpu"}));
  CHECK(by_name["train_data"]["required"] == true);
  CHECK(by_name["train_data"]["default"].is_null());
  CHECK(by_name["seq_length"]["takes"] == "TOKENS");
  CHECK(by_name["rope_theta"]["more_than"] == 0.0);
  CHECK(by_name["max_steps"]["trainer"] == "max_steps");
}

}  // namespace
}  // namespace mpzero
