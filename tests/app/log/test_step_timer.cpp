#include <ATen/ops/ones.h>

#include "app/log/step_timer.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/stub_communicator.hpp"

namespace mpzero {
namespace {

using parallel::HostTimeline;
using parallel::MeasuredCommunicator;
using parallel::PendingCollective;
using parallel::Timeline;

// A host's timeline, or one like a GPU's, whose marks can be read only after the host has waited for them.
class FakeTimeline final : public Timeline {
 public:
  explicit FakeTimeline(bool host) : host_(host), marks_([this] { return clock; }) {}
  Mark mark() override { return marks_.mark(); }
  double seconds_between(Mark from, Mark to) const override {
    REQUIRE(to <= passed);
    return marks_.seconds_between(from, to);
  }
  void forget_before(Mark mark) override { marks_.forget_before(mark); }
  bool is_host() const override { return host_; }
  bool is_current() const override { return true; }

  double clock = 50;
  Mark passed = 1 << 30;

 private:
  bool host_;
  HostTimeline marks_;
};

// Its wait takes `seconds`.
class FakeCommunicator final : public parallel::StubCommunicator {
 public:
  FakeCommunicator(FakeTimeline& timeline, double seconds) : timeline_(timeline), seconds_(seconds) {}

 private:
  struct Pending final : PendingCollective {
    Pending(FakeTimeline& t, double s) : timeline(t), seconds(s) {}
    void wait() override { timeline.clock += seconds; }
    FakeTimeline& timeline;
    double seconds;
  };
  std::unique_ptr<PendingCollective> start() override { return std::make_unique<Pending>(timeline_, seconds_); }

  FakeTimeline& timeline_;
  double seconds_;
};

// Data, forward, backward, optimizer, and exposed communication of parameters and of gradients.
std::vector<double> parts(const StepSplit& split) {
  return {
      split.data, split.forward, split.backward, split.optimizer, split.exposed_parameters, split.exposed_gradients};
}
using Parts = std::vector<double>;

struct Bench {
  explicit Bench(bool host) : timeline(host) {}

  void work(double seconds) { timeline.clock += seconds; }
  void gather() { parameters.all_reduce_sum(at::ones({1}))->wait(); }
  void reduce() { gradients.all_reduce_sum(at::ones({1}))->wait(); }

  // Two micro-batches: data 2 x 1, forward 2 x 10, backward 2 x 30, optimizer `optimizer`, waits 2 x 3 and 3 x 4.
  StepSplit step(double optimizer) {
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      timer.enter(Phase::kData);
      work(1);
      timer.enter(Phase::kForward);
      work(4);
      gather();
      work(6);
      timer.enter(Phase::kBackward);
      work(30);
      reduce();
    }
    timer.enter(Phase::kOptimizer);
    const Timeline::Mark here = last_mark_of_step();
    work(optimizer);
    reduce();
    if (!timeline.is_host()) timeline.passed = here;
    timer.caught_up();
    return timer.finish_step();
  }

  // The mark that enter() has just set.
  Timeline::Mark last_mark_of_step() { return timeline.mark() - 1; }

  FakeTimeline timeline;
  MeasuredCommunicator parameters{std::make_unique<FakeCommunicator>(timeline, 3), timeline};
  MeasuredCommunicator gradients{std::make_unique<FakeCommunicator>(timeline, 4), timeline};
  StepTimer timer{timeline, parameters, gradients};
};

}  // namespace

TEST_CASE("on the CPU, the phases are those of the step and add up to it") {
  Bench bench(/*host=*/true);
  for (const double optimizer : {7.0, 8.0}) {
    const double begin = bench.timeline.clock;
    const StepSplit split = bench.step(optimizer);
    CHECK(parts(split) == Parts{2, 20, 60, optimizer, 6, 12});
    CHECK(split.total() == Approx(bench.timeline.clock - begin));
    bench.work(1000);  // a validation, outside of steps
    bench.gather();
  }
}

TEST_CASE("on a GPU, the update is reported one step later, and no mark is read before it has passed") {
  Bench bench(/*host=*/false);
  CHECK(parts(bench.step(7)) == Parts{2, 20, 60, 0, 6, 8});
  bench.work(1000);
  bench.gather();
  CHECK(parts(bench.step(9)) == Parts{2, 20, 60, 7, 6, 12});
  CHECK(bench.step(1).optimizer == Approx(9));
}

TEST_CASE("waits for host updates count as optimizer time in any phase") {
  Bench bench(/*host=*/false);
  StepTimer& timer = bench.timer;
  timer.enter(Phase::kForward);
  bench.work(1);
  const Timeline::Mark begin = bench.timeline.mark();
  bench.work(100);
  const Timeline::Mark end = bench.timeline.mark();
  bench.work(10);
  timer.enter(Phase::kBackward);
  bench.work(30);
  timer.enter(Phase::kOptimizer);
  bench.timeline.passed = bench.last_mark_of_step();
  timer.held_up_by_updates({{begin, end}});
  timer.caught_up();
  CHECK(parts(timer.finish_step()) == Parts{0, 11, 30, 100, 0, 0});
}

TEST_CASE("splits can be added and divided") {
  StepSplit sum{1, 2, 3, 4, 5, 6};
  sum += sum;
  CHECK((sum.total() == 42 && sum.exposed_communication() == 22 && sum.own() == 20));
  CHECK(parts(sum.divided_by(4)) == Parts{0.5, 1, 1.5, 2, 2.5, 3});
}

}  // namespace mpzero
