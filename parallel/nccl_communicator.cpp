#include "parallel/nccl_communicator.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <nccl.h>

#include <exception>

#include "base/error.hpp"

// Throws Failure naming the NCCL call, the rank and NCCL's last words.
#define MPZERO_NCCL_CHECK(call)                                                                      \
  do {                                                                                               \
    const ncclResult_t nccl_result_ = (call);                                                        \
    if (nccl_result_ != ncclSuccess) {                                                               \
      throw_failure("{} failed on rank {}: {} ({})", #call, rank_, ncclGetErrorString(nccl_result_), \
                    ncclGetLastError(comm_));                                                        \
    }                                                                                                \
  } while (false)

namespace mpzero::parallel {
namespace {

class NcclCollective final : public PendingCollective {
 public:
  explicit NcclCollective(at::cuda::CUDAEvent done) : done_(std::move(done)) {}
  void wait() override { done_.block(c10::cuda::getCurrentCUDAStream()); }

 private:
  at::cuda::CUDAEvent done_;
};

ncclDataType_t nccl_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    default:
      throw_failure("no NCCL collective is defined for tensors of type {}", c10::toString(tensor.scalar_type()));
  }
}

}  // namespace

NcclCommunicator::NcclCommunicator(MpiRuntime& mpi)
    : rank_(mpi.rank()), world_size_(mpi.world_size()), stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true)) {
  ncclUniqueId id{};
  if (rank_ == 0) MPZERO_NCCL_CHECK(ncclGetUniqueId(&id));
  mpi.broadcast(&id, sizeof id);
  MPZERO_NCCL_CHECK(ncclCommInitRank(&comm_, world_size_, id, rank_));
}

NcclCommunicator::~NcclCommunicator() {
  if (comm_ == nullptr) return;
  // Destroying waits for what is under way, which never ends where a peer is gone or the GPU has failed.
  std::uncaught_exceptions() > 0 ? ncclCommAbort(comm_) : ncclCommDestroy(comm_);
}

c10::cuda::CUDAStream& NcclCommunicator::start() {
  at::cuda::CUDAEvent inputs_ready;
  inputs_ready.record(c10::cuda::getCurrentCUDAStream());
  inputs_ready.block(stream_);
  return stream_;
}

std::unique_ptr<PendingCollective> NcclCommunicator::finish() {
  at::cuda::CUDAEvent done;
  done.record(stream_);
  return std::make_unique<NcclCollective>(std::move(done));
}

std::unique_ptr<PendingCollective> NcclCommunicator::all_gather(const at::Tensor& shard, const at::Tensor& whole) {
  MPZERO_NCCL_CHECK(ncclAllGather(shard.data_ptr(), whole.data_ptr(), static_cast<size_t>(shard.numel()),
                                  nccl_type(shard), comm_, start()));
  return finish();
}

std::unique_ptr<PendingCollective> NcclCommunicator::reduce_scatter_sum(const at::Tensor& whole,
                                                                        const at::Tensor& shard) {
  MPZERO_NCCL_CHECK(ncclReduceScatter(whole.data_ptr(), shard.data_ptr(), static_cast<size_t>(shard.numel()),
                                      nccl_type(whole), ncclSum, comm_, start()));
  return finish();
}

std::unique_ptr<PendingCollective> NcclCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  MPZERO_NCCL_CHECK(ncclAllReduce(tensor.data_ptr(), tensor.data_ptr(), static_cast<size_t>(tensor.numel()),
                                  nccl_type(tensor), ncclSum, comm_, start()));
  return finish();
}

}  // namespace mpzero::parallel
