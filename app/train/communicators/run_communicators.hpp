#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "app/train/communicators/level_communicators.hpp"
#include "base/device/sequence_exchange.hpp"

namespace mpzero {

// Separate communicators for parameters, gradients and shared sequences, so that none waits for another.
class RunCommunicators {
 public:
  // Divides the network by `layout`. Collective. The arguments must outlive the communicators.
  RunCommunicators(Network& network, const parallel::ParallelLayout& layout, Watchdog& watchdog,
                   parallel::Timeline& timeline);

  LevelCommunicators& parameters() { return parameters_; }
  LevelCommunicators& gradients() { return gradients_; }
  // For the ranks that share sequences; null if none do.
  const std::shared_ptr<const SequenceExchange>& sequence() const { return sequence_; }
  std::vector<parallel::Communicator*> all();
  // The sum for parameters and gradients: see LevelCommunicators::take_internode_bytes().
  int64_t take_internode_bytes();

 private:
  LevelCommunicators parameters_;
  LevelCommunicators gradients_;
  std::unique_ptr<parallel::Communicator> sequence_ranks_;
  std::shared_ptr<const SequenceExchange> sequence_;
};

}  // namespace mpzero
