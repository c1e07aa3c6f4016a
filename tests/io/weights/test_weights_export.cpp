// The output folder of zero_to_fp32: one export, the former or the new one, whatever happens on the way.

#include <cerrno>

#include "base/error.hpp"
#include "io/weights/weights_export.hpp"
#include "tests/io/faulty_disk.hpp"
#include "tests/io/weights/export_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;

TEST_CASE("a folder contains one export: a new export of any form replaces one of any form, and other files are kept") {
  const size_t before = GENERATE(range(0, 5));
  const size_t after = GENERATE(range(0, 5));
  CAPTURE(before, after);
  const TemporaryFolder folder;
  const Contents others = {{"tokenizer.json", "{}"},
                           {"model_card.safetensors", "not ours"},
                           {"model-1.safetensors", "nor this"},
                           {"pytorch_model_lora.bin", "nor this"}};
  for (const auto& [name, text] : others) write_file(folder / name, text);
  UnsyncedDisk unsynced;
  const MadeUpCheckpoint first(1), second(2);
  CHECK(export_weights(first, folder.path(), kForms[before].options(), unsynced).replaced.empty());
  const Contents former = expected_of(first, kForms[before]);
  REQUIRE(holds_exactly(folder.path(), former, others));
  const Exported exported = export_weights(second, folder.path(), kForms[after].options(), unsynced);
  CHECK(holds_exactly(folder.path(), expected_of(second, kForms[after]), others));
  CHECK(exported.replaced == names_of(former));
}

namespace {

constexpr const char* kStaging = ".zero_to_fp32.tmp";

// Deletes the staging folder as an error tells the user, and converts again.
void convert_again(const fs::path& folder, const MadeUpCheckpoint& checkpoint, const Form& form) {
  UnsyncedDisk unsynced;
  if (fs::exists(folder / kStaging)) {
    const std::string error = message_of([&] { export_weights(checkpoint, folder, form.options(), unsynced); });
    REQUIRE_THAT(error, Contains("delete " + (folder / kStaging).string()));
    fs::remove_all(folder / kStaging);
  }
  export_weights(checkpoint, folder, form.options(), unsynced);
}

}  // namespace

TEST_CASE("after a power failure at any call, a folder contains the previous export, the new one or none") {
  const auto [before, after] = GENERATE(from_range(kPairs));
  const auto seed = GENERATE(range(0U, 5U));
  const MadeUpCheckpoint first(1), second(2);
  const Contents old_export = expected_of(first, kForms[before]);
  const Contents new_export = expected_of(second, kForms[after]);
  bool reached = true;
  for (int call = 1; reached; ++call) {
    CAPTURE(before, after, seed, call);
    const TemporaryFolder folder;
    for (const auto& [name, bytes] : old_export) write_file(folder / name, bytes);
    FaultyDisk faulty(folder.path());
    faulty.lose_power_at(call);
    const std::string error =
        message_of([&] { export_weights(second, folder.path(), kForms[after].options(), faulty); });
    reached = faulty.calls() >= call;
    faulty.crash(seed);
    const Loads found = what_loads(contents_of(folder.path()), old_export, new_export);
    REQUIRE(found != Loads::kMixed);
    if (error.empty()) REQUIRE(found == Loads::kNew);
    convert_again(folder.path(), second, kForms[after]);
    REQUIRE(holds_exactly(folder.path(), new_export));
  }
}

TEST_CASE("a failing call leaves the previous export, the new one, or none with a remedy, and reports the path") {
  const auto [before, after] = GENERATE(from_range(kPairs));
  const int number = GENERATE(ENOSPC, EIO);
  const MadeUpCheckpoint first(1), second(2);
  const Contents old_export = expected_of(first, kForms[before]);
  const Contents new_export = expected_of(second, kForms[after]);
  bool reached = true;
  for (int call = 1; reached; ++call) {
    CAPTURE(before, after, number, call);
    const TemporaryFolder folder;
    for (const auto& [name, bytes] : old_export) write_file(folder / name, bytes);
    FaultyDisk faulty(folder.path());
    faulty.fail_at(call, number, false);
    const std::string error =
        message_of([&] { export_weights(second, folder.path(), kForms[after].options(), faulty); });
    reached = faulty.calls() >= call;
    const Loads found = what_loads(contents_of(folder.path()), old_export, new_export);
    REQUIRE(found != Loads::kMixed);
    if (error.empty()) REQUIRE(found == Loads::kNew);
    if (!error.empty()) REQUIRE_THAT(error, Contains(folder.path().string()));
    if (found == Loads::kNothing) REQUIRE_THAT(error, Contains("run the conversion again"));
    convert_again(folder.path(), second, kForms[after]);
    REQUIRE(holds_exactly(folder.path(), new_export));
  }
}

TEST_CASE("a conversion whose staging folder is deleted, even for another conversion, changes nothing") {
  const bool another_began = GENERATE(false, true);
  const TemporaryFolder folder;
  export_weights(MadeUpCheckpoint(1), folder.path(), Form{}.options());
  MadeUpCheckpoint second(2);
  second.on_verify = [&] {
    fs::remove_all(folder / kStaging);
    if (another_began) fs::create_directory(folder / kStaging);
  };
  // The folder is missing when config.json is written, or belongs to another conversion.
  const std::string error = message_of([&] { export_weights(second, folder.path(), Form{}.options()); });
  CHECK_THAT(error, Contains((folder / kStaging).string()));
  CHECK(fs::exists(folder / kStaging) == another_began);
  fs::remove_all(folder / kStaging);
  CHECK(holds_exactly(folder.path(), expected_of(MadeUpCheckpoint(1), Form{})));
}

TEST_CASE("an export that does not fit on the disk is refused before anything is written") {
  const TemporaryFolder folder;
  const Contents former = expected_of(MadeUpCheckpoint(1), Form{});
  for (const auto& [name, bytes] : former) write_file(folder / name, bytes);
  MadeUpCheckpoint huge(2);
  huge.specs = {{"model.embed_tokens.weight", {int64_t{1} << 30, int64_t{1} << 20}}};
  const std::string error = message_of([&] { export_weights(huge, folder.path(), Form{}.options()); });
  CHECK_THAT(error, Contains("4503599.627 GB") && Contains(folder.path().string()) && Contains("free some space"));
  CHECK(holds_exactly(folder.path(), former));
}

TEST_CASE("a folder with the name of an exported file is refused before anything changes") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "pytorch_model.bin");
  write_file(folder / "model.safetensors", "the former");
  const std::string error = message_of([&] { export_weights(MadeUpCheckpoint(1), folder.path(), Form{}.options()); });
  CHECK_THAT(error, Contains((folder / "pytorch_model.bin").string()) && Contains("OUTPUT_DIR"));
  CHECK(holds_exactly(folder.path(), {{"model.safetensors", "the former"}, {"pytorch_model.bin", "a folder"}}));
}

TEST_CASE("a symbolic link in place of the staging folder is not followed") {
  const TemporaryFolder folder, elsewhere;
  write_file(elsewhere / "model.safetensors", "precious");
  fs::create_symlink(GENERATE(true, false) ? elsewhere.path() : elsewhere / "model.safetensors", folder / kStaging);
  CHECK_THAT(message_of([&] { export_weights(MadeUpCheckpoint(2), folder.path(), Form{}.options()); }),
             Contains((folder / kStaging).string()));
  CHECK(contents_of(elsewhere.path()) == Contents{{"model.safetensors", "precious"}});
}

TEST_CASE("a folder created by a failed conversion is removed") {
  const TemporaryFolder folder;
  MadeUpCheckpoint damaged(1);
  damaged.damaged = true;
  CHECK_THROWS_AS(export_weights(damaged, folder / "out", Form{}.options()), UserError);
  CHECK(!fs::exists(folder / "out"));
}

TEST_CASE("config.json gets the class of its model_type if it has no architectures") {
  const MadeUpCheckpoint checkpoint(1);
  ExportOptions options = Form{}.options();
  options.causal_lm_class = [](const std::string& model_type) {
    return model_type == "new" ? std::string("NewForCausalLM") : std::string();
  };
  const auto architectures = [&](const std::string& config) {
    options.model_config_json = config;
    const auto exported = nlohmann::json::parse(exported_config(checkpoint, options));
    return exported.contains("architectures") ? exported.at("architectures").dump() : "none";
  };
  CHECK(architectures(R"({"model_type": "new"})") == R"(["NewForCausalLM"])");
  CHECK(architectures(R"({"model_type": "new", "architectures": ["Mine"]})") == R"(["Mine"])");
  CHECK(architectures(R"({"model_type": "gpt2"})") == "none");
  CHECK(architectures(R"({"model_type": 7})") == "none");
  CHECK(architectures("{}") == "none");
}

TEST_CASE("config.json gets the BOS and EOS ids of the data, and keeps its own") {
  const MadeUpCheckpoint checkpoint(1);
  ExportOptions options = Form{}.options();
  const auto exported = [&](const std::string& config) {
    options.model_config_json = config;
    return nlohmann::json::parse(exported_config(checkpoint, options));
  };
  CHECK(exported(R"({"eos_token_id": 2})")["eos_token_id"] == 2);
  CHECK_FALSE(exported("{}").contains("eos_token_id"));
  options.eos_token_ids = {0, 2, 0};
  options.bos_token_id = 1;
  CHECK(exported(R"({"eos_token_id": 2})")["eos_token_id"] == nlohmann::json({2, 0}));
  CHECK(exported(R"({"eos_token_id": [5, 0]})")["eos_token_id"] == nlohmann::json({5, 0, 2}));
  CHECK(exported(R"({"eos_token_id": null, "bos_token_id": null})")["eos_token_id"] == nlohmann::json({0, 2}));
  CHECK(exported("{}")["bos_token_id"] == 1);
  CHECK(exported(R"({"bos_token_id": 9})")["bos_token_id"] == 9);
  options.eos_token_ids = {2};
  CHECK(exported("{}")["eos_token_id"] == 2);
}

}  // namespace mpzero::io
