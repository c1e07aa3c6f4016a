#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "app/plan/command/plan_options.hpp"
#include "app/simulation/network_model.hpp"

namespace mpzero::plan {

// What copies reach of the data sheet's rate of a host's memory: 80% in STREAM as a rule.
inline constexpr double kOfHostMemory = 0.8;

// Hosts of one kind.
struct PlanMachine {
  std::string name;  // EC2's type, or the GPU or processor
  std::string gpu;
  // Of hosts whose processors train: the name of these, and threads of a rank. Then there is nothing of GPUs here, and
  // `gpus` are ranks.
  std::string processor = {};
  int threads = 0;
  int nodes = 1;
  int gpus = 1;                      // of a host
  int gpu_gigabytes = 0;             // as in its name
  int64_t gpu_bytes = 0;             // of memory, as CUDA reports it
  int64_t host_bytes = 0;            // 0: not known
  double host_bytes_per_second = 0;  // of its memory; 0: as the calibration says
  double pcie_bytes_per_second = 0;  // likewise
  // Of a host whose type is not known, where the calibration does not say: the memory's rate for each GPU of the
  // instance that `assumed_host` names.
  double assumed_host_bytes_per_second = 0;
  std::string assumed_host;
  bool efa = false;
  Links links;
  std::string network_basis;    // where the rate between hosts is from
  double network_error = 0;     // relative, of collectives' times; 0: no more than the calibration's
  std::optional<double> price;  // of a host and hour

  bool is_cpu() const { return !processor.empty(); }
  at::Device device() const { return is_cpu() ? at::kCPU : at::kCUDA; }
  // GPU or processor, as calibrations name it.
  std::string device_name() const;
  int world_size() const { return nodes * gpus; }
};

// Throws UserError for an instance type or GPU that is not known. `network`: as the flag says. `per_host`: with --gpu.
PlanMachine find_machine(const PlanOptions& options, const std::string& network, int per_host);
// Hosts whose processors train: of the instance type or, without one, like that of --calibration, or this machine.
// `per_host`: ranks; nothing: a rank for each socket of an instance, one on a machine like this.
PlanMachine find_cpu_machine(const PlanOptions& options, const std::string& network, std::optional<int> per_host);
PlanMachine machine_of_cpu_instance(const std::string& type, int nodes, std::optional<int> per_host,
                                    const std::string& network);
PlanMachine machine_of_instance(const std::string& type, int nodes, const std::string& network);

// A machine that a run is on: an instance of this type, or else GPUs of this name and memory.
PlanMachine machine_of_run(const std::string& gpu, int64_t gpu_bytes, int hosts, int per_host, const std::string& type,
                           const std::string& network);

// The same on processors. `host_bytes`: of memory.
PlanMachine machine_of_cpu_run(const std::string& processor, int threads, int64_t host_bytes, int hosts, int per_host,
                               const std::string& network);

// Replaces what the plan assumes of the network between hosts by GB/s that a host sends in collectives, as `mpzero
// doctor
// --bandwidth` measures them. An all-to-all keeps its share.
void set_network_rate(PlanMachine& machine, double gigabytes);

// The price of `name` in a file of prices; nothing where it has none.
std::optional<double> price_in_file(const std::string& file, const std::string& name);

}  // namespace mpzero::plan
