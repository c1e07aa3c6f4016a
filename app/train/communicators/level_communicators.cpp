#include "app/train/communicators/level_communicators.hpp"

#include <algorithm>
#include <memory>

#include "parallel/comm/forwarding_communicator.hpp"

namespace mpzero {
namespace {

parallel::RankGroup ranks_of(Level level, const parallel::ParallelLayout& layout, int rank) {
  if (level == Level::kSequence) {
    return {.first = rank - rank % layout.sequence_ranks, .count = layout.sequence_ranks};
  }
  if (layout.nodes == 1) return {};
  const int place = rank % layout.ranks_per_node;
  if (level == Level::kInterNode) return {.first = place, .count = layout.nodes, .stride = layout.ranks_per_node};
  return {.first = rank - place, .count = layout.ranks_per_node};
}

std::string name_of(const std::string& use, Level level, const parallel::ParallelLayout& layout) {
  if (level == Level::kSequence || layout.nodes == 1) return use;
  return use + (level == Level::kInterNode ? " between nodes" : " within nodes");
}

}  // namespace

std::unique_ptr<parallel::Communicator> open_recorded(Network& network, Level level,
                                                      const parallel::ParallelLayout& layout, Watchdog& watchdog,
                                                      const std::string& use) {
  parallel::FlightRecorder::Channel& channel = watchdog.recorder().channel(
      name_of(use, level, layout), parallel::FlightRecorder::Shows::kProgress, ranks_of(level, layout, network.rank()));
  return std::make_unique<parallel::RecordedCommunicator>(network.open_communicator(level), channel);
}

LevelCommunicators::LevelCommunicators(Network& network, const parallel::ParallelLayout& layout, Watchdog& watchdog,
                                       parallel::Timeline& timeline, const std::string& name)
    : layout_(layout),
      several_hosts_(network.has_several_hosts()),
      intra_node_(open_recorded(network, Level::kIntraNode, layout, watchdog, name), timeline) {
  if (layout.nodes == 1) return;
  inter_node_.emplace(open_recorded(network, Level::kInterNode, layout, watchdog, name), timeline);
}

LevelCommunicators::LevelCommunicators(const parallel::ParallelLayout& layout, bool several_hosts,
                                       std::unique_ptr<parallel::Communicator> intra_node,
                                       std::unique_ptr<parallel::Communicator> inter_node, parallel::Timeline& timeline)
    : layout_(layout), several_hosts_(several_hosts), intra_node_(std::move(intra_node), timeline) {
  if (inter_node) inter_node_.emplace(std::move(inter_node), timeline);
}

parallel::Levels LevelCommunicators::levels() {
  return inter_node_ ? parallel::Levels(intra_node_, *inter_node_) : parallel::Levels(intra_node_);
}

std::vector<parallel::Communicator*> LevelCommunicators::all() {
  if (!inter_node_) return {&intra_node_};
  return {&intra_node_, &*inter_node_};
}

std::vector<parallel::Stall> LevelCommunicators::take_stalls() {
  std::vector<parallel::Stall> stalls = intra_node_.take_stalls();
  if (!inter_node_) return stalls;
  const std::vector<parallel::Stall> more = inter_node_->take_stalls();
  const auto middle = stalls.insert(stalls.end(), more.begin(), more.end());
  std::inplace_merge(stalls.begin(), middle, stalls.end(),
                     [](const parallel::Stall& a, const parallel::Stall& b) { return a.begin < b.begin; });
  return stalls;
}

int64_t LevelCommunicators::take_internode_bytes() {
  const int64_t within = intra_node_.take_sent_bytes();
  if (inter_node_) return inter_node_->take_sent_bytes() * layout_.ranks_per_node;
  // A ring over all ranks has one link from each host to the next.
  return several_hosts_ ? within : 0;
}

}  // namespace mpzero
