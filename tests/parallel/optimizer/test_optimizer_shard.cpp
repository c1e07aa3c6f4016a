#include "parallel/comm/mpi_communicator.hpp"
#include "tests/parallel/decay_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {

TEST_CASE("parameters without weight decay are a separate parameter group, as in torch") {
  MpiCommunicator parameters(mpi());
  MpiCommunicator gradients(mpi());
  check_no_decay(at::kCPU, parameters, gradients, mpi());
}

}  // namespace mpzero::parallel
