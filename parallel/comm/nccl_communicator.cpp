#include "parallel/comm/nccl_communicator.hpp"

#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "parallel/comm/copy_engines.hpp"
#include "parallel/comm/gpu_address.hpp"
#include "parallel/comm/library_versions.hpp"
#include "parallel/comm/shard_sum.hpp"

// Throws (see throw_nccl_error) with the NCCL call, the rank and NCCL's last error, or throws an out-of-memory error if
// the GPU is out of memory.
#define MPZERO_NCCL_CHECK(call)                                                                               \
  do {                                                                                                        \
    const ncclResult_t nccl_result_ = (call);                                                                 \
    if (nccl_result_ != ncclSuccess) {                                                                        \
      if (nccl_result_ == ncclUnhandledCudaError) check_memory_left(#call);                                   \
      throw_nccl_error(nccl_result_, fmt::format("{} failed on rank {}: {} ({})", #call, rank_,               \
                                                 ncclGetErrorString(nccl_result_), ncclGetLastError(comm_))); \
    }                                                                                                         \
  } while (false)

namespace mpzero::parallel {
namespace {

// CUDA errors originate on this rank. Other errors may be caused by a peer.
[[noreturn]] void throw_nccl_error(ncclResult_t result, const std::string& message) {
  if (result == ncclUnhandledCudaError) throw Failure(message);
  throw CommunicatorFailure(message);
}

// NCCL's MAXCHANNELS. NCCL requires maxCTAs to be set together with minCTAs.
constexpr int kMostChannels = 64;

// NCCL reports only "CUDA error" if the GPU has too little memory for a communicator.
void check_memory_left(const char* call) {
  constexpr size_t kCommunicator = size_t{512} << 20;
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return;
  TORCH_CHECK_WITH(OutOfMemoryError, free > kCommunicator, "CUDA out of memory: ", call, " failed: only ", free,
                   " bytes are free, but a communicator requires up to ", kCommunicator);
}

// Events at two points of a collective's stream. A query neither waits for an event nor changes it.
class NcclWork final : public DeviceWork {
 public:
  NcclWork(c10::cuda::CUDAEvent inputs_ready, c10::cuda::CUDAEvent done)
      : inputs_ready_(std::move(inputs_ready)), done_(std::move(done)) {}
  CollectiveState state() const override {
    if (done_.query()) return CollectiveState::kCompleted;
    return inputs_ready_.query() ? CollectiveState::kStarted : CollectiveState::kQueued;
  }
  void block(const c10::cuda::CUDAStream& stream) { done_.block(stream); }

 private:
  c10::cuda::CUDAEvent inputs_ready_;
  c10::cuda::CUDAEvent done_;
};

class NcclCollective final : public PendingCollective {
 public:
  explicit NcclCollective(std::shared_ptr<NcclWork> work) : work_(std::move(work)) {}
  void wait() override { work_->block(c10::cuda::getCurrentCUDAStream()); }
  std::shared_ptr<const DeviceWork> device_work() const override { return work_; }

 private:
  std::shared_ptr<NcclWork> work_;  // shared with a flight recorder
};

ncclDataType_t nccl_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kByte:
      return ncclUint8;
    default:
      throw_failure("NCCL collectives do not support tensors of dtype {}", c10::toString(tensor.scalar_type()));
  }
}

// Returns true if copy engines can access the GPUs at the other addresses from this rank's GPU. CUDA cannot query a GPU
// that is not visible to this process, e.g. if Slurm shows each rank only its own GPU, although NCCL may be able to
// reach that GPU.
bool reaches_all(const std::vector<std::string>& addresses, int own) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    if (static_cast<int>(rank) == own) continue;
    int peer = 0;
    int reaches = 0;
    if (cudaDeviceGetByPCIBusId(&peer, addresses[rank].c_str()) != cudaSuccess ||
        cudaDeviceCanAccessPeer(&reaches, device, peer) != cudaSuccess) {
      // Clear the error, so that the next call does not report it.
      cudaGetLastError();
      return false;
    }
    if (reaches == 0) return false;
  }
  return true;
}

// Returns true if copy engines can access each rank's GPU from every other rank: all ranks are on this machine, and
// their GPUs are peers. The result is the same on all ranks, because different collectives would deadlock. Collective.
bool all_peers(MpiRuntime& mpi) {
  if (mpi.local_size() != mpi.world_size()) return false;
  int device = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess;
  const std::vector<std::string> addresses = all_gather(mpi, known ? gpu_address(device) : std::string());
  return all(mpi, reaches_all(addresses, mpi.rank()));
}

}  // namespace

int copy_engine_ranks(MpiRuntime& mpi) {
  const bool hazard = copy_engine_hazard(nccl_version_code(), mpi.local_size()).has_value();
  return all(mpi, all_peers(*mpi.this_machine()) && !hazard) ? min(mpi, mpi.local_size()) : 1;
}

NcclCommunicator::NcclCommunicator(MpiRuntime& mpi, NcclEngine engine, int min_channels)
    : rank_(mpi.rank()),
      world_size_(mpi.world_size()),
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true)),
      copy_engines_(engine == NcclEngine::kCopyEngines && world_size_ > 1 && all_peers(mpi)) {
  if (std::optional<std::string> hazard = copy_engine_hazard(nccl_version_code(), world_size_)) {
    // NCCL may select copy engines automatically for registered windows (on Blackwell).
    windows_ = false;
    if (std::exchange(copy_engines_, false)) hazard_ = std::move(hazard);
  }
  ncclUniqueId id{};
  if (rank_ == 0) MPZERO_NCCL_CHECK(ncclGetUniqueId(&id));
  id = broadcast(mpi, id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (copy_engines_) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  if (min_channels > 0) {
    config.minCTAs = min_channels;
    config.maxCTAs = kMostChannels;
    // Channels for point-to-point traffic between hosts. NCCL's default is two.
    config.nChannelsPerNetPeer = min_channels;
  }
  MPZERO_NCCL_CHECK(ncclCommInitRankConfig(&comm_, world_size_, id, rank_, &config));
}

NcclCommunicator::~NcclCommunicator() {
  if (comm_ == nullptr) return;
  // Destroying the communicator waits for collectives in progress, which never end if a peer has exited or the GPU has
  // failed. Aborting may also block, and causes an error on the peers before the root cause is reported. The memory is
  // freed at process exit.
  if (unwinding_.now()) return;
  cudaStreamSynchronize(stream_);
  for (const Buffer& buffer : buffers_) {
    if (buffer.window != nullptr) ncclCommWindowDeregister(comm_, buffer.window);
  }
  ncclCommDestroy(comm_);
  for (const Buffer& buffer : buffers_) ncclMemFree(buffer.memory);
}

at::Tensor NcclCommunicator::buffer(int64_t numel, const at::TensorOptions& options) {
  if (world_size_ == 1 || numel == 0) return Communicator::buffer(numel, options);
  const size_t bytes = static_cast<size_t>(numel) * options.dtype().itemsize();
  // NCCL cannot use memory cached by PyTorch's allocator.
  c10::cuda::CUDACachingAllocator::emptyCache();
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  TORCH_CHECK_WITH(OutOfMemoryError, bytes <= free, "CUDA out of memory: tried to allocate an NCCL buffer of ", bytes,
                   " bytes, but only ", free, " bytes are free");
  Buffer& buffer = buffers_.emplace_back();
  MPZERO_NCCL_CHECK(ncclMemAlloc(&buffer.memory, bytes));
  C10_CUDA_CHECK(cudaMemset(buffer.memory, 0, bytes));
  if (windows_) {
    MPZERO_NCCL_CHECK(ncclCommWindowRegister(comm_, buffer.memory, bytes, &buffer.window, NCCL_WIN_COLL_SYMMETRIC));
  }
  return at::from_blob(buffer.memory, {numel}, options);
}

std::optional<std::string> NcclCommunicator::asynchronous_error() {
  ncclResult_t error = ncclSuccess;
  if (ncclCommGetAsyncError(comm_, &error) != ncclSuccess || error == ncclSuccess || error == ncclInProgress) {
    return std::nullopt;
  }
  return fmt::format("NCCL failed on rank {}: {} ({})", rank_, ncclGetErrorString(error), ncclGetLastError(comm_));
}

c10::cuda::CUDAStream& NcclCommunicator::start() {
  inputs_ready_ = c10::cuda::CUDAEvent();
  inputs_ready_.record(c10::cuda::getCurrentCUDAStream());
  inputs_ready_.block(stream_);
  return stream_;
}

std::unique_ptr<PendingCollective> NcclCommunicator::finish() {
  c10::cuda::CUDAEvent done;
  done.record(stream_);
  return std::make_unique<NcclCollective>(std::make_shared<NcclWork>(std::move(inputs_ready_), std::move(done)));
}

std::unique_ptr<PendingCollective> NcclCommunicator::all_gather(const at::Tensor& shard, const at::Tensor& full) {
  MPZERO_NCCL_CHECK(ncclAllGather(shard.data_ptr(), full.data_ptr(), static_cast<size_t>(shard.numel()),
                                  nccl_type(shard), comm_, start()));
  return finish();
}

int64_t NcclCommunicator::reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) {
  if (!copy_engines_ || options.dtype() == at::kDouble) return 0;
  if (!arrived_.defined() || arrived_.numel() < numel || arrived_.dtype() != options.dtype()) {
    arrived_ = buffer(numel, options);
  }
  return static_cast<int64_t>(arrived_.nbytes());
}

void NcclCommunicator::exchange_and_sum(const at::Tensor& full, const at::Tensor& shard, SumMode mode) {
  reserve_reduce_scatter(full.numel(), full.options());
  const at::Tensor shards = arrived_.narrow(0, 0, full.numel()).view({world_size_, shard.numel()});
  MPZERO_NCCL_CHECK(ncclAlltoAll(full.data_ptr(), shards.data_ptr(), static_cast<size_t>(shard.numel()),
                                 nccl_type(full), comm_, start()));
  const c10::StreamGuard on_stream(stream_);
  sum_shards(shards, shard, mode);
}

std::unique_ptr<PendingCollective> NcclCommunicator::reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                                        SumMode mode) {
  if (copy_engines_ && full.scalar_type() != at::kDouble) {
    exchange_and_sum(full, shard, mode);
    return finish();
  }
  const bool direct = mode == SumMode::kOverwrite && shard.scalar_type() == full.scalar_type();
  const at::Tensor sum = direct ? shard : full.narrow(0, rank_ * shard.numel(), shard.numel());
  MPZERO_NCCL_CHECK(ncclReduceScatter(full.data_ptr(), sum.data_ptr(), static_cast<size_t>(shard.numel()),
                                      nccl_type(full), ncclSum, comm_, start()));
  if (!direct) {
    const c10::StreamGuard on_stream(stream_);
    mode == SumMode::kAdd ? shard.add_(sum) : shard.copy_(sum);
  }
  return finish();
}

std::unique_ptr<PendingCollective> NcclCommunicator::all_to_all(const at::Tensor& sent, const at::Tensor& received) {
  MPZERO_NCCL_CHECK(ncclAlltoAll(sent.data_ptr(), received.data_ptr(), static_cast<size_t>(sent.numel() / world_size_),
                                 nccl_type(sent), comm_, start()));
  return finish();
}

std::unique_ptr<PendingCollective> NcclCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  MPZERO_NCCL_CHECK(ncclAllReduce(tensor.data_ptr(), tensor.data_ptr(), static_cast<size_t>(tensor.numel()),
                                  nccl_type(tensor), ncclSum, comm_, start()));
  return finish();
}

}  // namespace mpzero::parallel
