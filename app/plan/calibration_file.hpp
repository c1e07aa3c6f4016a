#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "app/plan/calibration_data.hpp"

namespace mpzero::plan {

// Reads a calibration file (docs/formats.md), which may scale the times of another file in the same folder. Throws
// UserError with the file and the key if a file is unreadable or not a calibration.
CalibrationData read_calibration(const std::filesystem::path& path);

// Returns the text of a calibration file with `data`. Times are rounded to 0.001 us.
std::string to_json(const CalibrationData& data);

// Writes `data` to `path`. Replaces an existing file atomically.
void write_calibration(const std::filesystem::path& path, const CalibrationData& data);

}  // namespace mpzero::plan
