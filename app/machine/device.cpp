#include "app/machine/device.hpp"

#include <ATen/Parallel.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "app/liveness/link/rank_identity.hpp"
#include "app/machine/device_choice.hpp"
#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/gpu_kernels.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero {
namespace {

// Peak resident memory of this process, as counted by the kernel.
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmHWM:") continue;
    int64_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

NoGpu look_for_gpus(const std::string& host) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  return {.host = host,
          .cuda_error = result == cudaSuccess ? "no device" : cudaGetErrorString(result),
          .driver_found = std::filesystem::exists("/proc/driver/nvidia/version")};
}

// The warning of the first host that has one.
std::string warning_of_cpu(const std::string& host, ProcessGroup& group) {
  for (const std::string& warning :
       all_gather(group, cpu_instead_of_gpus(gpus_from_slurm(parallel::process_environment), host))) {
    if (!warning.empty()) return warning;
  }
  return "";
}

}  // namespace

DeviceChoice choose_device(const std::string& requested, parallel::MpiRuntime& mpi) {
  if (requested == "cpu") return {at::kCPU, ""};
  const std::vector<std::string> gpus = parallel::visible_gpus();
  const std::string host = this_process(mpi.rank(), 0).host;
  const bool seen_by_any = any(mpi, !gpus.empty());
  if (requested == "auto" && !seen_by_any) return {at::kCPU, warning_of_cpu(host, mpi)};
  const GpuViews views = all_gather(*mpi.this_machine(), gpus);
  int index = 0;
  run_on_all_ranks(mpi, [&] {
    if (gpus.empty()) throw UserError(why_no_gpu(look_for_gpus(host), parallel::process_environment));
    if (!built_with_gpu_kernels()) throw_no_gpu_kernels();
    // The rank that sees no GPU reports the error.
    if (std::any_of(views.begin(), views.end(), [](const auto& view) { return view.empty(); })) return;
    index = choose_gpu(views, mpi.local_rank(), host);
  });
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  c10::cuda::set_device(device.index());
  return {device, ""};
}

void share_cores(const parallel::MpiRuntime& mpi) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  // Bound ranks see only their own cores; unbound ranks see all cores and share them.
  const int cores = CPU_COUNT(&allowed);
  const bool bound = cores < static_cast<int>(std::thread::hardware_concurrency());
  at::set_num_threads(std::max(1, bound ? cores : cores / mpi.local_size()));
}

std::string describe_devices(const at::Device& device, const parallel::MpiRuntime& mpi) {
  if (device.is_cpu()) return fmt::format("CPU, {} ranks of {} threads", mpi.world_size(), at::get_num_threads());
  return fmt::format("{} x {}, {} threads a rank", mpi.world_size(),
                     at::cuda::getDeviceProperties(device.index())->name, at::get_num_threads());
}

int64_t peak_memory_bytes(const at::Device& device) {
  if (device.is_cpu()) return peak_resident_bytes();
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  return stats.reserved_bytes[0].peak;
}

int64_t peak_allocated_bytes(const at::Device& gpu) {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(gpu.index()).allocated_bytes[0].peak;
}

}  // namespace mpzero
