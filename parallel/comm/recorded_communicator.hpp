#pragma once

#include <memory>
#include <utility>

#include "parallel/comm/forwarding_communicator.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero::parallel {

// Records another communicator's collectives in a flight recorder. It does not wait itself.
class RecordedCommunicator final : public ForwardingCommunicator {
 public:
  // `channel` outlives the communicator.
  RecordedCommunicator(std::unique_ptr<Communicator> communicator, FlightRecorder::Channel& channel)
      : ForwardingCommunicator(std::move(communicator)), channel_(channel) {}

  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override;
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                        SumMode mode = SumMode::kOverwrite) override;
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override;
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;

 private:
  template <typename Start>
  std::unique_ptr<PendingCollective> record(const char* operation, const at::Tensor& larger, const Start& start);

  FlightRecorder::Channel& channel_;
};

}  // namespace mpzero::parallel
