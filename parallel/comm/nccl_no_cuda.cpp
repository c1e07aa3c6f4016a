// Replaces nccl_communicator.cpp and nccl_version.cpp in builds without GPU kernels, which do not link NCCL.

#include "base/gpu_kernels.hpp"
#include "parallel/comm/library_versions.hpp"
#include "parallel/comm/nccl_communicator.hpp"

namespace mpzero::parallel {

int nccl_version_code() { return 0; }
std::vector<LoadedLibrary> loaded_gpu_libraries() { return {}; }
int copy_engine_ranks(MpiRuntime&) { throw_no_gpu_kernels(); }

NcclCommunicator::NcclCommunicator(MpiRuntime&, NcclEngine, int) : stream_(c10::cuda::getDefaultCUDAStream()) {
  throw_no_gpu_kernels();
}
NcclCommunicator::~NcclCommunicator() = default;
at::Tensor NcclCommunicator::buffer(int64_t, const at::TensorOptions&) { throw_no_gpu_kernels(); }
int64_t NcclCommunicator::reserve_reduce_scatter(int64_t, const at::TensorOptions&) { throw_no_gpu_kernels(); }
std::unique_ptr<PendingCollective> NcclCommunicator::all_gather(const at::Tensor&, const at::Tensor&) {
  throw_no_gpu_kernels();
}
std::unique_ptr<PendingCollective> NcclCommunicator::reduce_scatter_sum(const at::Tensor&, const at::Tensor&, SumMode) {
  throw_no_gpu_kernels();
}
std::unique_ptr<PendingCollective> NcclCommunicator::all_to_all(const at::Tensor&, const at::Tensor&) {
  throw_no_gpu_kernels();
}
std::unique_ptr<PendingCollective> NcclCommunicator::all_reduce_sum(const at::Tensor&) { throw_no_gpu_kernels(); }
std::optional<std::string> NcclCommunicator::asynchronous_error() { return std::nullopt; }

}  // namespace mpzero::parallel
