#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "tests/app/liveness/decision/simulated_run.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

constexpr double kForever = 1e6;
// More than any decision needs: silence, a search, the doubt and another search.
constexpr double kSettled = 400;

std::set<int> as_set(const std::vector<int>& ranks) { return {ranks.begin(), ranks.end()}; }

// All running ranks have ended with a verdict; no verdict blames a rank that is not among `guilty`, and failure.json
// names all of them.
void check_blamed(SimulatedRun& run, const std::set<int>& guilty) {
  run.run_until(run.now() + kSettled);
  CHECK(run.waiting().empty());
  REQUIRE(run.file());
  for (const SimulatedRun::Written& one : run.verdicts()) {
    INFO("rank " << one.by << " at " << one.at << ": " << one.verdict.reason);
    for (const int rank : one.verdict.ranks) CHECK(guilty.contains(rank));
  }
  INFO(run.file()->verdict.reason);
  CHECK(as_set(run.file()->verdict.ranks) == guilty);
}

// The run continues.
void check_continues(SimulatedRun& run) {
  run.run_until(run.now() + kSettled);
  for (const SimulatedRun::Written& one : run.verdicts()) FAIL_CHECK(one.verdict.reason);
  CHECK(run.waiting().size() == static_cast<size_t>(run.size()));
}

}  // namespace

TEST_CASE("A node that loses its network for 64 s is blamed, by both sides, and not the three that hear each other") {
  SimulatedRun run({});
  run.at(10, [&] { run.cut_off({0}, 64); });
  run.run_until(10);
  check_blamed(run, as_set(run.ranks_of(0)));
  CHECK(run.file()->verdict.foundation == 24);
}

TEST_CASE("A network that is cut for less than the limit ends nothing") {
  SimulatedRun run({});
  run.at(10, [&] { run.cut_off({0}, 25); });
  run.run_until(10);
  check_continues(run);
}

TEST_CASE("Two halves without a connection blame none") {
  const double seconds = GENERATE(64, kForever);
  SimulatedRun run({});
  run.at(10, [&] { run.cut_off({0, 2}, seconds); });
  run.run_until(10);
  check_blamed(run, {});
  CHECK_THAT(run.file()->verdict.reason, Catch::Contains("the network between node"));
}

TEST_CASE("If only two of the nodes cannot reach each other, none is blamed") {
  SimulatedRun run({});
  run.at(10, [&] { run.cut(0, 1, kForever); });
  run.run_until(10);
  check_blamed(run, {});
  CHECK_THAT(run.file()->verdict.reason, Catch::Contains("the network between node0") && Catch::Contains("node1"));
}

TEST_CASE("A node without power is blamed, whether or not its rank monitors") {
  const int node = GENERATE(0, 2);
  SimulatedRun run({});
  run.at(10, [&] { run.power_off(node); });
  run.run_until(10);
  check_blamed(run, as_set(run.ranks_of(node)));
}

TEST_CASE("Of two nodes, one without power and one that is cut off look the same: none is blamed") {
  SimulatedRun run({.num_nodes = 2});
  run.at(10, [&] { run.power_off(1); });
  run.run_until(10);
  check_blamed(run, {});
}

TEST_CASE("A stopped rank is blamed, also if it alone is on its node") {
  const int rank = GENERATE(0, 1);
  SimulatedRun run({.num_nodes = 2, .ranks_per_node = 1});
  run.at(10, [&] { run.stop(rank, kForever); });
  run.run_until(10);
  check_blamed(run, {rank});
}

TEST_CASE("A rank that is stopped for longer than the limit and then runs again blames no other") {
  const int rank = GENERATE(0, 5);
  SimulatedRun run({});
  run.at(10, [&] { run.stop(rank, 75); });
  run.run_until(10);
  check_blamed(run, {rank});
}

TEST_CASE("A monitor that stalls for 5 s once in 50 finds a stopped rank") {
  SimulatedRun run({});
  run.at(10, [&] { run.stop(9, kForever); });
  for (int i = 0; i < 8; ++i) {
    run.at(15 + 50 * i, [&] { run.stop(0, 5.5); });
  }
  run.run_until(10);
  check_blamed(run, {9});
  CHECK(run.file()->at < 10 + 60 + 25);
}

TEST_CASE("A rank that does not reach a collective is blamed after the time that is allowed") {
  SimulatedRun run({});
  run.limit_progress(100);
  run.at(10, [&] { run.hang(20); });
  run.run_until(10);
  check_blamed(run, {20});
}

TEST_CASE("A node that dies is blamed, and not the peer whose network reports an error before the silence counts") {
  const int node = GENERATE(0, 2);
  const double first = GENERATE(0.5, 20.0, 59.0);
  SimulatedRun run({});
  run.run_until(10);
  run.power_off(node);
  for (const int peer : {12, 8, 30}) {
    run.at(10 + first + peer * 0.1, [&run, peer] { run.fail(peer, "NCCL failed: remote process exited"); });
  }
  check_blamed(run, as_set(run.ranks_of(node)));
}

TEST_CASE("An error of a rank is its own if all others answer, also after a while") {
  SimulatedRun run({});
  run.run_until(10);
  const double stall = GENERATE(0, 20, 45);
  run.stop(20, stall);
  run.at(11, [&] { run.fail(12, "CUDA error: an illegal memory access was encountered"); });
  // Its peers do not make progress, and their networks report that.
  run.at(14, [&] { run.fail(3, "NCCL failed: remote process exited"); });
  check_blamed(run, {12});
  CHECK(run.file()->at < 10 + stall + 5);
}

TEST_CASE("An error that names its cause counts, although another rank does not answer") {
  SimulatedRun run({});
  run.run_until(10);
  run.stop(20, 30);
  run.at(11, [&] { run.fail(12, "NCCL runs over \"Socket\" on node 3", {24}); });
  check_blamed(run, {24});
  CHECK(run.file()->at < 14);
}

TEST_CASE("A cut network is not blamed on the ranks whose collectives it breaks") {
  SimulatedRun run({});
  run.run_until(10);
  SECTION("one node is cut off") {
    const int node = GENERATE(0, 2);
    run.cut_off({node}, kForever);
    for (int rank = 0; rank < run.size(); ++rank) run.at(15, [&run, rank] { run.fail(rank, "a network error"); });
    check_blamed(run, as_set(run.ranks_of(node)));
  }
  SECTION("two halves") {
    run.cut_off({0, 2}, kForever);
    for (int rank = 0; rank < run.size(); ++rank) run.at(15, [&run, rank] { run.fail(rank, "a network error"); });
    check_blamed(run, {});
  }
}

TEST_CASE("A process that ends after a node has died does not hide the node") {
  const double after = GENERATE(5, 30, 58, 61, 63);
  SimulatedRun run({});
  run.run_until(10);
  run.power_off(2);
  run.at(10 + after, [&] { run.kill(9); });
  run.run_until(400);
  REQUIRE(run.file());
  INFO(run.file()->verdict.reason);
  // The launcher ends the ranks soon after the first of them: the report cannot wait for long.
  const std::set<int> blamed = as_set(run.file()->verdict.ranks);
  CHECK((blamed == as_set(run.ranks_of(2)) || (after < 45 && blamed.empty())));
  CHECK(run.file()->at < 10 + after + 25);
  CHECK(run.waiting().empty());
}

TEST_CASE("A frozen node is blamed soon, however many ranks it has") {
  const int per_node = GENERATE(8, 64);
  SimulatedRun run({.num_nodes = 4, .ranks_per_node = per_node});
  run.run_until(10);
  for (const int rank : run.ranks_of(0)) run.stop(rank, kForever);
  check_blamed(run, as_set(run.ranks_of(0)));
  CHECK(run.file()->at < 10 + 60 + 30);
}

TEST_CASE("Ranks that have left are not blamed when rank 0 dies at the end of the run") {
  SimulatedRun run({.num_nodes = 3, .ranks_per_node = 2});
  run.run_until(10);
  for (const int rank : {1, 4}) run.leave(rank);
  run.run_until(11);
  run.kill(0);
  check_blamed(run, {0});
  CHECK(run.file()->at < 15);
}

TEST_CASE("A witness that did not run, or cannot open a connection, says nothing") {
  SimulatedRun run({.num_nodes = 3, .ranks_per_node = 1});
  run.run_until(10);
  // Only nodes 0 and 2 cannot reach each other: rank 1 reaches both.
  run.cut(0, 2, kForever);
  SECTION("it is stopped while it asks") {
    for (double when = 69; when < 80; when += 0.25) {
      run.at(when, [&] {
        if (run.probes(1)) run.stop(1, 3);
      });
    }
  }
  SECTION("it has no descriptors") { run.use_up_descriptors(1); }
  check_blamed(run, {});
}

TEST_CASE("A node that dies while a new monitor is searched for is found, too") {
  const double later = GENERATE(50, 61, 66, 69);
  SimulatedRun run({.num_nodes = 7, .ranks_per_node = 2});
  run.run_until(10);
  run.power_off(0);
  run.at(10 + later, [&] { run.power_off(1); });
  run.run_until(10 + kSettled);
  CHECK(run.waiting().empty());
  REQUIRE(run.file());
  INFO(run.file()->verdict.reason);
  for (const int rank : run.file()->verdict.ranks) CHECK(rank < 4);
  CHECK_FALSE(run.file()->verdict.ranks.empty());
}

TEST_CASE("A rank whose host stalls for a second every four seconds ends its search") {
  SimulatedRun run({.num_nodes = 2, .ranks_per_node = 2});
  run.run_until(10);
  run.power_off(0);
  for (int i = 0; i < 200; ++i) {
    for (const int rank : {2, 3}) {
      run.at(10 + 4 * i, [&run, rank] { run.stop(rank, 1.5); });
    }
  }
  run.run_until(10 + kSettled);
  CHECK(run.waiting().empty());
  CHECK(run.file());
}

namespace {

constexpr double kSilentAfter = 60;

// What happens in a random scenario, and who is to blame. No value: the run must continue.
struct Scenario {
  std::string what;
  std::optional<std::set<int>> guilty;
  // What the ranks see does not show the truth: blaming none is right, too.
  bool may_blame_none = false;
  // The network works again while the ranks ask each other: those that answer by then are not named.
  bool may_blame_some = false;
  // A rank that left could have seen it, but is gone.
  bool may_be_unseen = false;
};

enum class Kind : uint8_t {
  kDeath,
  kStop,
  kNoPower,
  kCut,
  kCutOfTwo,
  kShortCut,
  kStall,
  kStallingMonitor,
  kHang,
  kDeaf,
  kFrozen,
  kError,
  kLeaving,
  kConsequence,
  kLateError
};
// Of those that all runs draw from: without kConsequence and kLateError.
constexpr int kNumKinds = 13;

Scenario cut_side(SimulatedRun& run, int num_nodes, bool is_deaf) {
  const int node = run.random(num_nodes);
  const double seconds = run.random(0, 1) < 0.5 ? kForever : run.random(72, 160);
  std::set<int> side;
  for (int i = 0; i < num_nodes; ++i) {
    if (run.random(0, 1) < 0.4) side.insert(i);
  }
  if (side.empty() || side.size() == static_cast<size_t>(num_nodes)) side = {node};
  is_deaf ? run.deafen(side, seconds) : run.cut_off(side, seconds);
  std::set<int> guilty;
  for (int rank = 0; rank < run.size(); ++rank) {
    const size_t own = side.contains(run.node_of(rank)) ? side.size() : num_nodes - side.size();
    if (2 * own < static_cast<size_t>(num_nodes)) guilty.insert(rank);
  }
  return {.what = fmt::format("{} of {} nodes {} the others for {:.0f} s", side.size(), num_nodes,
                              is_deaf ? "receive nothing from" : "are cut off from", seconds),
          .guilty = guilty,
          .may_blame_some = is_deaf && seconds < kForever};
}

// Ranks end normally one after the other, and one of them dies meanwhile.
Scenario leave_all(SimulatedRun& run) {
  const int dies = run.random(0, 1) < 0.7 ? 0 : run.random(run.size());
  const double begin = run.now();
  for (int rank = 0; rank < run.size(); ++rank) {
    if (rank != dies) run.at(begin + run.random(0, 3), [&run, rank] { run.leave(rank); });
  }
  run.at(begin + run.random(0, 3), [&run, dies] { run.kill(dies); });
  return {.what = fmt::format("all leave, and rank {} dies meanwhile", dies),
          .guilty = std::set<int>{dies},
          .may_blame_none = true,
          .may_be_unseen = true};
}

// A rank dies or meets an error, another one stalls, and some end because their peer is gone.
Scenario end_peers(SimulatedRun& run) {
  const int first = run.random(run.size());
  const bool dies = run.random(0, 1) < 0.5 || run.is_stopped(first);
  const int stalls = run.random(run.size());
  // A rank that stalls while two monitors end after each other cannot know their order.
  if (stalls != first && stalls != 0 && first != 0) run.stop(stalls, run.random(1, 18));
  dies ? run.kill(first) : run.fail(first, "CUDA error");
  const int count = 1 + run.random(3);
  for (int i = 0; i < count; ++i) {
    const int peer = run.random(run.size());
    // A new monitor does not know what the one before it had seen.
    if (peer == 0 || peer == first) continue;
    run.at(run.now() + run.random(2, 15), [&run, peer] { run.abort(peer); });
  }
  return {
      .what = fmt::format("rank {} {}, rank {} stalls, and peers end", first, dies ? "dies" : "meets an error", stalls),
      .guilty = std::set<int>{first},
      // The rank that stalls may end before it answers.
      .may_blame_none = true,
      // Of a small run none is left.
      .may_be_unseen = run.size() <= 8};
}

// A rank meets an error and stalls. The networks of its peers report errors before it does, or at that time.
Scenario delay_error(SimulatedRun& run) {
  // A monitor that stalls receives its peers' errors late, too.
  const int first = 1 + run.random(run.size() - 1);
  const double seconds = run.random(5, 18);
  run.stop(first, seconds);
  run.fail(first, "CUDA error");
  const int count = 1 + run.random(3);
  for (int i = 0; i < count; ++i) {
    const int peer = run.random(run.size());
    if (peer == 0 || peer == first) continue;
    run.at(run.now() + run.random(0.05, seconds + 0.2),
           [&run, peer] { run.fail(peer, "NCCL failed: remote process exited"); });
  }
  return {
      .what = fmt::format("rank {} meets an error and stalls for {:.0f} s, and peers report errors", first, seconds),
      .guilty = std::set<int>{first},
      .may_blame_none = true};
}

Scenario make_happen(SimulatedRun& run, int num_nodes, Kind kind) {
  const int rank = run.random(run.size());
  const int node = run.random(num_nodes);
  const double length = run.random(72, 160);
  switch (kind) {
    case Kind::kDeath:
      run.kill(rank);
      return {.what = fmt::format("rank {} dies", rank), .guilty = std::set<int>{rank}};
    case Kind::kStop:
      run.stop(rank, run.random(0, 1) < 0.5 ? kForever : length);
      return {.what = fmt::format("rank {} is stopped", rank), .guilty = std::set<int>{rank}};
    case Kind::kNoPower:
      run.power_off(node);
      return {.what = fmt::format("node {} loses power", node),
              .guilty = as_set(run.ranks_of(node)),
              .may_blame_none = num_nodes == 2};
    case Kind::kCut:
      return cut_side(run, num_nodes, /*is_deaf=*/false);
    case Kind::kDeaf:
      return cut_side(run, num_nodes, /*is_deaf=*/true);
    case Kind::kCutOfTwo: {
      const int other = num_nodes > 1 ? 1 + run.random(num_nodes - 1) : 0;
      run.cut(0, other, kForever);
      return {.what = fmt::format("nodes 0 and {} cannot reach each other", other), .guilty = std::set<int>{}};
    }
    case Kind::kShortCut: {
      const double seconds = run.random(1, kSilentAfter / 2 - 5);
      run.cut_off({node}, seconds);
      return {.what = fmt::format("node {} is cut off for {:.0f} s", node, seconds), .guilty = std::nullopt};
    }
    case Kind::kStall: {
      const double seconds = run.random(1, kSilentAfter - 10);
      run.stop(rank, seconds);
      return {.what = fmt::format("rank {} stalls for {:.0f} s", rank, seconds), .guilty = std::nullopt};
    }
    case Kind::kStallingMonitor:
      run.stop(rank, kForever);
      for (int i = 0; i < 8; ++i) {
        if (rank != 0) run.at(run.now() + run.random(0, 50) + 50 * i, [&] { run.stop(0, run.random(1, 6)); });
      }
      return {.what = fmt::format("rank {} is stopped, and rank 0 stalls now and then", rank),
              .guilty = std::set<int>{rank}};
    case Kind::kFrozen:
      for (const int one : run.ranks_of(node)) run.stop(one, num_nodes == 1 || one != 0 ? kForever : length);
      return {.what = fmt::format("node {} is frozen", node), .guilty = as_set(run.ranks_of(node))};
    case Kind::kError:
      run.fail(rank, "CUDA error");
      return {.what = fmt::format("rank {} meets an error", rank), .guilty = std::set<int>{rank}};
    case Kind::kConsequence:
      return end_peers(run);
    case Kind::kLateError:
      return delay_error(run);
    case Kind::kLeaving:
      return leave_all(run);
    case Kind::kHang:
      break;
  }
  run.limit_progress(run.random(60, 200));
  run.hang(rank);
  return {.what = fmt::format("rank {} hangs", rank), .guilty = std::set<int>{rank}};
}

bool breaks_collectives(Kind kind) {
  return kind == Kind::kNoPower || kind == Kind::kCut || kind == Kind::kCutOfTwo || kind == Kind::kDeaf ||
         kind == Kind::kFrozen || kind == Kind::kStop;
}

// The networks of some healthy ranks report errors, at any time since their collective broke.
void break_collectives(SimulatedRun& run, const Scenario& scenario) {
  const int count = 1 + run.random(run.size());
  for (int i = 0; i < count; ++i) {
    const int peer = run.random(run.size());
    if (scenario.guilty && scenario.guilty->contains(peer)) continue;
    run.at(run.now() + run.random(0.05, 75), [&run, peer] { run.fail(peer, "NCCL failed: remote process exited"); });
  }
}

// While silence is judged.
void stall_witnesses(SimulatedRun& run, const Scenario& scenario) {
  for (int i = 0; i < 4; ++i) {
    const int witness = run.random(run.size());
    if (scenario.guilty && scenario.guilty->contains(witness)) continue;
    run.at(run.now() + run.random(58, 80), [&run, witness] {
      if (!run.is_stopped(witness)) run.stop(witness, run.random(0.5, 6));
    });
  }
}

// What two independent events show: those to blame for one of them, or for both.
Scenario both(const Scenario& one, const Scenario& other) {
  if (!one.guilty && !other.guilty) return {.what = one.what + "; " + other.what, .guilty = std::nullopt};
  std::set<int> guilty = one.guilty.value_or(std::set<int>{});
  if (other.guilty) guilty.insert(other.guilty->begin(), other.guilty->end());
  return {.what = one.what + "; " + other.what,
          .guilty = guilty,
          .may_blame_none = true,
          .may_blame_some = true,
          .may_be_unseen = one.may_be_unseen || other.may_be_unseen};
}

struct Tally {
  int named = 0;    // all that were to blame, or some
  int unnamed = 0;  // although some were
};

// `last`: what happens last; no value: anything.
void check_scenario(uint64_t seed, int most_nodes, Tally& tally, std::optional<Kind> last = std::nullopt) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int count) { return std::uniform_int_distribution<int>(0, count - 1)(random); };
  auto kind = static_cast<Kind>(pick(kNumKinds));
  // Half of the scenarios have a second event.
  const bool has_second = pick(2) == 0;
  auto second = static_cast<Kind>(pick(kNumKinds - 1));
  if (last) (has_second ? second : kind) = *last;
  const auto needs_nodes = [](Kind one) {
    return one == Kind::kCut || one == Kind::kCutOfTwo || one == Kind::kShortCut || one == Kind::kDeaf ||
           one == Kind::kFrozen || one == Kind::kNoPower;
  };
  const int num_nodes = (needs_nodes(kind) || (has_second && needs_nodes(second)) ? 2 : 1) + pick(most_nodes);
  const int ranks_per_node = num_nodes == 1 ? 2 + pick(7) : 1 + pick(8);
  SimulatedRun run({.num_nodes = num_nodes,
                    .ranks_per_node = ranks_per_node,
                    .disk_seconds = pick(3) == 0 ? 3.0 : 0.01,
                    .seed = seed});
  run.run_until(10 + pick(20));
  const double begin = run.now();
  Scenario scenario = make_happen(run, num_nodes, kind);
  if (breaks_collectives(kind)) run.block();
  if (breaks_collectives(kind) && pick(2) == 0) break_collectives(run, scenario);
  if (pick(3) == 0) stall_witnesses(run, scenario);
  if (has_second) {
    run.run_until(begin + run.random(0, 80));
    scenario = both(scenario, make_happen(run, num_nodes, second));
  }
  INFO("seed " << seed << ", " << num_nodes << " nodes of " << ranks_per_node << ": " << scenario.what);
  run.run_until(run.now() + kSettled);
  std::string verdicts;
  for (const SimulatedRun::Written& one : run.verdicts()) {
    verdicts += fmt::format("rank {} after {:.1f} s, foundation {}: {}\n", one.by, one.at - begin,
                            one.verdict.foundation, one.verdict.reason);
  }
  INFO(verdicts);
  if (!scenario.guilty) {
    CHECK(run.verdicts().empty());
    CHECK(run.waiting().size() == static_cast<size_t>(run.size()));
    return;
  }
  std::set<int> guilty = *scenario.guilty;
  if (has_second) guilty.merge(run.minorities());
  bool blames_only_guilty = true;
  for (const SimulatedRun::Written& one : run.verdicts()) {
    // A rank that the others have left alone blames itself, and refers to the verdict that counts.
    if (has_second && !one.in_file) continue;
    for (const int rank : one.verdict.ranks) blames_only_guilty = blames_only_guilty && guilty.contains(rank);
  }
  CHECK(blames_only_guilty);
  CHECK(run.waiting().empty());
  const bool none_is_left = guilty.size() == static_cast<size_t>(run.size());
  if ((scenario.may_be_unseen || none_is_left) && !run.file()) return;
  REQUIRE(run.file());
  const std::set<int> blamed = as_set(run.file()->verdict.ranks);
  // That they are guilty has been checked.
  const bool names_some = scenario.may_blame_some && !blamed.empty();
  CHECK((blamed == *scenario.guilty || names_some || (scenario.may_blame_none && blamed.empty())));
  if (!scenario.guilty->empty()) ++(blamed.empty() ? tally.unnamed : tally.named);
}

bool is_nightly() {
  const char* nightly = std::getenv("NIGHTLY");
  return nightly != nullptr && std::string(nightly) == "1";
}

}  // namespace

TEST_CASE("Whatever happens, no wrong rank is blamed, no run is lost, and no rank waits for ever") {
  const uint64_t count = is_nightly() ? 10'000 : 1000;
  Tally tally;
  for (uint64_t seed = 1; seed <= count; ++seed) check_scenario(seed, /*most_nodes=*/12, tally);
  // Blaming none must not become the way out.
  INFO(tally.named << " verdicts name ranks, " << tally.unnamed << " could have");
  CHECK(tally.named > 5 * tally.unnamed);
}

TEST_CASE("Whatever happens before, a rank that ends because its peer is gone is not blamed") {
  const uint64_t count = is_nightly() ? 10'000 : 1000;
  Tally tally;
  for (uint64_t seed = 1; seed <= count; ++seed) check_scenario(seed, /*most_nodes=*/12, tally, Kind::kConsequence);
  INFO(tally.named << " verdicts name ranks, " << tally.unnamed << " could have");
  // About one in six ends before the news of the first loss or error is known to be complete.
  CHECK(tally.named > 4 * tally.unnamed);
}

TEST_CASE("A peer's error is not blamed where the error before it comes late") {
  const uint64_t count = is_nightly() ? 10'000 : 1000;
  Tally tally;
  for (uint64_t seed = 1; seed <= count; ++seed) check_scenario(seed, /*most_nodes=*/12, tally, Kind::kLateError);
  INFO(tally.named << " verdicts name ranks, " << tally.unnamed << " could have");
  // Two in three are heard again more than 0.4 s after the errors of their peers.
  CHECK(2 * tally.named > tally.unnamed);
}

TEST_CASE("News that a network or a stalled process has delayed blames no rank that ended in the meantime") {
  Tally tally;
  for (const uint64_t seed : {3587, 4263, 4954, 5297, 7611, 9895, 24799, 34493, 35890, 39530}) {
    check_scenario(seed, /*most_nodes=*/12, tally, Kind::kConsequence);
  }
}

TEST_CASE("A rank that takes over while the others have ended the run does not count as the larger side") {
  Tally tally;
  for (const uint64_t seed : {10879, 13522, 15994}) check_scenario(seed, /*most_nodes=*/12, tally);
}

void check_large_run(int num_nodes) {
  SimulatedRun run({.num_nodes = num_nodes, .ranks_per_node = 8});
  const Kind kind = GENERATE(Kind::kStop, Kind::kNoPower, Kind::kCut);
  run.run_until(10);
  const Scenario scenario = make_happen(run, num_nodes, kind);
  INFO(scenario.what);
  check_blamed(run, *scenario.guilty);
}

TEST_CASE("The same with 1,000 ranks, and nightly with 4,000") {
  check_large_run(is_nightly() ? GENERATE(125, 500) : 125);
}

// By name only: what all ranks know of each other, in one process, takes 25 GB.
TEST_CASE("The same with 8,000 ranks", "[.large]") { check_large_run(1000); }

}  // namespace mpzero
