#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/trace/flight_recorder.hpp"
#include "parallel/trace/timeline.hpp"

namespace mpzero::parallel {

// Base class of communicators that wrap another communicator to observe its collectives. All calls are forwarded to the
// wrapped communicator.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}
  ForwardingCommunicator(const ForwardingCommunicator&) = delete;
  ForwardingCommunicator& operator=(const ForwardingCommunicator&) = delete;

  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  at::Tensor buffer(int64_t numel, const at::TensorOptions& options) override {
    return communicator_->buffer(numel, options);
  }
  int64_t reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) override {
    return communicator_->reserve_reduce_scatter(numel, options);
  }
  std::optional<std::string> asynchronous_error() override { return communicator_->asynchronous_error(); }

 protected:
  Communicator& communicator() { return *communicator_; }

 private:
  std::unique_ptr<Communicator> communicator_;
};

// Measures how long the collectives of a communicator stall compute, without waiting for them. On a GPU, a stall is the
// time between a wait() and the next work on the timeline's stream, regardless of the collective's stream. A wait() on
// another stream is not counted. On the CPU, a stall is the host time in the collective and in wait(). In a trace, the
// launch of each collective is a separate range.
class MeasuredCommunicator final : public ForwardingCommunicator, public StallSource {
 public:
  // `timeline` must outlive the communicator and its collectives. The communicator must outlive its collectives.
  MeasuredCommunicator(std::unique_ptr<Communicator> communicator, Timeline& timeline)
      : ForwardingCommunicator(std::move(communicator)), timeline_(timeline) {}

  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override;
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                        SumMode mode = SumMode::kOverwrite) override;
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override;
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;

  std::vector<Stall> take_stalls() override { return std::exchange(stalls_, {}); }
  // Returns the number of bytes that this rank has sent since the last call, in the tensors' dtypes. The number assumes
  // a ring, which minimizes traffic, or, for all_to_all(), direct sends to each rank.
  int64_t take_sent_bytes() { return std::exchange(sent_bytes_, 0); }

 private:
  class Pending;
  // Adds to sent_bytes_ the bytes that this rank sends when the shards of `full` pass `rounds` times around a ring.
  void count_sent(const at::Tensor& full, int rounds = 1);
  template <typename Start>
  std::unique_ptr<PendingCollective> measure(const char* name, const Start& start);

  Timeline& timeline_;
  std::vector<Stall> stalls_;
  int64_t sent_bytes_ = 0;
};

// Records the collectives of a communicator in a flight recorder, without waiting for them.
class RecordedCommunicator final : public ForwardingCommunicator {
 public:
  // `channel` must outlive the communicator.
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
