// The output folder of zero_to_fp32: one export, the former or the new one, whatever happens on the way.

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "io/weights/weights_export.hpp"
#include "tests/io/deadly_disk.hpp"
#include "tests/io/faulty_disk.hpp"
#include "tests/io/weights/export_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;

TEST_CASE("a folder holds one export: a new one of any form replaces one of any form, and other files stay") {
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

TEST_CASE("killed at any call, a conversion leaves the former export or the new one, and the next one continues") {
  const auto [before, after] = GENERATE(from_range(kPairs));
  // With a different config.json or the same.
  const int rope_theta = GENERATE(1, 2);
  const auto moment = GENERATE(DeadlyDisk::Moment::kBefore, DeadlyDisk::Moment::kAfter);
  const MadeUpCheckpoint first(1, 1), second(2, rope_theta);
  const Contents old_export = expected_of(first, kForms[before]);
  const Contents new_export = expected_of(second, kForms[after]);
  const Contents others = {{"tokenizer.json", "{}"}};
  bool was_unloadable = false;
  int kills = 0;
  for (int call = 1;; ++call) {
    CAPTURE(before, after, rope_theta, static_cast<int>(moment), call);
    const TemporaryFolder folder;
    for (const auto& [name, bytes] : old_export) write_file(folder / name, bytes);
    for (const auto& [name, bytes] : others) write_file(folder / name, bytes);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      DeadlyDisk deadly(call, moment, false);
      try {
        export_weights(second, folder.path(), kForms[after].options(), deadly);
        ::_exit(0);
      } catch (const std::exception&) {
        ::_exit(1);
      }
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    const Loads found = what_loads(contents_of(folder.path()), old_export, new_export);
    REQUIRE(found != Loads::kMixed);
    REQUIRE(read_file(folder / "tokenizer.json") == "{}");
    was_unloadable = was_unloadable || found == Loads::kNothing;
    if (!WIFSIGNALED(status)) {
      REQUIRE(WEXITSTATUS(status) == 0);
      REQUIRE(holds_exactly(folder.path(), new_export, others));
      break;
    }
    ++kills;

    // The next conversion completes it even if it fails itself.
    MadeUpCheckpoint damaged(3);
    damaged.damaged = true;
    UnsyncedDisk unsynced;
    CHECK_THROWS_AS(export_weights(damaged, folder.path(), kForms[before].options(), unsynced), UserError);
    const bool is_old = holds_exactly(folder.path(), old_export, others);
    REQUIRE((is_old || holds_exactly(folder.path(), new_export, others)));
    if (is_old) REQUIRE(found != Loads::kNew);
  }
  CHECK(kills >= 10);
  // One file that replaces one file always exists.
  if (before == after && kForms[after].max_shard_bytes != kThreeShards && rope_theta == 1) CHECK(!was_unloadable);
}

TEST_CASE(
    "after a power failure at any call, a folder has the former export or the new one, or the next one completes it") {
  const auto [before, after] = GENERATE(from_range(kPairs));
  const auto seed = GENERATE(range(0U, 5U));
  const MadeUpCheckpoint first(1), second(2);
  const Contents old_export = expected_of(first, kForms[before]);
  const Contents new_export = expected_of(second, kForms[after]);
  for (int call = 1, calls = call; call <= calls; ++call) {
    CAPTURE(before, after, seed, call);
    const TemporaryFolder folder;
    for (const auto& [name, bytes] : old_export) write_file(folder / name, bytes);
    FaultyDisk faulty(folder.path());
    faulty.lose_power_at(call);
    const std::string error =
        message_of([&] { export_weights(second, folder.path(), kForms[after].options(), faulty); });
    calls = faulty.calls();
    faulty.crash(seed);
    REQUIRE(what_loads(contents_of(folder.path()), old_export, new_export) != Loads::kMixed);
    if (error.empty()) REQUIRE(what_loads(contents_of(folder.path()), old_export, new_export) == Loads::kNew);

    MadeUpCheckpoint damaged(3);
    damaged.damaged = true;
    UnsyncedDisk unsynced;
    CHECK_THROWS_AS(export_weights(damaged, folder.path(), kForms[before].options(), unsynced), UserError);
    const Contents left = contents_of(folder.path());
    REQUIRE(what_loads(left, old_export, new_export) != Loads::kNothing);
    // And no file of the other export remains.
    for (const auto& [name, bytes] : left) {
      if (name.starts_with(".zero_to_fp32.")) continue;  // this process's own, which is still running
      REQUIRE((left == old_export || old_export.contains(name) || new_export.contains(name)));
    }
  }
}

TEST_CASE("a failing call leaves the former export, or the new one with the remedy, and names the path") {
  const auto [before, after] = GENERATE(from_range(kPairs));
  const int number = GENERATE(ENOSPC, EIO);
  const MadeUpCheckpoint first(1), second(2);
  const Contents old_export = expected_of(first, kForms[before]);
  const Contents new_export = expected_of(second, kForms[after]);
  for (int call = 1, calls = call; call <= calls; ++call) {
    CAPTURE(before, after, number, call);
    const TemporaryFolder folder;
    for (const auto& [name, bytes] : old_export) write_file(folder / name, bytes);
    FaultyDisk faulty(folder.path());
    faulty.fail_at(call, number, false);
    const std::string error =
        message_of([&] { export_weights(second, folder.path(), kForms[after].options(), faulty); });
    calls = faulty.calls();
    const Loads found = what_loads(contents_of(folder.path()), old_export, new_export);
    REQUIRE(found != Loads::kMixed);
    if (error.empty()) REQUIRE(found == Loads::kNew);
    if (!error.empty()) REQUIRE_THAT(error, Contains(folder.path().string()));
    if (found == Loads::kNothing) REQUIRE_THAT(error, Contains("the next conversion into " + folder.path().string()));
    UnsyncedDisk unsynced;
    export_weights(second, folder.path(), kForms[after].options(), unsynced);
    REQUIRE(what_loads(contents_of(folder.path()), old_export, new_export) == Loads::kNew);
  }
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

TEST_CASE("symbolic links in the folder are not followed") {
  const TemporaryFolder folder, elsewhere;
  write_file(elsewhere / "model.safetensors", "precious");
  const std::string dead = fmt::format(".zero_to_fp32.{}.{}.1.00000000.tmp", host_name(), ::getpid());
  fs::create_symlink(elsewhere.path(), folder / dead);
  export_weights(MadeUpCheckpoint(1), folder.path(), Form{}.options());
  for (const char* name : {".zero_to_fp32.ready", ".zero_to_fp32.lock"}) {
    const fs::path target = GENERATE(true, false) ? elsewhere.path() : elsewhere / "model.safetensors";
    fs::create_symlink(target, folder / name);
    CHECK_THAT(message_of([&] { export_weights(MadeUpCheckpoint(2), folder.path(), Form{}.options()); }),
               Contains((folder / name).string()));
    fs::remove(folder / name);
  }
  CHECK(contents_of(elsewhere.path()) == Contents{{"model.safetensors", "precious"}});
}

TEST_CASE("a folder created by a failed conversion is removed") {
  const TemporaryFolder folder;
  MadeUpCheckpoint damaged(1);
  damaged.damaged = true;
  CHECK_THROWS_AS(export_weights(damaged, folder / "out", Form{}.options()), UserError);
  CHECK(!fs::exists(folder / "out"));
}

TEST_CASE("config.json gets the class of its model_type where it has no architectures") {
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

TEST_CASE("config.json gets the ids that end and begin the documents of the data, and keeps its own") {
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
