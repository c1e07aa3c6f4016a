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

// Adds metrics, on the exporter's thread.
using Collector = std::function<void(Families&)>;

struct ExporterOptions {
  std::string address;                            // "127.0.0.1"
  uint16_t port = 0;                              // 0: any free port
  MetricLabels labels;                            // added to all metrics
  std::vector<std::filesystem::path> disks = {};  // folders whose file systems are reported
  std::chrono::milliseconds fresh{1000};          // scrapes within this time get the same page
};

// A node's Prometheus endpoint: http://ADDRESS:PORT/metrics. Runs on its own thread and collects at most once per
// `fresh`.
class Exporter {
 public:
  // Serves metrics of the host and of `collectors`, which must not throw. Throws UserError if the port cannot be
  // opened.
  Exporter(ExporterOptions options, std::vector<Collector> collectors);

  uint16_t port() const { return server_.port(); }

 private:
  HttpServer open();
  // Called on the server's thread.
  std::string page();

  const ExporterOptions options_;
  const std::vector<Collector> collectors_;
  DiskSpace disks_;
  std::string text_;
  std::chrono::steady_clock::time_point collected_;
  HttpServer server_;
};

}  // namespace mpzero
