#include <unistd.h>

#include <array>
#include <map>

#include "base/host_name.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

parallel::Environment variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

TEST_CASE("the kernel's host name is that of gethostname") {
  std::array<char, 256> name{};
  REQUIRE(gethostname(name.data(), name.size() - 1) == 0);
  CHECK(host_name() == name.data());
}

TEST_CASE("a job reaches a node by Slurm's name, and a pod by its DNS name") {
  CHECK(name_in_job(variables({})) == std::nullopt);
  CHECK(name_in_job(variables({{"MPZERO_HOST", ""}, {"SLURMD_NODENAME", ""}})) == std::nullopt);
  CHECK(name_in_job(variables({{"MPZERO_HOST", "a-node-0-0.a"}})) == "a-node-0-0.a");
  CHECK(name_in_job(variables({{"MPZERO_HOST", "a-node-0-0.a"}, {"SLURMD_NODENAME", "node7"}})) == "node7");
}

}  // namespace
}  // namespace mpzero
