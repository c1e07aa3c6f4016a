#include "app/liveness/link/rank_status.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace mpzero::parallel {

static void to_json(nlohmann::json& json, const ChannelRecord& record) {
  nlohmann::json last = nlohmann::json::array();
  for (const CollectiveRecord& one : record.last) {
    last.push_back({one.sequence, one.operation, one.bytes, static_cast<int>(one.state), one.seconds});
  }
  json = {{"name", record.name},           {"ranks", {record.ranks.first, record.ranks.count, record.ranks.stride}},
          {"queued", record.queued},       {"started", record.started},
          {"completed", record.completed}, {"last", std::move(last)}};
}

static void from_json(const nlohmann::json& json, ChannelRecord& record) {
  json.at("name").get_to(record.name);
  const nlohmann::json& ranks = json.at("ranks");
  record.ranks = {
      .first = ranks.at(0).get<int>(), .count = ranks.at(1).get<int>(), .stride = std::max(1, ranks.at(2).get<int>())};
  json.at("queued").get_to(record.queued);
  json.at("started").get_to(record.started);
  json.at("completed").get_to(record.completed);
  for (const nlohmann::json& one : json.at("last")) {
    record.last.push_back({.sequence = one.at(0).get<int64_t>(),
                           .operation = one.at(1).get<std::string>(),
                           .bytes = one.at(2).get<int64_t>(),
                           .state = static_cast<CollectiveState>(std::clamp(one.at(3).get<int>(), 0, 2)),
                           .seconds = one.at(4).get<double>()});
  }
}

}  // namespace mpzero::parallel

namespace mpzero {

std::string describe(RunPhase phase, int64_t step) {
  switch (phase) {
    case RunPhase::kNetwork:
      return "while the nodes were being connected";
    case RunPhase::kSetUp:
      return "during set-up";
    case RunPhase::kFirstStep:
      return fmt::format("in step {}, the run's first", step);
    case RunPhase::kTraining:
      return fmt::format("in step {}", step);
    case RunPhase::kValidation:
      return fmt::format("in the validation after step {}", step);
    case RunPhase::kCheckpoint:
      return fmt::format("in the checkpoint after step {}", step);
    default:
      return fmt::format("at the end, after step {}", step);
  }
}

RunPhase phase_of(int number) {
  return static_cast<RunPhase>(std::clamp(number, 0, static_cast<int>(RunPhase::kEnding)));
}

std::string show_bytes(int64_t bytes) {
  constexpr double kKibi = 1024;
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / kKibi;
  for (const char* unit : {"KiB", "MiB"}) {
    if (value < kKibi) return fmt::format("{:.1f} {}", value, unit);
    value /= kKibi;
  }
  return fmt::format("{:.1f} GiB", value);
}

void to_json(nlohmann::json& json, const RankStatus& status) {
  json = {{"step", status.step},         {"phase", static_cast<int>(status.phase)},
          {"idle", status.idle},         {"allowed", status.allowed},
          {"channels", status.channels}, {"complaint", status.complaint}};
}

void from_json(const nlohmann::json& json, RankStatus& status) {
  json.at("step").get_to(status.step);
  status.phase = phase_of(json.at("phase").get<int>());
  json.at("idle").get_to(status.idle);
  json.at("allowed").get_to(status.allowed);
  json.at("channels").get_to(status.channels);
  json.at("complaint").get_to(status.complaint);
}

}  // namespace mpzero
