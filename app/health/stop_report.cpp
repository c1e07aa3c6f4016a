#include "app/health/stop_report.hpp"

#include <nlohmann/json.hpp>

#include "io/files/atomic_file.hpp"

namespace mpzero {

void write_stop_report(const std::filesystem::path& folder, const StopReport& report) {
  using nlohmann::ordered_json;
  const ordered_json json = {
      {"job", report.job}, {"restart", report.restart}, {"reason", report.reason}, {"hosts", report.hosts}};
  // The reason may contain invalid UTF-8.
  io::replace_text_file(folder / "stop.json",
                        json.dump(1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace mpzero
