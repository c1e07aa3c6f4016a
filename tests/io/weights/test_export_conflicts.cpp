// Conversions by zero_to_fp32 into one folder at the same time, and what killed conversions leave.

#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "io/locks/folder_lock.hpp"
#include "io/weights/weights_export.hpp"
#include "tests/io/deadly_disk.hpp"
#include "tests/io/faulty_disk.hpp"
#include "tests/io/weights/export_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;

TEST_CASE("of two simultaneous conversions into one folder the second is refused, and the first is complete") {
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2);
  std::string refused;
  ExportOptions options = Form{}.options();
  options.on_written = [&](int64_t, int64_t) {
    if (refused.empty()) refused = message_of([&] { export_weights(second, folder.path(), Form{}.options()); });
  };
  CHECK_NOTHROW(export_weights(first, folder.path(), options));
  CHECK_THAT(refused, Contains(folder.path().string()) && Contains("process " + std::to_string(::getpid())) &&
                          Contains(host_name()) && Contains("wait for it"));
  CHECK(holds_exactly(folder.path(), expected_of(first, Form{})));
}

TEST_CASE("without locks that reach all hosts a record keeps other conversions out, and nothing is left behind") {
  const TemporaryFolder folder;
  FolderLock::Options options{.patience = std::chrono::milliseconds(0),
                              .purpose = FolderLock::Purpose::kExporting,
                              .renewal = std::chrono::milliseconds(0)};
  SECTION("no locks") {
    options.flock = [](int) { return ENOLCK; };
  }
  SECTION("each host has its own locks, so every process gets the lock") {
    options.flock = [](int) { return 0; };
    options.reach = GENERATE(LockReach::kThisHost, LockReach::kUnknown);
  }
  {
    const FolderLock first(folder.path(), options);
    CHECK_THAT(message_of([&] { FolderLock(folder.path(), options); }),
               Contains("process " + std::to_string(::getpid())) && Contains("OUTPUT_DIR"));
  }
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("a lock file that its former owner removes while it is being locked is no lock") {
  const TemporaryFolder folder;
  const fs::path file = folder / ".zero_to_fp32.lock";
  FolderLock::Options options{.patience = std::chrono::milliseconds(0), .purpose = FolderLock::Purpose::kExporting};
  int calls = 0;
  options.flock = [&](int descriptor) {
    if (++calls == 1) fs::remove(file);
    return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  };
  const FolderLock first(folder.path(), options);
  CHECK(calls == 2);
  CHECK(fs::exists(file));
  CHECK_THROWS_AS(FolderLock(folder.path(), options), UserError);
}

namespace {

// Calls `act` once, before or after the call on the path with this name (the target, for a rename).
class Interrupted final : public UnsyncedDisk {
 public:
  enum class Call { kBeforeRemovingFile, kAfterRemovingFile, kBeforeRenaming, kAfterRenaming };
  Interrupted(Call call, std::string name, std::function<void()> act)
      : call_(call), name_(std::move(name)), act_(std::move(act)) {}
  int remove_file(const fs::path& path) override {
    reach(Call::kBeforeRemovingFile, path);
    const int error = UnsyncedDisk::remove_file(path);
    reach(Call::kAfterRemovingFile, path);
    return error;
  }
  int rename(const fs::path& from, const fs::path& to) override {
    reach(Call::kBeforeRenaming, from);
    const int error = UnsyncedDisk::rename(from, to);
    reach(Call::kAfterRenaming, to);
    return error;
  }
  bool has_acted() const { return !act_; }

 private:
  void reach(Call call, const fs::path& path) {
    if (call == call_ && path.filename() == name_ && act_) std::exchange(act_, nullptr)();
  }

  Call call_;
  std::string name_;
  std::function<void()> act_;
};
using Call = Interrupted::Call;

constexpr const char* kReady = ".zero_to_fp32.ready";

// The lock file was removed, and a conversion of this checkpoint stops once its ready folder exists.
void convert_until_ready(const fs::path& folder, const MadeUpCheckpoint& checkpoint, const Form& form) {
  struct Stopped {};
  fs::remove(folder / ".zero_to_fp32.lock");
  Interrupted files(Call::kAfterRenaming, kReady, [] { throw Stopped(); });
  CHECK_THROWS_AS(export_weights(checkpoint, folder, form.options(), files), Stopped);
}

}  // namespace

TEST_CASE("files that another conversion moves in during the removal of the ready folder stay, and the error says so") {
  const Form form = kForms[1];
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2), third(3);
  export_weights(first, folder.path(), form.options());
  const auto other = [&] { convert_until_ready(folder.path(), third, form); };
  const auto [call, name] =
      GENERATE(table<Call, std::string>({{Call::kAfterRemovingFile, ".files"}, {Call::kBeforeRenaming, kReady}}));
  Interrupted files(call, name, other);
  const std::string error = message_of([&] { export_weights(second, folder.path(), form.options(), files); });
  CHECK(files.has_acted());
  CHECK_THAT(error, Contains("another conversion into " + folder.path().string()));
  CHECK_THAT(error, !Contains("is complete"));
  // The next conversion completes what the other one began.
  MadeUpCheckpoint damaged(4);
  damaged.damaged = true;
  UnsyncedDisk unsynced;
  CHECK_THROWS(export_weights(damaged, folder.path(), form.options(), unsynced));
  CHECK(holds_exactly(folder.path(), expected_of(third, form)));
}

TEST_CASE("a conversion whose ready folder is removed by another one claims nothing") {
  const Form form = kForms[1];
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2);
  export_weights(first, folder.path(), form.options());
  // Right after it was created, and after its first file was moved to its place.
  const auto [call, name] = GENERATE(table<Call, std::string>(
      {{Call::kAfterRenaming, kReady}, {Call::kAfterRenaming, "model-00001-of-00003.safetensors"}}));
  Interrupted files(call, name, [&, &ready = kReady] { fs::remove_all(folder / ready); });
  const std::string error = message_of([&] { export_weights(second, folder.path(), form.options(), files); });
  CHECK(files.has_acted());
  CHECK_THAT(error, Contains("another conversion into " + folder.path().string()));
  CHECK_THAT(error, !Contains("is complete"));
}

TEST_CASE("a conversion stops and claims nothing if another one completes the same work first") {
  const Form form = kForms[1];
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2), third(3);
  export_weights(first, folder.path(), form.options());
  convert_until_ready(folder.path(), second, form);
  UnsyncedDisk unsynced;
  Interrupted files(Call::kAfterRemovingFile, "config.json", [&] {
    fs::remove(folder / ".zero_to_fp32.lock");
    export_weights(second, folder.path(), form.options(), unsynced);
  });
  const std::string error = message_of([&] { export_weights(third, folder.path(), form.options(), files); });
  CHECK(files.has_acted());
  CHECK_THAT(error, Contains("another conversion into " + folder.path().string()));
  CHECK(holds_exactly(folder.path(), expected_of(second, form)));
}

TEST_CASE("a conversion whose files another one replaces before its end claims nothing") {
  const size_t form = GENERATE(0, 1);
  CAPTURE(form);
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2), third(3);
  export_weights(first, folder.path(), kForms[form].options());
  UnsyncedDisk unsynced;
  const auto other = [&] {
    fs::remove(folder / ".zero_to_fp32.lock");
    export_weights(third, folder.path(), kForms[form].options(), unsynced);
  };
  Interrupted files(Call::kAfterRenaming, form == 0 ? "model.safetensors" : "config.json", other);
  const std::string error = message_of([&] { export_weights(second, folder.path(), kForms[form].options(), files); });
  CHECK(files.has_acted());
  CHECK_THAT(error, Contains("another conversion into " + folder.path().string()));
  CHECK(holds_exactly(folder.path(), expected_of(third, kForms[form])));
}

TEST_CASE("a conversion that another one overtakes before its first rename changes nothing, and leaves the lock") {
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2);
  const fs::path lock = folder / ".zero_to_fp32.lock";
  export_weights(first, folder.path(), Form{}.options());
  std::optional<FolderLock> other;
  ExportOptions options = Form{}.options();
  options.on_written = [&](int64_t, int64_t) {
    if (other) return;
    fs::remove(lock);
    other.emplace(folder.path(), FolderLock::Options{.purpose = FolderLock::Purpose::kExporting});
  };
  CHECK_THROWS_AS(export_weights(second, folder.path(), options), FolderTaken);
  CHECK(fs::exists(lock));
  other.reset();
  CHECK(holds_exactly(folder.path(), expected_of(first, Form{})));
}

TEST_CASE("leftovers of a killed conversion are removed if it is known to be dead, and named otherwise") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  const std::string dead = fmt::format(".zero_to_fp32.{}.{}.1.00000000.tmp", host_name(), child);
  const std::string reused = fmt::format(".zero_to_fp32.{}.{}.1.00000000.tmp", host_name(), ::getpid());
  const std::string elsewhere = ".zero_to_fp32.another-machine.1.1.00000000.tmp";
  const std::string earlier = ".zero_to_fp32.tmp";
  for (const std::string& name : {dead, reused, elsewhere, earlier}) {
    fs::create_directory(folder / name);
    write_file(folder / name / "model.safetensors", "part");
  }
  Names warnings;
  ExportOptions options = Form{}.options();
  options.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  export_weights(MadeUpCheckpoint(1), folder.path(), options);
  CHECK(holds_exactly(folder.path(), expected_of(MadeUpCheckpoint(1), Form{}),
                      {{elsewhere, "a folder"}, {earlier, "a folder"}}));
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], Contains((folder / elsewhere).string()) && Contains("delete the folder"));
  CHECK_THAT(warnings[1], Contains((folder / earlier).string()));
}

TEST_CASE("a leftover that cannot be removed is named and does no harm") {
  const TemporaryFolder folder;
  const std::string dead = fmt::format(".zero_to_fp32.{}.{}.1.00000000.tmp", host_name(), ::getpid());
  fs::create_directory(folder / dead);
  write_file(folder / dead / "model.safetensors", "part");
  // As set by chattr +i.
  class Immutable final : public UnsyncedDisk {
   public:
    explicit Immutable(fs::path kept) : kept_(std::move(kept)) {}
    int remove_file(const fs::path& path) override {
      return path.parent_path() == kept_ ? EPERM : UnsyncedDisk::remove_file(path);
    }

   private:
    fs::path kept_;
  } immutable(folder / dead);
  Names warnings;
  ExportOptions options = Form{}.options();
  options.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  export_weights(MadeUpCheckpoint(1), folder.path(), options, immutable);
  CHECK(holds_exactly(folder.path(), expected_of(MadeUpCheckpoint(1), Form{}), {{dead, "a folder"}}));
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains((folder / dead).string()));
}

}  // namespace mpzero::io
