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

namespace {

// One random scenario: what happens, and who is to blame. No value: the run must continue.
struct Scenario {
  std::string what;
  std::optional<std::set<int>> guilty;
  // What the ranks see does not show the truth: blaming none is right, too.
  bool may_blame_none = false;
  // The network works again while the ranks ask each other: those that answer by then are not named.
  bool may_blame_some = false;
};

Scenario make_happen(SimulatedRun& run, int num_nodes, int kind) {
  const double silent_after = 60;
  const int rank = run.random(run.size());
  const int node = run.random(num_nodes);
  const double length = run.random(62, 150);
  switch (kind) {
    case 0:
      run.kill(rank);
      return {fmt::format("rank {} dies", rank), std::set<int>{rank}};
    case 1:
      run.stop(rank, run.random(0, 1) < 0.5 ? kForever : length + 10);
      return {fmt::format("rank {} is stopped", rank), std::set<int>{rank}};
    case 2:
      run.power_off(node);
      return {fmt::format("node {} loses power", node), as_set(run.ranks_of(node)), num_nodes == 2};
    case 3:
    case 9: {
      const double seconds = run.random(0, 1) < 0.5 ? kForever : length + 10;
      std::set<int> side;
      for (int i = 0; i < num_nodes; ++i) {
        if (run.random(0, 1) < 0.4) side.insert(i);
      }
      if (side.empty() || side.size() == static_cast<size_t>(num_nodes)) side = {node};
      kind == 3 ? run.cut_off(side, seconds) : run.deafen(side, seconds);
      std::set<int> guilty;
      for (int rank = 0; rank < run.size(); ++rank) {
        const size_t own = side.contains(run.node_of(rank)) ? side.size() : num_nodes - side.size();
        if (2 * own < static_cast<size_t>(num_nodes)) guilty.insert(rank);
      }
      return {fmt::format("{} of {} nodes {} the others for {:.0f} s", side.size(), num_nodes,
                          kind == 3 ? "are cut off from" : "receive nothing from", seconds),
              guilty, /*may_blame_none=*/false, /*may_blame_some=*/kind == 9 && seconds < kForever};
    }
    case 4: {
      const int other = num_nodes > 1 ? 1 + run.random(num_nodes - 1) : 0;
      run.cut(0, other, kForever);
      return {fmt::format("nodes 0 and {} cannot reach each other", other), std::set<int>{}};
    }
    case 5: {
      const double seconds = run.random(1, silent_after / 2 - 5);
      run.cut_off({node}, seconds);
      return {fmt::format("node {} is cut off for {:.0f} s", node, seconds), std::nullopt};
    }
    case 6: {
      const double seconds = run.random(1, silent_after - 10);
      run.stop(rank, seconds);
      return {fmt::format("rank {} stalls for {:.0f} s", rank, seconds), std::nullopt};
    }
    case 7: {
      run.stop(rank, kForever);
      for (int i = 0; i < 8; ++i) {
        if (rank != 0) run.at(run.now() + run.random(0, 50) + 50 * i, [&] { run.stop(0, run.random(1, 6)); });
      }
      return {fmt::format("rank {} is stopped, and rank 0 stalls now and then", rank), std::set<int>{rank}};
    }
    default:
      run.limit_progress(run.random(30, 200));
      run.hang(rank);
      return {fmt::format("rank {} hangs", rank), std::set<int>{rank}};
  }
}

void check_scenario(uint64_t seed, int most_nodes) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int count) { return std::uniform_int_distribution<int>(0, count - 1)(random); };
  const int kind = pick(10);
  const bool needs_nodes = (kind >= 3 && kind <= 5) || kind == 9;
  const int num_nodes = (needs_nodes ? 2 : 1) + pick(most_nodes);
  const int ranks_per_node = num_nodes == 1 ? 2 + pick(7) : 1 + pick(8);
  SimulatedRun run({.num_nodes = num_nodes,
                    .ranks_per_node = ranks_per_node,
                    .disk_seconds = pick(3) == 0 ? 3.0 : 0.01,
                    .seed = seed});
  run.run_until(10 + pick(20));
  const double begin = run.now();
  // A single node without power, or the only rank of a run, is not watched by anyone.
  const Scenario scenario = make_happen(run, num_nodes, kind == 2 && num_nodes == 1 ? 1 : kind);
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
  bool blames_only_guilty = true;
  for (const SimulatedRun::Written& one : run.verdicts()) {
    for (const int rank : one.verdict.ranks) blames_only_guilty = blames_only_guilty && scenario.guilty->contains(rank);
  }
  CHECK(blames_only_guilty);
  CHECK(run.waiting().empty());
  REQUIRE(run.file());
  const std::set<int> blamed = as_set(run.file()->verdict.ranks);
  // That they are guilty has been checked.
  const bool names_some = scenario.may_blame_some && !blamed.empty();
  CHECK((blamed == *scenario.guilty || names_some || (scenario.may_blame_none && blamed.empty())));
}

bool is_nightly() {
  const char* nightly = std::getenv("NIGHTLY");
  return nightly != nullptr && std::string(nightly) == "1";
}

}  // namespace

TEST_CASE("Whatever happens, no wrong rank is blamed, no run is lost, and no rank waits for ever") {
  const uint64_t count = is_nightly() ? 10'000 : 1000;
  for (uint64_t seed = 1; seed <= count; ++seed) check_scenario(seed, /*most_nodes=*/12);
}

TEST_CASE("The same with 1,000 ranks, and nightly with 8,000") {
  const int num_nodes = is_nightly() ? GENERATE(125, 1000) : 125;
  SimulatedRun run({.num_nodes = num_nodes, .ranks_per_node = 8});
  const int kind = GENERATE(1, 2, 3);
  run.run_until(10);
  const Scenario scenario = make_happen(run, num_nodes, kind);
  INFO(scenario.what);
  check_blamed(run, *scenario.guilty);
}

}  // namespace mpzero
