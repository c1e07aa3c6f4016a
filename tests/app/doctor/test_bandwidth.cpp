// Over two ranks of which one is slow.
#include <ATen/ATen.h>

#include <chrono>
#include <set>
#include <thread>

#include "app/doctor/bandwidth.hpp"
#include "base/collectives.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::doctor {
namespace {

using namespace std::chrono_literals;

// Moves nothing. Rank 1's first collective of a kind and size takes long, as where connections are made, and each
// later one `kEach`; rank 0's take no time.
class SlowRank final : public parallel::Communicator {
 public:
  static constexpr auto kFirst = 300ms, kEach = 40ms;

  int rank() const override { return parallel::mpi().rank(); }
  int world_size() const override { return parallel::mpi().world_size(); }
  std::unique_ptr<parallel::PendingCollective> all_gather(const at::Tensor&, const at::Tensor& full) override {
    return collective(0, full);
  }
  std::unique_ptr<parallel::PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor&,
                                                                  parallel::SumMode) override {
    return collective(1, full);
  }
  std::unique_ptr<parallel::PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor&) override {
    return collective(2, sent);
  }
  std::unique_ptr<parallel::PendingCollective> all_reduce_sum(const at::Tensor& tensor) override {
    return collective(3, tensor);
  }

  int64_t calls = 0;

 private:
  std::unique_ptr<parallel::PendingCollective> collective(int kind, const at::Tensor& full) {
    ++calls;
    const bool first = seen_.emplace(kind, full.nbytes()).second;
    if (rank() == 1) std::this_thread::sleep_for(first ? kFirst : kEach);
    return std::make_unique<parallel::CompletedCollective>();
  }
  std::set<std::pair<int, size_t>> seen_;
};

}  // namespace

TEST_CASE("all ranks report the slowest rank's time, excluding the first call") {
  SlowRank communicator;
  const std::vector<Measurement> found = measure_bandwidth(communicator, parallel::mpi(), at::kCPU);
  REQUIRE(found.size() == 4);
  for (const Measurement& one : found) {
    // Each rank sends half, in 40 ms or, on a busy machine, more.
    const double seconds = static_cast<double>(one.bytes) / 2 / one.bytes_per_second;
    CHECK(seconds >= 0.0399);
    CHECK(max(parallel::mpi(), seconds) == seconds);
  }
  CHECK(max(parallel::mpi(), communicator.calls) == communicator.calls);
  // Once unmeasured and three times measured, since three of ten calls fill a second.
  CHECK(communicator.calls == 4 * 4 * 10);
}

}  // namespace mpzero::doctor
