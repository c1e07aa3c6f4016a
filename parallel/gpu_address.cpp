#include "parallel/gpu_address.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace mpzero::parallel {
namespace {

// Lower case, without the leading zeros of the domain.
std::string canonical(const std::string& address) {
  std::string text = address.substr(std::min(address.find_first_not_of('0'), address.size()));
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

}  // namespace

std::string gpu_address(int device) {
  std::array<char, 32> address{};
  if (cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device) != cudaSuccess) return "";
  std::string text = address.data();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

std::vector<std::string> visible_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<std::string> addresses;
  addresses.reserve(static_cast<size_t>(count));
  for (int device = 0; device < count; ++device) addresses.push_back(gpu_address(device));
  return addresses;
}

bool same_gpu(const std::string& a, const std::string& b) { return !a.empty() && canonical(a) == canonical(b); }

}  // namespace mpzero::parallel
