// A stand-in for libnvidia-ml.so.1: all its GPUs have the values in MPZERO_FAKE_NVML, e.g. "gpus=2 throttle=64
// temperature=85"; "sick=1" limits the faults to that GPU; "first=2" makes the first GPU the third on the bus, as for a
// process that is shown no others. Written from NVML's documentation, independently of the program's own declarations.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kUnknownError = 999;

std::string setting(const std::string& key, const std::string& otherwise) {
  const char* all = std::getenv("MPZERO_FAKE_NVML");
  std::istringstream words(all == nullptr ? "" : all);
  std::string word;
  while (words >> word) {
    if (word.rfind(key + "=", 0) == 0) return word.substr(key.size() + 1);
  }
  return otherwise;
}

long number(const std::string& key, long otherwise) { return std::stol(setting(key, std::to_string(otherwise))); }

struct Gpu {
  long index;
};
Gpu gpus[16];

// How often the functions that count have been called.
std::map<std::string, long> calls;

// A fault of the faulty GPUs: all, unless one is named.
long fault(void* device, const std::string& key, long healthy) {
  const long sick = number("sick", -1);
  return sick >= 0 && static_cast<Gpu*>(device)->index != sick ? healthy : number(key, healthy);
}

int copy(const std::string& text, char* out, unsigned length) {
  if (text.size() + 1 > length) return kUnknownError;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

}  // namespace

extern "C" {

// For tests: the calls of `function`, one of those that count, since the library was loaded.
long fakeNvmlCalls(const char* function) { return calls[function]; }

int nvmlInit_v2() { return static_cast<int>(number("init", kSuccess)); }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int) { return "Driver/library version mismatch"; }
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return copy(setting("driver", "580.95.05"), text, length);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = static_cast<int>(number("cuda", 13000));
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(number("gpus", 8));
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (number("lost", -1) == static_cast<long>(index)) return 15;  // NVML_ERROR_GPU_IS_LOST
  gpus[index].index = index;
  *device = &gpus[index];
  return kSuccess;
}
struct nvmlPciInfo {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};
int nvmlDeviceGetPciInfo_v3(void* device, nvmlPciInfo* pci) {
  *pci = {};
  pci->bus = 0x1A + static_cast<unsigned>(static_cast<Gpu*>(device)->index + number("first", 0));
  std::snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
  std::snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
  return kSuccess;
}
int nvmlDeviceGetName(void*, char* text, unsigned length) { return copy(setting("name", "NVIDIA-H100"), text, length); }
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) {
  if (sensor != 0) return kNotSupported;
  *celsius = static_cast<unsigned>(fault(device, "temperature", 35));
  return kSuccess;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  return copy("GPU-" + std::to_string(static_cast<Gpu*>(device)->index), text, length);
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* percent) {
  ++calls[__func__];
  percent[0] = static_cast<unsigned>(fault(device, "busy", 100));
  percent[1] = 40;
  return kSuccess;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = static_cast<unsigned>(fault(device, "milliwatts", 650500));
  return kSuccess;
}
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  *millijoules = 12'000'500;
  return kSuccess;
}
int nvmlDeviceGetPcieReplayCounter(void*, unsigned*) {
  ++calls[__func__];
  return kNotSupported;
}
// Two links; the second has `nvlink` replays, and one CRC error for each.
int nvmlDeviceGetNvLinkErrorCounter(void* device, unsigned link, int kind, unsigned long long* count) {
  ++calls[__func__];
  if (link > 1 || number("nvlink", 0) < 0) return kNotSupported;
  *count = link == 1 && (kind == 0 || kind == 2) ? static_cast<unsigned long long>(fault(device, "nvlink", 0)) : 0;
  return kSuccess;
}
// The first `xids` questions have an event of the first GPU; the next has one of another type.
int nvmlEventSetCreate(void** set) {
  static int one;
  *set = &one;
  return kSuccess;
}
int nvmlDeviceRegisterEvents(void*, unsigned long long types, void*) { return types == 8 ? kSuccess : kNotSupported; }
struct nvmlEventData {
  void* device;
  unsigned long long eventType, eventData;
  unsigned gpuInstanceId, computeInstanceId;
};
int nvmlEventSetWait_v2(void*, nvmlEventData* data, unsigned milliseconds) {
  ++calls[__func__];
  static long asked = 0;
  if (milliseconds != 0) return kUnknownError;
  const long xids = number("xids", 0);
  if (asked > xids || xids == 0) return 10;  // NVML_ERROR_TIMEOUT
  *data = {&gpus[0], asked < xids ? 8ULL : 16ULL, 79, 0, 0};
  ++asked;
  return kSuccess;
}
int nvmlEventSetFree(void*) { return kSuccess; }
int nvmlDeviceGetClockInfo(void* device, int kind, unsigned* mhz) {
  if (kind == 2) {
    *mhz = 2619;
    return kSuccess;
  }
  if (kind != 1) return kNotSupported;
  *mhz = static_cast<unsigned>(fault(device, "clock", 1980));
  return kSuccess;
}
int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* mhz) {
  *mhz = 1980;
  return kSuccess;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = static_cast<unsigned long long>(fault(device, "throttle", 1));
  return kSuccess;
}
int nvmlDeviceGetEccMode(void* device, int* current, int* pending) {
  *current = *pending = static_cast<int>(fault(device, "ecc", 1));
  return kSuccess;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = static_cast<unsigned>(fault(device, "mig", 0));
  return kSuccess;
}
int nvmlDeviceGetTotalEccErrors(void* device, int error, int counter, unsigned long long* count) {
  ++calls[__func__];
  if (counter != 0) return kNotSupported;
  if (error == 0) {
    *count = 3;
    return kSuccess;
  }
  *count = static_cast<unsigned long long>(fault(device, "uncorrected", 0));
  return kSuccess;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                              unsigned* failed) {
  *corrected = *uncorrected = 0;
  *pending = static_cast<unsigned>(fault(device, "rows_pending", 0));
  *failed = static_cast<unsigned>(fault(device, "rows_failed", 0));
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  memory[0] = 80ULL << 30;
  memory[2] = static_cast<unsigned long long>(fault(device, "used_gib", 0)) << 30;
  memory[1] = memory[0] - memory[2];
  return kSuccess;
}
struct nvmlProcessInfo {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, nvmlProcessInfo* processes) {
  const auto pid = static_cast<unsigned>(fault(device, "pid", 0));
  if (pid == 0) {
    *count = 0;
    return kSuccess;
  }
  if (*count < 1) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  *count = 1;
  processes[0] = {pid, static_cast<unsigned long long>(fault(device, "used_gib", 0)) << 30, ~0U, ~0U};
  return kSuccess;
}
struct nvmlGpuFabricInfo {
  unsigned char clusterUuid[16];
  int status;
  unsigned cliqueId;
  unsigned char state;
};
int nvmlDeviceGetGpuFabricInfo(void* device, nvmlGpuFabricInfo* info) {
  *info = {};
  info->state = static_cast<unsigned char>(fault(device, "fabric", 3));
  info->clusterUuid[15] = static_cast<unsigned char>(fault(device, "cluster", 0));
  info->cliqueId = static_cast<unsigned>(fault(device, "clique", 0));
  return kSuccess;
}

}  // extern "C"
