#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>

#include "app/simulation/busy_link.hpp"
#include "app/simulation/network_model.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::plan {

// Seconds of a collective over the full tensor's bytes, of this type.
using CollectiveSeconds = std::function<double(Collective collective, int64_t bytes, at::ScalarType type)>;

// Rank 0's communicator on the simulated device: a stream of its own, as NCCL's, on which each collective takes the
// time of the network's model. Communicators that share a link take turns on it. Collectives read and write
// memory, and so does the kernel that sums what copy engines have brought, or adds what NCCL has summed: kernels beside
// them are slower. On a CPU its cores move the tensors.
class SimulatedCommunicator final : public parallel::Communicator {
 public:
  struct Options {
    Group group;
    Links links;
    int rings = 1;                      // see collective_seconds
    double slowdown = 1;                // of each collective
    CollectiveSeconds seconds = {};     // as measured; none: by group and links
    const char* gather = "all-gather";  // names in the records
    const char* scatter = "reduce-scatter";
    const char* exchange = "all-to-all";
    const char* reduce = "all-reduce";
  };
  // `link` outlives the communicator.
  SimulatedCommunicator(const Options& options, BusyLink& link);

  int rank() const override { return 0; }
  int world_size() const override { return options_.group.size(); }
  // As much as sums by copy engines take, which reach GPUs of the same host that are peers; NCCL's kernels take none.
  int64_t reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) override;
  std::unique_ptr<parallel::PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override;
  std::unique_ptr<parallel::PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                                  parallel::SumMode mode) override;
  std::unique_ptr<parallel::PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override;
  std::unique_ptr<parallel::PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;

 private:
  // Copies between GPUs of one host that are peers, as NcclCommunicator chooses them with an NCCL that has no
  // copy_engine_hazard(): a plan assumes such a one.
  bool has_copy_engines() const;
  std::unique_ptr<parallel::PendingCollective> run(const char* name, Collective collective, const at::Tensor& full,
                                                   int64_t moved_bytes, int64_t summed_bytes = 0);

  Options options_;
  BusyLink& link_;
  c10::Stream stream_;
};

}  // namespace mpzero::plan
