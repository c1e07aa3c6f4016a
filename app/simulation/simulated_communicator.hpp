#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>

#include "app/simulation/busy_link.hpp"
#include "app/simulation/network_model.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::plan {

// Returns the time, in seconds, of a collective over a full tensor of `bytes` bytes and dtype `type`.
using CollectiveSeconds = std::function<double(Collective collective, int64_t bytes, at::ScalarType type)>;

// Communicator of rank 0 on the simulated device. Each collective runs on the communicator's own stream, as in NCCL,
// and takes the time of the network model. Collectives on a shared link run one at a time. Collectives and their
// summation kernels use memory bandwidth, which slows down concurrent kernels. On a CPU, collectives run on the rank's
// cores.
class SimulatedCommunicator final : public parallel::Communicator {
 public:
  struct Options {
    Group group;
    Links links;
    int rings = 1;                   // see collective_seconds()
    double slowdown = 1;             // factor applied to each collective's time
    CollectiveSeconds seconds = {};  // measured times; empty: from group and links
    bool between_nodes = false;      // part of the names in the records
  };
  // `link` must outlive the communicator.
  SimulatedCommunicator(const Options& options, BusyLink& link);

  int rank() const override { return 0; }
  int world_size() const override { return options_.group.size(); }
  // Returns the memory, in bytes, that reductions with copy engines require, or 0 if NCCL's kernels compute the sums.
  int64_t reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) override;
  std::unique_ptr<parallel::PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override;
  std::unique_ptr<parallel::PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                                  parallel::SumMode mode) override;
  std::unique_ptr<parallel::PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override;
  std::unique_ptr<parallel::PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;

 private:
  // Returns true if NcclCommunicator would use copy engines, i.e. between peer GPUs of one host. Assumes an NCCL
  // version without copy_engine_hazard().
  bool has_copy_engines() const;
  std::unique_ptr<parallel::PendingCollective> run(Collective collective, const at::Tensor& full, int64_t moved_bytes,
                                                   int64_t summed_bytes = 0);

  Options options_;
  BusyLink& link_;
  c10::Stream stream_;
};

}  // namespace mpzero::plan
