#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/deepspeed/folder.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/deepspeed_fixture.hpp"

// Files of different saves in one folder: each is intact by itself, but together they are not a checkpoint.
namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

constexpr const char* kTag = "tiny-6steps";

// The error of verifying the checkpoint. Empty if there is none. Converting it and resuming on two ranks must fail or
// succeed alike.
std::string problem_of(const fs::path& folder, uint32_t generation) {
  const std::string of_verify = message_of([&] { open_checkpoint(folder)->verify(); });
  bool same = false;
  const std::string of_export = message_of([&] { same = holds_what_was_saved(folder, 1, generation); });
  CHECK(same == of_export.empty());
  ThreadGroup group(2);
  const std::vector<std::string> of_ranks = group.run([&](ProcessGroup& ranks) {
    std::unique_ptr<StoredCheckpoint> checkpoint;
    run_on_all_ranks(ranks, [&] { checkpoint = open_checkpoint(folder); });
    run_on_all_ranks(ranks, [&] {
      for (const UnitSpec& unit : transformer()) {
        const UnitShard shard = shard_of(unit, ranks.rank(), 2, Split::kEven);
        std::vector<float> out(static_cast<size_t>(shard.count));
        checkpoint->read_unit(unit, StateKind::kMaster, shard.begin, out);
      }
    });
    checkpoint->verify_what_was_read(ranks);
  });
  CHECK(of_ranks[0] == of_ranks[1]);
  CHECK(of_verify.empty() == of_export.empty());
  CHECK(of_verify.empty() == of_ranks[0].empty());
  return of_verify;
}

// Reads the manifest's `content`, and writes it with a matching `content_xxh3_64`.
nlohmann::json content_of(const fs::path& folder) {
  return nlohmann::json::parse(read_file(folder / kManifestName)).at("content");
}
void write_content(const fs::path& folder, const nlohmann::json& content) {
  const std::string text = content.dump();
  write_file(folder / kManifestName,
             nlohmann::json{{"content", content}, {"content_xxh3_64", to_hex(checksum(std::as_bytes(std::span(text))))}}
                 .dump());
}

void remove_from_manifest(const fs::path& folder, const std::string& name) {
  nlohmann::json content = content_of(folder);
  nlohmann::json kept = nlohmann::json::array();
  for (const nlohmann::json& file : content["files"]) {
    if (file["name"] != name) kept.push_back(file);
  }
  REQUIRE(kept.size() + 1 == content["files"].size());
  content["files"] = kept;
  write_content(folder, content);
}

std::vector<std::string> archives_in(const fs::path& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".pt"); });
  return names;
}

// Replaces a file, and its folder, by those of another save.
void take_over(const fs::path& from, const fs::path& to, const std::string& name) {
  fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing);
}

}  // namespace

TEST_CASE("mpzero's checkpoint in DeepSpeed's format is rejected without its manifest") {
  const TemporaryFolder folder;
  for (const int stage : {2, 3}) {
    require_saved(folder.path(), kTag, {.stage = stage, .ranks = 2});
    fs::remove(folder / kTag / kManifestName);
    CHECK_THAT(message_of([&] { open_checkpoint(folder / kTag); }), Contains("has no manifest.json"));
    fs::remove_all(folder / kTag);
  }
}

TEST_CASE("a DeepSpeed checkpoint that kept mpzero's client state is not mistaken for mpzero's") {
  for (const int stage : {2, 3}) {
    const TemporaryFolder folder;
    const fs::path tag = folder / kTag;
    require_saved(folder.path(), kTag, {.stage = stage, .ranks = 2, .step = 6, .generation = 1});
    fs::remove(tag / kManifestName);
    // The pickle's key and BININT with the value: more samples than when mpzero saved its entry.
    for (const std::string& name : names_in(tag)) {
      if (!name.ends_with("model_states.pt")) continue;
      const std::string bytes = read_file(tag / name);
      const std::string before("J\x30\0\0\0", 5);
      const size_t at = bytes.find("global_samples");
      const size_t value = bytes.find(before, at);
      REQUIRE((at != std::string::npos && value < at + 20));
      std::string key_and_value = bytes.substr(at, value + before.size() - at);
      const std::string from = key_and_value;
      key_and_value[value + 1 - at] = '\x40';
      edit_pickle(tag / name, from, key_and_value);
    }
    CHECK(problem_of(tag, 1).empty());
    const auto checkpoint = open_checkpoint(tag);
    CHECK_FALSE(checkpoint->made_by_mpzero());
    CHECK(checkpoint->progress().step == 6);
    CHECK(checkpoint->progress().sequences_seen == 64);
    CHECK(checkpoint->progress().model_config_json == R"({"model_type": "qwen3"})");
  }
}

TEST_CASE("every file that the checkpoint needs is listed, and every listed file exists") {
  const TemporaryFolder folder;
  const fs::path tag = folder / kTag;
  for (const int stage : {2, 3}) {
    const Saved how{.stage = stage, .ranks = 3};
    require_saved(folder.path(), kTag, how);
    const std::vector<std::string> names = archives_in(tag);
    for (const std::string& name : names) {
      INFO(name);
      const std::string bytes = read_file(tag / name);
      const std::string manifest = read_file(tag / kManifestName);
      remove_from_manifest(tag, name);
      CHECK_THAT(message_of([&] { open_checkpoint(tag); }), Contains(name) && Contains("is damaged"));
      write_file(tag / kManifestName, manifest);
      fs::remove(tag / name);
      CHECK(!message_of([&] { open_checkpoint(tag); }).empty());
      write_file(tag / name, bytes);
    }
    CHECK(message_of([&] { open_checkpoint(tag)->verify(); }).empty());
    fs::remove_all(tag);
  }
}

TEST_CASE("an HDF5 checkpoint whose manifest lacks a shard is damaged") {
  const TemporaryFolder folder;
  save(folder.path(), kTag, progress_at(6), small_model(), 2);
  const std::string manifest = read_file(folder / kTag / kManifestName);
  for (const std::string& name : names_in(folder / kTag)) {
    if (!name.ends_with("optim_states.h5")) continue;
    remove_from_manifest(folder / kTag, name);
    CHECK_THAT(message_of([&] { open_hdf5(folder / kTag)->verify(); }),
               Contains("manifest.json is damaged: the master shards of unit embedding do not add up"));
    write_file(folder / kTag / kManifestName, manifest);
  }
  CHECK(message_of([&] { open_hdf5(folder / kTag)->verify(); }).empty());
}

// Their manifests have only the names and sizes of the archives.
TEST_CASE("checkpoints with older manifests without archive checksums load, and their steps are compared") {
  const TemporaryFolder folder;
  const Saved how{.stage = 2, .ranks = 2, .step = 6, .generation = 1};
  Saved older = how;
  older.step = 3;
  older.generation = 2;
  require_saved(folder.path(), kTag, how);
  require_saved(folder.path(), "older-3steps", older);
  nlohmann::json content = content_of(folder / kTag);
  for (nlohmann::json& file : content["files"]) REQUIRE(file.erase("directory_xxh3_64") == 1);
  write_content(folder / kTag, content);
  CHECK(problem_of(folder / kTag, 1).empty());
  const std::string name = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
  take_over(folder / "older-3steps", folder / kTag, name);
  CHECK_THAT(problem_of(folder / kTag, 1), Contains(name) && Contains("3 AdamW updates"));
}

// DeepSpeed before 0.13.5; see DeepSpeed's pull request 5104.
TEST_CASE("DeepSpeed files whose AdamW step count is one too high are read with a warning") {
  for (const int stage : {2, 3}) {
    for (const int64_t counted : {5, 7, 8}) {
      INFO("stage " << stage << ", AdamW counts " << counted << " of 6 updates");
      const TemporaryFolder folder;
      const Saved how{.stage = stage, .ranks = 3, .step = 6, .generation = 1};
      Saved other = how;
      other.step = counted;
      require_stock(folder.path(), "other-6steps", other);
      require_stock(folder.path(), kTag, how);
      std::vector<std::string> files = archives_in(folder / kTag);
      std::erase_if(files, [](const std::string& name) { return !name.ends_with("optim_states.pt"); });
      for (const std::string& name : files) {
        const std::string own = read_file(folder / kTag / name);
        take_over(folder / "other-6steps", folder / kTag, name);
        CHECK_THAT(problem_of(folder / kTag, 1), Contains("from different saves"));
        write_file(folder / kTag / name, own);
      }
      for (const std::string& name : files) take_over(folder / "other-6steps", folder / kTag, name);
      if (counted != 7) {
        CHECK_THAT(problem_of(folder / kTag, 1), Contains(fmt::format("{} AdamW updates", counted)));
        continue;
      }
      CHECK(problem_of(folder / kTag, 1).empty());
      const auto checkpoint = open_checkpoint(folder / kTag);
      CHECK(checkpoint->progress().step == 6);
      REQUIRE(checkpoint->warnings().size() == 1);
      CHECK_THAT(checkpoint->warnings()[0],
                 Contains("is at step 6, but every rank records 7 AdamW updates") && Contains("before 0.13.5"));
    }
  }
}

// DeepSpeed's files do not record their rank.
TEST_CASE("in a DeepSpeed checkpoint, a rank's file is rejected for another rank") {
  for (const int stage : {2, 3}) {
    const TemporaryFolder folder;
    const fs::path tag = folder / kTag;
    // The last rank's file is left out: its partition is shorter, which identifies it.
    require_stock(folder.path(), kTag, {.stage = stage, .ranks = 4, .step = 6, .generation = 1});
    REQUIRE(problem_of(tag, 1).empty());
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        if (from == to) continue;
        const fs::path file = tag / deepspeed_optimizer_file(/*bf16=*/false, to);
        const std::string own = read_file(file);
        write_file(file, read_file(tag / deepspeed_optimizer_file(/*bf16=*/false, from)));
        CHECK_THAT(problem_of(tag, 1), Contains(deepspeed_optimizer_file(false, std::max(from, to))) &&
                                           Contains(deepspeed_optimizer_file(false, std::min(from, to))) &&
                                           Contains("is damaged: the file is identical to"));
        write_file(file, own);
      }
    }
    CHECK(problem_of(tag, 1).empty());
  }
}

// Recorded runs of DeepSpeed 0.19.8, with its AdamW on the CPU.
TEST_CASE("files written by DeepSpeed itself are recognized as one save") {
  for (const char* run : {"tiny-qwen3-zero2-fp32", "tiny-qwen3-zero2-bf16", "tiny-llama-zero3-fp32"}) {
    INFO(run);
    const fs::path folder = fs::path(MPZERO_SOURCE_DIR) / "tests/golden" / run / "deepspeed/global_step6";
    const auto checkpoint = open_checkpoint(folder);
    CHECK(checkpoint->progress().step == 6);
    CHECK_FALSE(checkpoint->made_by_mpzero());
    CHECK(checkpoint->run().id.empty());
    checkpoint->verify();
    const TemporaryFolder copy;
    fs::copy(folder, copy.path(), fs::copy_options::recursive);
    for (const std::string& name : names_in(copy.path())) {
      if (!name.ends_with("model_states.pt")) continue;
      // The pickle's key, its place in the memo, and BININT1 with the value.
      const std::string bytes = read_file(copy / name);
      const size_t at = bytes.find("global_steps");
      const size_t value = bytes.find("K\6", at);
      REQUIRE((at != std::string::npos && value < at + 20));
      const std::string from = bytes.substr(at, value + 2 - at);
      edit_pickle(copy / name, from, from.substr(0, from.size() - 1) + '\4');
      CHECK_THAT(message_of([&] { open_checkpoint(copy.path())->verify(); }), Contains("different saves"));
    }
  }
}

}  // namespace mpzero::io
