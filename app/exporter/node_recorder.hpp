#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "app/exporter/exporter.hpp"
#include "app/exporter/families.hpp"
#include "app/log/json_lines.hpp"

namespace mpzero {

// Returns the GPU and network values of a node's metrics as fields of a line of node.jsonl (docs/formats.md). Omits
// missing values. The network values are sums over all RDMA devices or, without RDMA devices, over all interfaces.
nlohmann::ordered_json node_facts(const Families& metrics);

// Records GPU and network metrics of this node for the run report: at construction, every `interval`, and at
// destruction. Runs on its own thread.
class NodeRecorder {
 public:
  // `common`: object with fields to add to each line. `collectors`: collect GPU metrics; must not throw. `warn`: called
  // on any thread if a line cannot be collected or written.
  NodeRecorder(const std::filesystem::path& path, nlohmann::ordered_json common, std::vector<Collector> collectors,
               std::function<void(const std::string&)> warn,
               std::chrono::milliseconds interval = std::chrono::seconds(30));
  NodeRecorder(const NodeRecorder&) = delete;
  NodeRecorder& operator=(const NodeRecorder&) = delete;

 private:
  void run(const std::stop_token& stop);
  void record();

  EventLog log_;
  const nlohmann::ordered_json common_;
  const std::vector<Collector> collectors_;
  const std::function<void(const std::string&)> warn_;
  const std::chrono::milliseconds interval_;
  std::jthread thread_;  // last member, because the thread uses all other members
};

}  // namespace mpzero
