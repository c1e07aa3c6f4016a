#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "app/plan/calibration_data.hpp"

namespace mpzero::plan {

// Reads a calibration file (docs/formats.md), or one that scales the times of another in the same folder. Throws
// UserError with the file, the key and a remedy if the file cannot be read or is not a calibration.
CalibrationData read_calibration(const std::filesystem::path& path);

// The file's text. read_calibration() restores `data` with times rounded to 0.001 us.
std::string to_json(const CalibrationData& data);

// Replaces `path` atomically.
void write_calibration(const std::filesystem::path& path, const CalibrationData& data);

}  // namespace mpzero::plan
