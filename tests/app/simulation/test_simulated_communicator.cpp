#include <ATen/ops/empty.h>

#include <string_view>
#include <utility>

#include "app/simulation/simulated_communicator.hpp"
#include "app/simulation/simulated_device.hpp"
#include "parallel/zero/parameter_store.hpp"
#include "tests/app/plan/simulation/small_run.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("a collective runs after its inputs, and compute waits only in wait()") {
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

TEST_CASE("memory for sums by copy engines is reserved only among peer GPUs") {
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

at::Tensor on_device(int64_t numel, at::ScalarType type = at::kBFloat16) {
  return at::empty({numel}, at::TensorOptions().dtype(type).device(SimulatedDevice::device()));
}

}  // namespace

TEST_CASE("a gather slows down concurrent kernels by its memory traffic") {
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

TEST_CASE("a sum by copy engines exchanges the shards, then reads all of them and writes one") {
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
}

TEST_CASE("a ring's sum is added or converted by a kernel, unless NCCL writes it in place") {
  using parallel::SumMode;
  const auto ends = [](int count, SumMode mode, at::ScalarType type) {
    SimulatedDevice device(costs_with_memory());
    BusyLink link;
    SimulatedCommunicator communicator(of_peers(count, /*peer_access=*/false), link);
    const at::Tensor shard = on_device(8 / count, type);
    communicator.reduce_scatter_sum(on_device(8), shard, mode);
    double sum = 0;
    for (const SimulatedDevice::Record& record : device.records()) {
      if (std::string_view(record.name) == "sum of gradients") sum += record.end - record.begin;
    }
    return std::pair{sum, device.queue(Work::kMatmuls, "beside", 2000) - 2000};
  };
  // In a ring of two 8 bytes arrive, to which the own 8 are added: 24. In one of four 12 of the 16 bytes.
  CHECK(ends(2, SumMode::kOverwrite, at::kBFloat16) == std::pair{0.0, 24.0});
  CHECK(ends(4, SumMode::kOverwrite, at::kBFloat16) == std::pair{0.0, 36.0});
  // The shard of 8 bytes, or of 4, is read, and the own is read and written.
  CHECK(ends(2, SumMode::kAdd, at::kBFloat16) == std::pair{24.0, 24.0 + 24.0});
  CHECK(ends(4, SumMode::kAdd, at::kBFloat16) == std::pair{12.0, 36.0 + 12.0});
  // 4 bytes of bf16 to 8 of fp32, which may be read, too.
  CHECK(ends(4, SumMode::kOverwrite, at::kFloat) == std::pair{12.0, 36.0 + 12.0});
  CHECK(ends(4, SumMode::kAdd, at::kFloat) == std::pair{20.0, 36.0 + 20.0});
}

TEST_CASE("exchanges and all-reduces slow down concurrent kernels") {
  const auto lost = [](int count, bool peer_access, auto start) {
    SimulatedDevice device(costs_with_memory());
    BusyLink link;
    SimulatedCommunicator communicator(of_peers(count, peer_access), link);
    start(communicator);
    return device.queue(Work::kMatmuls, "beside", 2000) - 2000;
  };
  const auto exchange = [](SimulatedCommunicator& ranks) { ranks.all_to_all(on_device(8), on_device(8)); };
  const auto reduce = [](SimulatedCommunicator& ranks) { ranks.all_reduce_sum(on_device(8)); };
  CHECK(lost(2, true, exchange) == Approx(kRead + kWritten));
  CHECK(lost(4, false, exchange) == Approx(kRead + kWritten));
  // Of 16 bytes 8 (of two ranks) or 12 (of four): three times as the sum of shards, twice as the gather.
  CHECK(lost(2, true, reduce) == Approx(5 * 8));
  CHECK(lost(4, true, reduce) == Approx(5 * 12));
  CHECK(lost(4, false, reduce) == Approx(5 * 12));
}

TEST_CASE("a collective by copy engines costs the host more calls") {
  SimulatedDevice::Costs costs = small_run().costs;
  costs.launch = 1;
  costs.call = 0.25;
  SimulatedDevice device(costs);
  BusyLink link;
  SimulatedCommunicator peers(of_peers(2), link), others(of_peers(2, /*peer_access=*/false), link);
  const at::Tensor full = on_device(8), shard = on_device(4);
  const auto taken = [&](auto start) {
    const double before = device.host_now();
    start()->wait();
    return device.host_now() - before;
  };
  const auto gather = [&](SimulatedCommunicator& ranks) {
    return taken([&] { return ranks.all_gather(shard, full); });
  };
  const auto exchange = [&](SimulatedCommunicator& ranks) {
    return taken([&] { return ranks.all_to_all(full, full); });
  };
  const auto reduce = [&](SimulatedCommunicator& ranks) { return taken([&] { return ranks.all_reduce_sum(full); }); };
  const auto sum = [&](SimulatedCommunicator& ranks, parallel::SumMode mode) {
    return taken([&] { return ranks.reduce_scatter_sum(full, shard, mode); });
  };
  using parallel::SumMode;
  // Two events and two waits for them, and the copies, or NCCL's kernel.
  constexpr double kStarted = 4 * 0.25 + 1;
  constexpr double kMeetings = 2, kSum = 1;
  CHECK(gather(peers) == kStarted + kMeetings);
  CHECK(exchange(peers) == kStarted + kMeetings);
  CHECK(sum(peers, SumMode::kOverwrite) == kStarted + kMeetings + kSum);
  CHECK(sum(peers, SumMode::kAdd) == kStarted + kMeetings + kSum);
  // ncclAllReduce has no copies.
  CHECK(reduce(peers) == kStarted);
  CHECK(gather(others) == kStarted);
  CHECK(exchange(others) == kStarted);
  CHECK(reduce(others) == kStarted);
  // NCCL writes the sum itself, or a kernel adds it.
  CHECK(sum(others, SumMode::kOverwrite) == kStarted);
  CHECK(sum(others, SumMode::kAdd) == kStarted + kSum);
}

TEST_CASE("parameters move to the device up to the limit, for any shard groups") {
  // 48, 1001 and 90 parameters, as in tests/parallel/engine_checks.hpp.
  const std::vector<UnitSpec> units{{.name = "first", .parameters = {{"a", {48}}}},
                                    {.name = "second", .parameters = {{"b", {1001}}}},
                                    {.name = "third", .parameters = {{"c", {90}}}}};
  SimulatedDevice device(small_run().costs);
  BusyLink link;
  // With limit `bytes`: the bytes moved, and those that stay in host memory.
  const auto move = [&](int groups, int ranks_per_group, at::ScalarType dtype, int64_t bytes) {
    const auto communicator = [&](int size) {
      return SimulatedCommunicator({.group = {.hosts = size}, .links = {}}, link);
    };
    SimulatedCommunicator within = communicator(ranks_per_group), between = communicator(groups);
    const parallel::Levels levels(within, between);
    std::vector<parallel::FlatLayout> layouts;
    for (const UnitSpec& unit : units) layouts.emplace_back(unit.numel(), groups * ranks_per_group, groups);
    const auto store = parallel::make_parameter_store(units, layouts, levels.shard_index(), levels,
                                                      {.sharded = true,
                                                       .placement = parallel::Placement::kHost,
                                                       .limits = {},
                                                       .device = SimulatedDevice::device(),
                                                       .dtype = dtype});
    const int64_t moved = store->move_to_device(bytes);
    return std::pair(moved, store->memory_use().host_parameters);
  };
  // A shard has 64 elements or a multiple: on four groups of one rank the smallest unit has 1024 bytes of fp32.
  CHECK(move(4, 1, at::kFloat, 1000).first == 0);
  CHECK(move(4, 1, at::kFloat, 1024).first == 1024);
  CHECK(move(4, 1, at::kBFloat16, 1000).first == 512);
  CHECK(move(2, 1, at::kFloat, 1000).first == 512);
  for (const auto& [groups, ranks] : {std::pair(1, 1), {1, 4}, {2, 1}, {2, 2}, {3, 1}, {4, 1}, {8, 1}, {4, 2}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const auto [nothing, all] = move(groups, ranks, dtype, 0);
      CHECK(nothing == 0);
      for (const int64_t bytes : {100, 256, 1000, 2000, 5000, 1 << 20}) {
        INFO(groups << " groups of " << ranks << ", " << c10::toString(dtype) << ", " << bytes << " bytes");
        const auto [moved, stays] = move(groups, ranks, dtype, bytes);
        CHECK(moved <= bytes);
        CHECK(moved + stays == all);
        CHECK((moved == all) == (all <= bytes));
      }
    }
  }
}
