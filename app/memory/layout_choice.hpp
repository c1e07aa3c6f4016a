#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/config/run_setup.hpp"
#include "app/config/zero_options.hpp"
#include "app/memory/memory_plan.hpp"
#include "parallel/zero/levels.hpp"

namespace mpzero {

// Bytes that a node sends to other nodes in one step, assuming rings. Source for how often each gradient and parameter
// crosses: Rajbhandari et al. 2020 for one level; Zhang et al. 2022 (MiCS) and Wang et al. 2023 (ZeRO++) for two.
// `parameters`: of the model; `trained`: those that are not frozen. `hosts`: the hosts that one level spans; with two
// levels, the nodes count.
int64_t internode_bytes(const parallel::ZeroOptions& options, const parallel::ParallelLayout& layout, int hosts,
                        int64_t parameters, int64_t trained);

// A run's nodes, and the log line about them; empty with one host.
struct LayoutChoice {
  parallel::ParallelLayout layout;
  std::string line;
  // If compression between nodes is requested with one node, or a configured number of ranks makes nodes span hosts.
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::string warning{};
};

struct PredictedStep {
  double seconds = 0;
  double error = 0;  // relative, half of an interval; 0: unknown
};

// Predicts a step of the run with this layout; std::nullopt: not predictable.
using PredictStep = std::function<std::optional<PredictedStep>(const parallel::ParallelLayout&)>;

// A run to plan, before its start or while it trains.
struct PlannedRun {
  const RunSetup& setup;
  std::string gpu = {};  // its name
  int64_t gpu_bytes = 0;
  // Only for a run on CPUs: the processor's name, threads per rank, memory per host.
  std::string processor = {};
  int threads = 0;
  int64_t host_bytes = 0;
  int hosts = 1;
  int per_host = 1;
  // The verified network between hosts: "efa" or "socket". Empty: not verified yet, --network applies.
  std::string network = {};
};
// Returns the nodes set in ds_config.json. With "auto", chooses between one node per host and one level:
// - one level if hosts have different numbers of ranks, or ranks that are not consecutive
// - the layout that fits; one level if neither fits. It fits if a rank's memory of each kind is at most `limit`.
// - if both fit, the shorter predicted step
// - without predictions, or if they differ by no more than their error, fewer bytes between hosts; if equal, one level
// Without the key, the same, but one level if NVLink connects the hosts. Only a number in the file makes nodes of
// several hosts. Throws UserError if the ranks do not fill the nodes.
LayoutChoice choose_layout(const RunSetup& setup, at::Device device, const RankPlacement& ranks,
                           const MemoryNeed& limit, const PredictStep& predict = {});

}  // namespace mpzero
