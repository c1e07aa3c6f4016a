#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/measure/collective_run.hpp"
#include "app/measure/copy_rates.hpp"
#include "model/kernels/cublas_lt.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::plan {

// Contents of a calibration file (docs/formats.md): times of a device's matmuls and kernels in seconds, and rates of
// its links and its host in bytes per second. A rate of 0 means that the rate was not measured.
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
  struct Host {
    double adamw_parameters_per_second = 0;
    int threads = 0;                     // per rank
    int ranks = 1;                       // ranks that measured concurrently on the host
    double memory_bytes_per_second = 0;  // copy rate, bytes read and written
    double disk_write_bytes_per_second = 0;
  };
  // `layer_seconds`: sum of the times of a layer's operations, forward and backward. `factor`: ratio of the
  // whole layer's time to this sum.
  struct FullStep {
    double layer_seconds = 0, factor = 1;
  };

  std::string device;  // "NVIDIA H200", or the CPU's name
  bool gpu = true;
  std::vector<std::string> names;  // names that the file matches, see calibration_for()
  std::string source;              // description of the measurement or derivation
  std::string date;                // date of the measurement
  std::map<std::string, std::string> versions;
  double error = 0;  // relative error of a step's time
  std::vector<Matmul> matmuls;
  std::vector<Attention> attention;
  // Keys: Operation::name, and "adamw" and "sum_of_squares" for the optimizer step on the device.
  std::map<std::string, std::vector<Kernel>> kernels;
  measure::CopyRates copies;
  Host host;
  std::vector<measure::CollectiveTime> collectives;  // between all ranks of the host, on tensors in host memory
  double launch_seconds = 0;                         // host time to launch one operation
  std::vector<FullStep> full_step;
};

}  // namespace mpzero::plan
