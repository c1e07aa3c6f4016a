#include <nlohmann/json.hpp>

#include "app/liveness/decision/failure_verdict.hpp"
#include "app/liveness/decision/rank_monitor.hpp"
#include "app/liveness/failure_report.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using State = RankRecord::State;
using parallel::CollectiveState;

constexpr double kSilentAfter = 10;

RankMonitor::Time at(double seconds) {
  return RankMonitor::Time() +
         std::chrono::duration_cast<RankMonitor::Clock::duration>(std::chrono::duration<double>(1000 + seconds));
}

std::vector<RankIdentity> identities(int count) {
  std::vector<RankIdentity> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.push_back({.rank = rank,
                     .host = "node" + std::to_string(rank / 2),
                     .machine = "node" + std::to_string(rank / 2),
                     .pid = 100 + rank,
                     .started = 1,
                     .port = 1,
                     .addresses = {}});
  }
  return ranks;
}

// A rank that has been in this collective for `waited` seconds, on a GPU that has started `started`.
RankStatus in_collective(int64_t queued, int64_t started, int64_t completed, double waited, double allowed = 60) {
  parallel::ChannelRecord channel{
      .name = "gradients", .ranks = {}, .queued = queued, .started = started, .completed = completed, .last = {}};
  for (int64_t sequence = std::max<int64_t>(1, completed); sequence <= queued; ++sequence) {
    channel.last.push_back({.sequence = sequence,
                            .operation = "reduce_scatter",
                            .bytes = 3 << 20,
                            .state = sequence <= completed ? CollectiveState::kCompleted
                                     : sequence <= started ? CollectiveState::kStarted
                                                           : CollectiveState::kQueued,
                            .seconds = waited});
  }
  return {.step = 12,
          .phase = RunPhase::kTraining,
          .idle = waited,
          .allowed = allowed,
          .channels = {channel},
          .complaint = {}};
}

using Finding = RankMonitor::Finding;

struct Fixture {
  explicit Fixture(int count, double silent_after = kSilentAfter)
      : monitor(identities(count), /*own=*/0, silent_after, at(0)), count(count) {}
  void all_say(const RankStatus& status, double when) {
    for (int rank = 0; rank < count; ++rank) {
      monitor.heard(rank, status, at(when));
      monitor.answered(rank, monitor.ask().number);
    }
  }
  RankMonitor monitor;
  int count;
};

}  // namespace

TEST_CASE("Ranks that answer and make progress raise no alarm") {
  Fixture fixture(3);
  for (int second = 0; second < 100; ++second) {
    fixture.all_say(in_collective(second + 2, second + 1, second, 1), second);
    CHECK_FALSE(fixture.monitor.alarmed(at(second + 0.9)));
  }
}

TEST_CASE("A lost rank ends the run within a second, and is named with the collective that the others wait in") {
  Fixture fixture(4);
  fixture.all_say(in_collective(8, 8, 7, 0.5), 1);
  fixture.monitor.lost(2);
  CHECK(fixture.monitor.look(at(1.1)) == Finding::kAlarm);
  fixture.all_say(in_collective(8, 8, 7, 0.5), 1.2);
  CHECK(fixture.monitor.look(at(1.2)) == Finding::kNothing);
  REQUIRE(fixture.monitor.look(at(2.1)) == Finding::kFailure);
  const Verdict verdict = find_culprits(fixture.monitor.records());
  CHECK(verdict.ranks == std::vector<int>{2});
  CHECK_THAT(verdict.reason,
             Catch::Contains(
                 "rank 2 on node1 (pid 102) ended without reporting an error in step 12, while others wait for it in "
                 "reduce_scatter 8 of gradients (3.0 MiB)"));
}

TEST_CASE("A silent rank counts as stopped after the limit, unless it reports again") {
  Fixture fixture(2);
  fixture.all_say(in_collective(3, 3, 2, 0), 0);
  const auto rank_0_says = [&](double when) { fixture.monitor.heard(0, in_collective(3, 3, 2, when), at(when)); };
  rank_0_says(9);
  CHECK_FALSE(fixture.monitor.alarmed(at(9.5)));
  rank_0_says(11);
  CHECK(fixture.monitor.alarmed(at(11)));
  fixture.monitor.heard(1, in_collective(4, 4, 3, 0), at(11.5));
  CHECK_FALSE(fixture.monitor.alarmed(at(12)));
  for (int second = 12; second < 22; ++second) rank_0_says(second);
  rank_0_says(22);
  CHECK(fixture.monitor.look(at(22)) == Finding::kAlarm);
  CHECK(fixture.monitor.look(at(22.9)) == Finding::kNothing);
  CHECK(fixture.monitor.look(at(23.1)) == Finding::kProbe);
  CHECK(fixture.monitor.look(at(25.9)) == Finding::kNothing);
  rank_0_says(26.5);
  REQUIRE(fixture.monitor.look(at(26.5)) == Finding::kFailure);
  CHECK(fixture.monitor.silent_ranks() == std::vector<int>{1});
  const Verdict verdict = find_culprits(fixture.monitor.records());
  CHECK(verdict.ranks == std::vector<int>{1});
  CHECK_THAT(verdict.reason, Catch::Contains("rank 1 on node0 (pid 101) has not answered for 15 s in step 12"));
}

TEST_CASE("A monitor that slept itself blames no rank for its own silence") {
  Fixture fixture(2);
  fixture.all_say(in_collective(3, 3, 2, 0), 0);
  fixture.monitor.slept(std::chrono::seconds(500), at(500));
  CHECK_FALSE(fixture.monitor.alarmed(at(501)));
}

TEST_CASE("Ranks that leave normally are not lost") {
  Fixture fixture(2);
  fixture.monitor.left(1, /*with_error=*/false, at(1));
  fixture.monitor.lost(1);
  fixture.monitor.heard(0, RankStatus{}, at(20));
  CHECK_FALSE(fixture.monitor.alarmed(at(21)));
  CHECK(fixture.monitor.all_ended_but(0));
  CHECK_FALSE(fixture.monitor.all_ended_but(1));
}

TEST_CASE("An alarm is returned once, and again if it has passed in between") {
  Fixture fixture(2);
  fixture.all_say(in_collective(3, 3, 2, 70), 1);
  CHECK(fixture.monitor.look(at(1)) == Finding::kAlarm);
  CHECK(fixture.monitor.look(at(2)) == Finding::kNothing);
  fixture.all_say(in_collective(4, 4, 3, 0), 2);
  CHECK(fixture.monitor.look(at(2)) == Finding::kNothing);
  fixture.all_say(in_collective(4, 4, 3, 70), 3);
  CHECK(fixture.monitor.look(at(3)) == Finding::kAlarm);
  fixture.all_say(in_collective(4, 4, 3, 70), 4);
  CHECK(fixture.monitor.look(at(3 + 2.4)) == Finding::kNothing);
  CHECK(fixture.monitor.look(at(3 + 2.6)) == Finding::kFailure);
}

TEST_CASE("A rank that leaves with an error ends the run itself, and ranks that end after it are not to blame") {
  Fixture fixture(3);
  fixture.monitor.left(1, /*with_error=*/true, at(1));
  CHECK(fixture.monitor.alarmed(at(1)));
  fixture.monitor.lost(2);
  fixture.monitor.left(0, /*with_error=*/true, at(50));
  CHECK(fixture.monitor.look(at(60)) == Finding::kNothing);
  CHECK(fixture.monitor.look(at(62)) == Finding::kOverdue);
}

TEST_CASE("Sleep does not count as silence, but the time before and after it does") {
  Fixture fixture(2);
  fixture.all_say(in_collective(3, 3, 2, 0), 0);
  for (int i = 1; i <= 3; ++i) {
    // 3 s of silence, then 5 s of which the monitor knows nothing.
    fixture.monitor.heard(0, in_collective(3, 3, 2, 0), at(8 * i));
    fixture.monitor.slept(std::chrono::seconds(5), at(8 * i));
    CHECK_FALSE(fixture.monitor.alarmed(at(8 * i)));
  }
  fixture.monitor.heard(0, in_collective(3, 3, 2, 0), at(25.5));
  CHECK(fixture.monitor.alarmed(at(25.5)));
  CHECK(fixture.monitor.silent_ranks() == std::vector<int>{1});
}

TEST_CASE("A rank that abandoned this one stays silent, whatever else comes of it") {
  Fixture fixture(3);
  fixture.all_say(in_collective(3, 3, 2, 0), 0);
  fixture.monitor.abandoned(2, at(5));
  fixture.monitor.heard(2, in_collective(3, 3, 2, 0), at(6));
  fixture.monitor.lost(2);
  CHECK(fixture.monitor.silent_ranks() == std::vector<int>{2});
}

TEST_CASE("Ranks that are gone, silent or have left are no candidates") {
  Fixture fixture(5);
  fixture.monitor.lost(0);
  fixture.monitor.silent(1, at(1));
  fixture.monitor.left(2, /*with_error=*/false, at(1));
  fixture.monitor.failed(3, "an error", at(1));
  CHECK(fixture.monitor.gone() == std::vector<bool>{true, true, true, false, false});
}

TEST_CASE("A new monitor excuses the silence of ranks that have not reported to it, but not of ranks that are gone") {
  Fixture fixture(4);
  fixture.monitor.left(0, /*with_error=*/false, at(50));
  fixture.monitor.silent(1, at(100));
  fixture.monitor.take_over(at(100));
  fixture.monitor.heard(2, in_collective(3, 3, 2, 0), at(101));
  CHECK(fixture.monitor.look(at(102)) == Finding::kAlarm);
  const auto& records = fixture.monitor.records();
  CHECK(records[0].state == State::kLeft);
  CHECK(records[1].state == State::kSilent);
  CHECK(records[1].quiet == Approx(kSilentAfter + 2));
  CHECK(records[2].state == State::kAnswers);
  CHECK(records[3].state == State::kAnswers);
  CHECK(records[3].quiet == Approx(2));
}

namespace {

// Rank 3 does not answer for eleven seconds after the first sign at 10 s. Meanwhile rank 2 ends as a consequence.
Verdict verdict_after_consequence(Fixture& fixture) {
  RankMonitor& monitor = fixture.monitor;
  const RankStatus status = in_collective(8, 8, 7, 0.5);
  CHECK(monitor.look(at(10)) == Finding::kAlarm);
  for (double now = 10.2; now < 21; now += 0.2) {
    for (int rank = 0; rank < fixture.count; ++rank) {
      const bool is_away = rank == 3 || (rank == 2 && now > 12);
      if (is_away || monitor.records()[static_cast<size_t>(rank)].state == State::kLost) continue;
      monitor.heard(rank, status, at(now));
      monitor.answered(rank, monitor.ask().number);
    }
    if (now > 12) monitor.lost(2);
    CHECK(monitor.look(at(now)) != Finding::kFailure);
  }
  // What it has sent late arrives.
  monitor.heard(3, status, at(21));
  monitor.answered(3, monitor.ask().number);
  REQUIRE(monitor.look(at(21)) == Finding::kFailure);
  return monitor.verdict();
}

}  // namespace

TEST_CASE("A rank that ends while answers are awaited is not blamed for the loss before it") {
  Fixture fixture(4, /*silent_after=*/60);
  fixture.all_say(in_collective(8, 8, 7, 0.5), 9);
  fixture.monitor.lost(1);
  const Verdict verdict = verdict_after_consequence(fixture);
  CHECK(verdict.ranks == std::vector<int>{1});
  CHECK_THAT(verdict.reason, Catch::Contains("; rank 2 on node1 (pid 102) has ended since"));
}

TEST_CASE("A rank that ends while answers are awaited is not blamed for the error before it") {
  Fixture fixture(4, /*silent_after=*/60);
  fixture.all_say(in_collective(8, 8, 7, 0.5), 9);
  fixture.monitor.failed(1, "CUDA error", at(10));
  const Verdict verdict = verdict_after_consequence(fixture);
  CHECK(verdict.ranks == std::vector<int>{1});
  CHECK_THAT(verdict.reason, Catch::Contains("CUDA error") && Catch::Contains("; rank 2 on node1"));
}

TEST_CASE("A rank that has not answered since the first loss, and ends, may be the cause: none is blamed") {
  Fixture fixture(5, /*silent_after=*/60);
  const RankStatus status = in_collective(8, 8, 7, 0.5);
  fixture.all_say(status, 9);
  fixture.monitor.lost(1);
  CHECK(fixture.monitor.look(at(10)) == Finding::kAlarm);
  for (const int rank : {0, 2, 3}) fixture.monitor.answered(rank, fixture.monitor.ask().number);
  CHECK(fixture.monitor.look(at(11.1)) == Finding::kKnock);
  // A network that was cut delays the news of a loss.
  fixture.monitor.lost(4);
  REQUIRE(fixture.monitor.look(at(15)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks.empty());
  CHECK_THAT(fixture.monitor.verdict().reason,
             Catch::Contains("rank 1 on node0") && Catch::Contains("; rank 4 on node2 (pid 104) has ended since"));
}

TEST_CASE("A connection to a rank does not replace its answer: the news of its error may be under way") {
  Fixture fixture(3, /*silent_after=*/60);
  fixture.all_say(in_collective(8, 8, 7, 0.5), 9);
  fixture.monitor.lost(1);
  CHECK(fixture.monitor.look(at(10)) == Finding::kAlarm);
  fixture.monitor.answered(0, fixture.monitor.ask().number);
  CHECK(fixture.monitor.look(at(11.1)) == Finding::kKnock);
  CHECK(fixture.monitor.knocks() == std::vector<int>{2});
  fixture.monitor.sighted(0, 2, message::Reach::kAnswers);
  CHECK(fixture.monitor.look(at(12)) == Finding::kNothing);
  fixture.monitor.failed(2, "CUDA error", at(13));
  fixture.monitor.answered(2, fixture.monitor.ask().number);
  REQUIRE(fixture.monitor.look(at(13)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks.empty());
}

TEST_CASE("After an error the report waits for an answer for as long as silence takes, or 60 s, and blames none then") {
  const auto [silent_after, limit] = GENERATE(table<double, double>({{60, 74}, {0, 60}}));
  Fixture fixture(3, silent_after);
  const auto all_say = [&](double now) {
    for (int rank = 0; rank < 3; ++rank) fixture.monitor.heard(rank, in_collective(8, 8, 7, 0.5), at(now));
  };
  all_say(10);
  fixture.monitor.failed(1, "CUDA error", at(10));
  CHECK(fixture.monitor.look(at(10)) == Finding::kAlarm);
  // Rank 2 is heard, and never answers the question.
  for (const int rank : {0, 1}) fixture.monitor.answered(rank, fixture.monitor.ask().number);
  for (double now = 11; now < 10 + limit; now += 1) {
    all_say(now);
    CHECK(fixture.monitor.look(at(now)) != Finding::kFailure);
    fixture.monitor.knocks();
  }
  REQUIRE(fixture.monitor.look(at(10.1 + limit)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks.empty());
  CHECK_THAT(fixture.monitor.verdict().reason, Catch::Contains("rank 2 on node1 (pid 102) has not answered since"));
}

TEST_CASE("A rank that answers after the first error, and ends right then, is not blamed") {
  Fixture fixture(3, /*silent_after=*/60);
  fixture.all_say(in_collective(8, 8, 7, 0.5), 9);
  fixture.monitor.failed(1, "CUDA error", at(10));
  CHECK(fixture.monitor.look(at(10)) == Finding::kAlarm);
  for (const int rank : {0, 1, 2}) fixture.monitor.answered(rank, fixture.monitor.ask().number);
  fixture.monitor.lost(2);
  CHECK(fixture.monitor.look(at(10.1)) == Finding::kNothing);
  REQUIRE(fixture.monitor.look(at(11)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks == std::vector<int>{1});
}

TEST_CASE("A rank that has answered since the first loss, and ends in a second alarm, has ended as a consequence") {
  Fixture fixture(6, /*silent_after=*/60);
  const RankStatus status = in_collective(8, 8, 7, 0.5);
  const auto answer = [&](std::initializer_list<int> ranks, int64_t number, double when) {
    for (const int rank : ranks) {
      fixture.monitor.heard(rank, status, at(when));
      fixture.monitor.answered(rank, number);
    }
  };
  fixture.all_say(status, 9);
  answer({0, 1, 2, 3, 4}, message::Status::kFirst, 66);
  fixture.monitor.lost(2);
  CHECK(fixture.monitor.look(at(68.9)) == Finding::kAlarm);
  const int64_t first = fixture.monitor.ask().number;
  answer({0, 1, 3}, first, 69);
  SECTION("it has answered before the silence began") { answer({4}, first, 69); }
  // Rank 5 becomes silent.
  CHECK(fixture.monitor.look(at(69.5)) == Finding::kAlarm);
  SECTION("its answer to the first question comes later") { answer({4}, first, 69.5); }
  fixture.monitor.lost(4);
  CHECK(fixture.monitor.look(at(69.6)) == Finding::kNothing);
  answer({0, 1, 3, 5}, fixture.monitor.ask().number, 70);
  REQUIRE(fixture.monitor.look(at(70)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks == std::vector<int>{2});
  CHECK_THAT(fixture.monitor.verdict().reason, Catch::Contains("; rank 4 on node2 (pid 104) has ended since"));
}

TEST_CASE("An answer to a question before the first loss says nothing about the order of losses") {
  Fixture fixture(6, /*silent_after=*/60);
  const RankStatus status = in_collective(8, 8, 7, 0.5);
  fixture.all_say(status, 9);
  for (const int rank : {0, 1, 2, 3, 4}) fixture.monitor.heard(rank, status, at(66));
  // Rank 5 is silent, and all others answer.
  CHECK(fixture.monitor.look(at(69.5)) == Finding::kAlarm);
  const int64_t before = fixture.monitor.ask().number;
  for (const int rank : {0, 1, 2, 3, 4}) fixture.monitor.answered(rank, before);
  fixture.monitor.lost(2);
  CHECK(fixture.monitor.look(at(70)) == Finding::kAlarm);
  fixture.monitor.answered(4, before);
  fixture.monitor.lost(4);
  CHECK(fixture.monitor.look(at(70.6)) == Finding::kProbe);
  for (const int rank : {0, 1, 3, 5}) {
    fixture.monitor.heard(rank, status, at(71));
    fixture.monitor.answered(rank, fixture.monitor.ask().number);
  }
  REQUIRE(fixture.monitor.look(at(71)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks.empty());
  CHECK_THAT(fixture.monitor.verdict().reason, Catch::StartsWith("rank 2 on node1 (pid 102) ended"));
}

TEST_CASE("Of two losses at the same time, one of which comes late, none is blamed") {
  const bool is_late = GENERATE(false, true);
  Fixture fixture(4, /*silent_after=*/60);
  fixture.all_say(in_collective(8, 8, 7, 0.5), 9);
  for (const int rank : {0, 1, 3}) fixture.monitor.heard(rank, in_collective(8, 8, 7, 0.5), at(19));
  fixture.monitor.heard(2, in_collective(8, 8, 7, 0.5), at(is_late ? 20 : 13));
  fixture.monitor.heard(2, in_collective(8, 8, 7, 0.5), at(20));
  if (!is_late) fixture.monitor.heard(2, in_collective(8, 8, 7, 0.5), at(21.5));
  fixture.monitor.lost(1);
  fixture.monitor.lost(2);
  const double now = is_late ? 20.1 : 21.6;
  CHECK(fixture.monitor.look(at(now)) == Finding::kAlarm);
  for (const int rank : {0, 3}) fixture.monitor.answered(rank, fixture.monitor.ask().number);
  REQUIRE(fixture.monitor.look(at(now + 0.5)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks == (is_late ? std::vector<int>{} : std::vector<int>{1, 2}));
}

TEST_CASE("Of two errors at the same time, of which the second comes late, none is blamed") {
  const bool is_late = GENERATE(false, true);
  Fixture fixture(6, /*silent_after=*/60);
  const RankStatus status = in_collective(8, 8, 7, 0.5);
  fixture.all_say(status, 24);
  for (const int rank : {0, 1, 3, 4, 5}) fixture.monitor.heard(rank, status, at(30));
  if (!is_late) fixture.monitor.heard(2, status, at(28));
  fixture.monitor.failed(4, "NCCL failed: remote process exited", at(30.5));
  CHECK(fixture.monitor.look(at(30.5)) == Finding::kAlarm);
  for (const int rank : {0, 1, 3, 4, 5}) fixture.monitor.answered(rank, fixture.monitor.ask().number);
  fixture.monitor.failed(2, "CUDA error: uncorrectable ECC", at(30.8));
  fixture.monitor.answered(2, fixture.monitor.ask().number);
  CHECK(fixture.monitor.look(at(30.8)) == Finding::kNothing);
  REQUIRE(fixture.monitor.look(at(31)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks == (is_late ? std::vector<int>{} : std::vector<int>{4}));
}

TEST_CASE("An error that comes late and names its culprits is believed: its order does not matter") {
  Fixture fixture(6, /*silent_after=*/60);
  const RankStatus status = in_collective(8, 8, 7, 0.5);
  fixture.all_say(status, 24);
  for (const int rank : {0, 1, 3, 4, 5}) fixture.monitor.heard(rank, status, at(30));
  fixture.monitor.failed(4, "NCCL runs over \"Socket\" instead of EFA on node1", at(30.5), {3});
  CHECK(fixture.monitor.look(at(30.5)) == Finding::kAlarm);
  for (const int rank : {0, 1, 3, 4, 5}) fixture.monitor.answered(rank, fixture.monitor.ask().number);
  fixture.monitor.failed(2, "NCCL runs over \"Socket\" instead of EFA on node1", at(30.8), {3});
  fixture.monitor.answered(2, fixture.monitor.ask().number);
  CHECK(fixture.monitor.look(at(30.8)) == Finding::kNothing);
  REQUIRE(fixture.monitor.look(at(31)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks == std::vector<int>{3});
}

TEST_CASE("An error that ends a rank's silence was delayed") {
  Fixture fixture(3, /*silent_after=*/60);
  const RankStatus status = in_collective(8, 8, 7, 0.5);
  fixture.all_say(status, 9);
  for (const int rank : {0, 2}) fixture.monitor.heard(rank, status, at(70));
  CHECK(fixture.monitor.look(at(70)) == Finding::kAlarm);
  CHECK(fixture.monitor.silent_ranks() == std::vector<int>{1});
  // An error is a message, too.
  fixture.monitor.failed(1, "CUDA error", at(70.1));
  CHECK(fixture.monitor.silent_ranks().empty());
  CHECK(fixture.monitor.look(at(70.1)) == Finding::kAlarm);
  for (const int rank : {0, 1, 2}) fixture.monitor.answered(rank, fixture.monitor.ask().number);
  REQUIRE(fixture.monitor.look(at(70.6)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks == std::vector<int>{1});
}

TEST_CASE("Of two errors that came while the monitor did not run, none is blamed") {
  const bool has_slept = GENERATE(false, true);
  Fixture fixture(3, /*silent_after=*/60);
  const RankStatus status = in_collective(8, 8, 7, 0.5);
  fixture.all_say(status, 9);
  if (has_slept) fixture.monitor.slept(std::chrono::seconds(2), at(11));
  fixture.monitor.failed(2, "NCCL failed: remote process exited", at(11));
  fixture.monitor.failed(1, "CUDA error: uncorrectable ECC", at(11));
  CHECK(fixture.monitor.look(at(11)) == Finding::kAlarm);
  for (const int rank : {0, 1, 2}) fixture.monitor.answered(rank, fixture.monitor.ask().number);
  REQUIRE(fixture.monitor.look(at(11.5)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks == (has_slept ? std::vector<int>{} : std::vector<int>{2}));
}

TEST_CASE("Of two errors at the same time, of which only the first comes late, the first is blamed") {
  Fixture fixture(3, /*silent_after=*/60);
  const RankStatus status = in_collective(8, 8, 7, 0.5);
  fixture.all_say(status, 24);
  for (const int rank : {0, 2}) fixture.monitor.heard(rank, status, at(30));
  fixture.monitor.failed(1, "CUDA error: uncorrectable ECC", at(30.5));
  CHECK(fixture.monitor.look(at(30.5)) == Finding::kAlarm);
  for (const int rank : {0, 1, 2}) fixture.monitor.answered(rank, fixture.monitor.ask().number);
  fixture.monitor.failed(2, "NCCL failed: remote process exited", at(30.8));
  REQUIRE(fixture.monitor.look(at(31)) == Finding::kFailure);
  CHECK(fixture.monitor.verdict().ranks == std::vector<int>{1});
}

TEST_CASE("Silence does not delay the verdict past 20 s after a loss") {
  const double loss = GENERATE(30, 41, 43, 50);
  Fixture fixture(8, /*silent_after=*/60);
  fixture.all_say(in_collective(8, 8, 7, 0.5), 0);
  double found = 0;
  for (double now = 1; now < 200 && found == 0; now += 0.1) {
    for (const int rank : {0, 1, 2, 3}) {
      if (rank == 1 && now >= loss) continue;
      fixture.monitor.heard(rank, in_collective(8, 8, 7, 0.5), at(now));
      fixture.monitor.answered(rank, fixture.monitor.ask().number);
    }
    if (now >= loss) fixture.monitor.lost(1);
    const Finding finding = fixture.monitor.look(at(now));
    if (finding == Finding::kProbe) {
      for (const int rank : fixture.monitor.probes().probe) {
        fixture.monitor.sighted(0, rank, message::Reach::kUnreachable);
      }
    }
    if (finding == Finding::kFailure) found = now;
  }
  REQUIRE(found > 0);
  INFO(fixture.monitor.verdict().reason);
  CHECK(found - loss < 20.5);
  // The silent node may be the cause, or the rank that was lost.
  for (const int rank : fixture.monitor.verdict().ranks) CHECK(rank >= 4);
}

TEST_CASE("The loss of a rank explains the errors that its peers meet") {
  Fixture fixture(3);
  fixture.all_say(in_collective(3, 3, 2, 1), 1);
  fixture.monitor.failed(0, "MPI_Allreduce failed: a peer is gone", at(1));
  CHECK(fixture.monitor.alarmed(at(1)));
  fixture.monitor.lost(1);
  CHECK(find_culprits(fixture.monitor.records()).ranks == std::vector<int>{1});
}

TEST_CASE("An error is reported with its rank's own text") {
  Fixture fixture(3);
  fixture.all_say(in_collective(3, 3, 2, 1), 1);
  fixture.monitor.failed(2, "CUDA error: an illegal memory access was encountered.\n", at(1));
  const Verdict verdict = find_culprits(fixture.monitor.records());
  CHECK(verdict.ranks == std::vector<int>{2});
  CHECK(verdict.reason == "rank 2: CUDA error: an illegal memory access was encountered (in step 12, on node1)");
}

TEST_CASE("If a rank knows the cause of an error, the cause is to blame, whichever rank reported first") {
  Fixture fixture(6);
  RankStatus connecting;
  connecting.phase = RunPhase::kNetwork;
  fixture.all_say(connecting, 1);
  fixture.monitor.failed(0, "ncclCommInitRankConfig failed on rank 0: remote process exited", at(1));
  fixture.monitor.failed(4, "NCCL could not start EFA on node2: `fi_info -p efa` must list the devices there.", at(1.1),
                         {4});
  const Verdict one = find_culprits(fixture.monitor.records());
  CHECK(one.ranks == std::vector<int>{4});
  CHECK(one.reason ==
        "rank 4: NCCL could not start EFA on node2: `fi_info -p efa` must list the devices there (while the nodes were "
        "being connected)");
  fixture.monitor.failed(5, "NCCL could not start EFA on node2", at(1.2), {5});
  CHECK(find_culprits(fixture.monitor.records()).ranks == std::vector<int>{4, 5});
  CHECK_THAT(find_culprits(fixture.monitor.records()).reason,
             Catch::StartsWith("ranks 4, 5: NCCL could not start EFA"));
}

TEST_CASE("An error that all ranks know of blames the ranks that it names, once each, and none that do not exist") {
  Fixture fixture(4);
  for (int rank = 0; rank < 4; ++rank) {
    fixture.monitor.failed(rank, "NCCL runs over \"Socket\" instead of EFA on node1", at(1), {2, 3, 17, -1});
  }
  const Verdict verdict = find_culprits(fixture.monitor.records());
  CHECK(verdict.ranks == std::vector<int>{2, 3});
  const ReportOrigin origin;
  const auto json = nlohmann::json::parse(report_json(verdict, fixture.monitor.records(), origin));
  CHECK(json.at("hosts") == std::vector<std::string>{"node1"});
}

TEST_CASE("No rank is blamed for nodes that are not connected, unless some ranks connected and others did not") {
  Fixture fixture(4);
  RankStatus waits = in_collective(3, 3, 3, 61);
  waits.phase = RunPhase::kNetwork;
  waits.complaint = "NCCL on node0 has had no answer over \"Libfabric\"";
  fixture.all_say(waits, 1);
  CHECK(fixture.monitor.alarmed(at(1)));
  Verdict verdict = find_culprits(fixture.monitor.records());
  CHECK(verdict.ranks.empty());
  CHECK(verdict.reason ==
        "the nodes have not been connected for 61 s: NCCL on node0 has had no answer over \"Libfabric\"");
  CHECK_THAT(verdict.remedy, Catch::Contains("security group"));

  // The ranks that connected ask the others for what they saw.
  RankStatus through = in_collective(4, 4, 3, 61);
  through.phase = RunPhase::kNetwork;
  for (const int rank : {0, 1, 2}) fixture.monitor.heard(rank, through, at(2));
  verdict = find_culprits(fixture.monitor.records());
  CHECK(verdict.ranks == std::vector<int>{3});
  CHECK(verdict.reason ==
        "rank 3 on node1 (pid 103) has not been connected, while the others have, for 61 s: NCCL on node0 has had no "
        "answer over \"Libfabric\"");
}

TEST_CASE("A run without progress is measured by the longest time that any rank may take") {
  Fixture fixture(2);
  fixture.all_say(in_collective(3, 3, 2, 70), 1);
  CHECK(fixture.monitor.alarmed(at(1)));
  fixture.monitor.heard(1, in_collective(2, 2, 2, 70, /*allowed=*/180), at(2));
  CHECK_FALSE(fixture.monitor.alarmed(at(2)));
  fixture.all_say(in_collective(3, 3, 2, 1000, /*allowed=*/0), 3);
  CHECK_FALSE(fixture.monitor.alarmed(at(3)));
}

TEST_CASE("The rank that has not requested the collective that others wait in is blamed") {
  Fixture fixture(4);
  fixture.all_say(in_collective(20, 20, 19, 65), 1);
  fixture.monitor.heard(3, in_collective(19, 19, 19, 65), at(1));
  const Verdict verdict = find_culprits(fixture.monitor.records());
  CHECK(verdict.ranks == std::vector<int>{3});
  CHECK(verdict.reason ==
        "rank 3 on node1 (pid 103) has not reached reduce_scatter 20 of gradients (3.0 MiB), in step "
        "12, while others have waited in it for 65 s");
}

TEST_CASE("If all ranks have requested a collective, the rank whose GPU has not reached it is blamed") {
  Fixture fixture(3);
  fixture.all_say(in_collective(30, 20, 19, 65), 1);
  fixture.monitor.heard(1, in_collective(30, 19, 19, 65), at(1));
  const Verdict verdict = find_culprits(fixture.monitor.records());
  CHECK(verdict.ranks == std::vector<int>{1});
  CHECK_THAT(verdict.reason, Catch::Contains("has not reached reduce_scatter 20 of gradients (3.0 MiB) on the GPU"));
}

TEST_CASE("If all ranks are in the same collective and one does not complete it, that rank is named") {
  Fixture fixture(3);
  fixture.all_say(in_collective(20, 20, 20, 65), 1);
  fixture.monitor.heard(1, in_collective(20, 20, 19, 65), at(1));
  const Verdict verdict = find_culprits(fixture.monitor.records());
  CHECK(verdict.ranks == std::vector<int>{1});
  CHECK_THAT(verdict.reason, Catch::Contains("did not complete it"));
}

TEST_CASE("If all ranks wait in the same collective, none is blamed and the collective is named") {
  Fixture fixture(3);
  fixture.all_say(in_collective(20, 20, 19, 65), 1);
  const Verdict verdict = find_culprits(fixture.monitor.records());
  CHECK(verdict.ranks.empty());
  CHECK(verdict.reason ==
        "no rank has made progress for 65 s in step 12, all ranks in reduce_scatter 20 of gradients (3.0 MiB)");
}

TEST_CASE("The text report begins with the verdict and groups ranks at the same place") {
  Fixture fixture(6);
  fixture.all_say(in_collective(20, 20, 19, 65), 1);
  fixture.monitor.heard(3, in_collective(19, 19, 19, 65), at(1));
  const auto& records = fixture.monitor.records();
  const Verdict verdict = find_culprits(records);
  const std::string text = report_text(verdict, records, "checkpoints/tiny-10steps");
  CHECK(text.rfind("mpzero: error: " + verdict.reason + "; ", 0) == 0);
  CHECK_THAT(text, Catch::Contains("The same command resumes from checkpoints/tiny-10steps.\n"));
  CHECK_THAT(text,
             Catch::Contains("    rank 0-2,4-5 (node0): in step 12\n      gradients: 20 requested, 19 completed; last: "
                             "reduce_scatter 19 3.0 MiB, reduce_scatter 20 3.0 MiB WAITS\n"));
  CHECK_THAT(text, Catch::Contains("    rank 3 (node1): in step 12\n      gradients: 19 requested, 19 completed"));
  CHECK_THAT(report_text(verdict, records, ""), Catch::Contains("No checkpoint was saved yet"));
}

TEST_CASE("failure.json names ranks, and each of their hosts once") {
  Fixture fixture(4);
  fixture.all_say(in_collective(3, 3, 2, 1), 1);
  fixture.monitor.lost(2);
  fixture.monitor.lost(3);
  const auto& records = fixture.monitor.records();
  ReportOrigin origin;
  origin.job.id = "17";
  origin.job.restart = 2;
  origin.run = "f00d";
  origin.rank = 1;
  const nlohmann::json json = nlohmann::json::parse(report_json(find_culprits(records), records, origin));
  CHECK(json.at("ranks") == std::vector<int>{2, 3});
  CHECK(json.at("hosts") == std::vector<std::string>{"node1"});
  CHECK(json.at("step") == 12);
  CHECK(json.at("job") == "17");
  CHECK(json.at("restart") == 2);
  CHECK(json.at("run") == "f00d");
  CHECK(json.at("found_by") == 1);
  CHECK(json.at("foundation") == 2);
  CHECK(json.at("time").get<std::string>().size() == std::string("2026-01-01T00:00:00Z").size());
}

TEST_CASE("A rank's identity and status survive serialization") {
  const RankIdentity identity = this_process(3, 4711);
  CHECK(identity.pid > 1);
  CHECK(identity.started > 0);
  const auto same = nlohmann::json::parse(nlohmann::json(identity).dump()).get<RankIdentity>();
  CHECK((same.rank == 3 && same.port == 4711 && same.host == identity.host && same.started == identity.started));
  RankStatus status = in_collective(9, 8, 7, 1.5);
  status.channels[0].ranks = {.first = 1, .count = 2, .stride = 4};
  const auto heard = nlohmann::json::parse(nlohmann::json(status).dump()).get<RankStatus>();
  CHECK(heard.step == 12);
  CHECK(heard.phase == RunPhase::kTraining);
  CHECK(heard.idle == 1.5);
  REQUIRE(heard.channels.size() == 1);
  CHECK(heard.channels[0].started == 8);
  CHECK(heard.channels[0].ranks == status.channels[0].ranks);
  REQUIRE(heard.channels[0].last.size() == 3);
  CHECK(heard.channels[0].last[1].state == CollectiveState::kStarted);
  CHECK(heard.channels[0].last[2].operation == "reduce_scatter");
}

}  // namespace mpzero
