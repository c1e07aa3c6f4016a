#include "app/train/communicators/run_communicators.hpp"

#include "parallel/comm/head_exchange.hpp"

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
      gradients_(network, layout, watchdog, timeline, "gradients") {
  if (layout.sequence_ranks == 1) return;
  sequence_ranks_ = open_recorded(network, Level::kSequence, layout, watchdog, "sequences");
  sequence_ = std::make_shared<parallel::HeadExchange>(*sequence_ranks_);
}

std::vector<parallel::Communicator*> RunCommunicators::all() {
  std::vector<parallel::Communicator*> all = parameters_.all();
  const std::vector<parallel::Communicator*> more = gradients_.all();
  all.insert(all.end(), more.begin(), more.end());
  if (sequence_ranks_) all.push_back(sequence_ranks_.get());
  return all;
}

int64_t RunCommunicators::take_internode_bytes() {
  return parameters_.take_internode_bytes() + gradients_.take_internode_bytes();
}

}  // namespace mpzero
