// Ownership of a folder without locks: each pair of events of the table in folder_owner.hpp, in each order.

#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "base/error.hpp"
#include "io/locks/folder_lock.hpp"
#include "io/locks/folder_owner.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/faulty_disk.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
using std::chrono::milliseconds;
namespace {

using Names = std::vector<std::string>;

// A process on a host that is unknown to this one.
OwnerRecord process_on(const std::string& host) {
  OwnerRecord record = this_owner("");
  record.host = host;
  record.kernel = "the boot of " + host;
  record.run = "1a2b3c4d00000000";
  return record;
}

// Time that passes only during waits. `meanwhile` runs then.
struct FakeTime {
  milliseconds now{0};
  std::function<void()> meanwhile;

  FolderOwner::Options options() {
    return {.clock = {.now = [this] { return now; },
                      .wait =
                          [this](milliseconds time) {
                            now += time;
                            if (meanwhile) meanwhile();
                          }},
            .remedy = ", or go elsewhere"};
  }
};

bool owns(FolderOwner& owner) {
  return message_of([&] { owner.renew(); }).empty();
}

// Runs `event` before the call of this number.
class GatedDisk final : public UnsyncedDisk {
 public:
  explicit GatedDisk(int call) : call_(call) {}
  void run_there(std::function<void()> event) { event_ = std::move(event); }
  int calls() const { return calls_; }
  int open(const fs::path& path, int flags, int& descriptor) override {
    step();
    return UnsyncedDisk::open(path, flags, descriptor);
  }
  int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
    step();
    return UnsyncedDisk::write(descriptor, offset, bytes, written);
  }
  int sync(int) override {
    step();
    return 0;
  }
  int remove_file(const fs::path& path) override {
    step();
    return UnsyncedDisk::remove_file(path);
  }

 private:
  void step() {
    if (++calls_ == call_ && event_) event_();
  }
  int call_;
  std::function<void()> event_;
  int calls_ = 0;
};

}  // namespace

TEST_CASE("an owner is recorded for its lifetime") {
  const TemporaryFolder folder;
  {
    FolderOwner owner(folder.path(), this_owner("77"), {});
    owner.set_run("1a2b3c4d00000000");
    CHECK(names_in(folder.path()) == Names{".owner-1"});
    CHECK_THAT(read_file(folder / ".owner-1"),
               Contains("\"pid\":" + std::to_string(::getpid())) && Contains("1a2b3c4d00000000") && Contains("\"77\""));
    CHECK(owns(owner));
  }
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("an owner on another host that renews its record keeps the folder") {
  const TemporaryFolder folder;
  FolderOwner other(folder.path(), process_on("node9"), {});
  FakeTime time;
  int looks = 0;
  // As slow as it may be.
  time.meanwhile = [&] {
    if (++looks == 5) other.renew();
  };
  CHECK_THROWS_WITH(FolderOwner(folder.path(), process_on("node2"), time.options()),
                    Contains("on node9 (run 1a2b3c4d)") && Contains("within 5 s") && Contains("or go elsewhere"));
  CHECK(owns(other));
  CHECK(names_in(folder.path()) == Names{".owner-1"});
}

TEST_CASE("a silent owner on another host is waited for with a message, then replaced") {
  const TemporaryFolder folder;
  FolderOwner other(folder.path(), process_on("node9"), {});
  FakeTime time;
  std::vector<std::string> said;
  FolderOwner::Options options = time.options();
  options.say = [&](const std::string& line) { said.push_back(line); };
  FolderOwner owner(folder.path(), process_on("node2"), options);
  CHECK(time.now >= FolderOwner::kWatch);
  REQUIRE(said.size() == 1);
  CHECK_THAT(said.front(), Contains("node9") && Contains("30 s"));
  CHECK(owns(owner));
  CHECK(names_in(folder.path()) == Names{".owner-2"});
  // It was only slow, and detects the takeover.
  CHECK_THAT(message_of([&] { other.renew(); }), Contains("on node2") && Contains("has taken over"));
}

TEST_CASE("on this host, dead and live processes are detected immediately") {
  const TemporaryFolder folder;
  FakeTime time;
  OwnerRecord record = this_owner("");
  SECTION("it has ended") {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(0);
    // Detected before its parent has reaped it.
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
    record.pid = child;
    FolderOwner other(folder.path(), record, {});
    FolderOwner owner(folder.path(), process_on("node2"), time.options());
    CHECK(owns(owner));
    CHECK(::waitpid(child, nullptr, 0) == child);
  }
  SECTION("its pid now belongs to another process") {
    record.start -= 1;
    FolderOwner other(folder.path(), record, {});
    FolderOwner owner(folder.path(), process_on("node2"), time.options());
    CHECK(owns(owner));
  }
  SECTION("it lives") {
    FolderOwner other(folder.path(), record, {});
    CHECK_THROWS_WITH(FolderOwner(folder.path(), process_on("node2"), time.options()), Contains("is using"));
    CHECK(owns(other));
  }
  CHECK(time.now == milliseconds(0));
}

TEST_CASE("an empty record left by a crash, or one without an owner, is watched like any other") {
  const TemporaryFolder folder;
  write_file(folder / ".owner-3", GENERATE(as<std::string>(), "", "{}", "x\n"));
  write_file(folder / ".owner-x", "not one of these");
  FakeTime time;
  FolderOwner owner(folder.path(), this_owner(""), time.options());
  CHECK(time.now >= FolderOwner::kWatch);
  CHECK(owns(owner));
  CHECK(names_in(folder.path()) == Names{".owner-4", ".owner-x"});
}

TEST_CASE("concurrent claims always result in a single owner") {
  enum class Event { kRenews, kLeaves, kLeavesAndAnotherClaims, kAnotherClaims };
  const Event event = GENERATE(Event::kRenews, Event::kLeaves, Event::kLeavesAndAnotherClaims, Event::kAnotherClaims);
  const bool there_is_one = GENERATE(true, false);
  for (int call = 1;; ++call) {
    CAPTURE(static_cast<int>(event), there_is_one, call);
    const TemporaryFolder folder;
    FakeTime time, time_of_another;
    GatedDisk files(call);
    std::unique_ptr<FolderOwner> former, another, claimer;
    if (there_is_one) {
      former = std::make_unique<FolderOwner>(folder.path(), process_on("node1"), FolderOwner::Options{});
    }
    std::string refused;
    const auto claim = [&](std::unique_ptr<FolderOwner>& owner, const std::string& host, FakeTime& clock,
                           FileSystem& files) {
      return message_of(
          [&] { owner = std::make_unique<FolderOwner>(folder.path(), process_on(host), clock.options(), files); });
    };
    // Creating the record takes three calls: before the first and after the last of them the claim is not in doubt.
    const bool in_doubt = call <= 3;
    bool happened = false;
    files.run_there([&] {
      happened = true;
      // While it is in doubt the former owner does not notice it and still renews its record.
      if (event == Event::kRenews && former) CHECK(owns(*former) == (call == 1));
      if (event == Event::kLeaves || event == Event::kLeavesAndAnotherClaims) former.reset();
      if (event == Event::kLeavesAndAnotherClaims || event == Event::kAnotherClaims) {
        (void)claim(another, "node3", time_of_another, disk());
      }
    });
    // From then on they are active; before, the former one is paused.
    time.meanwhile = [&] {
      if (another) CHECK(owns(*another));
      if (happened && former && !another) CHECK(owns(*former));
    };
    refused = claim(claimer, "node2", time, files);
    files.run_there({});
    int owners = 0;
    for (FolderOwner* owner : {former.get(), another.get(), claimer.get()}) owners += owner != nullptr && owns(*owner);
    CHECK(owners == 1);
    // An active owner does not lose the folder.
    if (another) CHECK(owns(*another));
    if (happened && event == Event::kRenews && former && in_doubt) CHECK(owns(*former));
    // A refused process is told the owner.
    if (claimer == nullptr) CHECK_THAT(refused, Contains("is using"));
    if (files.calls() < call) {
      CHECK(call > 3);
      break;
    }
  }
}

TEST_CASE("of two processes that wait for the same owner, only one takes over") {
  const TemporaryFolder folder;
  FolderOwner former(folder.path(), process_on("node1"), {});
  FakeTime time, time_of_another;
  std::unique_ptr<FolderOwner> another;
  // The other one has watched for as long, and is faster.
  time.meanwhile = [&] {
    if (time.now >= FolderOwner::kWatch && !another) {
      another = std::make_unique<FolderOwner>(folder.path(), process_on("node3"), time_of_another.options());
    } else if (another) {
      another->renew();
    }
  };
  CHECK_THROWS_WITH(FolderOwner(folder.path(), process_on("node2"), time.options()), Contains("on node3"));
  CHECK(owns(*another));
}

TEST_CASE("a late claim detects the successor of an owner that it never saw") {
  const TemporaryFolder folder;
  FakeTime time, time_of_another;
  GatedDisk files(1);
  std::unique_ptr<FolderOwner> first, successor;
  files.run_there([&] {
    first = std::make_unique<FolderOwner>(folder.path(), process_on("node1"), FolderOwner::Options{});
    successor = std::make_unique<FolderOwner>(folder.path(), process_on("node3"), time_of_another.options());
  });
  time.meanwhile = [&] { successor->renew(); };
  CHECK_THROWS_WITH(FolderOwner(folder.path(), process_on("node2"), time.options(), files), Contains("on node3"));
  CHECK(owns(*successor));
  CHECK_FALSE(owns(*first));
}

TEST_CASE("removing a record by hand ends the ownership") {
  const TemporaryFolder folder;
  FolderOwner owner(folder.path(), this_owner(""), {});
  fs::remove(folder / ".owner-1");
  CHECK_THAT(message_of([&] { owner.renew(); }), Contains(".owner-1 was removed"));
  // Another owner's file of the same name is not touched.
  FolderOwner other(folder.path(), process_on("node2"), {});
  CHECK_FALSE(owns(owner));
  CHECK(owns(other));
}

TEST_CASE("the mount determines the scope of locks") {
  const std::string table =
      "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
      "30 21 0:40 / /fsx rw - lustre 10.0.0.1@tcp:/fsx rw,flock,lazystatfs\n"
      "31 21 0:41 / /scratch rw - lustre 10.0.0.1@tcp:/x rw,localflock\n"
      "32 21 0:42 / /old rw - lustre 10.0.0.1@tcp:/x rw,lazystatfs\n"
      "33 21 0:43 / /home rw shared:7 master:2 - nfs4 nas:/home rw,vers=4.1,local_lock=none\n"
      "34 21 0:44 / /home/a\\040b rw - nfs nas:/x rw,vers=3,nolock,local_lock=all\n"
      "35 21 0:45 / /fuse rw - fuse.sshfs x rw\n"
      "36 30 0:46 / /fsx rw - tmpfs none rw\n"
      "a line that is none\n";
  const auto reach = [&](const char* path) { return lock_reach(find_mount(table, path).value()); };
  CHECK(reach("/var/x") == LockReach::kAll);
  CHECK(reach("/scratch/me") == LockReach::kThisHost);
  CHECK(reach("/old") == LockReach::kThisHost);
  CHECK(reach("/home/me") == LockReach::kAll);
  CHECK(reach("/home/a b/c") == LockReach::kThisHost);
  CHECK(reach("/homer") == LockReach::kAll);
  CHECK(reach("/fuse/x") == LockReach::kUnknown);
  CHECK(find_mount(table, "/fsx/x")->type == "tmpfs");
  CHECK(lock_reach({.type = "lustre", .options = ",rw,flock,"}) == LockReach::kAll);
  CHECK(lock_reach({.type = "gpfs", .options = ",rw,"}) == LockReach::kThisHost);
  CHECK_FALSE(find_mount("", "/").has_value());
}

}  // namespace mpzero::io
