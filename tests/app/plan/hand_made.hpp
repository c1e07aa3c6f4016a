#pragma once

#include <string>

#include "app/plan/calibration_data.hpp"

namespace mpzero::plan {

// Returns the metadata of a calibration written by hand, without times.
inline CalibrationData hand_made(const std::string& device, bool gpu) {
  CalibrationData data;
  data.device = device;
  data.gpu = gpu;
  data.names = {device};
  data.source = "made by hand";
  data.error = 0.1;
  return data;
}

}  // namespace mpzero::plan
