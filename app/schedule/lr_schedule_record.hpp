#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "parallel/optimizer/lr_schedule.hpp"

namespace mpzero {

// DeepSpeed's class name of the schedule, or its lr_scheduler_type.
std::string schedule_name(const parallel::LrSchedule& schedule);
const char* warmup_name(parallel::WarmupType type);

// The schedule's parameters under DeepSpeed's names; null if it lacks one. Its peak is warmup_max_lr, or else the
// optimizer's lr, which is not included.
nlohmann::ordered_json schedule_parameters(const parallel::LrSchedule& schedule);

// The complete schedule for a checkpoint, including changes by resumed runs. Numbers round-trip exactly.
nlohmann::ordered_json schedule_record(const parallel::LrSchedule& schedule);
// Reads a record, or schedule_parameters() with "lr". std::nullopt if it is incomplete.
std::optional<parallel::LrSchedule> schedule_of_record(const nlohmann::json& record);

}  // namespace mpzero
