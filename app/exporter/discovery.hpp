#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/exporter/families.hpp"

namespace mpzero {

// A file from which Prometheus learns where a run's endpoints are (file_sd_configs): FOLDER/RUN_ID.json, for as long as
// this lives. The file of a run that was killed stays until the run starts again.
class Discovery {
 public:
  // `targets`: "host:port" of each node. Makes the folder. Throws as throw_system_error.
  Discovery(const std::filesystem::path& folder, const std::string& run_id, const std::vector<std::string>& targets,
            const MetricLabels& labels);
  ~Discovery();
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;

 private:
  std::filesystem::path file_;
};

}  // namespace mpzero
