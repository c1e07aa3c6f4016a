#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// EC2's specification of an instance type with NVIDIA GPUs.
struct Instance {
  const char* type;
  int gpus;
  const char* gpu;
  int gpu_gigabytes;        // memory per GPU
  int efa_devices;          // number of EFA devices for the full bandwidth
  double gigabits;          // total EFA bandwidth in Gb/s per direction
  double nvlink_gigabytes;  // GB/s from one GPU to all others, per direction; 0: PCIe only
  bool gpu_direct;          // NCCL's plugin requires GPUDirect RDMA
  const char* efa;          // EFA interfaces to launch the instance with, for messages
  int vcpus;                // hardware threads; 0: unknown
  int host_gibibytes;       // host memory; 0: unknown
  double host_gigabytes;    // host memory bandwidth in GB/s from the data sheet; 0: unknown
  double pcie_gigabytes;    // GB/s between the host and one GPU, per direction; 0: unknown
};

// Returns std::nullopt if the table does not contain the type.
std::optional<Instance> find_instance(const std::string& type);
const std::vector<Instance>& all_instances();

// EC2's specification of an instance type without GPUs, for training on the CPU.
struct CpuInstance {
  const char* type;
  const char* processor;  // result of processor_name()
  int sockets;
  int cores;              // physical cores of all sockets
  int host_gibibytes;     // host memory
  double host_gigabytes;  // host memory bandwidth in GB/s from the data sheet
  double gigabits;        // EFA bandwidth in Gb/s per direction
};
std::optional<CpuInstance> find_cpu_instance(const std::string& type);
const std::vector<CpuInstance>& all_cpu_instances();

// Returns the processor's name, e.g. "Intel(R) Xeon(R) Platinum 8488C". If a hypervisor reports a name without a
// number, appends the CPU's family and model: "AMD EPYC, family 26, model 2". Returns "CPU" if the name is unknown.
// `root`: parent of /proc.
std::string processor_name(const std::filesystem::path& root = "/");

// Checks that the instance type is known.
Finding check_instance(const System& system);

}  // namespace mpzero::doctor
