// A stand-in for CUDA: the functions of libcuda.so.1 that the doctor calls (--cuda_library), and those of libcudart
// that choose a rank's GPU (LD_PRELOAD). MPZERO_FAKE_CUDA, e.g. "init=802" (every call fails so), "gpus=7", "context=2
// sick=1" (no context on that GPU; without `sick` on none), "hang=1" (nothing returns). Written from NVIDIA's manuals.

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace {

int number(const std::string& key, int otherwise) {
  const char* all = std::getenv("MPZERO_FAKE_CUDA");
  std::istringstream words(all == nullptr ? "" : all);
  std::string word;
  while (words >> word) {
    if (word.rfind(key + "=", 0) == 0) return std::stoi(word.substr(key.size() + 1));
  }
  return otherwise;
}

// The error of every call.
int start() {
  while (number("hang", 0) != 0) pause();
  return number("init", 0);
}

int count(int* devices) {
  if (const int error = start(); error != 0) return error;
  *devices = number("gpus", 8);
  return 0;
}

// The addresses of the stand-in for NVML.
int address(char* text, int length, int device) {
  if (const int error = start(); error != 0) return error;
  std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", 0x1A + device);
  return 0;
}

int open_context(int device) {
  if (const int error = start(); error != 0) return error;
  const int sick = number("sick", -1);
  return sick < 0 || sick == device ? number("context", 0) : 0;
}

thread_local int current = 0;

}  // namespace

extern "C" {

// libcuda.so.1
int cuInit(unsigned) { return start(); }
int cuDeviceGetCount(int* devices) { return count(devices); }
int cuDeviceGet(int* device, int index) {
  *device = index;
  return start();
}
int cuDeviceGetPCIBusId(char* text, int length, int device) { return address(text, length, device); }
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = nullptr;
  return open_context(device);
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuGetErrorName(int error, const char** name) {
  *name = error == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
  return *name == nullptr ? 1 : 0;
}

// libcudart
int cudaGetDeviceCount(int* devices) { return count(devices); }
int cudaDeviceGetPCIBusId(char* text, int length, int device) { return address(text, length, device); }
int cudaSetDevice(int device) {
  current = device;
  return start();
}
int cudaGetDevice(int* device) {
  *device = current;
  return 0;
}
int cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{80} << 30;
  return open_context(current);
}

}  // extern "C"
