#include "parallel/comm/gpu_address.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.hpp"

namespace mpzero::parallel {
namespace {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

// Returns the address in lower case, without leading zeros.
std::string canonical(const std::string& address) {
  return lower_case(address.substr(std::min(address.find_first_not_of('0'), address.size())));
}

}  // namespace

std::string gpu_address(int device) {
  std::array<char, 32> address{};
  if (cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device) != cudaSuccess) return "";
  return lower_case(address.data());
}

std::vector<std::string> visible_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<std::string> addresses;
  addresses.reserve(static_cast<size_t>(count));
  for (int device = 0; device < count; ++device) addresses.push_back(gpu_address(device));
  return addresses;
}

GpuProperties gpu_properties(int device) {
  cudaDeviceProp properties{};
  const cudaError_t result = cudaGetDeviceProperties(&properties, device);
  if (result != cudaSuccess)
    throw_failure("cannot query the properties of GPU {}: {}", device, cudaGetErrorString(result));
  return {.name = properties.name,
          .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
          .capability = 10 * properties.major + properties.minor,
          .multiprocessors = properties.multiProcessorCount};
}

bool same_gpu(const std::string& a, const std::string& b) { return !a.empty() && canonical(a) == canonical(b); }

}  // namespace mpzero::parallel
