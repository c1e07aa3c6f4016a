#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace mpzero {

// Possible external causes of a failure: free memory, memory pressure, OOM kills, the driver's Xid messages, and the
// state of the rank's GPU. Best effort: omits values that cannot be read within two seconds. `root`: of the file
// system.
nlohmann::ordered_json host_condition(at::Device device, const std::filesystem::path& root = "/");

}  // namespace mpzero
