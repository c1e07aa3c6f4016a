#include <ATen/ops/allclose.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cstdio>

#include "parallel/adamw.hpp"
#include "parallel/nccl_communicator.hpp"
#include "tests/parallel/adamw_checks.hpp"
#include "tests/parallel/collective_checks.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {
namespace {

// This rank's GPU, made current; none where the machine has too few.
std::optional<at::Device> rank_gpu() {
  if (c10::cuda::device_count() < mpi().local_size()) {
    std::puts("skipped: no GPU");
    return std::nullopt;
  }
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(mpi().local_rank()));
  c10::cuda::set_device(device.index());
  return device;
}

}  // namespace

TEST_CASE("GPU AdamW agrees with the paper's formula in fp64") {
  if (const auto device = rank_gpu()) check_adamw_everywhere(*device);
}

TEST_CASE("GPU sums of squares agree with fp64 and repeat") {
  if (const auto device = rank_gpu()) check_sum_of_squares(*device);
}

TEST_CASE("GPU AdamW and sums of squares do not depend on how their tensors are aligned") {
  const auto device = rank_gpu();
  if (!device) return;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(*device);
  for (const at::ScalarType low : {at::kFloat, at::kBFloat16}) {
    for (const int64_t numel : {1, 7, 8, 4099}) {
      INFO(low << " " << numel);
      const AdamWTensors aligned{.gradient = at::randn({numel}, fp32).to(low),
                                 .master = at::randn({numel}, fp32),
                                 .exp_avg = at::randn({numel}, fp32),
                                 .exp_avg_sq = at::rand({numel}, fp32),
                                 .parameter = at::zeros({numel}, fp32.dtype(low))};
      // The same values, one element behind a 16-byte boundary.
      const auto shifted = [&](const at::Tensor& x) {
        const at::Tensor copy = at::zeros({numel + 1}, x.options()).narrow(0, 1, numel);
        return copy.copy_(x);
      };
      const AdamWTensors other{.gradient = shifted(aligned.gradient),
                               .master = shifted(aligned.master),
                               .exp_avg = shifted(aligned.exp_avg),
                               .exp_avg_sq = shifted(aligned.exp_avg_sq),
                               .parameter = shifted(aligned.parameter)};
      CHECK(sum_of_squares(other.gradient).item<double>() ==
            Approx(sum_of_squares(aligned.gradient).item<double>()).epsilon(1e-12));
      const AdamWUpdate update = adamw_update({.weight_decay = 0.1}, 1e-3, 3, 0.5);
      adamw(aligned, update);
      adamw(other, update);
      CHECK(at::allclose(other.master, aligned.master, 1e-6, 1e-7));
      CHECK(at::allclose(other.exp_avg, aligned.exp_avg, 1e-6, 1e-7));
      CHECK(at::allclose(other.exp_avg_sq, aligned.exp_avg_sq, 1e-6, 1e-7));
      CHECK(at::allclose(other.parameter.to(at::kFloat), other.master.to(low).to(at::kFloat), 0, 0));
    }
  }
}

TEST_CASE("NCCL collectives, by copy engines and by kernels") {
  const auto device = rank_gpu();
  if (!device) return;
  for (const NcclEngine engine : {NcclEngine::kCopyEngines, NcclEngine::kKernels}) {
    NcclCommunicator communicator(mpi(), engine);
    check_collectives(communicator, *device);
  }
}

TEST_CASE("every ZeRO stage trains on GPUs as a serial fp64 run does") {
  const auto device = rank_gpu();
  if (!device) return;
  NcclCommunicator parameters(mpi());
  NcclCommunicator gradients(mpi());
  check_engine(*device, parameters, gradients, mpi());
}

TEST_CASE("updates on the host beside a GPU and ahead of the norm change no bit") {
  const auto device = rank_gpu();
  if (!device) return;
  NcclCommunicator parameters(mpi());
  NcclCommunicator gradients(mpi());
  check_host_overlap(*device, parameters, gradients, mpi());
}

}  // namespace mpzero::parallel
