#include <algorithm>

#include "app/config/run_setup.hpp"
#include "app/dry_run/memory_report.hpp"
#include "app/memory/memory_limit.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

constexpr int64_t kGiB = int64_t{1} << 30;

// A preset on `world_size` ranks, with states on the GPU unless `file` says otherwise.
RunSetup set_up(const std::string& file, int world_size) {
  RunSetup setup;
  setup.model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_0_6b.json");
  setup.config = run(file, {}, world_size).config;
  setup.layout.ranks_per_node = world_size;
  return setup;
}

constexpr const char* kOnGpus = R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}})";
constexpr const char* kOffloaded = R"({"train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})";

TEST_CASE("AdamW's states count as GPU memory, or as host memory if offloaded") {
  // 596,049,920 parameters with a master copy and two moments in fp32: 12 bytes each, divided by the ranks.
  const DryRunRanks ranks{.world_size = 4, .per_host = 2};
  const MemoryNeed limit{.device = 80 * kGiB, .host = 500 * kGiB};
  const auto on_gpus = memory_report(set_up(kOnGpus, 4), ranks, true, limit);
  CHECK_THAT(on_gpus.at(1), Contains("optimizer states 1.67 GiB"));
  CHECK_THAT(on_gpus.back(), Contains("0.00 GiB for 2 ranks"));
  const auto offloaded = memory_report(set_up(kOffloaded, 4), ranks, true, limit);
  CHECK_THAT(offloaded.at(1), !Contains("optimizer states"));
  CHECK_THAT(offloaded.back(), !Contains("without offloading"));
}

TEST_CASE("a dry run releases gradients as predicted for the run") {
  const DryRunRanks ranks{.world_size = 4, .per_host = 2};
  const auto report = [&](std::optional<bool> release) {
    return memory_report(set_up(kOffloaded, 4), ranks, true, {.device = 80 * kGiB, .host = 500 * kGiB}, release).at(1);
  };
  CHECK_THAT(report(true), Contains("copied to the host"));
  CHECK_THAT(report(false), !Contains("copied to the host"));
  CHECK(report(std::nullopt) == report(false));
}

TEST_CASE("a dry run counts only the spare states that fit in host memory") {
  const DryRunRanks ranks{.world_size = 1, .per_host = 1};
  const auto host = [&](int64_t bytes) {
    return memory_report(set_up(kOffloaded, 1), ranks, true, {.device = 80 * kGiB, .host = bytes}).back();
  };
  CHECK_THAT(host(8 * kGiB), Contains("host: 7."));
  CHECK_THAT(host(500 * kGiB), !Contains("host: 7."));
}

TEST_CASE("a dry run has the run's limits if this machine can be one of its hosts") {
  const DryRunRanks ranks{.world_size = 4, .per_host = 2};
  const MachineMemory machine{.gpus = 2, .smallest_gpu = 80 * kGiB, .host = 9 * kGiB, .gpu_used = 11 * kGiB};
  const MemoryNeed run = memory_room({.gpu = 80 * kGiB, .gpu_used = 11 * kGiB, .host = 9 * kGiB, .ranks = 2}).limit();
  CHECK(memory_limit(ranks, machine, true).device == run.device);
  CHECK(memory_limit(ranks, machine, true).host == run.host);
  const MachineMemory login{.gpus = 0, .smallest_gpu = std::nullopt, .host = 9 * kGiB};
  CHECK(memory_limit(ranks, login, true).host > run.host);
  // Which hosts a run of several has is not known here.
  CHECK(memory_limit(ranks, login, false).host > run.host);
  CHECK(memory_limit({.world_size = 4, .per_host = 2, .started = true}, login, false).host == run.host);
  CHECK(memory_limit({.world_size = 2, .per_host = 2}, login, false).host == run.host);
}

TEST_CASE("a dry run reports that memory was not checked if the hosts are unknown") {
  const MachineMemory machine{.gpus = 0, .smallest_gpu = std::nullopt, .host = 9 * kGiB};
  const auto is_reported = [&](const DryRunRanks& ranks, bool on_gpus) {
    const RunSetup setup = set_up(kOnGpus, ranks.world_size);
    const auto lines = memory_report(setup, ranks, on_gpus, memory_limit(ranks, machine, on_gpus));
    return std::ranges::count_if(lines, [](const auto& line) { return line.starts_with("Memory not checked"); }) == 1;
  };
  CHECK(is_reported({.world_size = 4, .per_host = 2}, false));
  CHECK(is_reported({.world_size = 4, .per_host = 2}, true));
  CHECK_FALSE(is_reported({.world_size = 4, .per_host = 2, .started = true}, false));
  CHECK_FALSE(is_reported({.world_size = 2, .per_host = 2}, false));
}

TEST_CASE("a dry run for unknown hosts shows the memory with and without recomputation") {
  const RunSetup setup = set_up(kOnGpus, 4);
  const DryRunRanks ranks{.world_size = 4, .per_host = 2};
  const MachineMemory machine{.gpus = 0, .smallest_gpu = std::nullopt, .host = 9 * kGiB};
  for (const bool on_gpus : {false, true}) {
    const auto lines = memory_report(setup, ranks, on_gpus, memory_limit(ranks, machine, on_gpus));
    CHECK_THAT(lines.at(1), Contains(" GiB to "));
    CHECK_THAT(lines.at(2), Contains("recompute none x 28"));
  }
}

TEST_CASE("a CPU dry run lists the memory of the program") {
  const RunSetup setup = set_up(kOnGpus, 2);
  const auto lines =
      memory_report(setup, {.world_size = 2, .per_host = 2}, false, {.device = 80 * kGiB, .host = 90 * kGiB});
  CHECK_THAT(lines.at(1), Contains("program and caches"));
}

TEST_CASE("a run that does not fit is refused if this machine can be one of its hosts") {
  const RunSetup setup = set_up(kOnGpus, 1);
  const DryRunRanks ranks{.world_size = 1, .per_host = 1};
  MachineMemory machine{.gpus = 1, .smallest_gpu = 8 * kGiB, .host = 500 * kGiB};
  REQUIRE(memory_problem(setup, ranks, machine));
  CHECK_THAT(*memory_problem(setup, ranks, machine), Contains("8.00 GiB") && Contains("offload_optimizer to cpu"));
  machine.gpus = 0;
  CHECK_FALSE(memory_problem(setup, ranks, machine));
  machine = {.gpus = 1, .smallest_gpu = 80 * kGiB, .host = kGiB};
  CHECK_FALSE(memory_problem(setup, ranks, machine));
  const auto host = memory_problem(set_up(kOffloaded, 1), ranks, machine);
  REQUIRE(host);
  CHECK_THAT(*host,
             Contains("a host needs") && Contains("1.00 GiB is available") && Contains("ratio") && !Contains("{"));
  const std::string without_file = memory_problem(set_up("", 1), ranks, machine).value();
  const size_t begin = without_file.find('{');
  CHECK_THAT(without_file, Contains("--deepspeed_config"));
  const std::string file = without_file.substr(begin, without_file.rfind('}') + 1 - begin);
  CHECK(set_up(file, 1).config.zero.offload_optimizer_ratio < 1);
}

}  // namespace
}  // namespace mpzero
