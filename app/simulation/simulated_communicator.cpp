#include "app/simulation/simulated_communicator.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include "app/simulation/simulated_device.hpp"

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

// Synchronizations that NCCL queues before and after the copies of a collective with copy engines (ncclMemOpSync of
// NCCL 2.28, ce_coll.cc). Additional copies with multicast are ignored.
constexpr int kMeetings = 2;

// Names of collectives within and between nodes.
constexpr const char* kNames[2][4] = {{"all-gather", "reduce-scatter", "all-reduce", "all-to-all"},
                                      {"all-gather between nodes", "reduce-scatter between nodes",
                                       "all-reduce between nodes", "all-to-all between nodes"}};

}  // namespace

SimulatedCommunicator::SimulatedCommunicator(const Options& options, BusyLink& link)
    : options_(options), link_(link), stream_(parallel::new_stream(SimulatedDevice::device())) {}

bool SimulatedCommunicator::has_copy_engines() const {
  return options_.group.size() > 1 && options_.group.hosts == 1 && options_.links.peer_access;
}

int64_t SimulatedCommunicator::reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) {
  if (!has_copy_engines()) return 0;
  return numel * static_cast<int64_t>(options.dtype().itemsize());
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::run(Collective collective, const at::Tensor& full,
                                                              int64_t moved_bytes, int64_t summed_bytes) {
  const auto bytes = static_cast<int64_t>(full.nbytes());
  const char* name = kNames[options_.between_nodes ? 1 : 0][static_cast<size_t>(collective)];
  const double seconds = options_.slowdown * (options_.seconds ? options_.seconds(collective, bytes, full.scalar_type())
                                                               : collective_seconds(collective, bytes, options_.group,
                                                                                    options_.links, options_.rings));
  SimulatedDevice& device = SimulatedDevice::current();
  if (device.is_host()) return std::make_unique<PendingMove>(device.move(name, seconds));
  parallel::follow_current_stream(stream_);
  const c10::StreamGuard on_stream(stream_);
  device.queue(Work::kCollective, name, seconds, &link_);
  device.share_memory(seconds, moved_bytes);
  // ncclAllReduce always uses NCCL's kernels.
  if (has_copy_engines() && collective != Collective::kAllReduce) {
    device.host_works(kMeetings * device.costs().launch);
  }
  if (summed_bytes > 0) {
    const double sum = device.costs().memory(summed_bytes);
    device.queue(Work::kElementwise, "sum of gradients", sum);
    device.share_memory(sum, summed_bytes);
  }
  return std::make_unique<Pending>(stream_);
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::all_gather(const at::Tensor& shard, const at::Tensor& full) {
  const auto own = static_cast<int64_t>(shard.nbytes());
  // Sent and received bytes, and the local shard unless the all-gather is in place.
  const int64_t sent = own * (world_size() - 1);
  return run(Collective::kAllGather, full, 2 * sent + (shard.is_alias_of(full) ? 0 : 2 * own));
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::reduce_scatter_sum(const at::Tensor& full,
                                                                             const at::Tensor& shard,
                                                                             parallel::SumMode mode) {
  const auto bytes = static_cast<int64_t>(full.nbytes()), own = static_cast<int64_t>(shard.nbytes());
  const bool adds = mode == parallel::SumMode::kAdd;
  const int64_t written = (adds ? 2 : 1) * own;
  if (has_copy_engines()) return run(Collective::kReduceScatter, full, 2 * bytes, bytes + written);
  // In a ring, received data is added to the local shard and forwarded. A separate kernel adds or converts the sum
  // unless NCCL writes the result directly. A single rank has no ring.
  const bool direct = world_size() == 1 || (!adds && shard.scalar_type() == full.scalar_type());
  const int64_t part = bytes / world_size();
  return run(Collective::kReduceScatter, full, 3 * (bytes - part), direct ? 0 : part + written);
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::all_to_all(const at::Tensor& sent, const at::Tensor&) {
  return run(Collective::kAllToAll, sent, 2 * static_cast<int64_t>(sent.nbytes()));
}

std::unique_ptr<PendingCollective> SimulatedCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  // A reduce-scatter followed by an all-gather.
  return run(Collective::kAllReduce, tensor, 5 * (bytes - bytes / world_size()));
}

}  // namespace mpzero::plan
