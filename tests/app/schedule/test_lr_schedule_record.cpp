#include <nlohmann/json.hpp>
#include <vector>

#include "app/schedule/lr_schedule_record.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using namespace parallel;  // NOLINT(google-build-using-namespace)
using nlohmann::json;

TEST_CASE("a schedule round-trips through its record with the same bits") {
  const std::vector<LrSchedule> schedules = {ConstantLr{3e-4},
                                             WarmupLr{1e-5, 1.0 / 3, 7, WarmupType::kLinear},
                                             WarmupDecayLr{0.0, 1e-3, 5, 30, WarmupType::kLog},
                                             WarmupCosineLr{1e-3, 0.1, 0.3, 5, 30, WarmupType::kLog},
                                             TrainerLr{TrainerDecay::kLinear, 1e-3, 5, 30},
                                             TrainerLr{TrainerDecay::kCosine, 1e-3, 0, 30},
                                             TrainerLr{TrainerDecay::kConstant, 1e-3, 5, 30},
                                             TrainerLr{TrainerDecay::kAtTheEnd, 1e-3, 5, 30, 10},
                                             TrainerLr{TrainerDecay::kInSteps, 1e-3, 5, 30, 10, 0.85}};
  for (const LrSchedule& schedule : schedules) {
    for (const LrSchedule& written :
         {schedule, schedule.started_after(40, 0.1 / 3), schedule.held_after(12),
          schedule.started_after(40, 1e-4).held_after(60), schedule.paced_after(12, 1.0 / 3),
          schedule.started_after(40, 1e-4).paced_after(50, 0.7).held_after(60)}) {
      const json record = json::parse(schedule_record(written).dump());
      INFO(record);
      const auto read = schedule_of_record(record);
      REQUIRE(read);
      CHECK(schedule_name(*read) == schedule_name(written));
      for (int64_t update = 1; update < 90; ++update) CHECK(read->lr(update) == written.lr(update));
    }
  }
}

TEST_CASE("a record in the older format without a clock is read") {
  const LrSchedule schedule = WarmupCosineLr{1e-3, 0.1, 0.3, 5, 30, WarmupType::kLog};
  json record = json::parse(schedule_record(schedule).dump());
  record["start"] = {{"step", 40}, {"lr", 1e-4}};
  record["last_update"] = 60;
  const auto read = schedule_of_record(record);
  REQUIRE(read);
  for (int64_t update = 1; update < 90; ++update) {
    CHECK(read->lr(update) == schedule.started_after(40, 1e-4).held_after(60).lr(update));
  }
}

TEST_CASE("an incomplete record is rejected") {
  CHECK_FALSE(schedule_of_record(json::object()));
  CHECK_FALSE(schedule_of_record({{"scheduler", "OneCycle"}, {"lr", 1e-3}}));
  CHECK_FALSE(schedule_of_record({{"scheduler", "WarmupCosineLR"}, {"lr", 1e-3}}));
  CHECK_FALSE(schedule_of_record({{"scheduler", 3}, {"lr", 1e-3}}));
}

}  // namespace
}  // namespace mpzero
