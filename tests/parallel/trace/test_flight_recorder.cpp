#include <ATen/ops/ones.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "parallel/trace/flight_recorder.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/stub_communicator.hpp"

namespace mpzero::parallel {
namespace {

// Simulated device work, controlled by the test.
class FakeWork final : public DeviceWork {
 public:
  CollectiveState state() const override {
    if (fails) throw std::runtime_error("the device is lost");
    return now;
  }
  std::atomic<CollectiveState> now{CollectiveState::kQueued};
  std::atomic<bool> fails{false};
};

// A communicator whose collectives complete when a test says so.
class DeviceCommunicator final : public StubCommunicator {
 public:
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor&) override {
    throw std::runtime_error("the peer is gone");
  }
  std::optional<std::string> asynchronous_error() override { return "the network is down"; }

  std::vector<std::shared_ptr<FakeWork>> work;

 private:
  class Pending final : public PendingCollective {
   public:
    explicit Pending(std::shared_ptr<FakeWork> work) : work_(std::move(work)) {}
    void wait() override {}
    std::shared_ptr<const DeviceWork> device_work() const override { return work_; }

   private:
    std::shared_ptr<FakeWork> work_;
  };
  std::unique_ptr<PendingCollective> start() override {
    work.push_back(std::make_shared<FakeWork>());
    return std::make_unique<Pending>(work.back());
  }
};

}  // namespace

TEST_CASE("a collective that completes within its call is recorded as completed, with its operation and bytes") {
  FlightRecorder recorder;
  RecordedCommunicator communicator(std::make_unique<LocalCommunicator>(), recorder.channel("parameters"));
  const at::Tensor one = at::ones({3});
  communicator.all_gather(one, one);
  communicator.reduce_scatter_sum(one, one, SumMode::kOverwrite);
  const at::Tensor five = at::ones({5}, at::kDouble);
  communicator.all_reduce_sum(five);
  communicator.all_to_all(one, at::ones({3}));
  const auto records = recorder.records(3);
  REQUIRE(records.size() == 1);
  CHECK(records[0].name == "parameters");
  CHECK(records[0].queued == 4);
  CHECK(records[0].started == 4);
  CHECK(records[0].completed == 4);
  REQUIRE(records[0].last.size() == 3);
  CHECK(records[0].last[0].operation == "reduce_scatter");
  CHECK(records[0].last[0].bytes == 12);
  CHECK(records[0].last[1].operation == "all_reduce");
  CHECK(records[0].last[1].sequence == 3);
  CHECK(records[0].last[1].bytes == 40);
  CHECK(records[0].last[1].state == CollectiveState::kCompleted);
  CHECK(records[0].last[2].operation == "all_to_all");
  CHECK(records[0].last[2].bytes == 12);
  CHECK(recorder.events() == 8);
}

TEST_CASE("a collective that throws, e.g. because its peer has exited, stays open") {
  FlightRecorder recorder;
  RecordedCommunicator communicator(std::make_unique<DeviceCommunicator>(), recorder.channel("gradients"));
  REQUIRE_THROWS(communicator.all_reduce_sum(at::ones({1})));
  const ChannelRecord record = recorder.records(4).front();
  CHECK(record.queued == 1);
  CHECK(record.started == 1);
  CHECK(record.completed == 0);
  CHECK(record.last.front().state == CollectiveState::kStarted);
}

TEST_CASE("work on a device counts as started and completed once poll() has detected it") {
  FlightRecorder recorder;
  auto device = std::make_unique<DeviceCommunicator>();
  DeviceCommunicator& inner = *device;
  RecordedCommunicator communicator(std::move(device), recorder.channel("parameters"));
  const at::Tensor one = at::ones({1});
  for (int i = 0; i < 9; ++i) communicator.all_gather(one, one);
  const int64_t before = recorder.events();
  recorder.poll();
  ChannelRecord record = recorder.records(2).front();
  CHECK(record.queued == 9);
  CHECK(record.started == 0);
  CHECK(record.completed == 0);
  CHECK(recorder.events() == before);
  // The last two, and before them the first open one.
  REQUIRE(record.last.size() == 2);
  CHECK(record.last[0].sequence == 1);
  CHECK(record.last[0].state == CollectiveState::kQueued);
  CHECK(record.last[1].sequence == 9);

  for (size_t i = 0; i < 4; ++i) inner.work[i]->now = CollectiveState::kCompleted;
  inner.work[4]->now = CollectiveState::kStarted;
  recorder.poll();
  record = recorder.records(3).front();
  CHECK(record.started == 5);
  CHECK(record.completed == 4);
  CHECK(record.last.front().sequence == 5);
  CHECK(record.last.front().state == CollectiveState::kStarted);
  CHECK(recorder.events() > before);
  // Completed work is released.
  CHECK(inner.work[0].use_count() == 1);
  CHECK(inner.work[8].use_count() == 2);

  inner.work[4]->fails = true;
  CHECK_THROWS_WITH(recorder.poll(), Catch::Contains("the device is lost"));
}

TEST_CASE("a ring buffer drops the oldest collectives, even open ones, and still detects that all have completed") {
  FlightRecorder recorder;
  auto device = std::make_unique<DeviceCommunicator>();
  DeviceCommunicator& inner = *device;
  RecordedCommunicator communicator(std::move(device), recorder.channel("parameters"));
  const at::Tensor one = at::ones({1});
  constexpr int64_t kMany = 2000;
  for (int64_t i = 0; i < kMany; ++i) communicator.all_gather(one, one);
  CHECK(inner.work.front().use_count() == 1);
  recorder.poll();
  CHECK(recorder.records(1).front().completed == 0);
  for (const auto& work : inner.work) work->now = CollectiveState::kCompleted;
  recorder.poll();
  const ChannelRecord record = recorder.records(1000).front();
  CHECK(record.completed == kMany);
  CHECK(record.last.back().sequence == kMany);
  CHECK(record.last.size() < 1000);
}

TEST_CASE("calls of the control plane are recorded and do not count as progress") {
  FlightRecorder recorder;
  FlightRecorder::Channel& control = recorder.channel("control", FlightRecorder::Shows::kNothing);
  control.complete(control.begin("barrier", 0));
  CHECK(recorder.events() == 0);
  CHECK(recorder.records(1).front().completed == 1);
}

TEST_CASE("errors are forwarded") {
  FlightRecorder recorder;
  RecordedCommunicator communicator(std::make_unique<DeviceCommunicator>(), recorder.channel("parameters"));
  CHECK(communicator.asynchronous_error() == "the network is down");
  CHECK(LocalCommunicator().asynchronous_error() == std::nullopt);
}

TEST_CASE("one thread records while another reads") {
  FlightRecorder recorder;
  auto device = std::make_unique<DeviceCommunicator>();
  DeviceCommunicator& inner = *device;
  RecordedCommunicator communicator(std::move(device), recorder.channel("parameters"));
  const at::Tensor one = at::ones({1});
  std::atomic<bool> done{false};
  int64_t seen = 0;
  bool ordered = true;
  std::thread looking([&] {
    while (!done) {
      recorder.poll();
      const ChannelRecord record = recorder.records(8).front();
      ordered =
          ordered && record.completed >= seen && record.completed <= record.started && record.started <= record.queued;
      seen = record.completed;
    }
  });
  inner.work.reserve(5000);
  for (int i = 0; i < 5000; ++i) {
    communicator.all_gather(one, one);
    if (i > 2) inner.work[static_cast<size_t>(i - 2)]->now = CollectiveState::kCompleted;
  }
  done = true;
  looking.join();
  CHECK(ordered);
}

}  // namespace mpzero::parallel
