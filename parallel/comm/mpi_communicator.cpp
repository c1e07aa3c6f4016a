#include "parallel/comm/mpi_communicator.hpp"

#include <ATen/ops/empty.h>

#include <limits>

#include "parallel/mpi/mpi_check.hpp"
#include "parallel/mpi/mpi_group.hpp"

namespace mpzero::parallel {
namespace {

// MPI counts elements in int.
int as_count(int64_t elements) {
  if (elements > std::numeric_limits<int>::max()) {
    throw_failure("a collective over {} elements exceeds the largest count that MPI supports: train with more ranks",
                  elements);
  }
  return static_cast<int>(elements);
}

// A datatype of the element's size, for moving data without arithmetic.
MPI_Datatype movable_type(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    default:
      return MPI_UINT64_T;
  }
}

bool has_mpi_arithmetic(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

MPI_Datatype arithmetic_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? MPI_DOUBLE : MPI_FLOAT;
}

}  // namespace

std::unique_ptr<PendingCollective> MpiCommunicator::all_gather(const at::Tensor& shard, const at::Tensor& full) {
  const int count = as_count(shard.numel());
  const MPI_Datatype type = movable_type(shard);
  const char* own_shard = static_cast<const char*>(full.data_ptr()) + rank_ * shard.nbytes();
  const bool in_place = shard.data_ptr() == own_shard;
  MPZERO_MPI_CHECK(MPI_Allgather(in_place ? MPI_IN_PLACE : shard.data_ptr(), count, type, full.data_ptr(), count, type,
                                 group_.handle));
  return std::make_unique<CompletedCollective>();
}

std::unique_ptr<PendingCollective> MpiCommunicator::reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                                       SumMode mode) {
  const at::Tensor addends = has_mpi_arithmetic(full) ? full : full.to(at::kFloat);
  const at::Tensor sum = at::empty({shard.numel()}, addends.options());
  MPZERO_MPI_CHECK(MPI_Reduce_scatter_block(addends.data_ptr(), sum.data_ptr(), as_count(shard.numel()),
                                            arithmetic_type(addends), MPI_SUM, group_.handle));
  mode == SumMode::kAdd ? shard.add_(sum) : shard.copy_(sum);
  return std::make_unique<CompletedCollective>();
}

std::unique_ptr<PendingCollective> MpiCommunicator::all_to_all(const at::Tensor& sent, const at::Tensor& received) {
  const int count = as_count(sent.numel() / world_size_);
  const MPI_Datatype type = movable_type(sent);
  MPZERO_MPI_CHECK(MPI_Alltoall(sent.data_ptr(), count, type, received.data_ptr(), count, type, group_.handle));
  return std::make_unique<CompletedCollective>();
}

std::unique_ptr<PendingCollective> MpiCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  const at::Tensor sum = has_mpi_arithmetic(tensor) ? tensor : tensor.to(at::kFloat);
  MPZERO_MPI_CHECK(
      MPI_Allreduce(MPI_IN_PLACE, sum.data_ptr(), as_count(sum.numel()), arithmetic_type(sum), MPI_SUM, group_.handle));
  if (!sum.is_same(tensor)) tensor.copy_(sum);
  return std::make_unique<CompletedCollective>();
}

}  // namespace mpzero::parallel
