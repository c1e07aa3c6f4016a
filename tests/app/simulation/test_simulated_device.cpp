#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include "app/simulation/simulated_device.hpp"
#include "app/simulation/simulated_timeline.hpp"
#include "base/error.hpp"
#include "tests/app/plan/simulation/small_run.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("work begins once the stream is free and the work is queued") {
  SimulatedDevice device(small_run().costs);
  CHECK(device.queue(Work::kMatmuls, "a", 2) == 2);
  CHECK(device.queue(Work::kMatmuls, "b", 3) == 5);
  device.host_waits_until(9);
  CHECK(device.queue(Work::kMatmuls, "c", 1) == 10);
  CHECK(device.records().size() == 3);
  CHECK(device.records().back().begin == 9);
}

TEST_CASE("an event has its stream's time, and a waiting stream continues no earlier") {
  SimulatedDevice device(small_run().costs);
  const c10::Stream other = parallel::new_stream(SimulatedDevice::device());
  device.queue(Work::kMatmuls, "a", 4);
  parallel::follow_current_stream(other);
  device.queue(Work::kMatmuls, "b", 4);
  {
    const c10::StreamGuard on_other(other);
    CHECK(device.queue(Work::kMatmuls, "c", 1) == 5);
  }
  c10::Event done(kSimulatedDevice);
  done.record(other);
  CHECK_FALSE(done.query());
  done.synchronize();
  CHECK(device.host_now() == 5);
  CHECK(done.query());
  done.block(parallel::current_stream(SimulatedDevice::device()));
  CHECK(device.queue(Work::kMatmuls, "d", 1) == 9);
}

TEST_CASE("queueing work takes host time") {
  SimulatedDevice::Costs costs = small_run().costs;
  costs.launch = 1;
  SimulatedDevice device(costs);
  for (int i = 0; i < 5; ++i) device.queue(Work::kMatmuls, "small", 0.25);
  // The fifth one is queued at 4.
  CHECK(device.clock(0) == 5);
  CHECK(device.stream_clock(0) == 4.25);
}

TEST_CASE("recording events, stream waits and timeline marks take host time") {
  SimulatedDevice::Costs costs = small_run().costs;
  costs.call = 1;
  SimulatedDevice device(costs);
  const c10::Stream other = parallel::new_stream(SimulatedDevice::device());
  parallel::follow_current_stream(other);
  CHECK(device.host_now() == 2);
  SimulatedTimeline timeline;
  const auto first = timeline.mark(), second = timeline.mark();
  CHECK(timeline.seconds_between(first, second) == 1);
  CHECK(device.host_now() == 4);
}

TEST_CASE("concurrent memory traffic slows down kernels") {
  SimulatedDevice::Costs costs = small_run().costs;
  costs.memory_bytes_per_second = 10;
  SimulatedDevice device(costs);
  BusyLink link;
  {
    const c10::StreamGuard on_other(parallel::new_stream(SimulatedDevice::device()));
    CHECK(device.queue(Work::kCollective, "copies", 4, &link) == 4);
    device.share_memory(4, 20);
    CHECK(device.queue(Work::kCollective, "over the link", 4, &link) == 8);
  }
  // Half of the memory for four seconds.
  CHECK(device.queue(Work::kMatmuls, "beside", 3) == 5);
  CHECK(device.records().back().begin == 0);
  CHECK(device.records().back().end == 5);
  CHECK(device.queue(Work::kMatmuls, "after", 3) == 8);
}

TEST_CASE("at most one simulated device exists at a time") {
  const SimulatedDevice device(small_run().costs);
  CHECK_THROWS_AS(SimulatedDevice(small_run().costs), Failure);
}
