#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace mpzero {

// What may have broken a rank from outside: free memory, memory pressure, OOM kills, Xid messages of the driver, and
// state of the rank's GPU. Best effort: what cannot be read, also within two seconds, is left out. `root`: of the
// file system.
nlohmann::ordered_json host_condition(at::Device device, const std::filesystem::path& root = "/");

}  // namespace mpzero
