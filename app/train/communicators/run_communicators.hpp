#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "app/train/communicators/level_communicators.hpp"
#include "base/device/sequence_exchange.hpp"

namespace mpzero {

// Separate communicators for parameters, gradients and shared sequences, whose collectives run concurrently.
class RunCommunicators {
 public:
  // Divides the ranks of `network` according to `layout`. Collective. The arguments must outlive the communicators.
  RunCommunicators(Network& network, const parallel::ParallelLayout& layout, Watchdog& watchdog,
                   parallel::Timeline& timeline);

  LevelCommunicators& parameters() { return parameters_; }
  LevelCommunicators& gradients() { return gradients_; }
  // Communication between ranks that share sequences; null without sequence parallelism.
  const std::shared_ptr<const SequenceExchange>& sequence() const { return sequence_; }
  std::vector<parallel::Communicator*> all();
  // Returns the sum of LevelCommunicators::take_internode_bytes() over parameters and gradients.
  int64_t take_internode_bytes();

 private:
  LevelCommunicators parameters_;
  LevelCommunicators gradients_;
  std::unique_ptr<parallel::Communicator> sequence_ranks_;
  std::shared_ptr<const SequenceExchange> sequence_;
};

}  // namespace mpzero
