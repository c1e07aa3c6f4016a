#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "app/health/gpu_condition.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

// NCCL's collectives in a flight recorder, on one GPU or, under mpirun, on one GPU per rank.
namespace mpzero::parallel {
namespace {

std::optional<at::Device> rank_gpu() {
  if (!has_gpu(mpi().local_size())) return std::nullopt;
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(mpi().local_rank()));
  c10::cuda::set_device(device.index());
  return device;
}

struct HostGate {
  std::atomic<bool> open{false};
};

void CUDART_CB wait_at_gate(void* gate) {
  while (!static_cast<HostGate*>(gate)->open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

TEST_CASE("a collective after unfinished work is queued, and completes after that work") {
  const auto device = rank_gpu();
  if (!device) return;
  FlightRecorder recorder;
  RecordedCommunicator communicator(std::make_unique<NcclCommunicator>(mpi()), recorder.channel("gradients"));
  const at::Tensor numbers = at::ones({1024}, at::TensorOptions().device(*device));
  communicator.all_reduce_sum(numbers)->wait();
  c10::cuda::device_synchronize();
  recorder.poll();
  CHECK(recorder.records(1).front().completed == 1);

  HostGate gate;
  REQUIRE(cudaLaunchHostFunc(c10::cuda::getCurrentCUDAStream(), wait_at_gate, &gate) == cudaSuccess);
  const auto pending = communicator.all_reduce_sum(numbers);
  // From another thread, as in training: it neither blocks nor needs the stream.
  std::thread([&] {
    c10::cuda::set_device(device->index());
    recorder.poll();
  }).join();
  ChannelRecord record = recorder.records(4).front();
  CHECK(record.queued == 2);
  CHECK(record.started == 1);
  CHECK(record.completed == 1);
  CHECK(record.last.back().state == CollectiveState::kQueued);
  CHECK(recorder.events() == 3);
  gate.open = true;
  pending->wait();
  c10::cuda::device_synchronize();
  recorder.poll();
  record = recorder.records(4).front();
  CHECK(record.completed == 2);
  CHECK(record.last.back().operation == "all_reduce");
  CHECK(record.last.back().bytes == 4096);
}

TEST_CASE("polling during many collectives does not change their results") {
  const auto device = rank_gpu();
  if (!device) return;
  FlightRecorder recorder;
  RecordedCommunicator communicator(std::make_unique<NcclCommunicator>(mpi()), recorder.channel("gradients"));
  const at::Tensor sum = at::zeros({4096}, at::TensorOptions().device(*device));
  const at::Tensor one = at::ones({4096}, at::TensorOptions().device(*device));
  std::atomic<bool> done{false};
  std::thread looking([&] {
    c10::cuda::set_device(device->index());
    while (!done) recorder.poll();
  });
  constexpr int kRounds = 2000;
  for (int i = 0; i < kRounds; ++i) {
    sum.copy_(one);
    communicator.all_reduce_sum(sum)->wait();
  }
  c10::cuda::device_synchronize();
  done = true;
  looking.join();
  recorder.poll();
  CHECK(recorder.records(1).front().completed == kRounds);
  CHECK(sum.mean().item<float>() == static_cast<float>(mpi().world_size()));
}

TEST_CASE("a healthy communicator has no asynchronous error") {
  if (!rank_gpu()) return;
  CHECK_FALSE(NcclCommunicator(mpi()).asynchronous_error());
}

TEST_CASE("the GPU's condition is reported if the driver's library exists") {
  const auto device = rank_gpu();
  if (!device) return;
  const std::string condition = gpu_condition(*device);
  CHECK_THAT(condition, Catch::Contains("MHz"));
  CHECK_THAT(condition, Catch::Contains("°C"));
}

}  // namespace mpzero::parallel
