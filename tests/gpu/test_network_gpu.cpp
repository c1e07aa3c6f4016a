#include <c10/cuda/CUDAFunctions.h>

#include <cstdlib>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "parallel/network/network_start.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

// NCCL's log about its network, on one GPU or, under mpirun, on one GPU per rank.
namespace mpzero::parallel {
namespace {

bool use_rank_gpu() {
  if (!has_gpu(mpi().local_size())) return false;
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(mpi().local_rank()));
  return true;
}

size_t ranks() { return static_cast<size_t>(mpi().world_size()); }

NetworkPlan asking_for(NetworkPlan::Proof proof) { return {.several_nodes = true, .proof = proof, .settings = {}}; }

}  // namespace

TEST_CASE("the network that NCCL uses is checked strictly") {
  if (!use_rank_gpu()) return;
  setenv("NCCL_NET", "Socket", 1);
  const std::vector<NetworkProof> proofs = prove_network(asking_for(NetworkPlan::Proof::kSocket), mpi()).proofs;
  REQUIRE(proofs.size() == ranks());
  for (const NetworkProof& proof : proofs) {
    CHECK(proof.net == "Socket");
    CHECK(proof.provider.empty());
  }
  CHECK_FALSE(process_environment("NCCL_DEBUG_FILE"));
  CHECK_THAT(describe_network(proofs), Catch::Contains("Network: Socket"));
  CHECK(network_warnings(asking_for(NetworkPlan::Proof::kAnything), proofs).size() == 1);
  CHECK_THROWS_WITH(prove_network(asking_for(NetworkPlan::Proof::kEfa), mpi()),
                    Catch::Contains("NCCL uses \"Socket\" instead of EFA"));
  unsetenv("NCCL_NET");
}

TEST_CASE("a missing network is reported in one sentence") {
  if (!use_rank_gpu()) return;
  setenv("NCCL_NET", "Libfabric-of-no-plugin", 1);
  CHECK_THROWS_WITH(prove_network(asking_for(NetworkPlan::Proof::kEfa), mpi()),
                    Catch::Contains("NCCL failed to initialize EFA on ") && Catch::Contains("fi_info -p efa"));
  unsetenv("NCCL_NET");
  // The process can continue with another network.
  CHECK(prove_network(asking_for(NetworkPlan::Proof::kAnything), mpi()).proofs.size() == ranks());
}

}  // namespace mpzero::parallel
