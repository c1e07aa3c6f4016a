#include <ATen/ops/ones.h>

#include "app/log/step_timer.hpp"
#include "parallel/comm/measured_communicator.hpp"
#include "tests/catch.hpp"

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
class FakeCommunicator final : public parallel::Communicator {
 public:
  FakeCommunicator(FakeTimeline& timeline, double seconds) : timeline_(timeline), seconds_(seconds) {}
  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor&, const at::Tensor&) override { return start(); }
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor&, const at::Tensor&,
                                                        parallel::SumMode) override {
    return start();
  }
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor&, const at::Tensor&) override { return start(); }
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor&) override { return start(); }

 private:
  struct Pending final : PendingCollective {
    Pending(FakeTimeline& t, double s) : timeline(t), seconds(s) {}
    void wait() override { timeline.clock += seconds; }
    FakeTimeline& timeline;
    double seconds;
  };
  std::unique_ptr<PendingCollective> start() { return std::make_unique<Pending>(timeline_, seconds_); }

  FakeTimeline& timeline_;
  double seconds_;
};

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

TEST_CASE("On the CPU the phases are those of the step and add up to it") {
  Bench bench(/*host=*/true);
  for (const double optimizer : {7.0, 8.0}) {
    const double begin = bench.timeline.clock;
    const StepSplit split = bench.step(optimizer);
    CHECK(split.data == Approx(2));
    CHECK(split.forward == Approx(20));
    CHECK(split.backward == Approx(60));
    CHECK(split.optimizer == Approx(optimizer));
    CHECK(split.exposed_parameters == Approx(6));
    CHECK(split.exposed_gradients == Approx(12));
    CHECK(split.total() == Approx(bench.timeline.clock - begin));
    bench.work(1000);  // a validation, outside of steps
    bench.gather();
  }
}

TEST_CASE("On a GPU the update is reported one step later, and no mark is read before it has passed") {
  Bench bench(/*host=*/false);
  const StepSplit first = bench.step(7);
  CHECK(first.data == Approx(2));
  CHECK(first.forward == Approx(20));
  CHECK(first.backward == Approx(60));
  CHECK(first.optimizer == 0);
  CHECK(first.exposed_parameters == Approx(6));
  CHECK(first.exposed_gradients == Approx(8));
  bench.work(1000);
  bench.gather();
  const StepSplit second = bench.step(9);
  CHECK(second.forward == Approx(20));
  CHECK(second.backward == Approx(60));
  CHECK(second.optimizer == Approx(7));
  CHECK(second.exposed_gradients == Approx(12));
  CHECK(bench.step(1).optimizer == Approx(9));
}

TEST_CASE("Waits for the host's updates belong to the optimizer, in any phase") {
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
  const StepSplit split = timer.finish_step();
  CHECK(split.forward == Approx(11));
  CHECK(split.backward == Approx(30));
  CHECK(split.optimizer == Approx(100));
}

TEST_CASE("Splits add up and divide") {
  StepSplit sum{
      .data = 1, .forward = 2, .backward = 3, .optimizer = 4, .exposed_parameters = 5, .exposed_gradients = 6};
  sum += sum;
  CHECK(sum.total() == Approx(42));
  CHECK(sum.exposed_communication() == Approx(22));
  const StepSplit half = sum.divided_by(4);
  CHECK(half.data == Approx(0.5));
  CHECK(half.exposed_gradients == Approx(3));
  CHECK(half.total() == Approx(10.5));
}

}  // namespace mpzero
