#pragma once

#include <memory>
#include <utility>

#include "parallel/communicator.hpp"
#include "parallel/flight_recorder.hpp"

namespace mpzero::parallel {

// Notes another communicator's collectives in a flight recorder. It waits for nothing itself.
class RecordedCommunicator final : public Communicator {
 public:
  // `channel` outlives the communicator.
  RecordedCommunicator(std::unique_ptr<Communicator> communicator, FlightRecorder::Channel& channel)
      : communicator_(std::move(communicator)), channel_(channel) {}

  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  at::Tensor buffer(int64_t numel, const at::TensorOptions& options) override {
    return communicator_->buffer(numel, options);
  }
  int64_t reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) override {
    return communicator_->reserve_reduce_scatter(numel, options);
  }
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& whole) override;
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& whole, const at::Tensor& shard,
                                                        SumMode mode = SumMode::kOverwrite) override;
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;
  std::optional<std::string> asynchronous_error() override { return communicator_->asynchronous_error(); }
  void abort() override { communicator_->abort(); }

 private:
  template <typename Start>
  std::unique_ptr<PendingCollective> record(const char* operation, const at::Tensor& larger, const Start& start);

  std::unique_ptr<Communicator> communicator_;
  FlightRecorder::Channel& channel_;
};

}  // namespace mpzero::parallel
