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

// Opens a communicator for one use, such as "parameters", and records its collectives in the flight recorder.
// Collective. Must be called after network.divide(layout).
std::unique_ptr<parallel::Communicator> open_recorded(Network& network, Level level,
                                                      const parallel::ParallelLayout& layout, Watchdog& watchdog,
                                                      const std::string& use);

// The communicators for the parameters or the gradients of a run, one per level. Measures the collectives on a timeline
// and records them in the flight recorder under the name of their use. With two levels, the name ends in "within nodes"
// or "between nodes".
class LevelCommunicators final : public parallel::StallSource {
 public:
  // Collective. Must be called after network.divide(layout). `timeline` and `watchdog` must outlive the communicators.
  LevelCommunicators(Network& network, const parallel::ParallelLayout& layout, Watchdog& watchdog,
                     parallel::Timeline& timeline, const std::string& name);

  // Wraps existing communicators. `inter_node` is null if there is only one level.
  LevelCommunicators(const parallel::ParallelLayout& layout, bool several_hosts,
                     std::unique_ptr<parallel::Communicator> intra_node,
                     std::unique_ptr<parallel::Communicator> inter_node, parallel::Timeline& timeline);

  parallel::Levels levels();
  std::vector<parallel::Communicator*> all();
  // Returns the stalls of both levels, ordered by start time.
  std::vector<parallel::Stall> take_stalls() override;
  // Returns the bytes that a node has sent to other nodes since the last call. MeasuredCommunicator::take_sent_bytes()
  // defines which bytes are counted. With one level, a node is a host.
  int64_t take_internode_bytes();

 private:
  parallel::ParallelLayout layout_;
  bool several_hosts_;
  parallel::MeasuredCommunicator intra_node_;
  std::optional<parallel::MeasuredCommunicator> inter_node_;
};

}  // namespace mpzero
