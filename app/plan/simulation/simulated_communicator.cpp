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

class PendingMove final : public PendingCollective {
 public:
  explicit PendingMove(int64_t number) : number_(number) {}
  void wait() override { SimulatedDevice::current().wait_for_move(number_); }

 private:
  int64_t number_;
};

}  // namespace

SimulatedCommunicator::SimulatedCommunicator(const Options& options, BusyLink& link)
    : options_(options), link_(link), stream_(parallel::new_stream(SimulatedDevice::device())) {}

int64_t SimulatedCommunicator::reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) {
  if (options_.group.hosts > 1 || !options_.links.peer_access) return 0;
  return numel * static_cast<int64_t>(options.dtype().itemsize());
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::run(const char* name, Collective collective,
                                                              const at::Tensor& full) {
  const auto bytes = static_cast<int64_t>(full.nbytes());
  const double seconds = options_.slowdown * (options_.seconds ? options_.seconds(collective, bytes, full.scalar_type())
                                                               : collective_seconds(collective, bytes, options_.group,
                                                                                    options_.links, options_.rings));
  SimulatedDevice& device = SimulatedDevice::current();
  if (device.is_host()) return std::make_unique<PendingMove>(device.move(name, seconds));
  parallel::follow_current_stream(stream_);
  const c10::StreamGuard on_stream(stream_);
  device.queue(Work::kCollective, name, seconds, &link_);
  return std::make_unique<Pending>(stream_);
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::all_gather(const at::Tensor&, const at::Tensor& full) {
  return run(options_.gather, Collective::kAllGather, full);
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::reduce_scatter_sum(const at::Tensor& full, const at::Tensor&,
                                                                             parallel::SumMode) {
  return run(options_.scatter, Collective::kReduceScatter, full);
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::all_to_all(const at::Tensor& sent, const at::Tensor&) {
  return run(options_.exchange, Collective::kAllToAll, sent);
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  return run(options_.reduce, Collective::kAllReduce, tensor);
}

}  // namespace mpzero::plan
