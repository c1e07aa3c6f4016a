#include "app/exporter/exporter.hpp"

#include <system_error>
#include <utility>

#include "app/exporter/node_metrics.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"

namespace mpzero {
Exporter::Exporter(ExporterOptions options, std::vector<Collector> collectors)
    : options_(std::move(options)), collectors_(std::move(collectors)), disks_(options_.disks), server_(open()) {}

HttpServer Exporter::open() {
  try {
    return {options_.address, options_.port, [this] { return page(); }};
  } catch (const std::system_error& error) {
    throw_user_error(
        "--metrics_port {}: cannot listen on {} on host {} ({}); pass a different port or --metrics_address",
        options_.port, options_.address, host_name(), error.code().message());
  }
}

std::string Exporter::page() {
  const auto now = std::chrono::steady_clock::now();
  if (text_.empty() || now - collected_ >= options_.fresh) {
    Families families(options_.labels);
    families.gauge("mpzero_up", "1 while the run's process exists.", 1);
    for (const Collector& collect : collectors_) collect(families);
    collect_host("/", families);
    disks_.collect(families);
    text_ = families.text();
    collected_ = now;
  }
  return text_;
}

}  // namespace mpzero
