#include "parallel/comm/recorded_communicator.hpp"

namespace mpzero::parallel {

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
