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

TEST_CASE("a dry run detects round-robin placement of ranks, like the run") {
  const parallel::LaunchSize around{.world_size = 4, .per_host = 2, .around_hosts = true};
  CHECK(placement_of(ranks_of({}, around)).host_of == std::vector<int>{0, 1, 0, 1});
  CHECK_FALSE(placement_of(ranks_of({}, around)).per_host);
  // The flags describe another run than the one that was started.
  CHECK(placement_of(ranks_of({"--world_size=4", "--nproc_per_node=2"}, around)).per_host == 2);
  CHECK(placement_of(ranks_of({}, {.world_size = 4, .per_host = 2})).per_host == 2);
}

TEST_CASE("a dry run uses the ranks of its flags, else those of the launcher") {
  const parallel::LaunchSize alone{.world_size = 1, .per_host = std::nullopt};
  const parallel::LaunchSize job{.world_size = 8, .per_host = 4};
  CHECK(ranks_of({}, alone).world_size == 1);
  CHECK(ranks_of({}, job).world_size == 8);
  CHECK(ranks_of({}, job).per_host == 4);
  CHECK(ranks_of({}, job).started);
  CHECK_FALSE(ranks_of({}, alone).started);
  CHECK_FALSE(ranks_of({"--world_size=16"}, job).started);
  CHECK(ranks_of({"--world_size=16"}, job).per_host == 16);
  CHECK(ranks_of({"--world_size=16", "--nproc_per_node=8"}, job).world_size == 16);
  CHECK(ranks_of({"--world_size=16", "--nproc_per_node=8"}, job).per_host == 8);
  CHECK_THAT(error_from([&] { ranks_of({"--nproc_per_node=3"}, job); }), Contains("--nproc_per_node 3"));
  CHECK_THAT(error_from([&] { ranks_of({"--world_size=9", "--nproc_per_node=4"}, job); }), Contains("multiple"));
}

TEST_CASE("a dry run on a machine without GPUs assumes GPUs on the run's hosts") {
  const DryRunRanks hosts{.world_size = 16, .per_host = 4}, one{.world_size = 4, .per_host = 4};
  const MachineMemory login{.gpus = 0, .smallest_gpu = std::nullopt, .host = int64_t{4} << 30};
  const MachineMemory gpus{.gpus = 4, .smallest_gpu = int64_t{80} << 30, .host = int64_t{4} << 30};
  CHECK(chooses_for_gpus("auto", hosts, login));
  CHECK_FALSE(chooses_for_gpus("auto", one, login));
  // The run itself, on hosts of which this is one.
  CHECK_FALSE(chooses_for_gpus("auto", {.world_size = 16, .per_host = 4, .started = true}, login));
  CHECK(chooses_for_gpus("auto", one, gpus));
  for (const MachineMemory& machine : {login, gpus}) {
    CHECK(chooses_for_gpus("cuda", one, machine));
    CHECK_FALSE(chooses_for_gpus("cpu", hosts, machine));
  }
}

}  // namespace
}  // namespace mpzero
