#include "parallel/local_communicator.hpp"
#include "parallel/mpi_communicator.hpp"
#include "tests/parallel/collective_checks.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {

TEST_CASE("every ZeRO stage trains as a serial fp64 run does") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  check_engine(at::kCPU, parameters, gradients, mpi());
}

TEST_CASE("a world of one rank needs no MPI") {
  if (mpi().world_size() > 1) return;
  LocalCommunicator parameters;
  LocalCommunicator gradients;
  check_collectives(gradients, at::kCPU);
  check_engine(at::kCPU, parameters, gradients, mpi());
}

TEST_CASE("clipping off leaves gradients alone") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  ToyRun run{.samples = 2 * mpi().world_size()};
  run.clip = 1e9;  // what the oracle understands as off
  check_toy_run(run, at::kCPU, parameters, gradients, mpi());
}

}  // namespace mpzero::parallel
