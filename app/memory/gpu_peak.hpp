#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "app/config/run_setup.hpp"

namespace mpzero {

// Duration of a step, in seconds, at the GPU's peak dense bf16 rate.
struct PeakTime {
  double products = 0;   // matmuls with weights
  double attention = 0;  // if each sequence is one document

  double seconds(double attention_share) const { return products + attention * attention_share; }
};

// Returns the time of this rank's share of a step at the GPU's peak rate, or std::nullopt if that rate is unknown.
std::optional<PeakTime> peak_step_time(const RunSetup& setup, at::Device device, int world_size);

// Returns a log line if the GPU's peak rate is unknown, or an empty string if MFU is known or does not apply.
std::string missing_peak(const RunSetup& setup);

}  // namespace mpzero
