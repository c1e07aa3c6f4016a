#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "app/watchdog/evidence.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero {
namespace {

using io::testing::TemporaryFolder;
using nlohmann::json;
namespace fs = std::filesystem;

StartRanks ranks(int own) {
  return {.id = "20261126T120000Z-0123abcd",
          .job = "17",
          .restart = 2,
          .launch = "0f-1",
          .checkpoint_dir = "/data/checkpoints",
          .time = 1000,
          .rank = own,
          .hosts = {"a", "b"},
          .pids = {11, 12}};
}

// Of a rank that waits for others.
Evidence stuck() {
  Evidence evidence;
  evidence.why = Why::kStuck;
  evidence.activity = {.phase = RunPhase::kTraining, .step = 12, .idle = 300, .limit = 300, .gap = 1.5};
  evidence.channels = {{.name = "gradients",
                        .ranks = {.first = 1, .count = 2, .stride = 4},
                        .queued = 9,
                        .started = 8,
                        .completed = 7,
                        .last = {{.sequence = 8, .operation = "all_reduce", .bytes = 2048, .seconds = 299}}}};
  Neighbor other;
  other.rank = 0;
  other.channels = evidence.channels;
  other.channels[0].last.clear();
  evidence.neighbors = {other};
  return evidence;
}

json read(const fs::path& file) { return json::parse(std::ifstream(file)); }

}  // namespace

TEST_CASE("evidence has the fields documented in docs/formats.md") {
  const TemporaryFolder folder;
  const StartRanks start = ranks(1);
  const EvidenceWriter writer({folder.path()}, start);
  CHECK(writer.write(stuck(), {{"oom_kills", 3}}, /*claims=*/false).first.rank == -1);
  const fs::path failures = folder.path() / "failures" / start.id;
  const json evidence = read(failures / "rank_1.json");
  const json all = read(failures / "start.json");
  CHECK((evidence["start"] == start.id && all["job"] == "17" && all["restart"] == 2 && all["launch"] == "0f-1"));
  CHECK(all["checkpoint_dir"] == "/data/checkpoints");
  CHECK((evidence["rank"] == 1 && evidence["host"] == "b" && evidence["pid"] == 12 && evidence["why"] == "stuck"));
  CHECK(evidence["provisional"] == false);
  CHECK((evidence["phase"] == "training" && evidence["step"] == 12 && evidence["limit"] == 300));
  CHECK((evidence["watchdog_gap_seconds"] == 1.5 && evidence["host_condition"]["oom_kills"] == 3));
  const json channel = evidence["channels"][0];
  CHECK((channel["name"] == "gradients" && channel["ranks"] == json({1, 2, 4})));
  CHECK((channel["queued"] == 9 && channel["started"] == 8 && channel["completed"] == 7));
  CHECK(channel["last"][0] == json({8, "all_reduce", 2048, 0, 299.0}));
  const json other = evidence["neighbours"][0];
  CHECK((other["rank"] == 0 && other["alive"] == false && other["exit_status"].is_null()));
  CHECK((other["channels"][0]["completed"] == 7 && other["channels"][0]["last"].empty()));
  CHECK((all["ranks"] == 2 && all["started"] == 1000 && all["hosts"] == json({"a", "b"})));
  CHECK(all["pids"] == json({11, 12}));
}

TEST_CASE("the condition of a host includes free memory, pressure, OOM kills and Xid messages") {
  const TemporaryFolder root;
  for (const char* folder : {"proc/pressure", "dev"}) fs::create_directories(root.path() / folder);
  std::ofstream(root.path() / "proc/meminfo") << "MemTotal: 9 kB\nMemAvailable: 3 kB\n";
  std::ofstream(root.path() / "proc/pressure/memory") << "some avg10=1.50 avg60=0.00\nfull avg10=7.00\n";
  std::ofstream(root.path() / "proc/vmstat") << "nr_free_pages 4\noom_kill 2\n";
  std::ofstream(root.path() / "dev/kmsg") << "4,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus\n";
  const json seen = host_condition(at::kCPU, root.path());
  CHECK((seen["memory_available"] == "MemAvailable: 3 kB" && seen["memory_pressure"] == "some avg10=1.50 avg60=0.00"));
  CHECK((seen["oom_kills"] == "oom_kill 2" && seen["gpu"] == ""));
  CHECK_THAT(seen["xid"][0].get<std::string>(), Catch::StartsWith("NVRM: Xid (PCI:0000:01:00): 79"));
}

TEST_CASE("other users can leave evidence wherever they can write") {
  const TemporaryFolder folder;
  const fs::perms shared = fs::perms::all | fs::perms::sticky_bit;  // as /tmp
  fs::permissions(folder.path(), shared);
  const StartRanks start = ranks(1);
  EvidenceWriter({folder.path()}, start).write(stuck(), {}, /*claims=*/false);
  CHECK(fs::status(folder.path() / "failures").permissions() == shared);
  CHECK(fs::status(folder.path() / "failures" / start.id).permissions() != shared);
}

TEST_CASE("a rank's error line contains host, process, step and the collective in which it waits") {
  const std::string line = describe(stuck(), ranks(1));
  for (const char* part : {"rank 1 on b (pid 12)", "300 s", "step 12", "all_reduce 8 of gradients"}) {
    CHECK_THAT(line, Catch::Contains(part));
  }
  Evidence lost = stuck();
  lost.error = "ended";
  lost.culprits = {0};
  CHECK_THAT(describe(lost, ranks(1)), Catch::Contains("rank 0 on a (pid 11)"));
  Evidence mistake;
  mistake.why = Why::kUserError;
  mistake.error = "--seed x";
  CHECK(describe(mistake, ranks(1)) == "rank 1: --seed x");
}

TEST_CASE("one of several failing ranks is first, and the others read its reason") {
  const TemporaryFolder folder;
  const StartRanks zero = ranks(0), one = ranks(1);
  EvidenceWriter first({folder.path()}, one), second({folder.path() / "none", folder.path()}, zero);
  CHECK(second.read_first().rank == -1);
  CHECK(first.write(stuck(), {}, /*claims=*/true).first.rank == 1);
  CHECK(second.read_first().rank == 1);
  const auto outcome = EvidenceWriter({folder.path()}, zero).write(stuck(), {}, /*claims=*/true);
  CHECK((outcome.first.rank == 1 && outcome.first.reason == describe(stuck(), one) && outcome.elsewhere.empty()));
}

TEST_CASE("a `first` file without a rank reports no rank") {
  const TemporaryFolder folder;
  const StartRanks start = ranks(1);
  const fs::path own = folder.path() / "failures" / start.id;
  fs::create_directories(own);
  const auto rank_of = [&](const char* text) {
    std::ofstream(own / "first") << text;
    return EvidenceWriter({folder.path()}, start).read_first().rank;
  };
  for (const char* text : {"", "1", "\n", "x\n", "1x\nbroke\n", " 1\n", "-3\n", "99999999999\n"}) {
    CHECK(rank_of(text) == -1);
  }
  CHECK(rank_of("1\nbroke\n") == 1);
}

TEST_CASE("a `first` file of another user counts only in the checkpoint folder, and a link or a FIFO nowhere") {
  const TemporaryFolder folder;
  const StartRanks start = ranks(1);
  const fs::path own = folder.path() / "failures" / start.id;
  fs::create_directories(own);
  EvidenceWriter shared({folder.path() / "none", folder.path()}, start), checkpoints({folder.path()}, start);
  std::ofstream(own / "first") << "0\nboo\n";
  CHECK(shared.read_first().rank == 0);
  if (chown((own / "first").c_str(), 65534, 65534) == 0) {  // as root
    CHECK(shared.read_first().rank == -1);
    CHECK(checkpoints.read_first().rank == 0);
  }
  fs::rename(own / "first", own / "another");
  fs::create_symlink("another", own / "first");
  CHECK((shared.read_first().rank == -1 && checkpoints.read_first().rank == -1));
  fs::remove(own / "first");
  REQUIRE(mkfifo((own / "first").c_str(), 0600) == 0);
  CHECK((shared.read_first().rank == -1 && checkpoints.read_first().rank == -1));
}

TEST_CASE("a start is recorded if earlier evidence could be attributed to it") {
  const TemporaryFolder folder;
  const StartRanks start = ranks(0);
  EvidenceWriter({folder.path()}, start).record_start();
  CHECK(fs::is_empty(folder.path()));
  fs::create_directory(folder.path() / "failures");
  EvidenceWriter({folder.path()}, start).record_start();
  CHECK(read(folder.path() / "failures" / start.id / "start.json")["ranks"] == 2);
}

TEST_CASE("a folder that is not writable is replaced by the next one, and finally by stderr") {
  const TemporaryFolder folder;
  const StartRanks start = ranks(1);
  std::ofstream(folder.path() / "file") << "no folder";
  const EvidenceWriter writer({folder.path() / "file", folder.path() / "next"}, start);
  const auto replaced = writer.write(stuck(), {}, true);
  const fs::path next = folder.path() / "next" / "failures" / start.id;
  CHECK((replaced.first.rank == 1 && replaced.elsewhere == next && fs::exists(next / "rank_1.json")));
  const EvidenceWriter none({folder.path() / "file"}, start);
  const int before = dup(STDERR_FILENO);
  const int file = open((folder.path() / "stderr").c_str(), O_CREAT | O_WRONLY, 0600);
  dup2(file, STDERR_FILENO);
  Evidence provisional = stuck();
  provisional.provisional = true;
  CHECK_FALSE(none.write(provisional, {}, false).is_written);
  const auto outcome = none.write(stuck(), {}, true);
  dup2(before, STDERR_FILENO);
  close(before);
  close(file);
  CHECK((outcome.first.rank == 1 && !outcome.is_written));
  std::string line;
  std::getline(std::ifstream(folder.path() / "stderr"), line);
  REQUIRE_THAT(line, Catch::StartsWith("mpzero: evidence: "));
  const json printed = json::parse(line.substr(line.find('{')));
  CHECK((printed["why"] == "stuck" && printed["provisional"] == false));
}

#ifndef __SANITIZE_ADDRESS__  // which needs address space itself
TEST_CASE("a process that cannot start a thread still writes evidence and its error line") {
  const TemporaryFolder folder;
  const StartRanks start = ranks(1);
  const pid_t child = fork();
  if (child == 0) {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    constexpr rlim_t kHeap = rlim_t{1} << 20;  // less than a stack
    const rlim_t most = static_cast<rlim_t>(pages * getpagesize()) + kHeap;
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    setrlimit(RLIMIT_AS, &limit);
    try {
      for (;;) std::thread([] { pause(); }).detach();  // uses the stacks that earlier threads left
    } catch (...) {
    }
    dup2(open((folder.path() / "stderr").c_str(), O_CREAT | O_WRONLY, 0600), STDERR_FILENO);
    const auto outcome = EvidenceWriter({folder.path()}, start).write(stuck(), {}, true);
    print_error("mpzero: error: stuck\n");
    _exit(outcome.first.rank == 1 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(fs::exists(folder.path() / "failures" / start.id / "rank_1.json"));
  std::string line;
  std::getline(std::ifstream(folder.path() / "stderr"), line);
  CHECK(line == "mpzero: error: stuck");
}
#endif

}  // namespace mpzero
