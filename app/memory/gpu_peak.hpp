#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "app/config/run_setup.hpp"

namespace mpzero {

// The time of a step, in seconds, at the GPU's dense bf16 rate; that of attention if each sequence is one document.
struct PeakTime {
  double products = 0;  // with weights
  double attention = 0;

  double seconds(double attention_share) const { return products + attention * attention_share; }
};

// How long this rank's part of a step would take at its GPU's dense bf16 rate; nothing where that is not known.
std::optional<PeakTime> peak_step_time(const RunSetup& setup, at::Device device, int world_size);

// The line for the log of a run whose MFU is not known for lack of its GPU's rate; empty: it is known, or does not
// apply (a CPU, fp32).
std::string missing_peak(const RunSetup& setup);

}  // namespace mpzero
