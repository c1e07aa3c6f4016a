#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// EC2's specification of an instance type with NVIDIA GPUs, or of a type with EFA for training on the CPU.
struct Instance {
  const char* type;
  int gpus = 0;  // 0: for training on the CPU
  const char* gpu = "";
  int gpu_gigabytes = 0;        // memory per GPU
  int efa_devices = 0;          // number of EFA devices for the full bandwidth; 0 without GPUs
  double gigabits = 0;          // total EFA bandwidth in Gb/s per direction
  double nvlink_gigabytes = 0;  // GB/s from one GPU to all others, per direction; 0: PCIe only
  bool gpu_direct = false;      // NCCL's plugin requires GPUDirect RDMA
  const char* efa = "";         // EFA interfaces to launch the instance with, for messages
  int vcpus = 0;                // hardware threads; 0: unknown
  int host_gibibytes = 0;       // host memory; 0: unknown
  double host_gigabytes = 0;    // host memory bandwidth in GB/s from the data sheet; 0: unknown
  double pcie_gigabytes = 0;    // GB/s between the host and one GPU, per direction; 0: unknown
  // Only without GPUs: result of processor_name(), and number of sockets and physical cores.
  const char* processor = "";
  int sockets = 0;
  int cores = 0;
};

// Returns std::nullopt if the table does not contain the type.
std::optional<Instance> find_instance(const std::string& type);
const std::vector<Instance>& all_instances();

// Returns the processor's name, e.g. "Intel(R) Xeon(R) Platinum 8488C". If a hypervisor reports a name without a
// number, appends the CPU's family and model: "AMD EPYC, family 26, model 2". Returns "CPU" if the name is unknown.
// `root`: parent of /proc.
std::string processor_name(const std::filesystem::path& root = "/");

// Checks that the instance type is a known type with GPUs.
Finding check_instance(const System& system);

}  // namespace mpzero::doctor
