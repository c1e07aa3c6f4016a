#pragma once

#include <cstdint>
#include <vector>

#include "app/train/communicators/level_communicators.hpp"

namespace mpzero {

// The communicators of a run: those for parameters and those for gradients, so that neither waits for the other.
class RunCommunicators {
 public:
  // Divides the network as the layout says. Collective. What is referred to outlives the communicators.
  RunCommunicators(Network& network, const parallel::ParallelLayout& layout, Watchdog& watchdog,
                   parallel::Timeline& timeline);

  LevelCommunicators& parameters() { return parameters_; }
  LevelCommunicators& gradients() { return gradients_; }
  std::vector<parallel::Communicator*> all();
  // Of both, as LevelCommunicators::take_internode_bytes() has them.
  int64_t take_internode_bytes();

 private:
  LevelCommunicators parameters_;
  LevelCommunicators gradients_;
};

}  // namespace mpzero
