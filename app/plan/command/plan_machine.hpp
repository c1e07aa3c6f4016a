#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "app/plan/command/plan_options.hpp"
#include "app/simulation/network_model.hpp"

namespace mpzero::plan {

// Share of the data sheet's host memory bandwidth that copies reach: typically 80% in STREAM.
inline constexpr double kOfHostMemory = 0.8;

// Hosts of one type.
struct PlanMachine {
  std::string name;  // EC2 instance type, GPU or processor
  std::string gpu;
  // For training on CPUs: the processor, and threads per rank. The GPU fields are then empty, and `gpus` counts ranks.
  std::string processor = {};
  int threads = 0;
  int nodes = 1;
  int gpus = 1;                      // per host
  int gpu_gigabytes = 0;             // as in its name
  int64_t gpu_bytes = 0;             // memory, as CUDA reports it
  int64_t host_bytes = 0;            // 0: unknown
  double host_bytes_per_second = 0;  // memory bandwidth; 0: from the calibration
  double pcie_bytes_per_second = 0;  // likewise
  // If neither the host's type nor the calibration determines the memory bandwidth: the bandwidth per GPU of the
  // instance `assumed_host`.
  double assumed_host_bytes_per_second = 0;
  std::string assumed_host;
  bool efa = false;
  Links links;
  std::string network_basis;    // source of the rate between hosts
  double network_error = 0;     // relative error of collectives; 0: no more than the calibration's
  std::optional<double> price;  // per host and hour

  bool is_cpu() const { return !processor.empty(); }
  at::Device device() const { return is_cpu() ? at::kCPU : at::kCUDA; }
  // GPU or processor, as calibrations name it.
  std::string device_name() const;
  int world_size() const { return nodes * gpus; }
};

// Throws UserError for an unknown instance type or GPU. `network`: value of --network. `per_host`: GPUs, with --gpu.
PlanMachine find_machine(const PlanOptions& options, const std::string& network, int per_host);
// Hosts that train on CPUs: of the instance type or, without one, like the host of --calibration, or this machine.
// `per_host`: ranks; std::nullopt: one per socket of an instance, else one.
PlanMachine find_cpu_machine(const PlanOptions& options, const std::string& network, std::optional<int> per_host);
PlanMachine machine_of_cpu_instance(const std::string& type, int nodes, std::optional<int> per_host,
                                    const std::string& network);
PlanMachine machine_of_instance(const std::string& type, int nodes, const std::string& network);

// The hosts of a run: instances of this type, or else GPUs of this name and memory.
PlanMachine machine_of_run(const std::string& gpu, int64_t gpu_bytes, int hosts, int per_host, const std::string& type,
                           const std::string& network);

// The same for CPUs. `host_bytes`: memory.
PlanMachine machine_of_cpu_run(const std::string& processor, int threads, int64_t host_bytes, int hosts, int per_host,
                               const std::string& network);

// Sets the rate between hosts: GB/s per host in collectives, as measured by `mpzero doctor --bandwidth`. Scales the
// rate of an all-to-all by the same factor.
void set_network_rate(PlanMachine& machine, double gigabytes);

// The price of `name` in a price file; std::nullopt: not listed.
std::optional<double> price_in_file(const std::string& file, const std::string& name);

}  // namespace mpzero::plan
