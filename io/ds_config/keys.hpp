#pragma once

#include <nlohmann/json.hpp>

namespace mpzero::io {

// The values that each key of ds_config.json accepts, by its path: {"zero_optimization.stage": {"type": "integer",
// "minimum": 0, "maximum": 3, "auto": false}, ...}. Types: integer, number, boolean, choice, pair, names, text, object
// (whose keys have paths of their own), any (not checked), only (missing, null, "auto" or `value`) and disabled
// (missing, false, or "enabled": false). scripts/flags.json contains them for app/check.py, which checks files before a
// build.
nlohmann::ordered_json ds_config_keys();

}  // namespace mpzero::io
