#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/kernels/cublas_lt.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::plan {

// What a calibration file holds (docs/formats.md): times of a device's products and kernels, its links and its host.
// Seconds, bytes a second. A rate of 0: not measured.
struct CalibrationData {
  struct Matmul {
    model::MatmulShape shape;
    bool adds = false;
    double seconds = 0;
  };
  struct Attention {
    model::AttentionShape shape;
    at::ScalarType type = at::kBFloat16;
    double forward_seconds = 0, backward_seconds = 0;
  };
  struct Kernel {
    at::ScalarType type = at::kBFloat16;
    double bytes = 0, seconds = 0;
  };
  struct Copies {
    double to_device = 0, from_device = 0;  // over PCIe, pinned memory
    double both_ways = 0;                   // the sum while both run
    double on_device = 0;                   // read and written bytes counted
  };
  struct Host {
    double adamw_parameters_per_second = 0;
    int threads = 0;                     // of each rank
    int ranks = 1;                       // that measured at the same time on the host
    double memory_bytes_per_second = 0;  // of a copy, read and written bytes counted
    double disk_write_bytes_per_second = 0;
  };
  // Of tensors in host memory, between all ranks of the host. The full tensor's bytes.
  struct Collective {
    std::string name;  // "all-gather", "reduce-scatter", "all-reduce"
    at::ScalarType type = at::kBFloat16;
    double bytes = 0, seconds = 0;
  };
  // Of a layer, forward and backward: measured together, divided by the sum of its operations one by one.
  struct FullStep {
    double layer_seconds = 0, factor = 1;
  };

  std::string device;  // "NVIDIA H200", or the CPU's name
  bool gpu = true;
  std::vector<std::string> names;  // parts of names of devices that the file is for
  std::string source;              // what was measured, or what the figures follow from
  std::string date;                // of the measurement
  std::map<std::string, std::string> versions;
  double error = 0;  // relative, of the time of a step
  std::vector<Matmul> matmuls;
  std::vector<Attention> attention;
  // By model::name(OperationKind), and "adamw", "sum_of_squares": AdamW's states on the device.
  std::map<std::string, std::vector<Kernel>> kernels;
  Copies copies;
  Host host;
  std::vector<Collective> collectives;
  double launch_seconds = 0;  // of the host, to queue one operation
  std::vector<FullStep> full_step;
};

}  // namespace mpzero::plan
