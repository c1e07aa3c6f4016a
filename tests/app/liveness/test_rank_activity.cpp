#include <ATen/core/Tensor.h>

#include <cmath>
#include <optional>
#include <stdexcept>

#include "app/liveness/rank_activity.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using std::chrono::seconds;

// A communicator whose asynchronous error the test chooses.
class Watched final : public parallel::Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::unique_ptr<parallel::PendingCollective> all_gather(const at::Tensor&, const at::Tensor&) override {
    return nullptr;
  }
  std::unique_ptr<parallel::PendingCollective> reduce_scatter_sum(const at::Tensor&, const at::Tensor&,
                                                                  parallel::SumMode) override {
    return nullptr;
  }
  std::unique_ptr<parallel::PendingCollective> all_to_all(const at::Tensor&, const at::Tensor&) override {
    return nullptr;
  }
  std::unique_ptr<parallel::PendingCollective> all_reduce_sum(const at::Tensor&) override { return nullptr; }
  std::optional<std::string> asynchronous_error() override { return error; }
  void abort() override { ++aborted; }

  std::optional<std::string> error;
  int aborted = 0;
};

class BrokenWork final : public parallel::DeviceWork {
 public:
  parallel::CollectiveState state() const override { throw std::runtime_error("the device is gone"); }
};

}  // namespace

TEST_CASE("A rank reports its position and the time since its last progress") {
  RankActivity activity(/*stuck_after=*/10);
  const LivenessTime start = LivenessClock::now();
  activity.enter(RunPhase::kTraining, 3);
  RankReport report = activity.report(start);
  CHECK((report.status.step == 3 && report.status.phase == RunPhase::kTraining && report.status.idle == 0));
  CHECK_FALSE(report.error);
  CHECK(activity.report(start + seconds(4)).status.idle == Approx(4));

  activity.moved_on();
  CHECK(activity.report(start + seconds(5)).status.idle == 0);

  parallel::FlightRecorder::Channel& sums = activity.recorder().channel("sums");
  parallel::FlightRecorder::Channel& control =
      activity.recorder().channel("control", parallel::FlightRecorder::Shows::kNothing);
  sums.begin("all_reduce", 8);
  report = activity.report(start + seconds(6));
  CHECK(report.status.idle == 0);
  REQUIRE(report.status.channels.size() == 2);
  CHECK(report.status.channels[0].queued == 1);
  control.begin("all_gather", 8);
  CHECK(activity.report(start + seconds(8)).status.idle == Approx(2));

  activity.slept(seconds(90), start + seconds(100));
  CHECK(activity.report(start + seconds(101)).status.idle == Approx(5));
  activity.enter(RunPhase::kEnding);
  report = activity.report(start + seconds(102));
  CHECK((report.status.step == 3 && report.status.phase == RunPhase::kEnding && report.status.idle == 0));
}

TEST_CASE("Long phases may go three times as long without progress") {
  RankActivity activity(/*stuck_after=*/10);
  const auto allowed = [&](RunPhase phase) {
    activity.enter(phase, 1);
    return activity.report(LivenessClock::now()).status.allowed;
  };
  CHECK(allowed(RunPhase::kTraining) == 10);
  CHECK(allowed(RunPhase::kValidation) == 10);
  CHECK(allowed(RunPhase::kEnding) == 10);
  CHECK(allowed(RunPhase::kNetwork) == 10);
  CHECK(allowed(RunPhase::kSetUp) == 30);
  CHECK(allowed(RunPhase::kFirstStep) == 30);
  CHECK(allowed(RunPhase::kCheckpoint) == 30);
}

TEST_CASE("Errors of devices and communicators are found while they are watched, after the rank's own errors") {
  RankActivity activity(/*stuck_after=*/10);
  const auto error = [&] { return activity.report(LivenessClock::now()).error; };
  Watched one;
  Watched two;
  activity.watch({&one, &two});
  CHECK_FALSE(error());
  two.error = "a peer is gone";
  CHECK(error() == "a peer is gone");
  activity.abort_communicators();
  CHECK((one.aborted == 1 && two.aborted == 1));
  activity.watch({});
  CHECK_FALSE(error());
  activity.abort_communicators();
  CHECK((one.aborted == 1 && two.aborted == 1));

  parallel::FlightRecorder::Channel& channel = activity.recorder().channel("gradients");
  channel.queued_on_device(channel.begin("all_reduce", 8), std::make_shared<BrokenWork>());
  CHECK(error() == "the device is gone");
  CHECK_FALSE(activity.has_failed());
  activity.failed("the disk is full");
  CHECK(activity.has_failed());
  CHECK(error() == "the disk is full");
}

TEST_CASE("A report includes the ranks that caused an error and what takes too long") {
  RankActivity activity(/*stuck_after=*/10);
  const auto report = [&] { return activity.report(LivenessClock::now()); };
  CHECK((report().culprits.empty() && report().status.complaint.empty()));
  activity.complain("NCCL has had no answer");
  CHECK(report().status.complaint == "NCCL has had no answer");
  activity.failed("no EFA on node1", {2, 3});
  CHECK((report().error == "no EFA on node1" && report().culprits == std::vector<int>{2, 3}));
}

TEST_CASE("The time that a rank is allowed is a number, however large --stuck_after is") {
  RankActivity activity(/*stuck_after=*/1e308);
  activity.enter(RunPhase::kSetUp);
  CHECK(std::isfinite(activity.report(LivenessClock::now()).status.allowed));
}

TEST_CASE("An error's text that no connection would carry is shortened, and says so") {
  RankActivity activity(/*stuck_after=*/600);
  activity.failed(std::string(3 << 20, 'x'));
  const std::string error = activity.report(LivenessClock::now()).error.value();
  CHECK(error.size() < 70'000);
  CHECK_THAT(error, Catch::EndsWith(" ... (3080192 more bytes)"));
}

}  // namespace mpzero
