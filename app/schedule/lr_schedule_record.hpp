#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "parallel/optimizer/lr_schedule.hpp"

namespace mpzero {

// DeepSpeed's name of the schedule's class, or the value of lr_scheduler_type.
std::string schedule_name(const parallel::LrSchedule& schedule);
const char* warmup_name(parallel::WarmupType type);

// The parameters of a schedule under DeepSpeed's names; null: this schedule has none of that name. Its peak is
// warmup_max_lr, or the optimizer's lr, which is not among them.
nlohmann::ordered_json schedule_parameters(const parallel::LrSchedule& schedule);

// All of a schedule, also how a resumed run has changed it, as a checkpoint records it. Numbers keep their bits.
nlohmann::ordered_json schedule_record(const parallel::LrSchedule& schedule);
// Reads a record, or schedule_parameters() with "lr". Nothing where it is not complete.
std::optional<parallel::LrSchedule> schedule_of_record(const nlohmann::json& record);

}  // namespace mpzero
