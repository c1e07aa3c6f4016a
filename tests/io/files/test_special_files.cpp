// A FIFO, a socket or a device under the name of a file. Opening a FIFO would wait for ever, a device may have no end.

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/data/token_dataset.hpp"
#include "io/files/open_folder.hpp"
#include "io/locks/folder_lock.hpp"
#include "io/weights/folder_weights.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/deepspeed_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

using Names = std::vector<std::string>;

void make_fifo(const fs::path& path) {
  fs::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
}

void make_socket(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.string().size() < sizeof address.sun_path);
  std::strcpy(address.sun_path, path.c_str());
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::close(descriptor);
}

std::string sentence_of(const fs::path& path) {
  return path.string() + " is a FIFO, a socket or a device; delete it or use another path";
}

}  // namespace

TEST_CASE("only regular files are opened for reading") {
  const TemporaryFolder folder;
  const fs::path path = folder / "file";
  SECTION("a FIFO") { make_fifo(path); }
  SECTION("a socket") { make_socket(path); }
  SECTION("a device") { fs::create_symlink("/dev/zero", path); }
  SECTION("a link to a FIFO") {
    make_fifo(folder / "fifo");
    fs::create_symlink("fifo", path);
  }
  CHECK_THROWS_WITH(File::open_for_reading(path), sentence_of(path));
  CHECK_THROWS_WITH(OpenFolder(folder.path()).open("file"), sentence_of(path));
  // It is not damage: no older checkpoint is used in its place.
  CHECK_THROWS_AS(File::open_for_reading(path), UserError);
  CHECK(message_of([&] {
          try {
            File::open_for_reading(path);
          } catch (const Damaged&) {
            throw Failure("damaged");
          }
        }) != "damaged");
}

TEST_CASE("a folder is not opened as a file") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(File::open_for_reading(folder.path()), Contains("Is a directory"));
}

TEST_CASE("a FIFO in place of any file of a checkpoint is refused by name") {
  const TemporaryFolder folder;
  SECTION("of mpzero's format") {
    REQUIRE(save(folder.path(), "tiny-1steps", progress_at(1), small_model(), 1) == Names{""});
  }
  SECTION("of DeepSpeed's format") { require_saved(folder.path(), "tiny-1steps", {}); }
  const fs::path checkpoint = folder / "tiny-1steps";
  for (const std::string& name : names_in(checkpoint)) {
    CAPTURE(name);
    const std::string content = read_file(checkpoint / name);
    make_fifo(checkpoint / name);
    const std::vector<CatalogEntry> entries = list_checkpoints(folder.path());
    REQUIRE(entries.size() == 1);
    CHECK_THAT(entries.front().problem, Contains((checkpoint / name).string()));
    CHECK_THAT(message_of([&] { open_checkpoint(checkpoint)->verify(); }), Contains((checkpoint / name).string()));
    fs::remove(checkpoint / name);
    write_file(checkpoint / name, content);
    CHECK(message_of([&] { open_checkpoint(checkpoint)->verify(); }) == "");
  }
  make_fifo(folder / "latest");
  CHECK_THROWS_WITH(latest_checkpoint(folder.path()), sentence_of(folder / "latest"));
  CHECK_THROWS_WITH(resume_candidates(folder.path(), "tiny"), sentence_of(folder / "latest"));
}

TEST_CASE("a lock file must be a regular file, since it is written to") {
  const TemporaryFolder folder;
  const FolderLock::Options options{.reach = LockReach::kThisHost, .renewal = std::chrono::milliseconds(0)};
  write_file(folder / "other", "content");
  SECTION("a link") { fs::create_symlink("other", folder / ".lock"); }
  SECTION("a FIFO") { make_fifo(folder / ".lock"); }
  CHECK_THROWS_WITH(FolderLock(folder.path(), options), Contains((folder / ".lock").string()));
  CHECK(read_file(folder / "other") == "content");
}

TEST_CASE("a FIFO in place of an owner's record, weights or token files is refused by name") {
  const TemporaryFolder folder;
  make_fifo(folder / ".owner-1");
  const FolderLock::Options options{.reach = LockReach::kThisHost, .renewal = std::chrono::milliseconds(0)};
  CHECK_THROWS_WITH(FolderLock(folder.path(), options), sentence_of(folder / ".owner-1"));
  make_fifo(folder / "model.safetensors.index.json");
  CHECK_THROWS_WITH(FolderWeights(folder.path()), sentence_of(folder / "model.safetensors.index.json"));
  make_fifo(folder / "model.safetensors");
  CHECK_THROWS_WITH(FolderWeights(folder.path()), sentence_of(folder / "model.safetensors"));
  make_fifo(folder / "tokens.h5");
  CHECK_THROWS_WITH(TokenDataset(folder / "tokens.h5", 1), Contains(sentence_of(folder / "tokens.h5")));
}

}  // namespace mpzero::io
