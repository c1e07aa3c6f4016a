#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <atomic>

#include "parallel/host/host_memory.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/parallel/random_interleaving.hpp"

namespace mpzero::parallel {

TEST_CASE("with a GPU, random interleavings and all snapshots are bitwise equal to sequential execution") {
  if (!has_gpu()) return;
  const at::Device device(at::kCUDA, 0);
  for (uint32_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    Interleaving(seed, device).run();
  }
}

TEST_CASE("a parameter in host memory is not overwritten while queued work reads it") {
  if (!has_gpu()) return;
  const at::Device device(at::kCUDA, 0);
  constexpr int64_t kNumel = 2 * kHostBlock;
  ThreadTeam team(2);
  OptimizerShard shard(kNumel, OptimizerShard::Options{.placement = Placement::kHost, .device = device, .team = &team});
  shard.states().master.fill_(2.0F);
  HostMemoryPlan plan;
  plan.piece_numel = kHostBlock;
  plan.pieces = 2;
  HostOptimizer optimizer(
      team, {&shard},
      {.device = device, .pinned = true, .gradient_dtype = at::kFloat, .parameter_dtype = at::kFloat, .memory = plan});
  const at::Tensor parameter = host_tensor(kNumel, at::kFloat, /*pinned=*/true).fill_(1.0F);
  const at::Tensor read = at::zeros({kNumel}, at::TensorOptions().dtype(at::kFloat).device(device));
  cudaDeviceSynchronize();
  // The stream waits at the gate, before it reads.
  std::atomic<bool> open{false};
  const auto stream = c10::cuda::getCurrentCUDAStream();
  REQUIRE(cudaLaunchHostFunc(
              stream, [](void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); }, &open) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(read.data_ptr(), parameter.const_data_ptr(), parameter.nbytes(), cudaMemcpyHostToDevice,
                          stream) == cudaSuccess);
  optimizer.publish(0, parameter);
  // Long enough for an optimizer that does not wait.
  for (int i = 0; i < 100'000 && !optimizer.ready(0); ++i) std::this_thread::yield();
  CHECK_FALSE(optimizer.ready(0));
  open = true;
  open.notify_all();
  optimizer.wait_for_all();
  CHECK(same_bits(read.cpu(), at::ones({kNumel}, at::kFloat)));
  CHECK(same_bits(parameter, at::full({kNumel}, 2.0, at::kFloat)));
}

}  // namespace mpzero::parallel
