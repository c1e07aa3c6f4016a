#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unwinding.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm_thread/communication_thread.hpp"
#include "parallel/mpi/mpi_check.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::parallel {

// Collectives on tensors in host memory that overlap with compute. The process's CommunicationThread sends, receives
// and adds tensors in pieces. If only one thread may use MPI, each collective completes before its call returns.
//
// Tensors are sent in their own dtype. A reduce-scatter exchanges shards, and each rank adds the shards in rank order
// (bf16 in fp32, rounded once). An all-reduce is bitwise equal on all ranks. In a gather, each rank sends its shard to
// every other rank. If several hosts have several ranks each, gathers use a ring instead, so that only one rank per
// host sends to the next host.
class MpiCommunicator final : public Communicator {
 public:
  // Must be called by all ranks of `mpi`, which must outlive this object. `around_ring`: use a ring for gathers; must
  // be equal on all ranks. By default, a ring is used if there are several hosts and any host has several ranks.
  explicit MpiCommunicator(const MpiRuntime& mpi, std::optional<bool> around_ring = std::nullopt);
  // Waits for collectives in progress. During stack unwinding, abandons these collectives because other ranks may have
  // ended.
  ~MpiCommunicator() override;
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override;
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                        SumMode mode = SumMode::kOverwrite) override;
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override;
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;
  std::optional<std::string> asynchronous_error() override;

 private:
  class Collective;
  std::unique_ptr<PendingCollective> start(std::unique_ptr<Collective> collective);

  int rank_;
  int world_size_;
  bool around_ring_;
  Unwinding unwinding_;
  std::unique_ptr<MpiGroup> group_;              // duplicated, to isolate its messages
  std::shared_ptr<std::vector<char>> received_;  // addends received by the collective in progress
  std::unique_ptr<CommunicationThread::Lane> lane_;
};

}  // namespace mpzero::parallel
