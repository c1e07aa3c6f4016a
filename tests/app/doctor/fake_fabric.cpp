// A stand-in for libfabric.so.1: one entry for each word of MPZERO_FAKE_FABRIC, e.g. "efa+gpu efa tcp"; "+gpu": takes
// GPU memory. MPZERO_FAKE_FABRIC_VERSION: e.g. "2.1.0amzn3.0". As with EFA's provider (efa_user_info.c), GPU memory
// (FI_HMEM) is offered only to callers that request it and register it (FI_MR_HMEM); they are not offered entries
// without it.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

// fi_fabric_attr, fi_domain_attr, fi_ep_attr and fi_info of rdma/fabric.h, with pointers, enumerations and lengths as
// in the manual.
struct FabricAttributes {
  void* fabric;
  char *name, *provider;
  uint32_t provider_version, interface_version;
};

struct DomainAttributes {
  void* domain;
  char* name;
  int threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode;
  size_t mr_key_size, cq_data_size;
};

struct EndpointAttributes {
  int type;
  uint32_t protocol, protocol_version;
};

struct Info {
  Info* next;
  uint64_t caps, mode;
  uint32_t addr_format;
  size_t src_addrlen, dest_addrlen;
  void *src_addr, *dest_addr, *handle;
  void *tx_attr, *rx_attr;
  EndpointAttributes* ep_attr;
  DomainAttributes* domain_attr;
  FabricAttributes* fabric_attr;
  void* nic;
};

constexpr uint64_t kMsg = 1ULL << 1, kHmem = 1ULL << 47;
constexpr int kMrHmem = 1 << 10, kRdm = 3, kTypeVersion = 18;

std::string version_text() {
  const char* version = std::getenv("MPZERO_FAKE_FABRIC_VERSION");
  return version == nullptr ? "2.1.0amzn3.0" : version;
}

bool offered(const Info* hints, bool gpu) {
  if (hints == nullptr || (hints->caps & kHmem) == 0) return true;
  if (hints->domain_attr != nullptr && (hints->domain_attr->mr_mode & kMrHmem) == 0) return false;
  if (hints->ep_attr != nullptr && hints->ep_attr->type != 0 && hints->ep_attr->type != kRdm) return false;
  return gpu;
}

}  // namespace

extern "C" {

uint32_t fi_version() {
  std::istringstream words(version_text());
  uint32_t major = 0, minor = 0;
  char dot = 0;
  words >> major >> dot >> minor;
  return major << 16 | minor;
}

char* fi_tostr(const void* data, int type) {
  static std::string text;
  if (data == nullptr) return nullptr;
  text = type == kTypeVersion ? version_text() : "";
  return text.data();
}

Info* fi_dupinfo(const Info* info) {
  if (info != nullptr) return nullptr;
  return new Info{.next = nullptr,
                  .caps = 0,
                  .mode = 0,
                  .addr_format = 0,
                  .src_addrlen = 0,
                  .dest_addrlen = 0,
                  .src_addr = nullptr,
                  .dest_addr = nullptr,
                  .handle = nullptr,
                  .tx_attr = nullptr,
                  .rx_attr = nullptr,
                  .ep_attr = new EndpointAttributes{},
                  .domain_attr = new DomainAttributes{},
                  .fabric_attr = new FabricAttributes{},
                  .nic = nullptr};
}

void fi_freeinfo(Info* info) {
  while (info != nullptr) {
    Info* next = info->next;
    std::free(info->fabric_attr->provider);
    delete info->fabric_attr;
    delete info->domain_attr;
    delete info->ep_attr;
    delete info;
    info = next;
  }
}

int fi_getinfo(uint32_t version, const char*, const char*, uint64_t, const Info* hints, Info** result) {
  constexpr int kNoData = -61, kNoSystem = -38;
  if (version > fi_version()) return kNoSystem;
  const char* providers = std::getenv("MPZERO_FAKE_FABRIC");
  std::istringstream words(providers == nullptr ? "tcp" : providers);
  std::string word;
  Info** end = result;
  *end = nullptr;
  while (words >> word) {
    const size_t plus = word.find('+');
    if (!offered(hints, plus != std::string::npos)) continue;
    *end = fi_dupinfo(nullptr);
    (*end)->caps = hints == nullptr ? kMsg : hints->caps;
    (*end)->fabric_attr->provider = strdup(word.substr(0, plus).c_str());
    end = &(*end)->next;
  }
  return *result == nullptr ? kNoData : 0;
}

}  // extern "C"
