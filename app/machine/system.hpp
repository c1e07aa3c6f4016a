#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/machine/gpu_promise.hpp"

namespace mpzero::doctor {

// Requests the use of AMX registers from the kernel, as oneDNN does before its first matmul.
bool request_amx();

// Paths and libraries that the doctor reads. Tests use their own.
struct System {
  std::filesystem::path root = "/";  // parent of /proc, /sys and /dev
  std::vector<std::string> nvml = {"libnvidia-ml.so.1"};
  std::vector<std::string> cuda = {"libcuda.so.1"};
  std::vector<std::string> libfabric = {"libfabric.so.1", "/opt/amazon/efa/lib64/libfabric.so.1",
                                        "/opt/amazon/efa/lib/libfabric.so.1"};
  std::vector<std::string> plugin_files;  // of NCCL's plugin for libfabric
  bool (*may_use_amx)() = request_amx;
};

// Facts about the run for the checks of one host.
struct Job {
  int local_ranks = 1;  // on this host
  int world_size = 1;
  int hosts = 1;
  std::string device = "auto";  // the device to train on: "auto", "cuda" or "cpu"
  GivenGpus given_gpus = {};    // on this host; none: all GPUs, or unknown
};

// The first line of a file, trimmed; std::nullopt if it cannot be read or is empty.
std::optional<std::string> read_line(const std::filesystem::path& file);
// The value of the first line "key : value" in a file of /proc; empty if there is none.
std::string value_of(const std::filesystem::path& file, const std::string& key);
std::optional<int64_t> read_integer(const std::filesystem::path& file);

// This host's name in the cluster: Slurm's node name in a job, else the kernel's.
std::string host_name(const System& system);

// Whether this host is an EC2 instance, according to its firmware.
bool is_ec2(const System& system);

// e.g. "p5.48xlarge"; empty outside EC2 or if the type is unknown. Uses the same sources as NCCL's plugin, so that both
// find the same type: OFI_NCCL_FORCE_PRODUCT_NAME, else the firmware of Nitro instances. Does not use EC2's metadata
// service: it would hide that the plugin does not know the type, and containers often cannot reach it.
std::string instance_type(const System& system);

}  // namespace mpzero::doctor
