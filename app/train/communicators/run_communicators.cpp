#include "app/train/communicators/run_communicators.hpp"

namespace mpzero {
namespace {

Network& divided(Network& network, const parallel::ParallelLayout& layout) {
  network.divide(layout);
  return network;
}

}  // namespace

RunCommunicators::RunCommunicators(Network& network, const parallel::ParallelLayout& layout, Watchdog& watchdog,
                                   parallel::Timeline& timeline)
    : parameters_(divided(network, layout), layout, watchdog, timeline, "parameters"),
      gradients_(network, layout, watchdog, timeline, "gradients") {}

std::vector<parallel::Communicator*> RunCommunicators::all() {
  std::vector<parallel::Communicator*> all = parameters_.all();
  const std::vector<parallel::Communicator*> more = gradients_.all();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

int64_t RunCommunicators::take_internode_bytes() {
  return parameters_.take_internode_bytes() + gradients_.take_internode_bytes();
}

}  // namespace mpzero
