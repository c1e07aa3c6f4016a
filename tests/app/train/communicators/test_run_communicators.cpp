#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "app/train/communicators/run_communicators.hpp"
#include "parallel/trace/timeline.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/twin_ranks.hpp"

namespace mpzero {
namespace {

struct Opened {
  explicit Opened(const parallel::ParallelLayout& layout)
      : communicators(network, layout, watchdog, *timeline), ranks(layout.ranks()) {}

  std::vector<parallel::ChannelRecord> records() {
    std::vector<parallel::ChannelRecord> all = watchdog.recorder().records(4);
    // That of the control plane comes first.
    return {all.begin() + 1, all.end()};
  }

  SharedFolder folder;
  StopRequest stop;
  Watchdog watchdog{parallel::mpi(), stop, {.checkpoint_dir = folder.path()}};
  Network network{
      "auto", at::kCPU, parallel::mpi(), {.limit = std::chrono::milliseconds(0), .overdue = [](const auto&) {}}};
  std::unique_ptr<parallel::Timeline> timeline = parallel::make_timeline(at::kCPU);
  RunCommunicators communicators;
  int ranks;
};

}  // namespace

TEST_CASE("with one level, each use has one channel over all ranks, and no internode bytes") {
  Opened opened({.nodes = 1, .ranks_per_node = parallel::mpi().world_size()});
  CHECK(opened.communicators.all().size() == 2);
  const auto records = opened.records();
  REQUIRE(records.size() == 2);
  CHECK((records[0].name == "parameters" && records[0].ranks == parallel::RankGroup{}));
  CHECK((records[1].name == "gradients" && records[1].ranks == parallel::RankGroup{}));
  CHECK(opened.communicators.take_internode_bytes() == 0);
}

TEST_CASE("with two levels, the recorder has the level and the ranks of each collective") {
  parallel::MpiRuntime& mpi = parallel::mpi();
  Opened opened({.nodes = mpi.world_size(), .ranks_per_node = 1});
  if (mpi.world_size() == 1) return;
  const auto records = opened.records();
  REQUIRE(records.size() == 4);
  CHECK((records[0].name == "parameters within nodes" && records[2].name == "gradients within nodes"));
  CHECK(records[0].ranks == parallel::RankGroup{.first = mpi.rank(), .count = 1});
  CHECK((records[1].name == "parameters between nodes" && records[3].name == "gradients between nodes"));
  CHECK(records[3].ranks == parallel::RankGroup{.first = 0, .count = mpi.world_size()});

  const at::Tensor sum = at::zeros({2});
  const at::Tensor full = at::full({2 * mpi.world_size()}, 1.0F);
  opened.communicators.gradients().levels().inter_node().reduce_scatter_sum(full, sum)->wait();
  CHECK(sum[0].item<float>() == static_cast<float>(mpi.world_size()));
  opened.watchdog.recorder().poll();
  CHECK(opened.records()[3].completed == 1);
  // Its part of the sums of the others: n - 1 of n parts, in fp32.
  CHECK(opened.communicators.take_internode_bytes() == 8 * (mpi.world_size() - 1));
  CHECK(opened.communicators.take_internode_bytes() == 0);
}

TEST_CASE("internode bytes are summed over a group's ranks, or with one level follow a ring") {
  const std::unique_ptr<parallel::Timeline> timeline = parallel::make_timeline(at::kCPU);
  const auto sent = [&](const parallel::ParallelLayout& layout, bool several_hosts) {
    LevelCommunicators use(layout, several_hosts, std::make_unique<parallel::TwinRanks>(),
                           layout.nodes > 1 ? std::make_unique<parallel::TwinRanks>() : nullptr, *timeline);
    const parallel::Levels levels = use.levels();
    levels.intra_node().all_gather(at::zeros({4}), at::zeros({8}))->wait();
    if (levels.has_nodes()) levels.inter_node().all_gather(at::zeros({6}), at::zeros({12}))->wait();
    return use.take_internode_bytes();
  };
  CHECK(sent({.nodes = 2, .ranks_per_node = 3}, true) == 3 * 24);
  // Nodes of one host are nodes.
  CHECK(sent({.nodes = 2, .ranks_per_node = 3}, false) == 3 * 24);
  CHECK(sent({.nodes = 1, .ranks_per_node = 6}, true) == 16);
  CHECK(sent({.nodes = 1, .ranks_per_node = 6}, false) == 0);
}

TEST_CASE("exposed communication is recorded for both levels, in timeline order") {
  parallel::MpiRuntime& mpi = parallel::mpi();
  Opened opened({.nodes = mpi.world_size(), .ranks_per_node = 1});
  if (mpi.world_size() == 1) return;
  const parallel::Levels levels = opened.communicators.gradients().levels();
  const at::Tensor sum = at::zeros({2});
  opened.timeline->start();
  // On the CPU a collective stalls where it is started and where it is waited for.
  std::vector<parallel::Timeline::Mark> moments;
  for (parallel::Communicator* level : {&levels.intra_node(), &levels.inter_node(), &levels.intra_node()}) {
    moments.push_back(opened.timeline->mark());
    level->all_reduce_sum(sum)->wait();
  }
  opened.timeline->stop();
  const std::vector<parallel::Stall> stalls = opened.communicators.gradients().take_stalls();
  REQUIRE(stalls.size() == 6);
  CHECK(std::is_sorted(stalls.begin(), stalls.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; }));
  // The third and fourth are those between nodes.
  CHECK((stalls[2].begin > moments[1] && stalls[3].end < moments[2]));
  CHECK(opened.communicators.gradients().take_stalls().empty());
  CHECK(opened.communicators.parameters().take_stalls().empty());
}

}  // namespace mpzero
