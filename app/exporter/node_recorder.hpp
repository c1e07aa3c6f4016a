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

// What a node's metrics say of its GPUs and its network, as a line of node.jsonl has it (docs/formats.md). A value that
// the metrics do not have is left out. The network: all EFA devices, or, where there are none, all interfaces.
nlohmann::ordered_json node_facts(const Families& metrics);

// Records what the GPUs and the network of this node do, for the report: when it is made, every `interval`, and when it
// is destroyed. It has a thread of its own.
class NodeRecorder {
 public:
  // `common`: fields of each line, an object. `collectors`: of the GPUs; they must not throw. `warn` is called by any
  // thread if a line cannot be written or collected.
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
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace mpzero
