#include "app/dry_run/dry_run.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

DryRunRanks ranks_of(std::vector<std::string> flags, const parallel::LaunchSize& launch) {
  flags.insert(flags.end(), {"--dry_run", "--train_data=t.h5"});
  return dry_run_ranks(parse_command_line(flags), launch);
}

TEST_CASE("a dry run's ranks are those of its flags, else those that were started") {
  const parallel::LaunchSize alone{.world_size = 1, .per_host = std::nullopt};
  const parallel::LaunchSize job{.world_size = 8, .per_host = 4};
  CHECK(ranks_of({}, alone).world_size == 1);
  CHECK(ranks_of({}, job).world_size == 8);
  CHECK(ranks_of({}, job).per_host == 4);
  CHECK(ranks_of({"--world_size=16"}, job).per_host == 16);
  CHECK(ranks_of({"--world_size=16", "--nproc_per_node=8"}, job).world_size == 16);
  CHECK(ranks_of({"--world_size=16", "--nproc_per_node=8"}, job).per_host == 8);
  CHECK_THAT(error_from([&] { ranks_of({"--nproc_per_node=3"}, job); }), Contains("--nproc_per_node 3"));
  CHECK_THAT(error_from([&] { ranks_of({"--world_size=9", "--nproc_per_node=4"}, job); }), Contains("multiple"));
}

}  // namespace
}  // namespace mpzero
