#include <map>
#include <nlohmann/json.hpp>
#include <set>

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
