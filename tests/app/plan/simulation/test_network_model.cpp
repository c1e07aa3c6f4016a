// Oracle: the textbook costs of rings and trees (Thakur et al. 2005), by hand.

#include "app/plan/simulation/network_model.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;

namespace {

constexpr Links kLinks{.within_bytes_per_second = 100,
                       .within_hop_seconds = 1,
                       .between_bytes_per_second = 50,
                       .between_hop_seconds = 10,
                       .start_seconds = 1000};

}  // namespace

TEST_CASE("one rank takes no time") {
  CHECK(collective_seconds(Collective::kAllReduce, 1000, {.hosts = 1, .per_host = 1}, kLinks) == 0);
}

TEST_CASE("a ring within a host passes on all but its own part") {
  // 3 hops; 3/4 of 400 bytes at 100 bytes a second.
  CHECK(collective_seconds(Collective::kAllGather, 400, {.hosts = 1, .per_host = 4}, kLinks) == Approx(1003 + 3));
  CHECK(collective_seconds(Collective::kReduceScatter, 400, {.hosts = 1, .per_host = 4}, kLinks) == Approx(1003 + 3));
  CHECK(collective_seconds(Collective::kAllReduce, 400, {.hosts = 1, .per_host = 4}, kLinks) == Approx(1006 + 6));
}

TEST_CASE("a ring over hosts is as fast as its slowest link") {
  // Of 7 hops 2 are between hosts; 7/8 of 800 bytes at 50 bytes a second.
  CHECK(collective_seconds(Collective::kAllGather, 800, {.hosts = 2, .per_host = 4}, kLinks) ==
        Approx(1000 + 2 * 10 + 5 + 14));
}

TEST_CASE("places of a node share the host's cards") {
  const double one = collective_seconds(Collective::kAllGather, 800, {.hosts = 2, .per_host = 1}, kLinks);
  const double four = collective_seconds(Collective::kAllGather, 800, {.hosts = 2, .per_host = 1}, kLinks, 4);
  // 400 bytes at 50 bytes a second, and at a quarter of it.
  CHECK(four - one == Approx(3 * 8));
}

TEST_CASE("many hosts have a tree") {
  const Group group{.hosts = 64, .per_host = 1};
  CHECK(collective_algorithm(Collective::kAllGather, 1, group, kLinks) == "PAT");
  CHECK(collective_algorithm(Collective::kAllReduce, 1, group, kLinks) == "tree");
  CHECK(collective_algorithm(Collective::kAllGather, 1, {.hosts = 64, .per_host = 8}, kLinks) == "ring");
  // 6 steps instead of 64.
  CHECK(collective_seconds(Collective::kAllGather, 0, group, kLinks) == Approx(1060));
}
