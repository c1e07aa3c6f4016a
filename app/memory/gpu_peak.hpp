#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "app/config/run_setup.hpp"

namespace mpzero {

// A step's time in seconds at the GPU's dense bf16 rate. `attention`: if each sequence is one document.
struct PeakTime {
  double products = 0;  // matrix products with weights
  double attention = 0;

  double seconds(double attention_share) const { return products + attention * attention_share; }
};

// The time of this rank's part of a step at its GPU's dense bf16 rate; std::nullopt if the rate is unknown.
std::optional<PeakTime> peak_step_time(const RunSetup& setup, at::Device device, int world_size);

// The log line if MFU is unknown because mpzero lacks the GPU's rate; empty: known, or not applicable (a CPU, fp32).
std::string missing_peak(const RunSetup& setup);

}  // namespace mpzero
