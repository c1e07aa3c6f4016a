#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"

namespace mpzero {

// Keys of settings_record: the schedule that a resumed run follows, where it is not that of the other keys; and
// --schedule_on_resume.
inline constexpr const char* kScheduleInForce = "schedule_in_force";
inline constexpr const char* kScheduleOnResume = "schedule_on_resume";
// The batch by which a run counts epochs, if it differs from train_batch_size: see RunConfig::epoch_batch.
inline constexpr const char* kEpochBatch = "epoch_batch";

// Those that a record has only where they are asked for: one without them says that there is none.
inline constexpr std::array kOnlyWhereAsked = {"zero_quantized_gradients", "zero_quantized_weights", "fp8",
                                               "freeze_parameters", "base_codes"};

// What decides the numbers of a run, and its layout, one line each: its name, its value, and which key of the file,
// flag or default it comes from. Begins with a line that names the file. Complete once apply_epochs has been called.
std::vector<std::string> settings_table(const RunSetup& setup);

// Its lines but the first, as name, value and origin.
std::vector<std::array<std::string, 3>> settings_rows(const RunSetup& setup);

// What decides the numbers as an object, the same on any layout, with the flags that are recorded and have no line:
// the key of ds_config.json, or the flag, and its value; null where it does not apply, as total_num_steps to a constant
// rate.
nlohmann::ordered_json settings_record(const RunConfig& config);

// How the run is laid out on ranks and memory, by key of ds_config.json, flag or name. Decides the speed, and the
// numbers only up to rounding. Lacks what --recompute auto and offload_optimizer.ratio "auto" have not chosen yet.
nlohmann::ordered_json layout_record(const RunSetup& setup);

}  // namespace mpzero
