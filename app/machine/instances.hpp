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
  const char* gpu;          // name
  int gpu_gigabytes;        // memory per GPU
  int efa_devices;          // needed for its bandwidth
  double gigabits;          // EFA bandwidth in Gb/s per direction, all cards together
  double nvlink_gigabytes;  // GB/s from one GPU to the others, per direction; 0: PCIe only
  bool gpu_direct;          // the GPUs must reach EFA without host memory
  const char* efa;          // how to start an instance to get EFA
  int vcpus;                // hardware threads; 0: unknown, also below
  int host_gibibytes;       // memory of the host
  double host_gigabytes;    // host memory bandwidth in GB/s, from the processor's data sheet
  double pcie_gigabytes;    // GB/s between host and one GPU, per direction
};

// std::nullopt for a type that is not in the table.
std::optional<Instance> find_instance(const std::string& type);
const std::vector<Instance>& all_instances();

// The same for a type without GPUs, to train on its CPUs.
struct CpuInstance {
  const char* type;
  const char* processor;  // as in processor_name()
  int sockets;
  int cores;              // cores of all sockets, not hardware threads
  int host_gibibytes;     // memory
  double host_gigabytes;  // memory bandwidth in GB/s, from the processor's data sheet
  double gigabits;        // EFA bandwidth in Gb/s per direction
};
std::optional<CpuInstance> find_cpu_instance(const std::string& type);
const std::vector<CpuInstance>& all_cpu_instances();

// The processor's name, e.g. "Intel(R) Xeon(R) Platinum 8488C". A name without a number, as under hypervisors, is
// completed by family and model: "AMD EPYC, family 26, model 2". "CPU" if the system has no name. `root`: parent of
// /proc.
std::string processor_name(const std::filesystem::path& root = "/");

// Whether the instance type is known.
Finding check_instance(const System& system);

}  // namespace mpzero::doctor
