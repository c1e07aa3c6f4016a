#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "app/liveness/final_report.hpp"
#include "app/liveness/report_lock.hpp"
#include "base/error.hpp"
#include "parallel/mpi/deadline.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero {
namespace {

using io::testing::TemporaryFolder;

// What `work` writes to stderr.
std::string errors_of(const std::filesystem::path& file, const std::function<void()>& work) {
  std::fflush(stderr);
  const int before = dup(STDERR_FILENO);
  const int captured = open(file.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  REQUIRE((before >= 0 && captured >= 0));
  dup2(captured, STDERR_FILENO);
  close(captured);
  work();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// While it exists, stderr is a pipe that is full and that nothing reads.
class BlockedErrors {
 public:
  BlockedErrors() : before_(dup(STDERR_FILENO)) {
    REQUIRE((before_ >= 0 && pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) == 0));
    while (write(pipe_[1], "x", 1) == 1) {
    }
    REQUIRE(fcntl(pipe_[1], F_SETFL, 0) == 0);
    std::fflush(stderr);
    dup2(pipe_[1], STDERR_FILENO);
    close(pipe_[1]);
  }
  ~BlockedErrors() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    // Ends what still writes.
    close(pipe_[0]);
  }
  BlockedErrors(const BlockedErrors&) = delete;
  BlockedErrors& operator=(const BlockedErrors&) = delete;

 private:
  int before_;
  std::array<int, 2> pipe_{};
};

// Two ranks, of which the second has ended.
std::vector<RankRecord> one_lost() {
  std::vector<RankRecord> records(2);
  for (int rank = 0; rank < 2; ++rank) {
    RankRecord& one = records[static_cast<size_t>(rank)];
    one.identity.rank = rank;
    one.identity.host = "node" + std::to_string(rank);
    one.status.step = 12;
    one.status.phase = RunPhase::kTraining;
  }
  records[1].state = RankRecord::State::kLost;
  return records;
}

// Of rank 0 of a run.
ReportFacts facts(const std::filesystem::path& folder, unsigned char run) {
  return report_facts(folder, at::kCPU, {.own = 0, .ranks = {}, .secret = {run}});
}

}  // namespace

TEST_CASE("Work is waited for, but not longer than the limit") {
  const auto done = std::make_shared<std::atomic<bool>>(false);
  parallel::no_longer_than(std::chrono::milliseconds(30'000), [done] { *done = true; });
  CHECK(*done);

  const auto go_on = std::make_shared<std::atomic<bool>>(false);
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  parallel::no_longer_than(std::chrono::milliseconds(10), [go_on, ended] {
    while (!*go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    *ended = true;
  });
  CHECK_FALSE(*ended);
  *go_on = true;
  while (!*ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_CASE("A failure is reported on stderr and in failure.json, with the checkpoint to resume from") {
  const TemporaryFolder folder;
  unsigned char run = 0;
  const auto tell = [&] {
    const auto records = one_lost();
    return errors_of(folder.path() / "stderr",
                     [&] { report_failure(find_culprits(records), records, facts(folder.path(), ++run)); });
  };
  CHECK_THAT(tell(),
             Catch::Contains("mpzero: error: rank 1 on node1 (pid 0) ended without reporting an error in step 12") &&
                 Catch::Contains("No checkpoint was saved yet"));
  std::ofstream(folder.path() / "latest") << "tiny-10steps\n";
  CHECK_THAT(tell(), Catch::Contains("resumes from " + (folder.path() / "tiny-10steps").string() + "."));
  std::ifstream file(folder.path() / "failure.json");
  CHECK(nlohmann::json::parse(file).at("ranks") == std::vector<int>{1});
}

TEST_CASE("A failure is reported even if its file cannot be written") {
  const TemporaryFolder folder;
  const std::filesystem::path no_folder = folder.path() / "file";
  std::ofstream(no_folder) << "in the way";
  const auto records = one_lost();
  const std::string errors = errors_of(folder.path() / "stderr",
                                       [&] { report_failure(find_culprits(records), records, facts(no_folder, 1)); });
  CHECK_THAT(errors, Catch::Contains("ended without reporting an error") &&
                         Catch::Contains("mpzero: warning: failure.json could not be written: "));
}

TEST_CASE("Of two verdicts on one run the better founded one stays in failure.json, else the first") {
  const TemporaryFolder folder;
  const auto records = one_lost();
  const auto tell = [&](int rank, int foundation, unsigned char run) {
    const Verdict verdict = {
        .ranks = {rank}, .reason = fmt::format("rank {} did it", rank), .remedy = "look", .foundation = foundation};
    return errors_of(folder.path() / "stderr", [&] { report_failure(verdict, records, facts(folder.path(), run)); });
  };
  const auto blamed = [&] {
    std::ifstream file(folder.path() / "failure.json");
    return nlohmann::json::parse(file).at("ranks").get<std::vector<int>>();
  };
  CHECK_THAT(tell(0, 1, 1), Catch::StartsWith("mpzero: error: rank 0 did it; look.\n"));
  CHECK_THAT(tell(1, 24, 1), Catch::StartsWith("mpzero: error: rank 1 did it; look.\n"));
  for (const int foundation : {24, 1, 0}) {
    CHECK(tell(0, foundation, 1) == fmt::format("mpzero: rank 0 ends: the run has ended already: rank 1 did it ({}).\n",
                                                (folder.path() / "failure.json").string()));
    CHECK(blamed() == std::vector<int>{1});
  }
  // Another run, for example the next start of the job.
  CHECK_THAT(tell(0, 0, 2), Catch::StartsWith("mpzero: error: rank 0 did it"));
  CHECK(blamed() == std::vector<int>{0});
  std::ofstream(folder.path() / "failure.json") << "{\"run\": 5";
  CHECK_THAT(tell(1, 0, 2), Catch::StartsWith("mpzero: error: rank 1 did it"));
}

TEST_CASE("A file whose foundation is no number of ranks is damaged") {
  const Verdict verdict = {.ranks = {1}, .reason = "it", .remedy = "look", .foundation = 3};
  for (const char* foundation : {"1e300", "4.5", "4294967300", "\"4\""}) {
    INFO(foundation);
    const std::string text = R"({{"run": "a", "started": 1, "reason": "b", "foundation": {}}})";
    CHECK_FALSE(why_it_stays(fmt::format(fmt::runtime(text), foundation), {.job = {}, .run = "a"}, verdict));
  }
}

TEST_CASE("Of verdicts that are written at the same time the best founded one stays in failure.json") {
  constexpr int kWriters = 3;
  const TemporaryFolder folder;
  const auto records = one_lost();
  for (unsigned char run = 1; run <= 40; ++run) {
    std::barrier all(kWriters);
    errors_of(folder.path() / "stderr", [&] {
      std::vector<std::jthread> writers;
      for (int foundation = 0; foundation < kWriters; ++foundation) {
        writers.emplace_back([&, foundation] {
          const Verdict verdict = {.ranks = {1}, .reason = "it", .remedy = "look", .foundation = foundation};
          all.arrive_and_wait();
          report_failure(verdict, records, facts(folder.path(), run));
        });
      }
    });
    std::ifstream file(folder.path() / "failure.json");
    CHECK(nlohmann::json::parse(file).at("foundation") == kWriters - 1);
  }
}

TEST_CASE("A rank that was killed while it wrote failure.json does not prevent the next report") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "failure.json.lock") << "";
  const auto records = one_lost();
  errors_of(folder.path() / "stderr",
            [&] { report_failure(find_culprits(records), records, facts(folder.path(), 1)); });
  CHECK(std::filesystem::exists(folder.path() / "failure.json"));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "failure.json.lock"));
}

TEST_CASE("A rank that is stopped while it writes failure.json keeps its lock, and delays the next report only") {
  const TemporaryFolder folder;
  const ReportLock stopped(folder.path() / "failure.json", std::chrono::milliseconds(0));
  REQUIRE(stopped.is_held());
  const auto records = one_lost();
  errors_of(folder.path() / "stderr",
            [&] { report_failure(find_culprits(records), records, facts(folder.path(), 1)); });
  CHECK(std::filesystem::exists(folder.path() / "failure.json"));
  CHECK(std::filesystem::exists(folder.path() / "failure.json.lock"));
  CHECK_FALSE(ReportLock(folder.path() / "failure.json", std::chrono::milliseconds(0)).is_held());
}

TEST_CASE("A report removes no file of another process that writes") {
  const TemporaryFolder folder;
  const std::filesystem::path other = folder.path() / "failure.json.tmp";
  std::ofstream(other) << "half a report";
  const auto records = one_lost();
  errors_of(folder.path() / "stderr",
            [&] { report_failure(find_culprits(records), records, facts(folder.path(), 1)); });
  CHECK(std::filesystem::exists(other));
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.insert(entry.path().filename());
  CHECK(names == std::set<std::string>{"failure.json", "failure.json.tmp", "stderr"});
}

TEST_CASE("A rank that was stopped while its run was started again does not replace the later run's report") {
  const TemporaryFolder folder;
  const auto records = one_lost();
  const auto tell = [&](unsigned char run, const std::string& job, int64_t started, int foundation) {
    ReportFacts of_run = facts(folder.path(), run);
    of_run.origin.job.id = job;
    of_run.origin.started = started;
    const Verdict verdict = {
        .ranks = {1}, .reason = fmt::format("run {} failed", run), .remedy = "look", .foundation = foundation};
    return errors_of(folder.path() / "stderr", [&] { report_failure(verdict, records, of_run); });
  };
  const auto reported_run = [&] {
    std::ifstream file(folder.path() / "failure.json");
    return nlohmann::json::parse(file).at("reason").get<std::string>();
  };
  CHECK_THAT(tell(2, "7", 1'000, 0), Catch::StartsWith("mpzero: error: run 2 failed"));
  // Its own failure is not in the file: the full report is on stderr.
  const std::string kept =
      fmt::format("mpzero: warning: {} stays as it is: a later run has failed since: run 2 failed.\n",
                  (folder.path() / "failure.json").string());
  CHECK_THAT(tell(1, "7", 999, 24), Catch::StartsWith("mpzero: error: run 1 failed") &&
                                        Catch::Contains("Where the ranks were:") && Catch::EndsWith(kept));
  CHECK(reported_run() == "run 2 failed");
  CHECK_THAT(tell(3, "7", 1'000, 0), Catch::StartsWith("mpzero: error: run 3 failed"));
  CHECK(reported_run() == "run 3 failed");
}

TEST_CASE("A report of another job in the same folder hides no failure, even if that job started later") {
  const TemporaryFolder folder;
  const auto records = one_lost();
  const auto tell = [&](unsigned char run, const std::string& job, int64_t started) {
    ReportFacts of_run = facts(folder.path(), run);
    of_run.origin.job.id = job;
    of_run.origin.started = started;
    const Verdict verdict = {.ranks = {1}, .reason = fmt::format("run {} failed", run), .remedy = "look"};
    return errors_of(folder.path() / "stderr", [&] { report_failure(verdict, records, of_run); });
  };
  const auto [other, own] = GENERATE(table<std::string, std::string>({{"8", "7"}, {"8", ""}, {"", "7"}, {"", ""}}));
  tell(2, other, 1'000);
  CHECK_THAT(tell(1, own, 999), Catch::StartsWith("mpzero: error: run 1 failed"));
  std::ifstream file(folder.path() / "failure.json");
  CHECK(nlohmann::json::parse(file).at("reason") == "run 1 failed");
}

TEST_CASE("A run that is started again within one start of its job marks the report before it") {
  const TemporaryFolder folder;
  const auto records = one_lost();
  const auto of = [&](unsigned char run, const std::string& job, int restart) {
    ReportFacts of_run = facts(folder.path(), run);
    of_run.origin.job = {.id = job, .restart = restart};
    return of_run;
  };
  const auto tell = [&](const ReportFacts& of_run) {
    const Verdict verdict = {.ranks = {1}, .reason = "it failed", .remedy = "look", .foundation = 24};
    return errors_of(folder.path() / "stderr", [&] { report_failure(verdict, records, of_run); });
  };
  const auto is_marked = [&] {
    std::ifstream file(folder.path() / "failure.json");
    return nlohmann::json::parse(file).contains("resumed");
  };
  mark_earlier_reports(of(1, "7", 0));
  CHECK(std::filesystem::is_empty(folder.path()));
  tell(of(1, "7", 0));
  CHECK_FALSE(is_marked());
  for (const ReportFacts& other : {of(1, "7", 0), of(2, "8", 0), of(2, "7", 1), of(2, "", 0)}) {
    mark_earlier_reports(other);
    CHECK_FALSE(is_marked());
  }
  mark_earlier_reports(of(2, "7", 0));
  CHECK(is_marked());
  // A rank of the earlier run that was stopped meanwhile.
  CHECK_THAT(tell(of(1, "7", 0)), Catch::Contains("ends: the run has been started again since: it failed ("));
  CHECK(is_marked());
  tell(of(2, "7", 0));
  CHECK_FALSE(is_marked());
}

TEST_CASE("Errors that nobody reads delay the end of a run only for a moment, and failure.json is written") {
  std::signal(SIGPIPE, SIG_IGN);
  const TemporaryFolder folder;
  const auto records = one_lost();
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  {
    const BlockedErrors blocked;
    const ReportFacts of_run = facts(folder.path(), 1);
    std::thread([=] {
      report_failure(find_culprits(records), records, of_run);
      report_stop(kStoppedExitCode, of_run.checkpoint_dir);
      *ended = true;
    }).detach();
    const auto start = std::chrono::steady_clock::now();
    while (!*ended && std::chrono::steady_clock::now() - start < std::chrono::seconds(30)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(*ended);
  }
  CHECK(std::filesystem::exists(folder.path() / "failure.json"));
  while (!*ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_CASE("A disk that does not respond delays no report") {
  const TemporaryFolder folder;
  const std::filesystem::path latest = folder.path() / "latest";
  // Opening it waits for a writer.
  REQUIRE(mkfifo(latest.c_str(), 0600) == 0);
  const std::string errors =
      errors_of(folder.path() / "stderr", [&] { report_stop(kInterruptedExitCode, folder.path()); });
  CHECK(errors == "mpzero: interrupted twice: stopped immediately without saving; no checkpoint was saved yet.\n");
  close(open(latest.c_str(), O_WRONLY | O_NONBLOCK));
}

TEST_CASE("A stop before the first step names the checkpoint that remains") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "latest") << "tiny-10steps\n";
  CHECK(errors_of(folder.path() / "stderr", [&] { report_stop(kStoppedExitCode, folder.path()); }) ==
        "mpzero: stopped before the first step, so there is nothing to save: tiny-10steps remains.\n");
}

TEST_CASE("A stop before the first step that leaves hosts names them in stop.json, and another one writes none") {
  const TemporaryFolder folder;
  ReportFacts of_run = facts(folder.path() / "new", 0);
  of_run.origin.job = {.id = "17", .restart = 2};
  write_stop_report({}, of_run);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "new"));
  write_stop_report({{"node1", "EC2 takes node1 back"}, {"node7", "EC2 takes node7 back"}}, of_run);
  const nlohmann::json report = nlohmann::json::parse(std::ifstream(folder.path() / "new" / "stop.json"));
  CHECK(report ==
        nlohmann::json(
            {{"job", "17"}, {"restart", 2}, {"reason", "EC2 takes node1 back"}, {"hosts", {"node1", "node7"}}}));
}

TEST_CASE("A run that is started again within one start of its job marks the stop.json before it") {
  const TemporaryFolder folder;
  const auto of = [&](const std::string& job, int restart) {
    ReportFacts of_run = facts(folder.path(), 1);
    of_run.origin.job = {.id = job, .restart = restart};
    return of_run;
  };
  const auto read = [&] { return nlohmann::json::parse(std::ifstream(folder.path() / "stop.json")); };
  write_stop_report({{"node1", "EC2 takes node1 back"}}, of("7", 0));
  for (const ReportFacts& other : {of("8", 0), of("7", 1), of("", 0)}) {
    mark_earlier_reports(other);
    CHECK_FALSE(read().contains("resumed"));
  }
  mark_earlier_reports(of("7", 0));
  CHECK(read().contains("resumed"));
  CHECK(read().at("hosts") == std::vector<std::string>{"node1"});
  // The next stop is not marked.
  write_stop_report({{"node7", "EC2 takes node7 back"}}, of("7", 0));
  CHECK_FALSE(read().contains("resumed"));
}

}  // namespace mpzero
