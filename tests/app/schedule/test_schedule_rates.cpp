#include <fmt/format.h>

#include <algorithm>

#include "app/schedule/schedule_rates.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using namespace parallel;  // NOLINT(google-build-using-namespace)
using Catch::Contains;

TEST_CASE("a run's learning rates are described by the first, the highest and the last") {
  const LrSchedule schedule = WarmupCosineLr{1e-3, 0.0, 0.1, 10, 100, WarmupType::kLog};
  CHECK(describe_rates(schedule, 1, 100) ==
        fmt::format("0 at step 1, 0.001 at step 11, {:.4g} at step 100", schedule.lr(100)));
  CHECK(describe_rates(schedule, 50, 50) == fmt::format("{:.4g} at step 50", schedule.lr(50)));
  CHECK(describe_rates(ConstantLr{1e-3}, 1, 9) == "0.001 at step 1, 0.001 at step 9");
  // Whatever the kind, where it starts and how fast it runs: no rate is higher than the one that is named.
  for (const LrSchedule& kind : {LrSchedule(WarmupDecayLr{0.0, 1e-3, 7, 60, WarmupType::kLinear}),
                                 LrSchedule(WarmupLr{1e-4, 1e-3, 12, WarmupType::kLog}),
                                 LrSchedule(TrainerLr{TrainerDecay::kAtTheEnd, 1e-3, 9, 60, 20}), schedule}) {
    for (const LrSchedule& placed :
         {kind, kind.started_after(20, 1e-5), kind.paced_after(3, 0.4), kind.paced_after(3, 2.5)}) {
      for (const int64_t first : {3, 21, 40}) {
        double highest = 0;
        for (int64_t update = first; update <= 70; ++update) highest = std::max(highest, placed.lr(update));
        CHECK_THAT(describe_rates(placed, first, 70), Contains(fmt::format("{:.4g} at step", highest)));
      }
    }
  }
}

}  // namespace
}  // namespace mpzero
