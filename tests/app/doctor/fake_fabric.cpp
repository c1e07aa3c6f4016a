// A stand-in for libfabric.so.1: one entry for each word of MPZERO_FAKE_FABRIC, e.g. "efa+gpu efa tcp"; "+gpu" is
// FI_HMEM. MPZERO_FAKE_FABRIC_VERSION: e.g. "2.1".

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

// fi_fabric_attr and fi_info of rdma/fabric.h, pointers and lengths as the manual has them.
struct FabricAttributes {
  void* fabric;
  char *name, *provider;
  uint32_t provider_version, interface_version;
};

struct Info {
  Info* next;
  uint64_t caps, mode;
  uint32_t addr_format;
  size_t src_addrlen, dest_addrlen;
  void *src_addr, *dest_addr, *handle;
  void *tx_attr, *rx_attr, *ep_attr, *domain_attr;
  FabricAttributes* fabric_attr;
  void* nic;
};

constexpr uint64_t kHmem = 1ULL << 47;

}  // namespace

extern "C" {

uint32_t fi_version() {
  const char* version = std::getenv("MPZERO_FAKE_FABRIC_VERSION");
  std::istringstream words(version == nullptr ? "2.1" : version);
  uint32_t major = 0, minor = 0;
  char dot = 0;
  words >> major >> dot >> minor;
  return major << 16 | minor;
}

void fi_freeinfo(Info* info) {
  while (info != nullptr) {
    Info* next = info->next;
    std::free(info->fabric_attr->provider);
    delete info->fabric_attr;
    delete info;
    info = next;
  }
}

int fi_getinfo(uint32_t version, const char*, const char*, uint64_t, const Info*, Info** result) {
  constexpr int kNoData = -61, kNoSystem = -38;
  if (version > fi_version()) return kNoSystem;
  const char* providers = std::getenv("MPZERO_FAKE_FABRIC");
  std::istringstream words(providers == nullptr ? "tcp" : providers);
  std::string word;
  Info** end = result;
  *end = nullptr;
  while (words >> word) {
    const size_t plus = word.find('+');
    *end = new Info{};
    (*end)->caps = plus == std::string::npos ? 2 : 2 | kHmem;
    (*end)->fabric_attr = new FabricAttributes{};
    (*end)->fabric_attr->provider = strdup(word.substr(0, plus).c_str());
    end = &(*end)->next;
  }
  return *result == nullptr ? kNoData : 0;
}

}  // extern "C"
