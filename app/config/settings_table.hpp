#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"

namespace mpzero {

// Keys of settings_record(): a resumed run's effective schedule, if it differs from the configured one, and
// --schedule_on_resume.
inline constexpr const char* kScheduleInForce = "schedule_in_force";
inline constexpr const char* kScheduleOnResume = "schedule_on_resume";
// Key of RunConfig::epoch_batch, recorded if it differs from train_batch_size.
inline constexpr const char* kEpochBatch = "epoch_batch";

// Keys that are recorded only if their feature is enabled.
inline constexpr std::array kOnlyWhereAsked = {"zero_quantized_gradients", "zero_quantized_weights", "fp8",
                                               "freeze_parameters", "base_codes"};

// Formats the settings that affect a run's results, and the run's layout, one line each: name, value and origin (key,
// flag or default). The first line is a heading with the path of ds_config.json. The table is complete only after
// apply_epochs().
std::vector<std::string> settings_table(const RunSetup& setup);

// Returns the rows of settings_table(), without the first line, as {name, value, origin}.
std::vector<std::array<std::string, 3>> settings_rows(const RunSetup& setup);

// Returns the settings that affect a run's results, except the layout across ranks and memory. Keys are flags or keys
// of ds_config.json. Includes recorded flags that are not in the table. Settings that do not apply are null, e.g.
// total_num_steps of a constant schedule.
nlohmann::ordered_json settings_record(const RunConfig& config);

// Returns the layout across ranks and memory, which affects speed but changes results only by rounding errors. Omits
// values that --recompute auto and offload_optimizer.ratio "auto" have not chosen yet.
nlohmann::ordered_json layout_record(const RunSetup& setup);

}  // namespace mpzero
