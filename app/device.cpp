#include "app/device.hpp"

#include <ATen/Parallel.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/error.hpp"

namespace mpzero {
namespace {

// Peak resident memory of this process, from the kernel's account of it.
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

}  // namespace

at::Device choose_device(const std::string& requested, parallel::MpiRuntime& mpi) {
  if (requested == "cpu") return at::kCPU;
  const c10::DeviceIndex gpus = c10::cuda::device_count();
  if (requested == "auto") {
    const std::vector<std::string> counts = mpi.all_gather(std::to_string(gpus));
    if (std::all_of(counts.begin(), counts.end(), [](const std::string& count) { return count == "0"; }))
      return at::kCPU;
  }
  run_on_all_ranks(mpi, [&] {
    if (gpus < mpi.local_size()) {
      throw_user_error(
          "{} ranks run on a machine where {} GPUs are visible: start one rank a GPU, or give --device cpu",
          mpi.local_size(), gpus);
    }
  });
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(mpi.local_rank()));
  c10::cuda::set_device(device.index());
  return device;
}

void share_cores(const parallel::MpiRuntime& mpi) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  // Ranks bound to cores of their own see theirs alone; unbound ones see all and share.
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
