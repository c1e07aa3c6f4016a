#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/train/communicators/network.hpp"
#include "app/watchdog/watchdog.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "parallel/trace/timeline.hpp"
#include "parallel/zero/levels.hpp"

namespace mpzero {

// Opens one for a use, such as "parameters", whose collectives the flight recorder remembers. Collective, after
// network.divide(layout).
std::unique_ptr<parallel::Communicator> open_recorded(Network& network, Level level,
                                                      const parallel::ParallelLayout& layout, Watchdog& watchdog,
                                                      const std::string& use);

// A run's communicators for one use, parameters or gradients: one per level. They measure on a timeline, and the flight
// recorder remembers their collectives by the name of the use, with two levels "within nodes" or "between nodes" added,
// and the ranks that meet in them.
class LevelCommunicators final : public parallel::StallSource {
 public:
  // Collective, after network.divide(layout). `timeline` and `watchdog` outlive the communicators.
  LevelCommunicators(Network& network, const parallel::ParallelLayout& layout, Watchdog& watchdog,
                     parallel::Timeline& timeline, const std::string& name);

  // Of communicators that exist; `inter_node` is null where there is one level.
  LevelCommunicators(const parallel::ParallelLayout& layout, bool several_hosts,
                     std::unique_ptr<parallel::Communicator> intra_node,
                     std::unique_ptr<parallel::Communicator> inter_node, parallel::Timeline& timeline);

  parallel::Levels levels();
  std::vector<parallel::Communicator*> all();
  // Of both levels.
  std::vector<parallel::Stall> take_stalls() override;
  // What a node has sent to others since the last call, as MeasuredCommunicator::take_sent_bytes() counts it. With one
  // level a node is a host.
  int64_t take_internode_bytes();

 private:
  parallel::ParallelLayout layout_;
  bool several_hosts_;
  parallel::MeasuredCommunicator intra_node_;
  std::optional<parallel::MeasuredCommunicator> inter_node_;
};

}  // namespace mpzero
