#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// What EC2 promises for an instance type with NVIDIA GPUs.
struct Instance {
  const char* type;
  int gpus;
  const char* gpu;          // its name
  int gpu_gigabytes;        // memory of one
  int efa_devices;          // needed to reach its bandwidth
  double gigabits;          // of EFA, per second, in each direction; all cards together
  double nvlink_gigabytes;  // of one GPU to the others, per second, in each direction; 0: PCIe only
  bool gpu_direct;          // the GPUs must reach EFA without host memory
  const char* efa;          // what an instance must be started with to have them
  int vcpus;                // hardware threads; 0: not known, as in what follows
  int host_gibibytes;       // memory of the host
  double host_gigabytes;    // of it, per second, by the processor's data sheet
  double pcie_gigabytes;    // between host and one GPU, per second, in each direction
};

// std::nullopt for a type that is not in the table.
std::optional<Instance> find_instance(const std::string& type);
const std::vector<Instance>& all_instances();

// The same of a type without GPUs, whose processors train.
struct CpuInstance {
  const char* type;
  const char* processor;  // as processor_name() gives it
  int sockets;
  int cores;              // of all sockets, without second hardware threads
  int host_gibibytes;     // memory
  double host_gigabytes;  // of it, per second, by the processor's data sheet
  double gigabits;        // of EFA, per second, in each direction
};
std::optional<CpuInstance> find_cpu_instance(const std::string& type);
const std::vector<CpuInstance>& all_cpu_instances();

// The processor's name, e.g. "Intel(R) Xeon(R) Platinum 8488C". One without a number, as hypervisors give to virtual
// machines, with what tells its kind: "AMD EPYC, family 26, model 2". "CPU" where the system says nothing. `root`: of
// /proc.
std::string processor_name(const std::filesystem::path& root = "/");

// Whether the instance type is known.
Finding check_instance(const System& system);

}  // namespace mpzero::doctor
