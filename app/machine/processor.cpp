#include "app/machine/processor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>

namespace mpzero::doctor {

std::string processor_name(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/cpuinfo");
  std::map<std::string, std::string> values;  // of the first of its processors
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t last = line.find_last_not_of(" \t", colon - 1);
    const size_t first = line.find_first_not_of(" \t", colon + 1);
    if (last != std::string::npos && first != std::string::npos) values[line.substr(0, last + 1)] = line.substr(first);
  }
  const std::string name = values["model name"];
  if (name.empty()) return "CPU";
  const bool has_number = std::any_of(name.begin(), name.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
  if (has_number || values["cpu family"].empty()) return name;
  return fmt::format("{}, family {}, model {}", name, values["cpu family"], values["model"]);
}

}  // namespace mpzero::doctor
