#include "base/error.hpp"
#include "parallel/gather_schedule.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

using Units = std::vector<size_t>;

// An embedding, three layers and a head, forward and backward.
const std::vector<int64_t> kNumel{500, 100, 100, 100, 500};
const Units kStep{0, 1, 2, 3, 4, 3, 2, 1};

GatherSchedule planned(const GatherLimits& limits) {
  GatherSchedule schedule(kNumel, limits);
  schedule.plan(kStep);
  return schedule;
}

// What each use of the plan starts to gather, and which uses end with the unit let go.
struct Trace {
  std::vector<Units> gathered;
  std::vector<bool> let_go;
};

Trace run(GatherSchedule schedule) {
  Trace trace;
  for (const size_t unit : kStep) {
    trace.gathered.push_back(schedule.use(unit));
    trace.let_go.push_back(schedule.release(unit));
  }
  return trace;
}

constexpr GatherLimits kFrugal{
    .prefetch_bucket_size = 0, .param_persistence_threshold = 0, .max_live_parameters = 0, .max_reuse_distance = 0};

}  // namespace

TEST_CASE("without room each unit is gathered for its use and let go behind it") {
  const Trace trace = run(planned(kFrugal));
  CHECK(trace.gathered == std::vector<Units>{{0}, {1}, {2}, {3}, {4}, {3}, {2}, {1}});
  CHECK(trace.let_go == std::vector<bool>(kStep.size(), true));
}

TEST_CASE("the next unit is gathered ahead as far as live parameters allow, others by the prefetch bucket") {
  GatherLimits limits = kFrugal;
  limits.max_live_parameters = 550;
  CHECK(run(planned(limits)).gathered == std::vector<Units>{{0}, {1, 2}, {3}, {}, {4}, {3, 2}, {1}, {}});
  limits.max_live_parameters = 600;
  CHECK(run(planned(limits)).gathered == std::vector<Units>{{0, 1}, {2}, {3}, {4}, {3}, {2}, {1}, {}});
  limits.max_live_parameters = 1300;
  limits.prefetch_bucket_size = 200;
  CHECK(run(planned(limits)).gathered.front() == Units{0, 1, 2, 3});
}

TEST_CASE("a unit that is needed again soon is kept between its uses") {
  GatherLimits limits = kFrugal;
  limits.max_live_parameters = 10'000;
  limits.max_reuse_distance = 499;
  CHECK(run(planned(limits)).let_go == std::vector<bool>(kStep.size(), true));
  // Unit 3 is needed again behind the head's 500 elements, unit 2 behind twice unit 3 and the head, unit 1 behind 900.
  limits.max_reuse_distance = 700;
  CHECK(run(planned(limits)).let_go == std::vector<bool>{true, true, false, false, true, true, true, true});
  // Keeping unit 2 when unit 3 is there leaves room for the head; keeping unit 3 too does not.
  limits.max_live_parameters = 700;
  CHECK(run(planned(limits)).let_go == std::vector<bool>{true, true, false, false, true, true, true, true});
  limits.max_live_parameters = 650;
  CHECK(run(planned(limits)).let_go == std::vector<bool>{true, true, true, false, true, true, true, true});
}

TEST_CASE("a small unit stays until the parameters change") {
  GatherLimits limits = kFrugal;
  limits.param_persistence_threshold = 100;
  GatherSchedule schedule = planned(limits);
  for (const size_t unit : kStep) {
    schedule.use(unit);
    CHECK(schedule.release(unit) == (kNumel[unit] > 100));
  }
  CHECK(schedule.invalidate() == Units{1, 2, 3});
}

TEST_CASE("after an update only units with new parameters are gathered ahead") {
  GatherLimits limits;
  GatherSchedule schedule = planned(limits);
  schedule.invalidate();
  CHECK(schedule.publish(0) == Units{0});
  CHECK(schedule.publish(1) == Units{1});
  CHECK(schedule.publish(3).empty());  // unit 2 comes first
  CHECK(schedule.publish(2) == Units{2, 3});
  CHECK(schedule.use(0).empty());
}

TEST_CASE("the buffers that a plan needs are known before it runs") {
  CHECK(planned(kFrugal).most_at_once() == std::map<int64_t, int64_t>{{100, 2}, {500, 1}});
  GatherLimits limits = kFrugal;
  limits.max_live_parameters = 10'000;
  limits.max_reuse_distance = 10'000;
  CHECK(planned(limits).most_at_once() == std::map<int64_t, int64_t>{{100, 3}, {500, 1}});
}

TEST_CASE("a use out of order is refused") {
  GatherSchedule schedule = planned(kFrugal);
  schedule.use(0);
  CHECK_THROWS_AS(schedule.use(2), Failure);
}

}  // namespace mpzero::parallel
