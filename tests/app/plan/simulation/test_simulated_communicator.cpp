#include <ATen/ops/empty.h>

#include <utility>

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

namespace {

constexpr double kRead = 16, kWritten = 16;  // bytes of 8 numbers

SimulatedDevice::Costs costs_with_memory() {
  SimulatedDevice::Costs costs = small_run().costs;
  costs.memory = [](int64_t bytes) { return static_cast<double>(bytes); };
  costs.memory_bytes_per_second = 1;
  return costs;
}

// Between so many GPUs that are peers, in a thousand seconds.
SimulatedCommunicator::Options of_peers(int count, bool peer_access = true) {
  return {.group = {.hosts = 1, .per_host = count},
          .links = {.within_bytes_per_second = 1e30, .start_seconds = 1000, .peer_access = peer_access}};
}

at::Tensor on_device(int64_t numel) {
  return at::empty({numel}, at::TensorOptions().dtype(at::kBFloat16).device(SimulatedDevice::device()));
}

}  // namespace

TEST_CASE("kernels are slower beside a gather, which reads and writes what it moves") {
  const auto lost = [](const SimulatedCommunicator::Options& options, bool in_place) {
    SimulatedDevice device(costs_with_memory());
    BusyLink link;
    SimulatedCommunicator communicator(options, link);
    const at::Tensor full = on_device(8);
    const int64_t own = 8 / communicator.world_size();
    communicator.all_gather(in_place ? full.narrow(0, 0, own) : on_device(own), full);
    return device.queue(Work::kMatmuls, "beside", 2000) - 2000;
  };
  CHECK(lost(of_peers(2), false) == Approx(kRead + kWritten));
  CHECK(lost(of_peers(2), true) == Approx((kRead + kWritten) / 2));
  CHECK(lost(of_peers(4), true) == Approx((kRead + kWritten) * 3 / 4));
  CHECK(lost(of_peers(2, /*peer_access=*/false), true) == Approx((kRead + kWritten) / 2));
}

TEST_CASE("a sum by copy engines exchanges the shards, then reads them all and writes one") {
  using parallel::SumMode;
  const auto ends = [](const SimulatedCommunicator::Options& options, SumMode mode) {
    SimulatedDevice device(costs_with_memory());
    BusyLink link;
    SimulatedCommunicator communicator(options, link);
    const auto summed = communicator.reduce_scatter_sum(on_device(8), on_device(4), mode);
    const double beside = device.queue(Work::kMatmuls, "beside", 2000);
    summed->wait();
    CHECK(device.clock(0) == beside);
    double sum = 0;
    for (const SimulatedDevice::Record& record : device.records()) {
      if (record.work == Work::kElementwise) sum += record.end - record.begin;
    }
    return std::pair{sum, beside - 2000};
  };
  // The exchange reads and writes 16 bytes; the sum reads them again and writes 8, to which it may add.
  CHECK(ends(of_peers(2), SumMode::kOverwrite) == std::pair{24.0, 32.0 + 24.0});
  CHECK(ends(of_peers(2), SumMode::kAdd) == std::pair{32.0, 32.0 + 32.0});
  // In a ring of two 8 bytes arrive, to which the own 8 are added.
  CHECK(ends(of_peers(2, /*peer_access=*/false), SumMode::kAdd) == std::pair{0.0, 24.0});
}

TEST_CASE("the host queues a collective by copy engines with more calls") {
  SimulatedDevice::Costs costs = small_run().costs;
  costs.launch = 1;
  costs.call = 0.25;
  SimulatedDevice device(costs);
  BusyLink link;
  SimulatedCommunicator peers(of_peers(2), link), others(of_peers(2, /*peer_access=*/false), link);
  const at::Tensor full = on_device(8), shard = on_device(4);
  const auto taken = [&](SimulatedCommunicator& communicator, bool sums) {
    const double before = device.host_now();
    if (sums) {
      communicator.reduce_scatter_sum(full, shard, parallel::SumMode::kAdd)->wait();
    } else {
      communicator.all_gather(shard, full)->wait();
    }
    return device.host_now() - before;
  };
  // Two events and two waits for them; the copies, between two meetings; the kernel that sums.
  CHECK(taken(peers, false) == 4 * 0.25 + 1 + 2);
  CHECK(taken(peers, true) == 4 * 0.25 + 1 + 2 + 1);
  CHECK(taken(others, false) == 4 * 0.25 + 1);
  CHECK(taken(others, true) == 4 * 0.25 + 1);
}
