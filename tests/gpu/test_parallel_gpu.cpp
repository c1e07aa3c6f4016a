#include <c10/cuda/CUDAFunctions.h>

#include <cstdio>

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

TEST_CASE("NCCL collectives") {
  const auto device = rank_gpu();
  if (!device) return;
  NcclCommunicator communicator(mpi());
  check_collectives(communicator, *device);
}

TEST_CASE("every ZeRO stage trains on GPUs as a serial fp64 run does") {
  const auto device = rank_gpu();
  if (!device) return;
  NcclCommunicator parameters(mpi());
  NcclCommunicator gradients(mpi());
  check_engine(*device, parameters, gradients, mpi());
}

}  // namespace mpzero::parallel
