#include "parallel/mpi_communicator.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {

TEST_CASE("every ZeRO stage trains as a serial fp64 run does") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  check_engine(at::kCPU, parameters, gradients, mpi());
}

TEST_CASE("updates on the host beside the run and ahead of the norm change no bit") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  check_host_overlap(at::kCPU, parameters, gradients, mpi());
}

TEST_CASE("clipping off leaves gradients alone") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  ToyRun run{.samples = 2 * mpi().world_size()};
  run.clip = 1e9;  // what the oracle understands as off
  check_toy_run(run, at::kCPU, parameters, gradients, mpi());
}

}  // namespace mpzero::parallel
