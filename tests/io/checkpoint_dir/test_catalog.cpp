// Checkpoints that are not damaged but cannot be read: the system denies access, or a newer mpzero wrote them.

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "io/files/retry.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/faulty_disk.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

using Names = std::vector<std::string>;

std::string save_as(const fs::path& dir, const std::string& run_id, int64_t step, int64_t keep_last = 0,
                    std::vector<Leftover>* unread = nullptr) {
  const auto model = small_model();
  SaveJob job = job_of(dir, run_id, step, model);
  job.keep_last = keep_last;
  UnsyncedDisk files;
  SingleProcess alone;
  return message_of([&] {
    const Published published = save_checkpoint(job, SnapshotValues(job, 1).get(), alone, files);
    if (unread != nullptr) *unread = published.unread;
  });
}

// Gives the manifest another format version and a matching checksum.
void set_version(const fs::path& checkpoint, const nlohmann::json& version) {
  const fs::path path = checkpoint / kManifestName;
  nlohmann::json content = nlohmann::json::parse(read_file(path)).at("content");
  content["format_version"] = version;
  const std::string text = content.dump();
  write_file(path, fmt::format("{{\"content\":{},\n\"content_xxh3_64\":\"{}\"}}\n", text,
                               to_hex(checksum(std::as_bytes(std::span(text))))));
}

// The system refuses to open the manifest, also for root: too many symbolic links.
void make_unreadable(const fs::path& checkpoint) {
  fs::remove(checkpoint / kManifestName);
  fs::create_symlink(kManifestName, checkpoint / kManifestName);
}

}  // namespace

TEST_CASE("a manifest with a different format version does not count as damaged") {
  const TemporaryFolder folder;
  REQUIRE(save_as(folder.path(), kOurs, 1) == "");
  const nlohmann::json version =
      GENERATE(nlohmann::json(2), nlohmann::json(1.0), nlohmann::json(1.9), nlohmann::json(4294967297),
               nlohmann::json(18446744073709551615ULL), nlohmann::json("1"));
  set_version(folder / "tiny-1steps", version);
  try {
    read_manifest(folder / "tiny-1steps");
    FAIL("version " << version.dump() << " was taken for 1");
  } catch (const Error& error) {
    CHECK(dynamic_cast<const Damaged*>(&error) == nullptr);
    CHECK_THAT(error.what(),
               Contains("format version " + version.dump()) && Contains("use the version of mpzero that wrote"));
  }
  // A flipped digit does not make a newer version.
  std::string text = read_file(folder / "tiny-1steps/manifest.json");
  text.replace(text.find("saved_at"), 5, "faved");
  write_file(folder / "tiny-1steps/manifest.json", text);
  CHECK_THROWS_AS(read_manifest(folder / "tiny-1steps"), Damaged);
}

TEST_CASE("a number in a manifest that is not a 64-bit integer is damage") {
  // Found by a fuzzer: the conversion to int64_t is undefined.
  for (const char* number : {"4.1943066666666666e22", "18446744073709551615", "1.5", "true"}) {
    const std::string text = fmt::format(R"({{"name": "a.pt", "size": {}, "has_own_checksums": true}})", number);
    INFO(text);
    CHECK_THROWS_AS(manifest_file_from_text(text), std::invalid_argument);
  }
}

TEST_CASE("an unreadable checkpoint that may be complete is not skipped, replaced or pruned") {
  const TemporaryFolder folder;
  for (const int step : {1, 2, 3}) REQUIRE(save_as(folder.path(), kOurs, step) == "");
  SECTION("the system does not open it") { make_unreadable(folder / "tiny-2steps"); }
  SECTION("it is of a newer format") { set_version(folder / "tiny-2steps", 2); }

  const std::vector<CatalogEntry> entries = list_checkpoints(folder.path());
  REQUIRE(entries.size() == 3);
  CHECK(entries.back().tag == "tiny-2steps");
  CHECK(entries.back().may_be_complete);
  CHECK(entries.back().problem != "");
  // The one that `latest` names comes first, then this one, then all that are known to be older.
  const std::vector<fs::path> folders = resume_candidates(folder.path(), "tiny").folders;
  CHECK(folders == std::vector<fs::path>{folder / "tiny-3steps", folder / "tiny-2steps", folder / "tiny-1steps"});

  CHECK_THAT(save_as(folder.path(), kOurs, 2), Contains("tiny-2steps") && Contains("not replaced"));
  std::vector<Leftover> unread;
  CHECK(save_as(folder.path(), kOurs, 4, /*keep_last=*/1, &unread) == "");
  REQUIRE(unread.size() == 1);
  CHECK(unread.front().path == folder / "tiny-2steps");
  CHECK(names_in(folder.path()) == Names{"latest", "tiny-2steps", "tiny-4steps"});
}

TEST_CASE("a checkpoint with a readable manifest and an unreadable file is never pruned") {
  const TemporaryFolder folder;
  for (const int step : {1, 2}) REQUIRE(save_as(folder.path(), kOurs, step) == "");
  const fs::path file = folder / "tiny-1steps/mp_rank_00_model_states.h5";
  SECTION("the system does not look at it") {
    fs::remove(file);
    fs::create_symlink(file.filename(), file);
    CHECK(save_as(folder.path(), kOurs, 3, /*keep_last=*/1) == "");
    CHECK(names_in(folder.path()) == Names{"latest", "tiny-1steps", "tiny-3steps"});
  }
  SECTION("it is missing, which is damage") {
    fs::remove(file);
    CHECK(save_as(folder.path(), kOurs, 3, /*keep_last=*/1) == "");
    CHECK(names_in(folder.path()) == Names{"latest", "tiny-3steps"});
  }
}

TEST_CASE("a checkpoint without a manifest is never pruned") {
  const TemporaryFolder folder;
  REQUIRE(save_as(folder.path(), kOurs, 2) == "");
  fs::create_directory(folder / "tiny-1steps");
  SECTION("it is DeepSpeed's own") { write_file(folder / "tiny-1steps/mp_rank_00_model_states.pt", "x"); }
  SECTION("it is not known what it is") { write_file(folder / "tiny-1steps/notes", "x"); }
  const std::vector<CatalogEntry> entries = list_checkpoints(folder.path());
  REQUIRE(entries.size() == 2);
  CHECK_FALSE(entries.back().may_be_complete);
  CHECK(checkpoints_to_prune(folder.path(), entries, 1, [](const CatalogEntry&) { return true; }).empty());
}

TEST_CASE("a damaged checkpoint is skipped and replaced") {
  const TemporaryFolder folder;
  for (const int step : {1, 2}) REQUIRE(save_as(folder.path(), kOurs, step) == "");
  SECTION("no manifest") { fs::remove(folder / "tiny-2steps/manifest.json"); }
  SECTION("no JSON") { write_file(folder / "tiny-2steps/manifest.json", "{"); }
  SECTION("a file is missing") { fs::remove(folder / "tiny-2steps/mp_rank_00_model_states.h5"); }
  for (const CatalogEntry& entry : list_checkpoints(folder.path())) CHECK_FALSE(entry.may_be_complete);
  CHECK_THROWS_AS(open_hdf5(folder / "tiny-2steps"), Damaged);
  CHECK(save_as(folder.path(), kOurs, 2) == "");
}

TEST_CASE("if `latest` cannot be read because of a system error, no other checkpoint is used") {
  const TemporaryFolder folder;
  REQUIRE(save_as(folder.path(), kOurs, 1) == "");
  fs::remove(folder / "latest");
  fs::create_symlink("latest", folder / "latest");
  CHECK_THROWS_WITH(resume_candidates(folder.path(), "tiny"), Contains("latest") && Contains("symbolic links"));
}

TEST_CASE("a transient error is retried with pauses, and any other error is reported immediately") {
  std::vector<int> pauses;
  const Patience patience{.attempts = 4, .wait = [&](std::chrono::milliseconds pause) {
                            pauses.push_back(static_cast<int>(pause.count()));
                          }};
  const auto failing = [](int times, int error) {
    return [times, error]() mutable {
      if (times-- > 0) throw_system_error("read", "file", error);
    };
  };
  for (const int error : {ESTALE, EIO, EAGAIN, EINTR}) {
    pauses.clear();
    CHECK_NOTHROW(retry_reading(failing(3, error), patience));
    CHECK(pauses == std::vector<int>{50, 100, 200});
    CHECK_THROWS_AS(retry_reading(failing(4, error), patience), Failure);
  }
  for (const int error : {EACCES, EMFILE, ENOENT}) {
    pauses.clear();
    CHECK_THROWS_AS(retry_reading(failing(1, error), patience), UserError);
    CHECK(pauses.empty());
  }
  CHECK_THROWS_AS(retry_reading([] { throw Damaged("it is damaged"); }, patience), Damaged);
  CHECK(pauses.empty());
}

}  // namespace mpzero::io
