#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "base/error.hpp"
#include "parallel/zero/gather_schedule.hpp"
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

// The units that each use of the plan starts to gather, and the uses after which the unit is released.
struct Trace {
  std::vector<Units> gathered;
  std::vector<bool> released;
};

Trace run(GatherSchedule schedule) {
  Trace trace;
  for (const size_t unit : kStep) {
    trace.gathered.push_back(schedule.use(unit).gather);
    trace.released.push_back(schedule.release(unit));
  }
  return trace;
}

constexpr GatherLimits kFrugal{
    .prefetch_bucket_size = 0, .param_persistence_threshold = 0, .max_live_parameters = 0, .max_reuse_distance = 0};

// Follows a schedule as ParameterStore does, and counts the gathered units of each length.
class Follower {
 public:
  Follower(const std::vector<int64_t>& numel, GatherSchedule& schedule) : numel_(numel), schedule_(schedule) {}

  void use(size_t unit) {
    const GatherSchedule::Moves moves = schedule_.use(unit);
    for (const size_t other : moves.release) free(other);
    for (const size_t other : moves.gather) gather(other);
    REQUIRE(gathered_[unit]);
  }
  void release(size_t unit) {
    if (schedule_.release(unit)) free(unit);
  }
  void update(std::mt19937& random) {
    for (const size_t unit : schedule_.invalidate()) free(unit);
    REQUIRE(std::none_of(gathered_.begin(), gathered_.end(), [](const auto& one) { return one.second; }));
    Units order(numel_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t unit : order) {
      for (const size_t other : schedule_.publish(unit)) gather(other);
    }
  }
  // The observed maximum, by length.
  const std::map<int64_t, int64_t>& most() const { return most_; }

 private:
  void gather(size_t unit) {
    REQUIRE(!std::exchange(gathered_[unit], true));
    const int64_t count = ++now_[numel_[unit]];
    most_[numel_[unit]] = std::max(most_[numel_[unit]], count);
  }
  void free(size_t unit) {
    REQUIRE(std::exchange(gathered_[unit], false));
    --now_[numel_[unit]];
  }

  const std::vector<int64_t>& numel_;
  GatherSchedule& schedule_;
  std::map<size_t, bool> gathered_;
  std::map<int64_t, int64_t> now_, most_;
};

// Runs through a plan; some uses overlap with the previous one.
void follow(Follower& follower, const Units& uses, std::mt19937& random) {
  std::optional<size_t> before;
  for (const size_t unit : uses) {
    follower.use(unit);
    if (before) follower.release(*std::exchange(before, std::nullopt));
    if (random() % 4 == 0) {
      before = unit;
    } else {
      follower.release(unit);
    }
  }
  if (before) follower.release(*before);
}

}  // namespace

TEST_CASE("without spare memory, each unit is gathered for its use and released afterwards") {
  const Trace trace = run(planned(kFrugal));
  CHECK(trace.gathered == std::vector<Units>{{0}, {1}, {2}, {3}, {4}, {3}, {2}, {1}});
  CHECK(trace.released == std::vector<bool>(kStep.size(), true));
}

TEST_CASE("the next unit is prefetched up to max_live_parameters, and others up to the prefetch bucket") {
  GatherLimits limits = kFrugal;
  limits.max_live_parameters = 550;
  CHECK(run(planned(limits)).gathered == std::vector<Units>{{0}, {1, 2}, {3}, {}, {4}, {3, 2}, {1}, {}});
  limits.max_live_parameters = 600;
  CHECK(run(planned(limits)).gathered == std::vector<Units>{{0, 1}, {2}, {3}, {4}, {3}, {2}, {1}, {}});
  limits.max_live_parameters = 1300;
  limits.prefetch_bucket_size = 200;
  CHECK(run(planned(limits)).gathered.front() == Units{0, 1, 2, 3});
}

TEST_CASE("a unit that is reused soon is kept between its uses") {
  GatherLimits limits = kFrugal;
  limits.max_live_parameters = 10'000;
  limits.max_reuse_distance = 499;
  CHECK(run(planned(limits)).released == std::vector<bool>(kStep.size(), true));
  // Unit 3 is needed again after the head's 500 elements, unit 2 after twice unit 3 and the head, unit 1 after 900.
  limits.max_reuse_distance = 700;
  CHECK(run(planned(limits)).released == std::vector<bool>{true, true, false, false, true, true, true, true});
  // Keeping unit 2 while unit 3 is gathered leaves room for the head; keeping unit 3 too does not.
  limits.max_live_parameters = 700;
  CHECK(run(planned(limits)).released == std::vector<bool>{true, true, false, false, true, true, true, true});
  limits.max_live_parameters = 650;
  CHECK(run(planned(limits)).released == std::vector<bool>{true, true, true, false, true, true, true, true});
}

TEST_CASE("a small unit is kept until the parameters change") {
  GatherLimits limits = kFrugal;
  limits.param_persistence_threshold = 100;
  GatherSchedule schedule = planned(limits);
  for (const size_t unit : kStep) {
    schedule.use(unit);
    CHECK(schedule.release(unit) == (kNumel[unit] > 100));
  }
  CHECK(schedule.invalidate() == Units{1, 2, 3});
}

TEST_CASE("after an update, only units with new parameters are prefetched") {
  GatherLimits limits;
  GatherSchedule schedule = planned(limits);
  schedule.invalidate();
  CHECK(schedule.publish(0) == Units{0});
  CHECK(schedule.publish(1) == Units{1});
  CHECK(schedule.publish(3).empty());  // unit 2 comes first
  CHECK(schedule.publish(2) == Units{2, 3});
  CHECK(schedule.use(0).gather.empty());
}

TEST_CASE("the buffers that a plan needs are known before it runs") {
  CHECK(planned(kFrugal).most_at_once() == std::map<int64_t, int64_t>{{100, 2}, {500, 1}});
  GatherLimits limits = kFrugal;
  limits.max_live_parameters = 10'000;
  limits.max_reuse_distance = 10'000;
  CHECK(planned(limits).most_at_once() == std::map<int64_t, int64_t>{{100, 3}, {500, 1}});
}

TEST_CASE("no execution of any plan needs more units than there are buffers") {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int64_t first, int64_t last) {
      return std::uniform_int_distribution<int64_t>(first, last)(random);
    };
    std::vector<int64_t> numel(static_cast<size_t>(pick(2, 8)));
    for (int64_t& length : numel) length = std::array<int64_t, 3>{100, 200, 500}[random() % 3];
    const auto random_limits = [&] {
      return GatherLimits{.prefetch_bucket_size = pick(0, 10) * 100,
                          .param_persistence_threshold = pick(0, 2) * 100,
                          .max_live_parameters = pick(0, 20) * 100,
                          .max_reuse_distance = pick(0, 20) * 100};
    };
    const auto random_plan = [&] {
      Units uses(static_cast<size_t>(pick(1, 20)));
      for (size_t& unit : uses) unit = random() % numel.size();
      return uses;
    };
    GatherSchedule schedule(numel, random_limits());
    Follower follower(numel, schedule);
    for (int step = 0; step < 4; ++step) {
      const Units uses = random_plan();
      schedule.plan(uses);
      if (random() % 3 == 0) schedule.set_limits(random_limits());
      if (random() % 2 == 0) follower.update(random);
      follow(follower, uses, random);
      for (const auto& [length, count] : follower.most()) {
        CAPTURE(step, length);
        CHECK(count <= schedule.buffers().at(length));
      }
    }
  }
}

TEST_CASE("a later plan uses the buffers of the first") {
  GatherLimits limits = kFrugal;
  limits.max_live_parameters = 10'000;
  GatherSchedule schedule = planned(limits);
  const std::map<int64_t, int64_t> buffers = schedule.buffers();
  CHECK(buffers == schedule.most_at_once());
  schedule.plan({0, 1, 2, 3, 4});  // as validation does
  CHECK(schedule.buffers() == buffers);
  // Overlapping units of one length need more than one buffer.
  schedule.plan({0, 4, 0});
  CHECK(schedule.buffers() == std::map<int64_t, int64_t>{{100, buffers.at(100)}, {500, 2}});
}

TEST_CASE("a retained unit releases its buffer to a unit that is used now") {
  GatherLimits limits = kFrugal;
  limits.max_live_parameters = 10'000;
  limits.max_reuse_distance = 10'000;
  GatherSchedule schedule({100, 100, 100}, limits);
  schedule.plan({0, 1, 0, 1});
  REQUIRE(schedule.buffers() == std::map<int64_t, int64_t>{{100, 2}});
  schedule.use(0);
  schedule.release(0);
  schedule.use(1);
  schedule.release(1);
  schedule.plan({0, 2, 1, 0});
  CHECK(schedule.use(0).release.empty());
  schedule.release(0);
  const GatherSchedule::Moves moves = schedule.use(2);
  CHECK(moves.release == Units{0});  // unit 1 is needed sooner
  CHECK(moves.gather == Units{2});
}

TEST_CASE("using more units at a time than there are buffers is refused") {
  GatherSchedule schedule({100, 100, 100}, kFrugal);
  schedule.plan({0, 1, 2});
  schedule.use(0);
  schedule.use(1);
  CHECK_THROWS_WITH(schedule.use(2), Catch::Contains("100 elements are in use"));
}

TEST_CASE("a use out of order is refused") {
  GatherSchedule schedule = planned(kFrugal);
  schedule.use(0);
  CHECK_THROWS_AS(schedule.use(2), Failure);
}

}  // namespace mpzero::parallel
