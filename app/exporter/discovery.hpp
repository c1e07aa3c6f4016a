#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/exporter/families.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {

// Prometheus' target file of a run (file_sd_configs): FOLDER/RUN_ID.json. It stays until remove(), so Prometheus keeps
// scraping a killed run and shows it as down. The label discovered_run_id is this run's id; `run_id` is that of the run
// that answers, which may be a later one on the same port.
class Discovery {
 public:
  // `targets`: "host:port" of each node. Creates the folder. Throws as throw_system_error().
  Discovery(const std::filesystem::path& folder, const std::string& run_id, const std::vector<std::string>& targets,
            const MetricLabels& labels);

  // The run ended normally: removes the file, so Prometheus stops scraping.
  void remove();
  // The run failed: keeps the file, with the labels end="failed" and `reason` (its first kLongestReason bytes). Throws
  // as throw_system_error().
  void failed(const std::string& reason);

  static constexpr size_t kLongestReason = 300;

 private:
  void write(io::Synced synced) const;

  std::filesystem::path file_;
  nlohmann::ordered_json group_;  // a static_config of file_sd_configs
};

}  // namespace mpzero
