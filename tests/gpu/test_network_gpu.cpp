#include <cstdlib>

#include "base/error.hpp"
#include "parallel/environment.hpp"
#include "parallel/network_start.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {
namespace {

NetworkPlan asking_for(NetworkPlan::Proof proof) { return {.several_nodes = true, .proof = proof, .settings = {}}; }

}  // namespace

TEST_CASE("NCCL is asked what it runs over, strictly") {
  if (!have_gpu()) return;
  setenv("NCCL_NET", "Socket", 1);
  const std::vector<NetworkProof> proofs = prove_network(asking_for(NetworkPlan::Proof::kSocket), mpi());
  REQUIRE(proofs.size() == 1);
  CHECK(proofs.front().net == "Socket");
  CHECK(proofs.front().provider.empty());
  CHECK_FALSE(process_environment("NCCL_DEBUG_FILE"));
  CHECK_THAT(describe_network(proofs), Catch::Contains("Network: Socket"));
  CHECK(network_warnings(asking_for(NetworkPlan::Proof::kAnything), proofs).size() == 1);
  CHECK_THROWS_WITH(prove_network(asking_for(NetworkPlan::Proof::kEfa), mpi()),
                    Catch::Contains("NCCL runs over \"Socket\" instead of EFA"));
  unsetenv("NCCL_NET");
}

TEST_CASE("a network that is not there is one sentence") {
  if (!have_gpu()) return;
  setenv("NCCL_NET", "Libfabric-of-no-plugin", 1);
  CHECK_THROWS_WITH(prove_network(asking_for(NetworkPlan::Proof::kEfa), mpi()),
                    Catch::Contains("NCCL could not start EFA on ") && Catch::Contains("fi_info -p efa"));
  unsetenv("NCCL_NET");
  // The process can go on with another.
  CHECK(prove_network(asking_for(NetworkPlan::Proof::kAnything), mpi()).size() == 1);
}

}  // namespace mpzero::parallel
