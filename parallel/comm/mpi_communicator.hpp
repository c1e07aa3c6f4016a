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

// Collectives over tensors in host memory, beside compute: the process's CommunicationThread sends and receives, in
// pieces, and adds up. Where MPI may be used by one thread only, each collective has completed when it returns.
//
// Tensors travel in their own type. A sum is an exchange of shards, which each rank then adds up in the order of the
// ranks: bf16 in fp32, rounded once. Sums of all ranks are made of such sums, which are gathered, so that all ranks get
// the same bits. A gather goes from each rank to each other one; around a ring if several hosts have several ranks
// each, since then only one of a host's ranks sends to the next host.
class MpiCommunicator final : public Communicator {
 public:
  // Collective over the ranks of `mpi`, which it must not outlive. `around_ring`: how gathers go, the same on all
  // ranks; by default as above.
  explicit MpiCommunicator(const MpiRuntime& mpi, std::optional<bool> around_ring = std::nullopt);
  // Waits for collectives in progress; during stack unwinding, when other ranks may be gone, it leaves them undone.
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
  std::unique_ptr<MpiGroup> group_;              // of its own, so that its messages meet no others
  std::shared_ptr<std::vector<char>> received_;  // what is to be added up, of the collective in progress
  std::unique_ptr<CommunicationThread::Lane> lane_;
};

}  // namespace mpzero::parallel
