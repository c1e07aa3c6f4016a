#include <c10/cuda/CUDAFunctions.h>

#include <cstdlib>
#include <filesystem>

#include "parallel/network/network_proof.hpp"
#include "parallel/network/network_start.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

// A separate program, because NCCL reads NCCL_NET_PLUGIN once. On one GPU or, under mpirun, on one GPU per rank of one
// host.
namespace mpzero::parallel {

TEST_CASE("training uses the verified network") {
  if (!has_gpu(mpi().local_size())) return;
  if (mpi().local_size() < mpi().world_size()) {
    skip_test("ranks of one host, since the stand-in moves nothing between hosts");
    return;
  }
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(mpi().local_rank()));
  const auto plugin = std::filesystem::canonical("/proc/self/exe").replace_filename("libfake_network.so");
  setenv("NCCL_NET_PLUGIN", plugin.c_str(), 1);
  ProvenNetwork network =
      prove_network({.several_nodes = true, .proof = NetworkPlan::Proof::kAnything, .settings = {}}, mpi());
  for (const NetworkProof& proof : network.proofs) CHECK(proof.net == "Fake");
  REQUIRE(network.communicator);

  const NcclLog log;
  const NcclCommunicator other(mpi());
  CHECK(parse_network_proof(log.text()).net == "Fake");
}

}  // namespace mpzero::parallel
