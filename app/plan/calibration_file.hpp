#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "app/plan/calibration_data.hpp"

namespace mpzero::plan {

// Reads a calibration file (docs/formats.md), or one that scales the times of another in the same folder. Throws
// UserError, one sentence that names the file, the key and what to do, for a file that cannot be read or is not one.
CalibrationData read_calibration(const std::filesystem::path& path);

// The file's text. read_calibration() of it gives the same, to a thousandth of a microsecond.
std::string to_json(const CalibrationData& data);

// Replaces `path` atomically.
void write_calibration(const std::filesystem::path& path, const CalibrationData& data);

}  // namespace mpzero::plan
