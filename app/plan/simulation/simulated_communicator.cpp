#include "app/plan/simulation/simulated_communicator.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include "app/plan/simulation/simulated_device.hpp"

namespace mpzero::plan {
namespace {

using parallel::PendingCollective;

class Pending final : public PendingCollective {
 public:
  explicit Pending(const c10::Stream& stream) : done_(stream.device_type()) { done_.record(stream); }
  void wait() override { done_.block(parallel::current_stream(SimulatedDevice::device())); }

 private:
  c10::Event done_;
};

}  // namespace

SimulatedCommunicator::SimulatedCommunicator(const Options& options, BusyLink& link)
    : options_(options), link_(link), stream_(parallel::new_stream(SimulatedDevice::device())) {}

int64_t SimulatedCommunicator::reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) {
  if (options_.group.hosts > 1 || !options_.links.peer_access) return 0;
  return numel * static_cast<int64_t>(options.dtype().itemsize());
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::run(const char* name, Collective collective, int64_t bytes) {
  parallel::follow_current_stream(stream_);
  const c10::StreamGuard on_stream(stream_);
  SimulatedDevice::current().queue(
      Work::kCollective, name,
      options_.slowdown * collective_seconds(collective, bytes, options_.group, options_.links, options_.rings),
      &link_);
  return std::make_unique<Pending>(stream_);
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::all_gather(const at::Tensor&, const at::Tensor& full) {
  return run(options_.gather, Collective::kAllGather, static_cast<int64_t>(full.nbytes()));
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::reduce_scatter_sum(const at::Tensor& full, const at::Tensor&,
                                                                             parallel::SumMode) {
  return run(options_.scatter, Collective::kReduceScatter, static_cast<int64_t>(full.nbytes()));
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::all_to_all(const at::Tensor& sent, const at::Tensor&) {
  return run(options_.exchange, Collective::kAllToAll, static_cast<int64_t>(sent.nbytes()));
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  return run(options_.reduce, Collective::kAllReduce, static_cast<int64_t>(tensor.nbytes()));
}

}  // namespace mpzero::plan
