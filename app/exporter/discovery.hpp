#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/exporter/families.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {

// The Prometheus target file of a run (file_sd_configs), FOLDER/RUN_ID.json. The file remains until remove() is called,
// so Prometheus continues to scrape a killed run and shows it as down. The label discovered_run_id is the id of this
// run. The label run_id is the id of the run that responds, possibly a later run on the same port.
class Discovery {
 public:
  // Creates the folder and the file. `targets`: "host:port" of each node. See throw_system_error() for errors.
  Discovery(const std::filesystem::path& folder, const std::string& run_id, const std::vector<std::string>& targets,
            const MetricLabels& labels);

  // Removes the file, so Prometheus stops scraping. Must be called when the run has ended normally.
  void remove();
  // Adds the labels end="failed" and `reason`, truncated to kLongestReason bytes, to the file. Must be called when the
  // run has failed. See throw_system_error() for errors.
  void failed(const std::string& reason);

  static constexpr size_t kLongestReason = 300;

 private:
  void write(io::Synced synced) const;

  std::filesystem::path file_;
  nlohmann::ordered_json group_;  // a static_config of file_sd_configs
};

}  // namespace mpzero
