#include "app/plan/shipped_calibrations.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <system_error>

#include "app/plan/calibration_file.hpp"
#include "base/error.hpp"
#include "io/files/shipped_folders.hpp"

namespace mpzero::plan {

namespace fs = std::filesystem;

fs::path calibration_for(const std::string& gpu, const std::vector<fs::path>& folders) {
  size_t longest = 0;
  fs::path best;
  std::vector<std::string> known;
  for (const fs::path& folder : folders) {
    std::error_code error;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      const CalibrationData data = read_calibration(file);
      if (std::find(known.begin(), known.end(), data.device) == known.end()) known.push_back(data.device);
      for (const std::string& name : data.names) {
        if (name.size() > longest && gpu.find(name) != std::string::npos) {
          longest = name.size();
          best = file;
        }
      }
    }
  }
  if (!best.empty()) return best;
  if (known.empty()) {
    throw_user_error(
        "there are no calibrations in {}, where mpzero looks for them; start it in its checkout, or make one with "
        "`mpzero plan --calibrate FILE`",
        fmt::join(folders | std::views::transform([](const fs::path& path) { return path.string(); }), " or "));
  }
  throw_user_error(
      "there is no calibration for {} in configs/calibrations (there are {}); make one on such a machine with `mpzero "
      "plan --calibrate FILE`, and give it with --calibration",
      gpu, fmt::join(known, ", "));
}

fs::path calibration_for(const std::string& gpu) { return calibration_for(gpu, io::shipped_folders("calibrations")); }

}  // namespace mpzero::plan
