#include "app/doctor/instances.hpp"

namespace mpzero::doctor {

// EC2's user guide: "Accelerated computing instances" (GPUs, bandwidth) and "Maximize network bandwidth on instances
// with multiple network cards". GPUDirect RDMA: the types for which aws-ofi-nccl (platform-aws.cpp) insists on it.
const std::vector<Instance>& all_instances() {
  static const std::vector<Instance> kInstances = {
      {"p4d.24xlarge", 8, 4, 400, 300, true, "4 network cards, each with an EFA interface"},
      {"p4de.24xlarge", 8, 4, 400, 300, true, "4 network cards, each with an EFA interface"},
      {"p5.4xlarge", 1, 1, 100, 0, false, "1 EFA interface"},
      {"p5.48xlarge", 8, 32, 3200, 450, true, "32 network cards, each with an EFA interface"},
      {"p5e.48xlarge", 8, 32, 3200, 450, true, "32 network cards, each with an EFA interface"},
      {"p5en.48xlarge", 8, 16, 3200, 450, true, "16 network cards, each with an EFA interface"},
      {"p6-b200.48xlarge", 8, 8, 3200, 900, true, "8 network cards, each with an EFA interface"},
      {"g5.8xlarge", 1, 1, 25, 0, false, "1 EFA interface"},
      {"g5.12xlarge", 4, 1, 40, 0, false, "1 EFA interface"},
      {"g5.16xlarge", 1, 1, 25, 0, false, "1 EFA interface"},
      {"g5.24xlarge", 4, 1, 50, 0, false, "1 EFA interface"},
      {"g5.48xlarge", 8, 1, 100, 0, false, "1 EFA interface"},
      {"g6.8xlarge", 1, 1, 25, 0, false, "1 EFA interface"},
      {"g6.12xlarge", 4, 1, 40, 0, false, "1 EFA interface"},
      {"g6.16xlarge", 1, 1, 25, 0, false, "1 EFA interface"},
      {"g6.24xlarge", 4, 1, 50, 0, false, "1 EFA interface"},
      {"g6.48xlarge", 8, 1, 100, 0, false, "1 EFA interface"},
      {"g6e.8xlarge", 1, 1, 25, 0, false, "1 EFA interface"},
      {"g6e.12xlarge", 4, 1, 100, 0, false, "1 EFA interface"},
      {"g6e.16xlarge", 1, 1, 35, 0, false, "1 EFA interface"},
      {"g6e.24xlarge", 4, 2, 200, 0, false, "2 network cards, each with an EFA interface"},
      {"g6e.48xlarge", 8, 4, 400, 0, false, "4 network cards, each with an EFA interface"},
  };
  return kInstances;
}

std::optional<Instance> find_instance(const std::string& type) {
  for (const Instance& instance : all_instances()) {
    if (type == instance.type) return instance;
  }
  return std::nullopt;
}

}  // namespace mpzero::doctor
