#pragma once

#include <memory>
#include <vector>

#include "parallel/communicator.hpp"
#include "parallel/timeline.hpp"

namespace mpzero::parallel {

// Measures how long computing stands still for another communicator's collectives: on a GPU the time between a wait()
// and the work behind it on the timeline's stream, wherever the collective itself runs; on the CPU the host's time in
// the collective and in wait(). It waits for nothing itself. A wait() on another stream than the timeline's holds up
// that stream only and does not count. In a trace, starting a collective is a range of its own.
class MeasuredCommunicator final : public Communicator {
 public:
  // `timeline` outlives the communicator and its collectives, and the communicator outlives its collectives.
  MeasuredCommunicator(std::unique_ptr<Communicator> communicator, Timeline& timeline)
      : communicator_(std::move(communicator)), timeline_(timeline) {}
  MeasuredCommunicator(const MeasuredCommunicator&) = delete;
  MeasuredCommunicator& operator=(const MeasuredCommunicator&) = delete;

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

  // Since the last call, in the timeline's order.
  std::vector<Stall> take_stalls() { return std::exchange(stalls_, {}); }

 private:
  class Pending;
  template <typename Start>
  std::unique_ptr<PendingCollective> measure(const char* name, const Start& start);

  std::unique_ptr<Communicator> communicator_;
  Timeline& timeline_;
  std::vector<Stall> stalls_;
};

}  // namespace mpzero::parallel
