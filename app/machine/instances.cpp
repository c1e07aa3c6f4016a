#include "app/machine/instances.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mpzero::doctor {
namespace {

namespace fs = std::filesystem;

// Amazon's PCI devices exist only in EC2.
bool has_amazon_device(const fs::path& root) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "sys/bus/pci/devices", error)) {
    if (read_line(entry.path() / "vendor") == "0x1d0f") return true;
  }
  return false;
}

}  // namespace

const std::vector<Instance>& all_instances() {
  static const std::vector<Instance> kInstances = {
#include "app/machine/ec2_cpu_instances.inc"
#include "app/machine/ec2_instances.inc"
#include "app/machine/ec2_small_instances.inc"
  };
  return kInstances;
}

std::optional<Instance> find_instance(const std::string& type) {
  for (const Instance& instance : all_instances()) {
    if (type == instance.type) return instance;
  }
  return std::nullopt;
}

std::string processor_name(const std::filesystem::path& root) {
  const fs::path file = root / "proc/cpuinfo";
  const std::string name = value_of(file, "model name"), family = value_of(file, "cpu family");
  if (name.empty()) return "CPU";
  const bool has_number = std::any_of(name.begin(), name.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
  if (has_number || family.empty()) return name;
  return fmt::format("{}, family {}, model {}", name, family, value_of(file, "model"));
}

Finding check_instance(const System& system) {
  constexpr const char* kCheck = "instance";
  const std::string type = instance_type(system);
  if (type.empty() && has_amazon_device(system.root)) {
    return warning(kCheck,
                   "this host is an EC2 instance, but mpzero and NCCL's plugin cannot read the instance type, which "
                   "determines the plugin's options");
  }
  if (type.empty()) return ok(kCheck, "not an EC2 instance");
  const std::optional<Instance> instance = find_instance(type);
  if (!instance || instance->gpus == 0) return ok(kCheck, type + ", which is not in mpzero's table of instance types");
  return ok(kCheck, type);
}

}  // namespace mpzero::doctor
