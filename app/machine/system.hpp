#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/machine/gpu_promise.hpp"

namespace mpzero::doctor {

// Paths and libraries for mpzero doctor. Tests replace the defaults.
struct System {
  std::filesystem::path root = "/";  // parent of /proc, /sys and /dev
  std::vector<std::string> nvml = {"libnvidia-ml.so.1"};
  std::vector<std::string> cuda = {"libcuda.so.1"};
  std::vector<std::string> libfabric = {"libfabric.so.1", "/opt/amazon/efa/lib64/libfabric.so.1",
                                        "/opt/amazon/efa/lib/libfabric.so.1"};
  std::vector<std::string> plugin_files;  // candidate files of NCCL's libfabric plugin
};

// Facts about the job that the checks of a host use.
struct Job {
  int local_ranks = 1;  // on this host
  int world_size = 1;
  int hosts = 1;
  std::string device = "auto";  // training device: "auto", "cuda" or "cpu"
  GivenGpus given_gpus = {};    // on this host; count 0 means all GPUs, or unknown
};

// Returns the first line of a file, trimmed; std::nullopt if the file cannot be read or the line is empty.
std::optional<std::string> read_line(const std::filesystem::path& file);
// Returns the value of the first line "key : value" in a file of /proc; empty if there is no such line.
std::string value_of(const std::filesystem::path& file, const std::string& key);

// Returns Slurm's node name in a Slurm job, else the kernel's host name.
std::string host_name(const System& system);

// Returns true if this host is an EC2 instance, according to the firmware.
bool is_ec2(const System& system);

// Returns the instance type, e.g. "p5.48xlarge"; empty outside EC2 or if the type is unknown. Uses the same sources as
// NCCL's plugin: OFI_NCCL_FORCE_PRODUCT_NAME, else the firmware of Nitro instances. Does not query EC2's metadata
// service, because containers often cannot reach the service and NCCL's plugin does not query it either.
std::string instance_type(const System& system);

}  // namespace mpzero::doctor
