#include <nccl.h>

#include <cstdint>

// A network plugin of NCCL that starts but transfers nothing, for ranks that reach each other without it: it implements
// what NCCL's interface of release 8 needs until it connects (nccl/net_v8.h in NCCL's example of a plugin).

namespace {

struct Properties {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int megabits_per_second;
  int port;
  float latency;
  int most_communicators;
  int most_receives;
  int device_type;
  int device_version;
};

ncclResult_t init(void*) { return ncclSuccess; }

ncclResult_t devices(int* count) {
  *count = 1;
  return ncclSuccess;
}

ncclResult_t properties(int, Properties* properties) {
  constexpr int kHostMemory = 1;
  constexpr int kMostReceives = 8;
  *properties = {.name = "fake0",
                 .pci_path = nullptr,
                 .guid = 1,
                 .pointer_support = kHostMemory,
                 .registration_is_global = 0,
                 .megabits_per_second = 10000,
                 .port = 0,
                 .latency = 0,
                 .most_communicators = 1024,
                 .most_receives = kMostReceives,
                 .device_type = 0,
                 .device_version = 0};
  return ncclSuccess;
}

using Call = ncclResult_t (*)();
ncclResult_t refuse() { return ncclInternalError; }

}  // namespace

extern "C" {

struct FakeNetwork {
  const char* name;
  ncclResult_t (*init)(void* log);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*properties)(int device, Properties* properties);
  Call connections[15];
};
extern const FakeNetwork ncclNetPlugin_v8;
const FakeNetwork ncclNetPlugin_v8 = {"Fake",
                                      init,
                                      devices,
                                      properties,
                                      {refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse,
                                       refuse, refuse, refuse, refuse, refuse}};

}  // extern "C"
