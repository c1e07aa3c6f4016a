#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "app/exporter/families.hpp"
#include "app/exporter/host_metrics.hpp"
#include "app/exporter/http_server.hpp"
#include "app/exporter/run_metrics.hpp"

namespace mpzero {

struct ExporterOptions {
  std::string address;  // "127.0.0.1"
  uint16_t port = 0;    // 0: any that is free
  MetricLabels labels;  // of all metrics
  HostPaths host;
};

// Prometheus' endpoint of a node: http://ADDRESS:PORT/metrics. It has a thread of its own, and collects at most once a
// second, however often it is asked.
class Exporter {
 public:
  // `run`: null on nodes without rank 0. It must outlive the exporter. Throws UserError if the port cannot be opened.
  Exporter(ExporterOptions options, const RunMetrics* run);

  uint16_t port() const { return server_.port(); }

 private:
  HttpServer open();
  // On the server's thread.
  std::string page();

  const ExporterOptions options_;
  const RunMetrics* run_;
  std::string text_;
  std::chrono::steady_clock::time_point collected_;
  HttpServer server_;
};

}  // namespace mpzero
