#include "base/environment.hpp"
#include "parallel/network/network.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/mpi_for_tests.hpp"
#include "tests/setting.hpp"

using namespace mpzero;
using namespace mpzero::parallel;

TEST_CASE("ranks of two hosts use the same number of channels, or both report why not") {
  const Setting host("NCCL_HOSTID", "host" + std::to_string(mpi().rank()));
  const NetworkPlan plan = choose_network(NetworkChoice::kSocket, mpi());
  CHECK(plan.several_nodes);
  CHECK(plan.min_channels == 8);
  CHECK(process_environment("NCCL_NET") == "Socket");
  CHECK(process_environment("NCCL_SOCKET_NTHREADS") == "1");
  CHECK(process_environment("NCCL_NSOCKS_PERTHREAD") == "2");
  for (const int one : {0, 1}) {
    // With one host's number NCCL would open others than on the other, and neither would start.
    const Setting least("NCCL_MIN_CTAS", mpi().rank() == one ? "1" : "");
    CHECK_THROWS_WITH(choose_network(NetworkChoice::kSocket, mpi()),
                      Catch::Contains("NCCL_MIN_CTAS") && Catch::Contains("NCCL channels"));
  }
  const Setting same("NCCL_MIN_CTAS", "4");
  CHECK(choose_network(NetworkChoice::kSocket, mpi()).min_channels == 0);
}
