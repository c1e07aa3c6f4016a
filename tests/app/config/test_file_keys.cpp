#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/flags/training_flags.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"

// Flags and the keys of ds_config.json that set the same, for each flag that names one.
namespace mpzero {
namespace {

using Catch::Contains;
using nlohmann::json;

json default_file() { return json::parse(R"({"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW"}})"); }

// `key` as --help has it: "optimizer.params.betas[1]".
void set_key(json& file, std::string key, const json& value) {
  if (key.ends_with(']')) {
    key = key.substr(0, key.find('['));
    return set_key(file, key, json::array({value, value}));
  }
  std::replace(key.begin(), key.end(), '.', '/');
  file[json::json_pointer("/" + key)] = value;
}

// A value that differs from the default, and another; as the kind of the flag needs them.
std::pair<json, json> two_values(const Flag& flag) {
  if (flag.is_boolean()) return {true, false};
  if (std::holds_alternative<Real>(flag.value)) return {0.5, 0.25};
  if (std::holds_alternative<Names>(flag.value)) return {json::array({"a"}), json::array({"b"})};
  return {3, 5};
}

std::vector<Flag> flags_with_keys() {
  std::vector<Flag> flags;
  for (const FlagGroup& group : training_flags()) {
    for (const Flag& flag : group.flags) {
      if (flag.file && !std::holds_alternative<std::monostate>(flag.file->read)) flags.push_back(flag);
    }
  }
  return flags;
}

std::string write(const Flag& flag, const json& value) {
  return "--" + flag.name + "=" + (value.is_array() ? value[0].get<std::string>() : value.dump());
}

TEST_CASE("a key and its flag must have the same value, unless the flag overrides the key") {
  CHECK(flags_with_keys().size() == 20);
  for (const Flag& flag : flags_with_keys()) {
    INFO(flag.name << " and " << flag.file->name);
    const auto& [of_file, of_flag] = two_values(flag);
    json file = default_file();
    set_key(file, flag.file->name, of_file);
    const std::string refused =
        fmt::format("--{} {} but {} {}", flag.name, of_flag.dump(), flag.file->name, of_file.dump());
    if (flag.file->conflict == FileKey::Conflict::kFlagHolds) {
      CHECK(flag.to_json(run(file.dump(), {write(flag, of_flag)}).config) == of_flag);
    } else {
      CHECK_THAT(error_of(file.dump(), {write(flag, of_flag)}), Contains(refused));
    }
  }
}

TEST_CASE("a value from the file is the flag's value and is reported as its origin") {
  for (const Flag& flag : flags_with_keys()) {
    INFO(flag.name << " and " << flag.file->name);
    // 4 sequences on each of 2 ranks.
    const json of_file = flag.name == "train_batch_size" ? json(8) : two_values(flag).first;
    json file = default_file();
    set_key(file, flag.file->name, of_file);
    const RunConfig config = run(file.dump()).config;
    CHECK(flag.to_json(config) == of_file);
    CHECK(config.origins.of(flag.name).kind == Origin::Kind::kFile);
    CHECK(config.origins.of(flag.name).name == flag.file->name);
  }
}

}  // namespace
}  // namespace mpzero
