#include "app/machine/device.hpp"

#include <ATen/Parallel.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/cuda_error.hpp"
#include "app/machine/device_choice.hpp"
#include "app/machine/gpu_promise.hpp"
#include "app/machine/host_limits.hpp"
#include "app/machine/system.hpp"
#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/gpu_kernels.hpp"
#include "base/words.hpp"
#include "parallel/comm/gpu_address.hpp"
#include "parallel/host/tensor_memory.hpp"

namespace mpzero {
namespace {

bool driver_found() { return std::filesystem::exists("/proc/driver/nvidia/version"); }

CudaAnswer answer(const std::string& host, cudaError_t result) {
  return {.host = host,
          .code = static_cast<int>(result),
          .cuda_error = result == cudaSuccess ? "no device" : cudaGetErrorString(result),
          .driver_found = driver_found()};
}

CudaAnswer look_for_gpus(const std::string& host) {
  int count = 0;
  return answer(host, cudaGetDeviceCount(&count));
}

// Throws DeviceFailure on all ranks if `fault` is not empty on any rank.
void end_for_faults(const std::string& fault, ProcessGroup& group) {
  const std::vector<std::string> faults = all_gather(group, fault);
  std::vector<int> culprits;
  for (size_t rank = 0; rank < faults.size(); ++rank) {
    if (!faults[rank].empty()) culprits.push_back(static_cast<int>(rank));
  }
  if (!culprits.empty()) {
    throw DeviceFailure(faults[static_cast<size_t>(culprits.front())], ErrorScope::kAllRanks, culprits);
  }
}

// Makes the GPU current and creates the CUDA context, because some faults only occur at this point. Collective.
void start_gpu(int index, const std::string& gpu, const std::string& host, ProcessGroup& group) {
  const bool promised = given_gpus(parallel::process_environment).count > 0;
  end_for_faults(
      promised ? memory_of_others(doctor::survey_gpus(doctor::System{}.nvml), gpu, host, parallel::process_environment)
               : "",
      group);
  size_t free = 0, total = 0;
  cudaError_t result = cudaSetDevice(index);
  if (result == cudaSuccess) result = cudaMemGetInfo(&free, &total);
  const std::string fault = result == cudaSuccess ? "" : gpu_does_not_start(answer(host, result), gpu);
  // Without a scheduler, the user may have chosen a GPU that other processes use.
  const bool of_user = !promised && (result == cudaErrorMemoryAllocation || result == cudaErrorDevicesUnavailable);
  run_on_all_ranks(group, [&] {
    if (of_user) throw_user_error("{}, or choose other GPUs with CUDA_VISIBLE_DEVICES", fault);
  });
  end_for_faults(fault, group);
}

// Returns the first warning of any host.
std::string warning_of_cpu(const std::string& host, ProcessGroup& group) {
  for (const std::string& warning :
       all_gather(group, cpu_instead_of_gpus(given_gpus(parallel::process_environment), host))) {
    if (!warning.empty()) return warning;
  }
  return "";
}

}  // namespace

parallel::MpiThreads mpi_threads(const std::string& requested) {
  return expects_cpu(requested, driver_found(), parallel::process_environment) ? parallel::MpiThreads::kSeveral
                                                                               : parallel::MpiThreads::kOne;
}

DeviceChoice choose_device(const std::string& requested, parallel::MpiRuntime& mpi) {
  if (requested == "cpu") return {at::kCPU, ""};
  const std::vector<std::string> gpus = parallel::visible_gpus();
  const std::string host = doctor::host_name(doctor::System{});
  const CudaAnswer seen = look_for_gpus(host);
  const bool seen_by_any = any(mpi, !gpus.empty());
  const GpuViews views = all_gather(*mpi.this_machine(), gpus);
  const bool cpu_will_do = requested == "auto" && !seen_by_any;
  if (!cpu_will_do || any(mpi, is_fault_of_host(seen.code))) {
    end_for_faults(fault_of_host(seen, views, mpi.local_rank(), seen_by_any, parallel::process_environment), mpi);
  }
  if (cpu_will_do) return {at::kCPU, warning_of_cpu(host, mpi)};
  int index = 0;
  run_on_all_ranks(mpi, [&] {
    if (gpus.empty()) throw UserError(why_no_gpu(seen, parallel::process_environment));
    // The rank that sees no GPU reports the error.
    if (std::any_of(views.begin(), views.end(), [](const auto& view) { return view.empty(); })) return;
    index = choose_gpu(views, mpi.local_rank(), host);
  });
  start_gpu(index, gpus[static_cast<size_t>(index)], host, mpi);
  run_on_all_ranks(mpi, [] {
    if (!built_with_gpu_kernels()) throw_no_gpu_kernels();
  });
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  c10::cuda::set_device(device.index());
  return {device, ""};
}

std::string device_name(const at::Device& device) {
  return device.is_cpu() ? "cpu" : parallel::gpu_properties(device.index()).name;
}

std::string describe_devices(const at::Device& device, const parallel::MpiRuntime& mpi) {
  if (device.is_cpu()) {
    return fmt::format("CPU, {} of {}", counted(mpi.world_size(), "rank"), counted(at::get_num_threads(), "thread"));
  }
  return fmt::format("{} x {}, {} per rank", mpi.world_size(), device_name(device),
                     counted(at::get_num_threads(), "thread"));
}

int64_t peak_memory_bytes(const at::Device& device) {
  if (device.is_cpu()) return number_after("/proc/self/status", "VmHWM:").value_or(0) * 1024;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  return stats.reserved_bytes[0].peak;
}

int64_t peak_allocated_bytes(const at::Device& device) {
  if (device.is_cpu()) return parallel::tensor_memory().peak_bytes();
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[0].peak;
}

}  // namespace mpzero
