#include <ATen/ops/empty.h>

#include "app/plan/simulation/simulated_communicator.hpp"
#include "app/plan/simulation/simulated_device.hpp"
#include "tests/app/plan/simulation/small_run.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("a collective follows its inputs, and computing waits where it says so") {
  SimulatedDevice device(small_run().costs);
  BusyLink link;
  const SimulatedCommunicator::Options options{.group = {.hosts = 1, .per_host = 2},
                                               .links = {.within_bytes_per_second = 1e30, .start_seconds = 3}};
  SimulatedCommunicator first(options, link), second(options, link);
  const at::Tensor tensor = at::empty({8}, at::TensorOptions().device(SimulatedDevice::device()));
  CHECK(first.world_size() == 2);
  device.queue(Work::kMatmuls, "inputs", 10);
  const auto gathered = first.all_gather(tensor, tensor);
  device.queue(Work::kMatmuls, "meanwhile", 1);
  // They share the link.
  const auto summed = second.reduce_scatter_sum(tensor, tensor, parallel::SumMode::kAdd);
  CHECK(device.clock(0) == 11);
  gathered->wait();
  CHECK(device.clock(0) == 13);
  summed->wait();
  CHECK(device.clock(0) == 16);
}

TEST_CASE("memory for sums by copy engines is reserved where they reach") {
  SimulatedDevice device(small_run().costs);
  BusyLink link;
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(SimulatedDevice::device());
  const auto reserved = [&](const Group& group, bool peer_access) {
    SimulatedCommunicator communicator({.group = group, .links = {.peer_access = peer_access}}, link);
    return communicator.reserve_reduce_scatter(100, options);
  };
  CHECK(reserved({.hosts = 1, .per_host = 2}, true) == 200);
  CHECK(reserved({.hosts = 1, .per_host = 2}, false) == 0);
  CHECK(reserved({.hosts = 2, .per_host = 1}, true) == 0);
}
