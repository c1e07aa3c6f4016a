#include <chrono>
#include <cmath>

#include "app/watchdog/rank_activity.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using std::chrono::duration_cast;

// An activity whose watchdog takes its turns in time.
class Watched {
 public:
  explicit Watched(double stuck_after) : activity(stuck_after, [this] { return time_; }) {}

  // The process does not run meanwhile.
  void stop_for(double seconds) {
    time_ += duration_cast<RankActivity::Clock::duration>(std::chrono::duration<double>(seconds));
  }
  RankActivity::Report run_for(double seconds) {
    for (int turns = static_cast<int>(std::lround(seconds * 10)); turns > 0; --turns) {
      stop_for(0.1);
      report = activity.take_turn();
    }
    return report;
  }
  // The limit after a step in which the process is suspended before its last second.
  double limit_after_step(double seconds, double suspended = 0) {
    activity.enter(RunPhase::kTraining, ++step_);
    run_for(seconds - 1);
    stop_for(suspended);
    run_for(1);
    activity.enter(RunPhase::kTraining, ++step_);
    return activity.report().limit;
  }

 private:
  RankActivity::Clock::time_point time_{};
  int64_t step_ = 0;

 public:
  RankActivity activity;
  RankActivity::Report report;
};

}  // namespace

TEST_CASE("phases, collectives and reports of the training thread count as progress, but not the control plane") {
  Watched rank(/*stuck_after=*/10);
  auto& control = rank.activity.recorder().channel("control", parallel::FlightRecorder::Shows::kNothing);
  auto& sums = rank.activity.recorder().channel("sums");
  rank.activity.enter(RunPhase::kTraining, 3);
  CHECK((rank.run_for(0.1).step == 3 && rank.report.phase == RunPhase::kTraining && rank.report.idle == 0));
  control.begin("barrier", 0);
  CHECK(rank.run_for(4).idle == Approx(4));
  sums.begin("all_reduce", 8);
  CHECK(rank.run_for(0.1).idle == 0);
  CHECK(rank.run_for(2).idle == Approx(2));
  rank.activity.moved_on();
  CHECK(rank.run_for(0.1).idle == 0);
  CHECK(rank.run_for(2).idle == Approx(2));
  rank.activity.enter(RunPhase::kCheckpoint, 3);
  CHECK(rank.run_for(0.1).idle == 0);
}

TEST_CASE("time in which the watchdog did not run counts as a gap, not as idle time") {
  Watched rank(10);
  rank.run_for(2);
  rank.stop_for(30);
  CHECK(rank.run_for(1).idle == Approx(3).margin(0.2));
  CHECK(rank.report.gap == Approx(30).margin(0.2));
  // A busy host delays turns.
  rank.stop_for(0.8);
  CHECK(rank.run_for(0.1).gap == Approx(30).margin(0.2));
  rank.stop_for(2);
  CHECK(rank.run_for(0.1).gap == Approx(32).margin(0.2));
}

TEST_CASE("progress clears an earlier gap, but not one that has just ended") {
  Watched rank(10);
  rank.run_for(2);
  rank.stop_for(30);
  rank.activity.moved_on();
  CHECK(rank.run_for(0.5).gap == Approx(30).margin(0.2));
  rank.activity.moved_on();
  CHECK(rank.run_for(0.2).gap == Approx(30).margin(0.2));
  CHECK(rank.run_for(5).gap == Approx(30).margin(0.2));
  rank.activity.moved_on();
  CHECK(rank.run_for(0.1).gap == 0);
}

TEST_CASE("the limit in training depends on step times, between 300 seconds and --stuck_after") {
  CHECK(Watched(0).limit_after_step(1) == 0);
  CHECK(Watched(600).limit_after_step(1) == 300);
  CHECK(Watched(600).limit_after_step(50) == 500);
  CHECK(Watched(600).limit_after_step(100) == 600);
  CHECK(Watched(20).limit_after_step(1) == 20);
  Watched rank(600);
  for (int i = 0; i < 20; ++i) rank.limit_after_step(1);
  // One long step among short ones.
  CHECK(rank.limit_after_step(150) == 450);
  // The median is that of the latest 101 steps.
  Watched faster(10'000);
  for (int i = 0; i < 101; ++i) faster.limit_after_step(100);
  CHECK(faster.activity.report().limit == Approx(1000));
  for (int i = 0; i < 101; ++i) faster.limit_after_step(60);
  CHECK(faster.activity.report().limit == Approx(600));
}

TEST_CASE("time in which the process was suspended does not count as part of a step") {
  CHECK(Watched(600).limit_after_step(1, /*suspended=*/1000) == 300);
  Watched rank(600);
  rank.activity.enter(RunPhase::kTraining, 1);
  rank.run_for(1);
  rank.stop_for(1000);
  // Before the watchdog's next turn.
  rank.activity.enter(RunPhase::kTraining, 2);
  CHECK(rank.activity.report().limit == 300);
  CHECK(rank.run_for(1).gap == Approx(1000).margin(0.2));
}

TEST_CASE("other phases may take three times --stuck_after, and so may steps before any is measured") {
  Watched rank(600);
  CHECK(rank.activity.report().limit == 1800);
  for (const RunPhase phase : {RunPhase::kFirstStep, RunPhase::kValidation, RunPhase::kCheckpoint, RunPhase::kEnding}) {
    rank.activity.enter(phase, 1);
    CHECK(rank.activity.report().limit == 1800);
  }
  rank.activity.enter(RunPhase::kTraining, 2);
  CHECK(rank.activity.report().limit == 600);
}

}  // namespace mpzero
