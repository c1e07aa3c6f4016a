#include "app/schedule/lr_schedule_record.hpp"

#include <nlohmann/json.hpp>

namespace mpzero {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using parallel::ConstantLr;
using parallel::LrSchedule;
using parallel::TrainerDecay;
using parallel::TrainerLr;
using parallel::WarmupCosineLr;
using parallel::WarmupDecayLr;
using parallel::WarmupLr;
using parallel::WarmupType;

const char* name_of(const ConstantLr&) { return "constant"; }
const char* name_of(const WarmupLr&) { return "WarmupLR"; }
const char* name_of(const WarmupDecayLr&) { return "WarmupDecayLR"; }
const char* name_of(const WarmupCosineLr&) { return "WarmupCosineLR"; }

const char* name_of(const TrainerLr& schedule) {
  switch (schedule.decay) {
    case TrainerDecay::kLinear:
      return "linear";
    case TrainerDecay::kCosine:
      return "cosine";
    case TrainerDecay::kAtTheEnd:
      return "warmup_stable_decay";
    case TrainerDecay::kInSteps:
      return "step_lr";
    case TrainerDecay::kConstant:
      return schedule.warmup_num_steps > 0 ? "constant_with_warmup" : "constant";
  }
  return "";
}

template <typename Schedule>
ordered_json parameters_of(const Schedule& schedule) {
  ordered_json record = {{"scheduler", name_of(schedule)}, {"warmup_type", nullptr},      {"warmup_min_lr", nullptr},
                         {"warmup_max_lr", nullptr},       {"warmup_min_ratio", nullptr}, {"cos_min_ratio", nullptr},
                         {"warmup_num_steps", nullptr},    {"total_num_steps", nullptr}};
  if constexpr (requires { schedule.warmup_type; }) record["warmup_type"] = warmup_name(schedule.warmup_type);
  if constexpr (requires { schedule.min_lr; }) {
    record["warmup_min_lr"] = schedule.min_lr;
    record["warmup_max_lr"] = schedule.max_lr;
  }
  if constexpr (requires { schedule.cos_min_ratio; }) {
    record["warmup_min_ratio"] = schedule.warmup_min_ratio;
    record["cos_min_ratio"] = schedule.cos_min_ratio;
  }
  if constexpr (requires { schedule.warmup_num_steps; }) record["warmup_num_steps"] = schedule.warmup_num_steps;
  if constexpr (requires { schedule.total_num_steps; }) record["total_num_steps"] = schedule.total_num_steps;
  if constexpr (requires { schedule.decay; }) {
    const bool in_steps = schedule.decay == TrainerDecay::kInSteps;
    if (in_steps || schedule.decay == TrainerDecay::kAtTheEnd) record["num_decay_steps"] = schedule.num_decay_steps;
    if (in_steps) record["lr_gamma"] = schedule.gamma;
  }
  return record;
}

std::optional<TrainerDecay> trainer_decay(const std::string& name) {
  if (name == "linear") return TrainerDecay::kLinear;
  if (name == "cosine") return TrainerDecay::kCosine;
  if (name == "warmup_stable_decay") return TrainerDecay::kAtTheEnd;
  if (name == "step_lr") return TrainerDecay::kInSteps;
  if (name == "constant_with_warmup") return TrainerDecay::kConstant;
  return std::nullopt;
}

LrSchedule read_schedule(const json& record) {
  const auto name = record.at("scheduler").get<std::string>();
  const auto lr = [&] { return record.at("lr").get<double>(); };
  const auto number = [&](const char* key) { return record.at(key).get<double>(); };
  const auto steps = [&](const char* key) { return record.at(key).get<int64_t>(); };
  const auto type = [&] { return record.at("warmup_type") == "linear" ? WarmupType::kLinear : WarmupType::kLog; };
  if (name == "constant") return ConstantLr{lr()};
  if (name == "WarmupLR") {
    return WarmupLr{number("warmup_min_lr"), number("warmup_max_lr"), steps("warmup_num_steps"), type()};
  }
  if (name == "WarmupDecayLR") {
    return WarmupDecayLr{number("warmup_min_lr"), number("warmup_max_lr"), steps("warmup_num_steps"),
                         steps("total_num_steps"), type()};
  }
  if (name == "WarmupCosineLR") {
    return WarmupCosineLr{
        lr(),  number("warmup_min_ratio"), number("cos_min_ratio"), steps("warmup_num_steps"), steps("total_num_steps"),
        type()};
  }
  const std::optional<TrainerDecay> decay = trainer_decay(name);
  if (!decay) throw std::out_of_range(name);
  return TrainerLr{.decay = *decay,
                   .peak_lr = lr(),
                   .warmup_num_steps = steps("warmup_num_steps"),
                   .total_num_steps = steps("total_num_steps"),
                   .num_decay_steps = record.value("num_decay_steps", 0.0),
                   .gamma = record.value("lr_gamma", 1.0)};
}

// Applies the changes made by resumed runs. Older records have `start` and `last_update` instead of `clock`.
LrSchedule with_resumes(LrSchedule schedule, const json& record) {
  if (record.contains("start")) {
    const json& start = record["start"];
    schedule = schedule.started_after(start.at("step").get<int64_t>(), start.at("lr").get<double>());
  }
  if (record.contains("last_update")) schedule = schedule.held_after(record["last_update"].get<int64_t>());
  if (record.contains("warmup_from")) schedule = schedule.started_after(0, record["warmup_from"].get<double>());
  if (record.contains("clock")) {
    const json& clock = record["clock"];
    schedule = schedule.with_clock(LrSchedule::Clock{.step = clock.at("step").get<int64_t>(),
                                                     .time = clock.at("time").get<double>(),
                                                     .rate = clock.at("rate").get<double>()});
  }
  if (record.contains("held_from")) schedule = schedule.held_from(record["held_from"].get<double>());
  return schedule;
}

}  // namespace

const char* warmup_name(WarmupType type) { return type == WarmupType::kLinear ? "linear" : "log"; }

std::string schedule_name(const LrSchedule& schedule) {
  return std::visit([](const auto& of_a_kind) { return std::string(name_of(of_a_kind)); }, schedule.variant());
}

ordered_json schedule_parameters(const LrSchedule& schedule) {
  return std::visit([](const auto& of_a_kind) { return parameters_of(of_a_kind); }, schedule.variant());
}

ordered_json schedule_record(const LrSchedule& schedule) {
  ordered_json record = schedule_parameters(schedule);
  record["lr"] = schedule.peak_lr();
  if (const auto& clock = schedule.clock()) {
    record["clock"] = {{"step", clock->step}, {"time", clock->time}, {"rate", clock->rate}};
  }
  if (schedule.warmup_from()) record["warmup_from"] = *schedule.warmup_from();
  if (schedule.held_from()) record["held_from"] = *schedule.held_from();
  return record;
}

std::optional<LrSchedule> schedule_of_record(const json& record) {
  try {
    const LrSchedule schedule = read_schedule(record);
    return with_resumes(schedule, record);
  } catch (const json::exception&) {
    return std::nullopt;
  } catch (const std::out_of_range&) {
    return std::nullopt;
  }
}

}  // namespace mpzero
