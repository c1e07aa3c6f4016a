#include "app/machine/system.hpp"

#include <cstdlib>
#include <fstream>

#include "base/host_name.hpp"

namespace mpzero::doctor {

namespace {

// Returns the folder with the firmware's DMI data.
std::filesystem::path firmware(const System& system) { return system.root / "sys/devices/virtual/dmi/id"; }

}  // namespace

std::optional<std::string> read_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  if (!std::getline(stream, line)) return std::nullopt;
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string::npos) return std::nullopt;
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

std::string value_of(const std::filesystem::path& file, const std::string& key) {
  std::ifstream stream(file);
  std::string line;
  while (std::getline(stream, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.rfind(key, 0) != 0) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const size_t first = line.find_first_not_of(" \t", colon + 1);
    return first == std::string::npos ? "" : line.substr(first);
  }
  return "";
}

std::string host_name(const System& system) {
  if (const auto name = name_in_job(parallel::process_environment)) return *name;
  return read_line(system.root / "proc/sys/kernel/hostname").value_or("unknown");
}

bool is_ec2(const System& system) { return read_line(firmware(system) / "sys_vendor").value_or("") == "Amazon EC2"; }

std::string instance_type(const System& system) {
  const char* forced = std::getenv("OFI_NCCL_FORCE_PRODUCT_NAME");
  if (forced != nullptr && *forced != '\0') return forced;
  return is_ec2(system) ? read_line(firmware(system) / "product_name").value_or("") : "";
}

}  // namespace mpzero::doctor
