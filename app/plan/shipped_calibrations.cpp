#include "app/plan/shipped_calibrations.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ranges>
#include <system_error>

#include "app/plan/calibration_file.hpp"
#include "base/error.hpp"
#include "io/files/shipped_folders.hpp"

namespace mpzero::plan {

namespace fs = std::filesystem;

namespace {

// GPU names must match exactly, because "H200" and "H200 NVL" are different GPUs. Processor names may contain
// additional words.
bool is_of(const std::string& name, const std::string& device, bool gpu) {
  return gpu ? device == name || device == "NVIDIA " + name : device.find(name) != std::string::npos;
}

// Returns the sum of the log2 ratios of threads and ranks.
double distance(const CalibrationData& data, const CalibratedRanks& ranks) {
  const auto apart = [](int a, int b) { return a > 0 && b > 0 ? std::abs(std::log2(static_cast<double>(a) / b)) : 0; };
  return apart(data.host.threads, ranks.threads) + apart(data.host.ranks, ranks.ranks);
}

}  // namespace

fs::path calibration_for(const std::string& device, const std::vector<fs::path>& folders,
                         const CalibratedRanks& ranks) {
  size_t longest = 0;
  double nearest = 0;
  fs::path best;
  std::vector<std::string> known;  // devices of the requested kind
  bool any = false;
  for (const fs::path& folder : folders) {
    std::error_code error;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      const CalibrationData data = read_calibration(file);
      any = true;
      if (data.gpu != (ranks.threads == 0)) continue;
      if (std::find(known.begin(), known.end(), data.device) == known.end()) known.push_back(data.device);
      for (const std::string& name : data.names) {
        if (!is_of(name, device, data.gpu)) continue;
        const double away = distance(data, ranks);
        if (name.size() > longest || (name.size() == longest && away < nearest)) {
          longest = name.size();
          nearest = away;
          best = file;
        }
      }
    }
  }
  if (!best.empty()) return best;
  if (!any) {
    throw_user_error(
        "no calibrations in {}; run mpzero from its checkout, or measure this machine with `mpzero plan --calibrate "
        "FILE`",
        fmt::join(folders | std::views::transform([](const fs::path& path) { return path.string(); }), " or "));
  }
  throw_user_error(
      "no calibration for {} in configs/calibrations ({}); measure such a machine with `{}mpzero plan --calibrate "
      "FILE{}`, and pass --calibration FILE",
      device, known.empty() ? "no CPU is calibrated" : fmt::format("available: {}", fmt::join(known, ", ")),
      ranks.ranks > 1 ? fmt::format("mpirun -n {} ", ranks.ranks) : "", ranks.threads > 0 ? " --device cpu" : "");
}

fs::path calibration_for(const std::string& device, const CalibratedRanks& ranks) {
  return calibration_for(device, io::shipped_folders("calibrations"), ranks);
}

}  // namespace mpzero::plan
