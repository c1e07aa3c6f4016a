#include <ATen/ops/ones.h>

#include "parallel/comm/forwarding_communicator.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/stub_communicator.hpp"

namespace mpzero::parallel {
namespace {

constexpr double kStartSeconds = 2;
constexpr double kWaitSeconds = 5;

// Collectives that take a known time of a clock that only they advance.
class SlowCommunicator final : public StubCommunicator {
 public:
  explicit SlowCommunicator(double& clock) : StubCommunicator(7, 3), clock_(clock) {}
  at::Tensor buffer(int64_t numel, const at::TensorOptions& options) override {
    ++buffers;
    return Communicator::buffer(numel, options);
  }

  int waits = 0;
  int buffers = 0;

 private:
  class Pending final : public PendingCollective {
   public:
    explicit Pending(SlowCommunicator& owner) : owner_(owner) {}
    void wait() override {
      owner_.clock_ += kWaitSeconds;
      ++owner_.waits;
    }

   private:
    SlowCommunicator& owner_;
  };
  std::unique_ptr<PendingCollective> start() override {
    clock_ += kStartSeconds;
    return std::make_unique<Pending>(*this);
  }

  double& clock_;
};

// Marks like a GPU's: the host's work takes none of its time.
class DeviceTimeline final : public Timeline {
 public:
  explicit DeviceTimeline(const double& clock) : host_([&clock] { return clock; }) {}
  Mark mark() override { return host_.mark(); }
  double seconds_between(Mark from, Mark to) const override { return host_.seconds_between(from, to); }
  void forget_before(Mark mark) override { host_.forget_before(mark); }
  bool is_host() const override { return false; }
  bool is_current() const override { return current; }

  bool current = true;

 private:
  HostTimeline host_;
};

double seconds_of(const Timeline& timeline, const std::vector<Stall>& stalls) {
  double sum = 0;
  for (const Stall& stall : stalls) sum += timeline.seconds_between(stall.begin, stall.end);
  return sum;
}

}  // namespace

TEST_CASE("on the host, starting and awaiting a collective count as stalls, for each of the four kinds") {
  double clock = 100;
  HostTimeline timeline([&] { return clock; });
  auto slow = std::make_unique<SlowCommunicator>(clock);
  const SlowCommunicator& inner = *slow;
  MeasuredCommunicator communicator(std::move(slow), timeline);
  CHECK(communicator.rank() == 3);
  CHECK(communicator.world_size() == 7);
  CHECK(communicator.buffer(5, at::kFloat).numel() == 5);
  CHECK(inner.buffers == 1);

  timeline.start();
  const at::Tensor x = at::ones({7});
  const auto gathered = communicator.all_gather(x, x);
  clock += 1000;  // compute in between
  gathered->wait();
  communicator.reduce_scatter_sum(x, x)->wait();
  communicator.all_reduce_sum(x)->wait();
  communicator.all_to_all(x, x)->wait();
  const std::vector<Stall> stalls = communicator.take_stalls();
  CHECK(stalls.size() == 8);
  CHECK(seconds_of(timeline, stalls) == Approx(4 * (kStartSeconds + kWaitSeconds)));
  CHECK(communicator.take_stalls().empty());
  CHECK(inner.waits == 4);
}

TEST_CASE("on a device, only the wait counts, and only on the timeline's stream") {
  double clock = 0;
  DeviceTimeline timeline(clock);
  auto slow = std::make_unique<SlowCommunicator>(clock);
  const SlowCommunicator& inner = *slow;
  MeasuredCommunicator communicator(std::move(slow), timeline);
  const at::Tensor x = at::ones({7});

  timeline.start();
  const auto reduced = communicator.all_reduce_sum(x);
  CHECK(communicator.take_stalls().empty());
  reduced->wait();
  CHECK(seconds_of(timeline, communicator.take_stalls()) == Approx(kWaitSeconds));

  timeline.current = false;
  communicator.all_reduce_sum(x)->wait();
  CHECK(communicator.take_stalls().empty());
  CHECK(inner.waits == 2);
}

TEST_CASE("outside of a step, collectives work and nothing is recorded") {
  double clock = 0;
  HostTimeline timeline([&] { return clock; });
  auto slow = std::make_unique<SlowCommunicator>(clock);
  const SlowCommunicator& inner = *slow;
  MeasuredCommunicator communicator(std::move(slow), timeline);
  communicator.all_reduce_sum(at::ones({1}))->wait();
  CHECK(inner.waits == 1);
  CHECK(communicator.take_stalls().empty());
}

TEST_CASE("forgetting marks leaves the others unchanged") {
  double clock = 0;
  HostTimeline timeline([&] { return clock; });
  const Timeline::Mark first = timeline.mark();
  clock = 1;
  const Timeline::Mark second = timeline.mark();
  clock = 4;
  const Timeline::Mark third = timeline.mark();
  CHECK(timeline.seconds_between(first, third) == Approx(4));
  timeline.forget_before(second);
  CHECK(timeline.seconds_between(second, third) == Approx(3));
  clock = 6;
  CHECK(timeline.seconds_between(third, timeline.mark()) == Approx(2));
}

}  // namespace mpzero::parallel
