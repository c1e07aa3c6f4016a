#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "app/exporter/disk_space.hpp"
#include "app/exporter/families.hpp"
#include "app/exporter/http_server.hpp"

namespace mpzero {

// Callback that adds metrics to a scrape. Called on the exporter's thread.
using Collector = std::function<void(Families&)>;

struct ExporterOptions {
  std::string address;                            // such as "127.0.0.1"
  uint16_t port = 0;                              // 0: any free port
  MetricLabels labels;                            // added to all metrics
  std::vector<std::filesystem::path> disks = {};  // folders on the file systems to report
  std::chrono::milliseconds fresh{1000};          // lifetime of a cached page
};

// The Prometheus endpoint of a node, http://ADDRESS:PORT/metrics. Runs on its own thread. Collects metrics at most once
// per interval `fresh`.
class Exporter {
 public:
  // Serves metrics of the host and of `collectors`. Collectors must not throw. Throws UserError if the port cannot be
  // opened.
  Exporter(ExporterOptions options, std::vector<Collector> collectors);

  uint16_t port() const { return server_.port(); }

 private:
  HttpServer open();
  // Returns the metrics page. Called on the server's thread.
  std::string page();

  const ExporterOptions options_;
  const std::vector<Collector> collectors_;
  DiskSpace disks_;
  std::string text_;
  std::chrono::steady_clock::time_point collected_;
  HttpServer server_;
};

}  // namespace mpzero
