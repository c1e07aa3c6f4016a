#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace mpzero {

// Returns possible external causes of a failure: available memory, memory pressure, OOM kills, Xid messages of the
// driver, and the state of the rank's GPU. Best effort: returns an empty object if reading takes more than two seconds.
// `root`: parent of /proc and /dev.
nlohmann::ordered_json host_condition(at::Device device, const std::filesystem::path& root = "/");

}  // namespace mpzero
