#include "app/doctor/fabric.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "app/doctor/instances.hpp"
#include "app/doctor/shared_library.hpp"
#include "parallel/network_plugin.hpp"
#include "parallel/rdma_devices.hpp"

namespace mpzero::doctor {
namespace {

namespace fs = std::filesystem;
using parallel::RdmaDevice;

// Declarations of libfabric's stable interface (fi_getinfo(3)), which its releases since 1.0 only append to: a machine
// that runs jobs need not have its headers.
struct FabricAttributes {
  void* fabric;
  char* name;
  char* provider;
};

struct Info {
  Info* next;
  uint64_t capabilities;
  uint64_t mode;
  uint32_t address_format;
  size_t source_length, destination_length;
  void *source, *destination, *handle;
  void *transmit, *receive, *endpoint, *domain;
  FabricAttributes* fabric;
  void* card;
};

using GetInfo = int(uint32_t version, const char* node, const char* service, uint64_t flags, const Info* hints,
                    Info** result);
using FreeInfo = void(Info*);
using GetVersion = uint32_t();

constexpr uint32_t kInterface = (1U << 16) | 18;  // 1.18: the first that tells of GPU memory without libfabric's copies
constexpr uint64_t kGpuMemory = uint64_t{1} << 47;  // FI_HMEM

std::string names(const std::vector<RdmaDevice>& devices) {
  std::vector<std::string> list;
  list.reserve(devices.size());
  for (const RdmaDevice& device : devices) list.push_back(device.name);
  return fmt::format("{}", fmt::join(list, ", "));
}

// "ok" or what is wrong with the instance's EFA devices.
Finding check_devices(const System& system, const Job& job, const std::vector<RdmaDevice>& devices) {
  const std::string type = instance_type(system);
  const auto instance = find_instance(type);
  const int efa = parallel::count_efa(devices);
  if (instance && efa < instance->efa_devices) {
    const std::string seen = fmt::format("{} EFA devices where a {} can have {}", efa, type, instance->efa_devices);
    const std::string remedy = fmt::format(
        "start it with {} and the EFA driver (docs/ec2.md); containers need /dev/infiniband", instance->efa);
    // Among several nodes none means TCP; some mean less bandwidth.
    return efa == 0 && job.hosts > 1 ? failure("efa_devices", seen, remedy) : warning("efa_devices", seen, remedy);
  }
  if (devices.empty()) return ok("efa_devices", "neither EFA nor InfiniBand");
  if (efa == 0) return ok("efa_devices", fmt::format("none; InfiniBand or RoCE: {}", names(devices)));
  return ok("efa_devices", fmt::format("{} of EFA", efa));
}

// Ports that do not carry data. The kernel writes "4: ACTIVE".
Finding check_ports(const fs::path& root, const std::vector<RdmaDevice>& devices) {
  std::string down;
  for (const RdmaDevice& device : devices) {
    const auto state = read_line(root / "sys/class/infiniband" / device.name / "ports/1/state");
    if (!state || state->find("ACTIVE") != std::string::npos) continue;
    down += fmt::format("{}{} is {}", down.empty() ? "" : ", ", device.name, *state);
  }
  if (!down.empty()) return failure("efa_ports", down, "reboot or replace the node; `dmesg` names the reason");
  return ok("efa_ports", "active");
}

Finding check_counters(const fs::path& root, const std::vector<RdmaDevice>& devices) {
  std::string closed;
  int counters = 0;
  for (const RdmaDevice& device : devices) {
    int readable = 0;
    for (const char* folder : {"hw_counters", "counters"}) {
      std::error_code error;
      const fs::path counters_of = root / "sys/class/infiniband" / device.name / "ports/1" / folder;
      for (const fs::directory_entry& entry : fs::directory_iterator(counters_of, error)) {
        if (read_integer(entry.path())) ++readable;
      }
    }
    if (readable == 0) closed += (closed.empty() ? "" : ", ") + device.name;
    counters += readable;
  }
  if (!closed.empty()) {
    return warning("efa_counters", fmt::format("none can be read of {}", closed),
                   "let the container see the host's /sys, so that lost packets show");
  }
  return ok("efa_counters", fmt::format("{} readable", counters));
}

Finding check_provider(const System& system, const FabricSurvey& survey, int efa) {
  constexpr const char* kCheck = "libfabric";
  if (efa == 0) {
    return ok(kCheck, survey.library ? fmt::format("{}: {}", survey.version, fmt::join(survey.providers, ", "))
                                     : std::string("not there, and without EFA not needed"));
  }
  constexpr const char* kInstall = "install Amazon's EFA software (its libfabric is in /opt/amazon/efa)";
  if (!survey.library) return failure(kCheck, fmt::format("cannot be used: {}", survey.problem), kInstall);
  if (survey.efa_domains == 0) {
    return failure(kCheck,
                   fmt::format("{} lists no provider efa for the {} devices (it lists {})", survey.version, efa,
                               survey.providers.empty() ? std::string("none")
                                                        : fmt::format("{}", fmt::join(survey.providers, ", "))),
                   "`fi_info -p efa` must list them: the security group has to allow all traffic to itself, memory "
                   "has to be lockable, and libfabric has to be Amazon's");
  }
  const auto instance = find_instance(instance_type(system));
  if (instance && instance->gpu_direct && !survey.efa_gpu_memory) {
    return failure("gpudirect", "libfabric's EFA takes no GPU memory, so that NCCL's plugin will not start here",
                   "install Amazon's EFA software with its kernel driver; FI_EFA_USE_DEVICE_RDMA must not be 0");
  }
  return ok(kCheck, fmt::format("{}, provider efa{}", survey.version,
                                survey.efa_gpu_memory ? ", GPU memory" : ", host memory only"));
}

Finding check_plugin(const System& system, int efa) {
  const parallel::PluginSearch search =
      parallel::find_libfabric_plugin(parallel::process_environment, system.plugin_files);
  if (search.plugin) {
    return ok("nccl_plugin", fmt::format("{}, network \"{}\"", search.plugin->library, search.plugin->net_name));
  }
  if (efa == 0) return ok("nccl_plugin", "none, and without EFA not needed");
  return failure("nccl_plugin", search.problem,
                 "install aws-ofi-nccl (it comes with the EFA software) or put its folder into LD_LIBRARY_PATH");
}

}  // namespace

FabricSurvey survey_fabric(const std::vector<std::string>& libraries) {
  FabricSurvey survey;
  const SharedLibrary library(libraries);
  if (!library) {
    survey.problem = library.reason();
    return survey;
  }
  auto* get_version = library.function<GetVersion>("fi_version");
  auto* get_info = library.function<GetInfo>("fi_getinfo");
  auto* free_info = library.function<FreeInfo>("fi_freeinfo");
  if (get_version == nullptr || get_info == nullptr || free_info == nullptr) {
    survey.problem = "the library lacks fi_getinfo";
    return survey;
  }
  survey.library = true;
  const uint32_t version = get_version();
  survey.version = fmt::format("{}.{}", version >> 16, version & 0xffff);
  Info* infos = nullptr;
  // An older library refuses a newer interface than its own.
  if (get_info(std::min(version, kInterface), nullptr, nullptr, 0, nullptr, &infos) != 0) return survey;
  std::set<std::string> providers;
  for (const Info* info = infos; info != nullptr; info = info->next) {
    if (info->fabric == nullptr || info->fabric->provider == nullptr) continue;
    const std::string provider = info->fabric->provider;
    providers.insert(provider);
    // Layered providers are called "efa;ofi_rxd".
    if (provider != "efa" && provider != "efa-direct") continue;
    ++survey.efa_domains;
    if ((info->capabilities & kGpuMemory) != 0) survey.efa_gpu_memory = true;
  }
  free_info(infos);
  survey.providers.assign(providers.begin(), providers.end());
  return survey;
}

std::vector<Finding> check_fabric(const System& system, const Job& job, const FabricSurvey& survey) {
  const std::vector<RdmaDevice> devices = parallel::rdma_devices(system.root);
  const int efa = parallel::count_efa(devices);
  std::vector<Finding> findings = {check_devices(system, job, devices)};
  if (!devices.empty()) {
    findings.push_back(check_ports(system.root, devices));
    findings.push_back(check_counters(system.root, devices));
  }
  findings.push_back(check_provider(system, survey, efa));
  findings.push_back(check_plugin(system, efa));
  return findings;
}

}  // namespace mpzero::doctor
