#include <ATen/cuda/Sleep.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>

#include "app/log/step_timer.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/parallel/stub_communicator.hpp"

namespace mpzero {
namespace {

using parallel::MeasuredCommunicator;
using parallel::PendingCollective;

// A few milliseconds on every GPU.
constexpr int64_t kCycles = 20'000'000;

// Collectives that only take time, `cycles` of it, on a separate stream, like NCCL's.
class SleepingCommunicator final : public parallel::StubCommunicator {
 public:
  explicit SleepingCommunicator(int64_t cycles) : cycles_(cycles), stream_(c10::cuda::getStreamFromPool()) {}

 private:
  struct Pending final : PendingCollective {
    void wait() override { done.block(c10::cuda::getCurrentCUDAStream()); }
    c10::cuda::CUDAEvent done;
  };
  std::unique_ptr<PendingCollective> start() override {
    c10::cuda::CUDAEvent inputs_ready;
    inputs_ready.record(c10::cuda::getCurrentCUDAStream());
    inputs_ready.block(stream_);
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    at::cuda::sleep(cycles_);
    auto pending = std::make_unique<Pending>();
    pending->done.record(stream_);
    return pending;
  }

  int64_t cycles_;
  c10::cuda::CUDAStream stream_;
};

struct Bench {
  // The host waits for the queued work, as for a step's summary.
  static void synchronize() { c10::cuda::getCurrentCUDAStream().synchronize(); }

  std::unique_ptr<parallel::Timeline> timeline = parallel::make_timeline(at::Device(at::kCUDA, 0));
  MeasuredCommunicator parameters{std::make_unique<SleepingCommunicator>(kCycles), *timeline};
  MeasuredCommunicator gradients{std::make_unique<SleepingCommunicator>(kCycles), *timeline};
  StepTimer timer{*timeline, parameters, gradients};
  at::Tensor x = at::ones({8}, at::TensorOptions().device(at::kCUDA));
};

}  // namespace

TEST_CASE("GPU: a slow collective is exposed, and one hidden by longer compute is not") {
  if (!has_gpu()) return;
  Bench bench;
  bench.timer.enter(Phase::kForward);
  bench.parameters.all_gather(bench.x, bench.x)->wait();
  const auto hidden = bench.gradients.all_reduce_sum(bench.x);
  at::cuda::sleep(4 * kCycles);
  hidden->wait();
  bench.timer.enter(Phase::kOptimizer);
  Bench::synchronize();
  bench.timer.caught_up();
  const StepSplit split = bench.timer.finish_step();
  CHECK(split.exposed_parameters > 0);
  // The two collectives take the same time, and compute takes four times as long as either.
  CHECK(split.exposed_parameters > 10 * split.exposed_gradients);
  CHECK(split.forward > 2 * split.exposed_parameters);
}

TEST_CASE("GPU: a wait on another stream does not stall compute") {
  if (!has_gpu()) return;
  Bench bench;
  bench.timer.enter(Phase::kForward);
  const auto pending = bench.parameters.all_reduce_sum(bench.x);
  {
    const c10::cuda::CUDAStreamGuard elsewhere(c10::cuda::getStreamFromPool());
    pending->wait();
  }
  at::cuda::sleep(kCycles);
  bench.timer.enter(Phase::kOptimizer);
  Bench::synchronize();
  bench.timer.caught_up();
  const StepSplit split = bench.timer.finish_step();
  CHECK(split.exposed_communication() == 0);
  CHECK(split.forward > 0);
}

TEST_CASE("GPU: phases are measured separately, and an update in flight is reported with the next step") {
  if (!has_gpu()) return;
  Bench bench;
  const auto step = [&] {
    bench.timer.enter(Phase::kForward);
    at::cuda::sleep(kCycles);
    bench.timer.enter(Phase::kBackward);
    at::cuda::sleep(3 * kCycles);
    bench.timer.enter(Phase::kOptimizer);
    c10::cuda::CUDAEvent summary;
    summary.record();
    at::cuda::sleep(8 * kCycles);
    summary.synchronize();
    bench.timer.caught_up();
    return bench.timer.finish_step();
  };
  const StepSplit first = step();
  CHECK(first.forward > 0);
  CHECK(first.backward > 2 * first.forward);
  CHECK(first.optimizer == 0);
  const StepSplit second = step();
  CHECK(second.backward > 2 * second.forward);
  CHECK(second.optimizer > 2 * second.backward);
  Bench::synchronize();
}

}  // namespace mpzero
