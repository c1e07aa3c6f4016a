#include "app/watchdog/host_condition.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "app/health/gpu_condition.hpp"
#include "parallel/mpi/deadline.hpp"

namespace mpzero {
namespace {

using nlohmann::ordered_json;

// Returns the number after `key` in a file of "key number" lines; -1 if the key is missing.
double number_after(const std::filesystem::path& file, std::string_view key) {
  std::ifstream text(file);
  std::string word;
  while (text >> word) {
    double value = 0;
    if (word == key && text >> value) return value;
  }
  return -1;
}

// Parses "some avg10=1.50 avg60=…": the percentage of the last 10 seconds in which a process waited for memory.
double memory_pressure(const std::filesystem::path& file) {
  constexpr std::string_view kBefore = "some avg10=";
  std::ifstream text(file);
  std::string line;
  while (std::getline(text, line)) {
    if (line.starts_with(kBefore)) return std::atof(line.c_str() + kBefore.size());
  }
  return -1;
}

// Returns the last kernel messages of NVIDIA's driver about GPU errors. Access may require privileges.
std::vector<std::string> xid_messages(const std::filesystem::path& file) {
  constexpr size_t kKept = 8;
  std::vector<std::string> found;
  const int log = open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (log < 0) return found;
  std::array<char, 8192> record{};  // each read() returns one message
  for (ssize_t size = 0; (size = read(log, record.data(), record.size())) > 0;) {
    const std::string_view line(record.data(), static_cast<size_t>(size));
    const size_t at = line.find("NVRM: Xid");
    if (at == std::string_view::npos) continue;
    found.emplace_back(line.substr(at, line.find('\n', at) - at));
    if (found.size() > kKept) found.erase(found.begin());
  }
  close(log);
  return found;
}

ordered_json read_condition(at::Device device, const std::filesystem::path& root) {
  ordered_json json = ordered_json::object();
  const auto add = [&](const char* key, double value) {
    if (value >= 0) json[key] = value;
  };
  constexpr double kKibi = 1024;
  const double available = number_after(root / "proc/meminfo", "MemAvailable:");
  add("memory_available_bytes", available < 0 ? available : available * kKibi);
  add("memory_pressure", memory_pressure(root / "proc/pressure/memory"));
  add("oom_kills", number_after(root / "proc/vmstat", "oom_kill"));
  json["xid"] = xid_messages(root / "dev/kmsg");
  const std::string gpu = gpu_condition(device);
  json["gpu"] = gpu.empty() ? std::vector<std::string>() : std::vector<std::string>{gpu};
  return json;
}

}  // namespace

ordered_json host_condition(at::Device device, const std::filesystem::path& root) {
  // The driver may not respond if a GPU has failed.
  constexpr std::chrono::seconds kLimit(2);
  return parallel::answer_within(kLimit, [device, root] { return read_condition(device, root); })
      .value_or(ordered_json::object());
}

}  // namespace mpzero
