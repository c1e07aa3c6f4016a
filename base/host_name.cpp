#include "base/host_name.hpp"

#include <unistd.h>

#include <array>

namespace mpzero {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

std::optional<std::string> name_in_job(const parallel::Environment& environment) {
  for (const char* variable : {"SLURMD_NODENAME", "MPZERO_HOST"}) {
    const std::optional<std::string> name = environment(variable);
    if (name && !name->empty()) return name;
  }
  return std::nullopt;
}

}  // namespace mpzero
