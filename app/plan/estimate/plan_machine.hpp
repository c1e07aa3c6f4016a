#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "app/simulation/network_model.hpp"

namespace mpzero::plan {

// Fraction of a host's data-sheet memory bandwidth that copies reach, typically 80% in STREAM.
inline constexpr double kOfHostMemory = 0.8;

// Hosts of one type.
struct PlanMachine {
  std::string name;  // EC2 instance type, GPU or processor
  std::string gpu = {};
  // Processor and threads per rank, for training on CPUs; the GPU fields are then empty, and `gpus` is the number of
  // ranks per host.
  std::string processor = {};
  int threads = 0;
  int nodes = 1;
  int gpus = 1;                      // per host
  int gpu_gigabytes = 0;             // GB, as in the GPU's name
  int64_t gpu_bytes = 0;             // memory reported by CUDA
  int64_t host_bytes = 0;            // memory; 0: unknown
  double host_bytes_per_second = 0;  // memory bandwidth; 0: from the calibration
  double pcie_bytes_per_second = 0;  // PCIe bandwidth; 0: from the calibration
  // Memory bandwidth per GPU of the instance `assumed_host`, used if neither the host type nor the calibration
  // determines the bandwidth.
  double assumed_host_bytes_per_second = 0;
  std::string assumed_host = {};
  bool efa = false;
  Links links;
  std::string network_basis;         // source of the rate between hosts
  double network_error = 0;          // relative error of collectives; 0: same as the calibration's
  std::optional<double> price = {};  // per host-hour

  bool is_cpu() const { return !processor.empty(); }
  at::Device device() const { return is_cpu() ? at::kCPU : at::kCUDA; }
  // Returns the name of the GPU or processor in calibrations.
  std::string device_name() const;
  int world_size() const { return nodes * gpus; }
  // See MemoryEstimate.
  int peer_gpus() const { return links.peer_access ? gpus : 1; }
};

// Assumptions of a plan that are not part of the run's configuration.
struct PlanAssumptions {
  double straggler_factor = 1;
  double network_factor = 1;
  std::optional<double> disk_rate = std::nullopt;  // checkpoint write rate per host in GB/s
  bool after_clipped_step = false;  // AdamW on the host waits for the gradient norm (ZeroEngine::begin_step)
};

// Flags of `mpzero plan` that select hosts.
struct HostOptions {
  std::string instance;                 // EC2 instance type
  std::string gpu;                      // GPU name, instead of `instance`
  int64_t nodes = 1;                    // number of hosts
  std::optional<double> host_gigabits;  // network bandwidth per host in Gb/s, with --gpu
  std::optional<double> host_memory;    // GiB per host, with --gpu
  std::optional<double> network_rate;   // collective bandwidth per host in GB/s
  std::optional<double> price;          // per host-hour
  std::string prices;                   // path of a price file
  std::string calibration;              // path of a calibration file
};

// Returns the hosts that the flags select. Without --instance and --gpu, returns hosts that train on CPUs, like the
// calibrated host of --calibration or like this machine. Throws UserError for an unknown instance type or GPU.
// `network`: value of --network. `per_host`: ranks per host, unused for instances with GPUs; std::nullopt: one per
// socket of an instance, otherwise one.
PlanMachine find_machine(const HostOptions& options, const std::string& network, std::optional<int> per_host,
                         at::DeviceType device = at::kCUDA);
PlanMachine machine_of_instance(const std::string& type, int nodes, const std::string& network,
                                at::DeviceType device = at::kCUDA, std::optional<int> per_host = std::nullopt);

// Returns the hosts of a run: instances of `type` or, if the type is unknown, hosts with the given GPUs.
PlanMachine machine_of_run(const std::string& gpu, int64_t gpu_bytes, int hosts, int per_host, const std::string& type,
                           const std::string& network);

// Returns the hosts of a run on CPUs, with unknown memory.
PlanMachine machine_of_cpu_run(const std::string& processor, int threads, int hosts, int per_host,
                               const std::string& network);

// Sets the collective bandwidth between hosts in GB/s per host, as measured by `mpzero doctor --bandwidth`. Scales the
// all-to-all bandwidth by the same factor.
void set_network_rate(PlanMachine& machine, double gigabytes);

// Returns a warning about names in a price file that are neither instance types nor `name`; empty if all are known.
std::string unknown_in_price_file(const std::string& file, const std::string& name);

// Returns the price of `name` in a price file, or std::nullopt if not listed. Throws UserError for an invalid file.
std::optional<double> price_in_file(const std::string& file, const std::string& name);

}  // namespace mpzero::plan
