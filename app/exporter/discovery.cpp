#include "app/exporter/discovery.hpp"

#include <nlohmann/json.hpp>
#include <system_error>

#include "io/files/atomic_file.hpp"

namespace mpzero {

using nlohmann::ordered_json;

Discovery::Discovery(const std::filesystem::path& folder, const std::string& run_id,
                     const std::vector<std::string>& targets, const MetricLabels& labels)
    : file_(folder / (run_id + ".json")) {
  ordered_json of_all = {{"discovered_run_id", run_id}};
  for (const auto& [name, value] : labels) of_all[name] = value;
  group_ = {{"targets", targets}, {"labels", of_all}};
  io::make_folders(folder);
  write(io::Synced::kYes);
}

void Discovery::remove() {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

void Discovery::failed(const std::string& reason) {
  group_["labels"]["end"] = "failed";
  group_["labels"]["reason"] = reason.substr(0, kLongestReason);
  // Do not sync: when a rank dies, the launcher kills the other ranks after about one second.
  write(io::Synced::kNo);
}

void Discovery::write(io::Synced synced) const {
  const ordered_json content = ordered_json::array({group_});
  io::replace_text_file(file_, content.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n", io::disk(),
                        synced);
}

}  // namespace mpzero
