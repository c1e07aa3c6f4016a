#include "app/exporter/discovery.hpp"

#include <nlohmann/json.hpp>
#include <system_error>

#include "io/files/atomic_file.hpp"

namespace mpzero {

using nlohmann::ordered_json;

Discovery::Discovery(const std::filesystem::path& folder, const std::string& run_id,
                     const std::vector<std::string>& targets, const MetricLabels& labels)
    : file_(folder / (run_id + ".json")) {
  ordered_json of_all = ordered_json::object();
  for (const auto& [name, value] : labels) of_all[name] = value;
  const ordered_json content = {{{"targets", targets}, {"labels", of_all}}};
  io::make_folders(folder);
  io::replace_text_file(file_, content.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

Discovery::~Discovery() {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

}  // namespace mpzero
