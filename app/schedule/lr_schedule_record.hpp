#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "parallel/optimizer/lr_schedule.hpp"

namespace mpzero {

// Returns DeepSpeed's class name of the schedule, or the value of --lr_scheduler_type.
std::string schedule_name(const parallel::LrSchedule& schedule);
const char* warmup_name(parallel::WarmupType type);

// Returns the schedule's parameters under DeepSpeed's names. Parameters that the schedule does not have are null. The
// peak learning rate is warmup_max_lr or the optimizer's lr; the optimizer's lr is not included.
nlohmann::ordered_json schedule_parameters(const parallel::LrSchedule& schedule);

// Returns the complete schedule, including changes by resumed runs, for a checkpoint. Numbers are stored losslessly.
nlohmann::ordered_json schedule_record(const parallel::LrSchedule& schedule);
// Parses the JSON of schedule_record(), or of schedule_parameters() with the additional key "lr". Returns std::nullopt
// if a key is missing or invalid.
std::optional<parallel::LrSchedule> schedule_of_record(const nlohmann::json& record);

}  // namespace mpzero
