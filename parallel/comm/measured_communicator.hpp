#pragma once

#include <memory>
#include <vector>

#include "parallel/comm/forwarding_communicator.hpp"
#include "parallel/trace/timeline.hpp"

namespace mpzero::parallel {

// Measures how long compute is stalled by another communicator's collectives: on a GPU the time between a wait() and
// the work after it on the timeline's stream, wherever the collective itself runs; on the CPU the host's time in the
// collective and in wait(). It does not wait itself. A wait() on a stream other than the timeline's stalls only that
// stream and does not count. In a trace, starting a collective is a separate range.
class MeasuredCommunicator final : public ForwardingCommunicator {
 public:
  // `timeline` outlives the communicator and its collectives, and the communicator outlives its collectives.
  MeasuredCommunicator(std::unique_ptr<Communicator> communicator, Timeline& timeline)
      : ForwardingCommunicator(std::move(communicator)), timeline_(timeline) {}

  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override;
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                        SumMode mode = SumMode::kOverwrite) override;
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;

  // Since the last call, in the timeline's order.
  std::vector<Stall> take_stalls() { return std::exchange(stalls_, {}); }

 private:
  class Pending;
  template <typename Start>
  std::unique_ptr<PendingCollective> measure(const char* name, const Start& start);

  Timeline& timeline_;
  std::vector<Stall> stalls_;
};

}  // namespace mpzero::parallel
