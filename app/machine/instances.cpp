#include "app/machine/instances.hpp"

#include <fmt/format.h>

namespace mpzero::doctor {
namespace {

namespace fs = std::filesystem;

// Amazon's own cards exist only in EC2.
bool has_amazon_device(const fs::path& root) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "sys/bus/pci/devices", error)) {
    if (read_line(entry.path() / "vendor") == "0x1d0f") return true;
  }
  return false;
}

}  // namespace

// Types with EFA: EC2's user guide, "Elastic Fabric Adapter". Gb/s, GPUs and EFA interfaces: the answer of
// DescribeInstanceTypes (NetworkInfo, GpuInfo), which Karpenter's AWS provider prints for all types; for p6e-gb200, and
// the cards of p5 and p6: the guide's "Maximize network bandwidth on instances with multiple network cards". NVLink:
// half of the value in NVIDIA's data sheets, which is for both directions together (A100 600 GB/s, H100 and H200 900,
// B200, B300 and GB200 1,800). GPUDirect: the types for which aws-ofi-nccl 1.21 (platform-aws.cpp) requires it. Types
// with EFA but with GPUs below compute capability 8.0 (p3dn, g4dn) are not listed, since mpzero is not built for them.
const std::vector<Instance>& all_instances() {
  static const std::vector<Instance> kInstances = {
      {"p4d.24xlarge", 8, 4, 400, 300, true, "an EFA interface on each of its 4 network cards"},
      {"p4de.24xlarge", 8, 4, 400, 300, true, "an EFA interface on each of its 4 network cards"},
      {"p5.4xlarge", 1, 1, 100, 0, false, "an EFA interface"},
      {"p5.48xlarge", 8, 32, 3200, 450, true, "an EFA interface on each of its 32 network cards"},
      {"p5e.48xlarge", 8, 32, 3200, 450, true, "an EFA interface on each of its 32 network cards"},
      {"p5en.48xlarge", 8, 16, 3200, 450, true, "an EFA interface on each of its 16 network cards"},
      {"p6-b200.48xlarge", 8, 8, 3200, 900, true, "an EFA interface on each of its 8 network cards"},
      {"p6-b300.48xlarge", 8, 16, 6400, 900, true, "an EFA interface on each of network cards 1 to 16"},
      // One device per GPU is enough: two share the 400 Gb/s of the GPU.
      {"p6e-gb200.36xlarge", 4, 4, 1600, 900, true, "an EFA interface on network cards 1, 5, 9 and 13"},
      {"g5.8xlarge", 1, 1, 25, 0, false, "an EFA interface"},
      {"g5.12xlarge", 4, 1, 40, 0, false, "an EFA interface"},
      {"g5.16xlarge", 1, 1, 25, 0, false, "an EFA interface"},
      {"g5.24xlarge", 4, 1, 50, 0, false, "an EFA interface"},
      {"g5.48xlarge", 8, 1, 100, 0, false, "an EFA interface"},
      {"g6.8xlarge", 1, 1, 25, 0, false, "an EFA interface"},
      {"g6.12xlarge", 4, 1, 40, 0, false, "an EFA interface"},
      {"g6.16xlarge", 1, 1, 25, 0, false, "an EFA interface"},
      {"g6.24xlarge", 4, 1, 50, 0, false, "an EFA interface"},
      {"g6.48xlarge", 8, 1, 100, 0, false, "an EFA interface"},
      {"gr6.8xlarge", 1, 1, 25, 0, false, "an EFA interface"},
      {"g6e.8xlarge", 1, 1, 25, 0, false, "an EFA interface"},
      {"g6e.12xlarge", 4, 1, 100, 0, false, "an EFA interface"},
      {"g6e.16xlarge", 1, 1, 35, 0, false, "an EFA interface"},
      {"g6e.24xlarge", 4, 2, 200, 0, false, "an EFA interface on each of its 2 network cards"},
      {"g6e.48xlarge", 8, 4, 400, 0, false, "an EFA interface on each of its 4 network cards"},
      {"g7.8xlarge", 1, 1, 100, 0, false, "an EFA interface"},
      {"g7.12xlarge", 2, 1, 175, 0, false, "an EFA interface"},
      {"g7.24xlarge", 4, 1, 350, 0, false, "an EFA interface"},
      {"g7.48xlarge", 8, 2, 700, 0, false, "an EFA interface on each of its 2 network cards"},
      {"g7e.8xlarge", 1, 1, 100, 0, false, "an EFA interface"},
      {"g7e.12xlarge", 2, 1, 400, 0, true, "an EFA interface"},
      {"g7e.24xlarge", 4, 2, 800, 0, true, "an EFA interface on each of its 2 network cards"},
      {"g7e.48xlarge", 8, 4, 1600, 0, true, "an EFA interface on each of its 4 network cards"},
  };
  return kInstances;
}

std::optional<Instance> find_instance(const std::string& type) {
  for (const Instance& instance : all_instances()) {
    if (type == instance.type) return instance;
  }
  return std::nullopt;
}

Finding check_instance(const System& system) {
  constexpr const char* kCheck = "instance";
  const std::string type = instance_type(system);
  if (type.empty() && has_amazon_device(system.root)) {
    return warning(kCheck,
                   "this is EC2, but the instance type cannot be read, neither here nor by NCCL's plugin, which "
                   "chooses its options by it",
                   "make the host's /sys/devices/virtual/dmi/id visible in the container, or set "
                   "OFI_NCCL_FORCE_PRODUCT_NAME to the type");
  }
  if (type.empty()) return ok(kCheck, "not in EC2");
  if (!find_instance(type)) return ok(kCheck, type + ", for which the doctor has no figures to compare with");
  return ok(kCheck, type);
}

}  // namespace mpzero::doctor
