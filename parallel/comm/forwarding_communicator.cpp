#include "parallel/comm/forwarding_communicator.hpp"

#include <ATen/core/Tensor.h>

#include <utility>

#include "parallel/trace/profile_range.hpp"

namespace mpzero::parallel {
namespace {

// Calls `work` and records how long it stalls the timeline.
template <typename Work>
void record_stall(Timeline& timeline, std::vector<Stall>& stalls, const Work& work) {
  const Timeline::Mark begin = timeline.mark();
  work();
  stalls.push_back({begin, timeline.mark()});
}

}  // namespace

class MeasuredCommunicator::Pending final : public PendingCollective {
 public:
  Pending(std::unique_ptr<PendingCollective> collective, MeasuredCommunicator& owner)
      : collective_(std::move(collective)), owner_(owner) {}

  void wait() override {
    if (!owner_.timeline_.running() || !owner_.timeline_.is_current()) return collective_->wait();
    record_stall(owner_.timeline_, owner_.stalls_, [&] { collective_->wait(); });
  }

 private:
  std::unique_ptr<PendingCollective> collective_;
  MeasuredCommunicator& owner_;
};

template <typename Start>
std::unique_ptr<PendingCollective> MeasuredCommunicator::measure(const char* name, const Start& start) {
  const ProfileRange range(name);
  std::unique_ptr<PendingCollective> collective;
  if (timeline_.running() && timeline_.is_host()) {
    record_stall(timeline_, stalls_, [&] { collective = start(); });
  } else {
    collective = start();
  }
  return std::make_unique<Pending>(std::move(collective), *this);
}

void MeasuredCommunicator::count_sent(const at::Tensor& full, int rounds) {
  const int64_t ranks = world_size();
  sent_bytes_ += rounds * (ranks - 1) * static_cast<int64_t>(full.nbytes()) / ranks;
}

std::unique_ptr<PendingCollective> MeasuredCommunicator::all_gather(const at::Tensor& shard, const at::Tensor& full) {
  count_sent(full);
  return measure("all_gather", [&] { return communicator().all_gather(shard, full); });
}

std::unique_ptr<PendingCollective> MeasuredCommunicator::reduce_scatter_sum(const at::Tensor& full,
                                                                            const at::Tensor& shard, SumMode mode) {
  count_sent(full);
  return measure("reduce_scatter", [&] { return communicator().reduce_scatter_sum(full, shard, mode); });
}

std::unique_ptr<PendingCollective> MeasuredCommunicator::all_to_all(const at::Tensor& sent,
                                                                    const at::Tensor& received) {
  count_sent(sent);
  return measure("all_to_all", [&] { return communicator().all_to_all(sent, received); });
}

std::unique_ptr<PendingCollective> MeasuredCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  count_sent(tensor, 2);
  return measure("all_reduce", [&] { return communicator().all_reduce_sum(tensor); });
}

template <typename Start>
std::unique_ptr<PendingCollective> RecordedCommunicator::record(const char* operation, const at::Tensor& larger,
                                                                const Start& start) {
  const int64_t sequence = channel_.begin(operation, static_cast<int64_t>(larger.nbytes()));
  std::unique_ptr<PendingCollective> collective = start();
  if (std::shared_ptr<const DeviceWork> work = collective->device_work()) {
    channel_.queued_on_device(sequence, std::move(work));
  } else {
    channel_.complete(sequence);
  }
  return collective;
}

std::unique_ptr<PendingCollective> RecordedCommunicator::all_gather(const at::Tensor& shard, const at::Tensor& full) {
  return record("all_gather", full, [&] { return communicator().all_gather(shard, full); });
}

std::unique_ptr<PendingCollective> RecordedCommunicator::reduce_scatter_sum(const at::Tensor& full,
                                                                            const at::Tensor& shard, SumMode mode) {
  return record("reduce_scatter", full, [&] { return communicator().reduce_scatter_sum(full, shard, mode); });
}

std::unique_ptr<PendingCollective> RecordedCommunicator::all_to_all(const at::Tensor& sent,
                                                                    const at::Tensor& received) {
  return record("all_to_all", sent, [&] { return communicator().all_to_all(sent, received); });
}

std::unique_ptr<PendingCollective> RecordedCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  return record("all_reduce", tensor, [&] { return communicator().all_reduce_sum(tensor); });
}

}  // namespace mpzero::parallel
