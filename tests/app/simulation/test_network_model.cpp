// Oracle: the textbook costs of rings and trees (Thakur et al. 2005), by hand.

#include "app/simulation/network_model.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;

namespace {

constexpr Links kLinks{.within_bytes_per_second = 100,
                       .within_hop_seconds = 1,
                       .between_bytes_per_second = 50,
                       .between_all_to_all_bytes_per_second = 25,
                       .between_hop_seconds = 10,
                       .start_seconds = 1000};

}  // namespace

TEST_CASE("collectives of a single rank take no time") {
  CHECK(collective_seconds(Collective::kAllReduce, 1000, {.hosts = 1, .per_host = 1}, kLinks) == 0);
}

TEST_CASE("a ring within a host transfers everything except the rank's own part") {
  // 3 hops; 3/4 of 400 bytes at 100 bytes a second.
  CHECK(collective_seconds(Collective::kAllGather, 400, {.hosts = 1, .per_host = 4}, kLinks) == Approx(1003 + 3));
  CHECK(collective_seconds(Collective::kReduceScatter, 400, {.hosts = 1, .per_host = 4}, kLinks) == Approx(1003 + 3));
  CHECK(collective_seconds(Collective::kAllReduce, 400, {.hosts = 1, .per_host = 4}, kLinks) == Approx(1006 + 6));
}

TEST_CASE("a ring over hosts is as fast as its slowest link") {
  // Of 7 hops one is between hosts, as NCCL counts them (nInterSteps in its tuning.cc); 7/8 of 800 bytes at 50 bytes a
  // second.
  CHECK(collective_seconds(Collective::kAllGather, 800, {.hosts = 2, .per_host = 4}, kLinks) ==
        Approx(1000 + 10 + 6 + 14));
  CHECK(collective_seconds(Collective::kAllReduce, 800'000, {.hosts = 2, .per_host = 4}, kLinks) ==
        Approx(1000 + 2 * (10 + 6 + 14'000)));
}

TEST_CASE("the ranks of a node share the host's network cards") {
  const double one = collective_seconds(Collective::kAllGather, 800, {.hosts = 2, .per_host = 1}, kLinks);
  const double four = collective_seconds(Collective::kAllGather, 800, {.hosts = 2, .per_host = 1}, kLinks, 4);
  // 400 bytes at 50 bytes a second, and at a quarter of it.
  CHECK(four - one == Approx(3 * 8));
}

TEST_CASE("collectives over many hosts use a tree") {
  const Group group{.hosts = 64, .per_host = 1};
  CHECK(collective_algorithm(Collective::kAllGather, 1, group, kLinks) == "PAT");
  CHECK(collective_algorithm(Collective::kAllReduce, 1, group, kLinks) == "tree");
  CHECK(collective_algorithm(Collective::kAllGather, 1, {.hosts = 64, .per_host = 8}, kLinks) == "ring");
  CHECK(collective_algorithm(Collective::kAllGather, 1'000'000, group, kLinks) == "ring");
  // 6 steps instead of 64.
  CHECK(collective_seconds(Collective::kAllGather, 0, group, kLinks) == Approx(1060));
}

TEST_CASE("in an all-to-all, each rank sends to every other rank") {
  // Within a host, 3/4 of 400 bytes at 100 bytes a second, in one round.
  CHECK(collective_seconds(Collective::kAllToAll, 400, {.hosts = 1, .per_host = 4}, kLinks) == Approx(1001 + 3));
  // Half of 800 bytes from each of 4 ranks, at 25 bytes a second.
  CHECK(collective_seconds(Collective::kAllToAll, 800, {.hosts = 2, .per_host = 4}, kLinks) == Approx(1010 + 64));
  // 63 peers, 8 at a time.
  CHECK(collective_seconds(Collective::kAllToAll, 0, {.hosts = 64, .per_host = 1}, kLinks) == Approx(1080));
  CHECK(collective_algorithm(Collective::kAllToAll, 1, {.hosts = 2, .per_host = 1}, kLinks) == "peer to peer");
}

// Oracle: all-reduces that were measured on p5.48xlarge, GB/s of the bus (docs/plan.md). The rows of 8 and 32 hosts
// have chosen nothing.
TEST_CASE("all-reduce times over EFA agree with measurements") {
  struct Row {
    int hosts;
    int64_t mebibytes;
    double gigabytes;
  };
  const Links efa{.within_bytes_per_second = 351e9,
                  .within_hop_seconds = 3.4e-6,
                  .between_bytes_per_second = 340e9,
                  .between_hop_seconds = 14e-6,
                  .start_seconds = 1e-5};
  for (const Row& row : {Row{8, 32, 86.74},
                         {8, 512, 272.62},
                         {8, 8192, 355.36},
                         {32, 32, 66.34},
                         {32, 128, 115.78},
                         {32, 512, 156.83},
                         {32, 1024, 220.08},
                         {32, 8192, 321.10}}) {
    const int ranks = 8 * row.hosts;
    const int64_t bytes = row.mebibytes << 20;
    const double measured = 2.0 * static_cast<double>(bytes) * (ranks - 1) / ranks / (row.gigabytes * 1e9);
    INFO(row.hosts << " hosts, " << row.mebibytes << " MiB");
    CHECK(collective_seconds(Collective::kAllReduce, bytes, {.hosts = row.hosts, .per_host = 8}, efa) ==
          Approx(measured).epsilon(0.2));
  }
}
