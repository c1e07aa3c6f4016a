#pragma once

#include <nlohmann/json.hpp>

namespace mpzero::io {

// Returns a schema of ds_config.json by key path: {"zero_optimization.stage": {"type": "integer", "minimum": 0,
// "maximum": 3, "auto": false}, ...}. The types are integer, number, boolean, choice, pair, names, text, object (nested
// keys have separate paths), any (not checked), only (missing, null, "auto" or `value`) and disabled (missing, false,
// or "enabled": false). scripts/flags.json contains a copy for app/check.py, which validates files without a build.
nlohmann::ordered_json ds_config_keys();

}  // namespace mpzero::io
