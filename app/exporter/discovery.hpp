#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/exporter/families.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {

// A file from which Prometheus learns where a run's endpoints are (file_sd_configs): FOLDER/RUN_ID.json. It stays until
// remove(), so that Prometheus keeps asking for a run that was killed, and finds it down. Its labels have the run as
// discovered_run_id: `run_id` is that of the run that answers, which may be a later one on the same port.
class Discovery {
 public:
  // `targets`: "host:port" of each node. Makes the folder. Throws as throw_system_error.
  Discovery(const std::filesystem::path& folder, const std::string& run_id, const std::vector<std::string>& targets,
            const MetricLabels& labels);

  // The run has ended as it should: nothing is to be asked any more.
  void remove();
  // The run has failed: the file stays, with the labels end="failed" and `reason`, of which a label has the first
  // kLongestReason bytes. Throws as throw_system_error.
  void failed(const std::string& reason);

  static constexpr size_t kLongestReason = 300;

 private:
  void write(io::Synced synced) const;

  std::filesystem::path file_;
  nlohmann::ordered_json group_;  // what file_sd_configs calls a static_config
};

}  // namespace mpzero
