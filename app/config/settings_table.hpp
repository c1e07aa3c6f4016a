#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"

namespace mpzero {

// Keys of settings_record: the effective schedule of a resumed run, if it differs from that of the other keys; and
// --schedule_on_resume.
inline constexpr const char* kScheduleInForce = "schedule_in_force";
inline constexpr const char* kScheduleOnResume = "schedule_on_resume";
// The batch that epochs are counted in, if it differs from train_batch_size: see RunConfig::epoch_batch.
inline constexpr const char* kEpochBatch = "epoch_batch";

// Keys that a record has only if the feature is on: a missing key means that it is off.
inline constexpr std::array kOnlyWhereAsked = {"zero_quantized_gradients", "zero_quantized_weights", "fp8",
                                               "freeze_parameters", "base_codes"};

// The settings that affect a run's results, and its layout, one line each: name, value, and origin (key of the file,
// flag or default). The first line names the file. Complete after apply_epochs.
std::vector<std::string> settings_table(const RunSetup& setup);

// The rows of settings_table() without the first line: name, value and origin.
std::vector<std::array<std::string, 3>> settings_rows(const RunSetup& setup);

// The settings that affect results, by key of ds_config.json or flag; the same on any layout. Includes recorded flags
// without a line in the table. A value that does not apply is null, such as total_num_steps for a constant rate.
nlohmann::ordered_json settings_record(const RunConfig& config);

// The run's layout on ranks and memory, by key of ds_config.json, flag or name. Affects speed, and results only by
// rounding. Omits values that --recompute auto and offload_optimizer.ratio "auto" have not chosen yet.
nlohmann::ordered_json layout_record(const RunSetup& setup);

}  // namespace mpzero
