#include "app/machine/fabric.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "app/gpu/shared_library.hpp"
#include "app/machine/instances.hpp"
#include "parallel/network/network.hpp"
#include "parallel/network/network_plugin.hpp"

namespace mpzero::doctor {
namespace {

namespace fs = std::filesystem;
using parallel::RdmaDevice;

// Types from libfabric's headers. survey_fabric() loads the library at run time because hosts may lack it.
using GetInfo = decltype(fi_getinfo);
using FreeInfo = decltype(fi_freeinfo);
using DuplicateInfo = decltype(fi_dupinfo);
using GetVersion = decltype(fi_version);
using ToString = decltype(fi_tostr);

constexpr uint32_t kInterface = FI_VERSION(1, 18);  // minimum version that NCCL's plugin requests for GPU memory
// All modes except the deprecated FI_MR_BASIC and FI_MR_SCALABLE, whose names cause warnings with libfabric 2.
constexpr int kAnyRegistration = ~((1 << 0) | (1 << 1));

struct FreeWith {
  FreeInfo* free;
  void operator()(fi_info* info) const { free(info); }
};
using Infos = std::unique_ptr<fi_info, FreeWith>;

bool is_efa(const fi_info& info) {
  if (info.fabric_attr == nullptr || info.fabric_attr->prov_name == nullptr) return false;
  // NCCL's plugin does not use layered providers such as "efa;ofi_rxd".
  const std::string_view provider = info.fabric_attr->prov_name;
  return provider == "efa" || provider == "efa-direct";
}

// libfabric reports FI_HMEM only if the hints request it.
bool efa_takes_gpu_memory(const SharedLibrary& library, GetInfo* get_info, FreeInfo* free_info, uint32_t version) {
  auto* duplicate = library.function<DuplicateInfo>("fi_dupinfo");
  if (duplicate == nullptr) return false;
  const Infos hints(duplicate(nullptr), {free_info});
  if (!hints) return false;
  hints->caps = FI_MSG | FI_HMEM;
  hints->mode = ~uint64_t{0};
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = kAnyRegistration;
  fi_info* found = nullptr;
  if (get_info(version, nullptr, nullptr, 0, hints.get(), &found) != 0) return false;
  const Infos infos(found, {free_info});
  for (const fi_info* info = infos.get(); info != nullptr; info = info->next) {
    if (is_efa(*info) && (info->caps & FI_HMEM) != 0) return true;
  }
  return false;
}

constexpr const char* kNo[] = {"0", "false", "no", "off"};  // values that libfabric parses as false

std::string names(const std::vector<RdmaDevice>& devices) {
  std::vector<std::string> list;
  list.reserve(devices.size());
  for (const RdmaDevice& device : devices) list.push_back(device.name);
  return fmt::format("{}", fmt::join(list, ", "));
}

// Compares the number of EFA devices with the instance type.
Finding check_devices(const System& system, const Job& job, const std::vector<RdmaDevice>& devices) {
  const std::string type = instance_type(system);
  const auto instance = find_instance(type);
  const int efa = parallel::count_efa(devices);
  if (instance && efa < instance->efa_devices) {
    const std::string seen =
        fmt::format("{} EFA device{}, but {} supports {}", efa, efa == 1 ? "" : "s", type, instance->efa_devices);
    const std::string remedy = fmt::format(
        "launch the instance with {} and install the EFA driver (docs/ec2.md); containers need /dev/infiniband",
        instance->efa);
    // On several nodes, NCCL falls back to TCP if there are no devices, and is slower if there are too few.
    return efa == 0 && job.hosts > 1 ? failure("efa_devices", seen, remedy) : warning("efa_devices", seen, remedy);
  }
  if (devices.empty()) return ok("efa_devices", "no EFA or InfiniBand devices");
  if (efa == 0) return ok("efa_devices", fmt::format("no EFA devices; InfiniBand or RoCE: {}", names(devices)));
  return ok("efa_devices", fmt::format("{} EFA device{}", efa, efa == 1 ? "" : "s"));
}

// Checks the port states; the kernel reports "4: ACTIVE". Inactive InfiniBand ports are only a warning, because some
// ports may intentionally have no cable.
Finding check_ports(const fs::path& root, const std::vector<RdmaDevice>& devices) {
  std::string down;
  size_t active = 0;
  for (const RdmaDevice& device : devices) {
    const auto state = read_line(root / "sys/class/infiniband" / device.name / "ports/1/state");
    if (!state || state->find("ACTIVE") != std::string::npos) {
      ++active;
      continue;
    }
    down += fmt::format("{}{} is {}", down.empty() ? "" : ", ", device.name, state->substr(state->rfind(' ') + 1));
  }
  if (down.empty()) return ok("efa_ports", "active");
  return active == 0 || devices.front().efa ? failure("efa_ports", down) : warning("efa_ports", down);
}

bool forbids_device_rdma(const parallel::Environment& environment) {
  const auto value = environment("FI_EFA_USE_DEVICE_RDMA");
  if (!value) return false;
  return std::any_of(std::begin(kNo), std::end(kNo),
                     [&](const char* no) { return strcasecmp(value->c_str(), no) == 0; });
}

// Returns true if NCCL's plugin may start without GPUDirect on instance types that support it. The plugin accepts
// "true" or a nonzero number.
bool plugin_does_without_gpu_direct(const parallel::Environment& environment) {
  const auto value = environment("OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK");
  return value && (strcasecmp(value->c_str(), "true") == 0 || std::atoi(value->c_str()) != 0);
}

// Returns the finding if GPUDirect is unavailable on an instance type that supports it.
Finding without_gpu_direct(const std::string& why, const std::string& remedy) {
  if (plugin_does_without_gpu_direct(parallel::process_environment)) {
    return warning("libfabric", why + ", so data passes through host memory (OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK)",
                   remedy);
  }
  return failure("libfabric", why + ", so NCCL's plugin fails to initialize", remedy);
}

Finding check_provider(const System& system, const FabricSurvey& survey, int efa, bool gpus) {
  constexpr const char* kCheck = "libfabric";
  if (efa == 0) {
    return ok(kCheck, survey.library
                          ? fmt::format("{} ({}): {}", survey.version, survey.file, fmt::join(survey.providers, ", "))
                          : std::string("not installed; not required without EFA"));
  }
  if (!survey.library) return failure(kCheck, fmt::format("libfabric cannot be used: {}", survey.problem));
  const std::string which = fmt::format("{} ({})", survey.version, survey.file);
  if (!survey.efa) {
    return failure(kCheck,
                   fmt::format("{} has no efa provider for the {} devices (providers: {})", which, efa,
                               survey.providers.empty() ? std::string("none")
                                                        : fmt::format("{}", fmt::join(survey.providers, ", "))),
                   "use Amazon's libfabric (/opt/amazon/efa), raise the locked-memory limit, and add /dev/infiniband "
                   "to containers; `fi_info -p efa` must list the devices");
  }
  const auto instance = find_instance(instance_type(system));
  if (gpus && instance && instance->gpu_direct && !survey.efa_gpu_memory) {
    return without_gpu_direct(fmt::format("libfabric {} does not support GPU memory", which),
                              "use Amazon's libfabric (/opt/amazon/efa), and add the folders of libcuda.so.1 and "
                              "libcudart.so (libcudart.so.13 is not sufficient) to LD_LIBRARY_PATH");
  }
  if (gpus && instance && instance->gpu_direct && forbids_device_rdma(parallel::process_environment)) {
    return without_gpu_direct("FI_EFA_USE_DEVICE_RDMA disables GPUDirect RDMA",
                              "unset FI_EFA_USE_DEVICE_RDMA: the default is correct for all instance types");
  }
  const char* memory = !gpus ? "" : survey.efa_gpu_memory ? ", supports GPU memory" : ", supports only host memory";
  return ok(kCheck, fmt::format("{}, provider efa{}", which, memory));
}

Finding check_plugin(const parallel::PluginSearch& search, int efa) {
  if (search.plugin) {
    const std::string version = parallel::plugin_version(search.plugin->file);
    const std::string found =
        fmt::format("aws-ofi-nccl {} ({}), network \"{}\"", version.empty() ? "of unknown version" : version,
                    search.plugin->file, search.plugin->net_name);
    if (const std::optional<std::string> hazard = parallel::plugin_hazard(version); hazard && efa > 0) {
      return warning("nccl_plugin", found, *hazard);
    }
    return ok("nccl_plugin", found);
  }
  if (efa == 0) return ok("nccl_plugin", "not found; not required without EFA");
  return failure("nccl_plugin", search.problem);
}

// Returns the first library in `libraries` that provides fi_getinfo(). If there is none, sets `problem` to the reason.
std::optional<SharedLibrary> open_fabric(const std::vector<std::string>& libraries, std::string& problem) {
  for (const std::string& name : libraries) {
    SharedLibrary library({name});
    if (library.function<GetInfo>("fi_getinfo") != nullptr) return library;
    if (!library && problem.empty()) problem = library.reason();
  }
  if (problem.empty()) problem = "no library provides fi_getinfo";
  return std::nullopt;
}

// Returns a version such as "2.1.0amzn3.0"; fi_version() returns only the first two numbers.
std::string version_text(const SharedLibrary& library, uint32_t version) {
  auto* to_string = library.function<ToString>("fi_tostr");
  const char* text = to_string == nullptr ? nullptr : to_string(&version, FI_TYPE_VERSION);
  if (text != nullptr && *text != '\0') return text;
  return fmt::format("{}.{}", version >> 16, version & 0xffff);
}

// Returns the file that contains `function`.
std::string file_of(GetInfo* function) {
  Dl_info place{};
  if (dladdr(reinterpret_cast<void*>(function), &place) == 0 || place.dli_fname == nullptr) return {};
  return place.dli_fname;
}

}  // namespace

std::vector<std::string> libfabric_files(const System& system, const parallel::PluginSearch& plugin) {
  std::vector<std::string> files;
  if (plugin.plugin) files.push_back(plugin.plugin->library);
  files.insert(files.end(), system.libfabric.begin(), system.libfabric.end());
  return files;
}

FabricSurvey survey_fabric(const std::vector<std::string>& libraries) {
  FabricSurvey survey;
  const std::optional<SharedLibrary> library = open_fabric(libraries, survey.problem);
  if (!library) return survey;
  auto* get_version = library->function<GetVersion>("fi_version");
  auto* get_info = library->function<GetInfo>("fi_getinfo");
  auto* free_info = library->function<FreeInfo>("fi_freeinfo");
  if (get_version == nullptr || free_info == nullptr) {
    survey.problem = file_of(get_info) + " is not libfabric";
    return survey;
  }
  survey.library = true;
  survey.problem.clear();
  survey.version = version_text(*library, get_version());
  survey.file = file_of(get_info);
  // An older library rejects newer interface versions.
  const uint32_t interface = std::min(get_version(), kInterface);
  fi_info* found = nullptr;
  if (get_info(interface, nullptr, nullptr, 0, nullptr, &found) != 0) return survey;
  const Infos infos(found, {free_info});
  std::set<std::string> providers;
  for (const fi_info* info = infos.get(); info != nullptr; info = info->next) {
    if (info->fabric_attr != nullptr && info->fabric_attr->prov_name != nullptr) {
      providers.insert(info->fabric_attr->prov_name);
    }
    survey.efa = survey.efa || is_efa(*info);
  }
  survey.providers.assign(providers.begin(), providers.end());
  survey.efa_gpu_memory = survey.efa && efa_takes_gpu_memory(*library, get_info, free_info, interface);
  return survey;
}

std::vector<Finding> check_fabric(const System& system, const Job& job, bool gpus, const FabricSurvey& survey,
                                  const parallel::PluginSearch& plugin) {
  const std::vector<RdmaDevice> devices = parallel::rdma_devices(system.root);
  const int efa = parallel::count_efa(devices);
  std::vector<Finding> findings = {check_devices(system, job, devices)};
  // With EFA, NCCL uses only EFA devices. NVSwitch boards have InfiniBand devices for management.
  std::vector<RdmaDevice> used;
  std::copy_if(devices.begin(), devices.end(), std::back_inserter(used),
               [&](const RdmaDevice& device) { return efa == 0 || device.efa; });
  if (!used.empty()) findings.push_back(check_ports(system.root, used));
  findings.push_back(check_provider(system, survey, efa, gpus));
  findings.push_back(check_plugin(plugin, efa));
  return findings;
}

}  // namespace mpzero::doctor
